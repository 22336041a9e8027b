"""A trained place model at work: an index of photographs whose positions are known, and photos to be found in it."""
