"""Writers of the real data sets' layouts: one module for each, with the functions of `model.LayoutWriter`."""
