"""A real federation over Flower's SuperLink and SuperNodes: keys, the server's side, a node's side."""
