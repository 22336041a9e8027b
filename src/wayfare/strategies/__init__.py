"""Federated algorithms: one file each, named like its class in lower case, with both halves of the algorithm."""
