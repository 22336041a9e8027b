"""Which client gets which samples: rules that divide a pool by labels, or by the meaning of its samples.

    split.py             what every rule returns: `Split`, drawn indices, or `VirtualSplit`, which draws on demand
    random  shards  dirichlet  quantity      rules that need one label per sample; one file and one class each
    semantic.py          K-means over category tensors (semantics.py), then one of three rules (federated scene-graph
                         benchmark, Sec. 3); centroids/ reads given clusters, such as the paper's
    column.py            a client for each person: by a column of a table, or a folder for each
    file  joined  virtual                    a stored split, the devices of a real federation, a million virtual clients
    heterogeneity.py     how different clients are; semantic_stats.py: the same by meaning; summary.py: all for a report

A recipe names the file: `[partition] name = "shards"`. A new rule is a new file with a frozen dataclass of that name
whose `__call__(dealt, rng)` gives a `Split`. Places have rules of their own, by position (wayfare.places.partition).
"""
