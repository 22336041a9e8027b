"""Attributes: has the face this attribute? The second experiment of the federated PSG benchmark (Sec. 5, Tab. 3).

A network f gives a face x two numbers, and training minimises their cross-entropy

    L = -log softmax(f(x))_y        y: whether the face has the attribute           task.py, `loss`

Samples have 40 yes-or-no attributes and no one class: K-means clusters them as vectors of -1 and 1 (`categories.py`),
and the partition `semantic` deals clusters out to clients.

The path of one sample:

    data/          a reader of one layout (celeba, synthetic) gives a table of attributes (`table.py`)
    loaded.py      its rows to train on and to evaluate on, and the batches made of them
    models.py      what the network sees, pictures or the other attributes, and the network
    task.py        loss, accuracies, protocol

The paper's network is in a supplement that we do not have. Without pictures the model `table` sees the *other*
attributes, which is another experiment: 39 attributes of CelebA tell Smiling to about 85 %, pictures to more.
"""
