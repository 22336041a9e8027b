"""Scene graphs: how do the things in a picture relate? *person - riding - motorcycle*.

What is learnt: for every ordered pair of a picture's objects, which predicate holds between them, if any. Four heads
are trained for it, as in the federated scene-graph benchmark (Ha et al., 2025). Read in this order:

    data/scene_data.py     where pictures come from: `psg` (psg.json, read by data/psg.py) or `town`
    data/scene_graphs.py   the annotations of all pictures in arrays; data/super_classes.py groups their classes
    data/client_files.py   who has which pictures, in the benchmark's own form; partition/listed.py reads it
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
    counting.py            what devices count before the first round, plainly or with noise: frequency.py's table
    debiasing.py           seldom predicates: logit adjustment, weights in the loss, total direct effect
    evaluation.py          guesses of a network; recall.py: R@K and mR@K; frequency.py: the baseline

The path of a sample: `PsgScenes.load` -> `SceneMode.pictures` -> `LoadedScenes.train` -> `Scenes.steps` ->
`SceneMode.batch` (pairs, features) -> head -> `Scenes.loss`: cross-entropy of predicates, and of labels in SGDet.

Finding objects (`wayfare detect`): segmenting.py learns and finds segments by features of patches.py and boxes of
detector.py, and segment_files.py writes them.

Using a trained head (`wayfare graph`): scene_model.py loads it and sureness.py says what its scores mean,
graph_input.py finds pictures and their objects (boxes.py, detector.py, labels.py), graph.py makes the graphs, and
graph_files.py writes them with graph_layout.py, graph_picture.py and graph_page.py. gallery.py and overlay.py show a
data set.
"""
