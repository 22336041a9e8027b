"""Scene graphs: how do the things in a picture relate? *person - riding - motorcycle*.

What is learnt: for every ordered pair of a picture's objects, which predicate holds between them, if any. Four heads
are trained for it, as in the federated scene-graph benchmark (Ha et al., 2025). Read in this order:

    data/scene_data.py     where pictures come from: `psg` (psg.json, read by data/psg.py) or `town`
    data/scene_graphs.py   the annotations of all pictures in arrays; data/super_classes.py groups their classes
    categories.py          counts of relations, by which the partition `semantic` clusters pictures (Sec. 3.1)
    modes.py               PredCls and SGDet: whose objects a network is given; detections.py reads a detector's
    pairs.py               which pairs are trained on
    features.py            what a head sees of objects and pairs: geometry.py, roi.py with cached_regions.py, or files
    batch.py               the objects and pairs of several pictures as tensors
    models.py              the heads as settings of a recipe; each network is in heads/ with its equations:
      heads/imp.py         IMP: messages between objects and pairs
      heads/motifs.py      MOTIFS: objects as a sentence for two LSTMs
      heads/vctree.py      VCTree: objects in a tree (trees.py) for two tree-LSTMs (treelstm.py); reward.py
      heads/gpsnet.py      GPS-Net: direction-aware messages, NPS loss, adaptive reasoning
    task.py, loaded.py     the task, and what it reads and computes once
    evaluation.py          guesses of a network; recall.py: R@K and mR@K; frequency.py: the baseline

The path of a sample: `PsgScenes.load` -> `SceneMode.pictures` -> `LoadedScenes.train` -> `Scenes.steps` ->
`SceneMode.batch` (pairs, features) -> head -> `Scenes.loss`: cross-entropy of predicates, and of labels in SGDet.

Using a trained head (`wayfare graph`): scene_model.py loads it, graph_input.py finds pictures and their objects
(boxes.py, detector.py, labels.py), graph.py makes the graphs, and graph_files.py writes them with graph_layout.py,
graph_picture.py and graph_page.py. gallery.py and overlay.py show a data set.
"""
