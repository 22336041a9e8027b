"""Visual place recognition, the parts: nearest descriptors, recall, mining on a client, losses."""
