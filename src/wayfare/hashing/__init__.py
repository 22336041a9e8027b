"""Hashing: pictures are found by words and texts by pictures, through short binary codes.

Two encoders are trained, for pictures and for texts. Their outputs have equal signs if a picture and a text share a
label. The signs are the code, so a search compares a few bytes per photo. The papers, and where their equations are:

    DCMH (Jiang and Li, 2017)      J, similar outputs for similar pairs                     dcmh.py
    SHDCH (Sun et al., 2019)       J, and the codes of classes of two levels                shdch.py
    Contrastive alignment          a text is nearest to its own picture                     contrastive.py
    FedCAFE (ACM MM 2024)          the memory and the losses around it, Eq. 3 to 11         strategies/fedcafe.py
    MAP and its ties               ranking.py

A recipe has three parts, each in a file that can be read alone:

    [data]    one class for each layout, data/*.py: `read` gives rows as the files have them; data/base.py decodes
              pictures, drops, splits and makes the vocabulary, and gives `Paired` (data/pairs.py)
    [model]   model.py: an image side (images.py: frozen features, CNN-F on pixels, or features from a file), a text
              side (text_side.py: a bag of words, or a frozen sentence encoder), and the number of bits; the layers are
              in nets.py, CNN-F's published weights in vggf.py
    [task]    task.py: batches and evaluation; base_method.py says what a base method has to have

The path of a pair: data/<layout>.py reads its row, data/rows.py keeps and assigns it, inputs.py gives it to the task as
tensors, task.py puts it into a batch of one view, nets.py encodes it, the base method compares the output with what
buffers.py knows of all pairs of the client, and after training ranking.py ranks them by their codes.

The path of a search: hash_model.py takes the trained model out of its run, indexing.py encodes photos and texts into
code_index.py, search.py reads a query (spelling.py), encodes it, finds the nearest codes and the items that have its
words (lexicon.py), calibration.py has said what is close, and page.py shows them.
"""
