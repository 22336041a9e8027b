"""A synthetic town: photographs of cities that do not exist, with complete ground truth.

No data set can be downloaded in a test, and of no real one everything is known. The town stands in for all of them:
from a size and a seed it makes cities, people who walk through them over a day, the photographs that they take, and
the ground truth: positions, objects and their relations, tags, labels, attributes. It writes these in the layouts of
the real data sets, so the loaders read both alike. The same seed gives the same bytes on any number of processes.

The path of one photograph through the files:

    map.py            seed -> City: streets.py (the plan), houses.py and squares.py (what stands on the blocks),
                      site.py (what is placed so far), plane.py (geometry)
    walkers.py        City -> who goes where and when: ways.py (the network, tracks through it)
    photographing.py  a walker's day -> Shot: where, when, which way, in what weather, with which camera
    life.py           who else is in the street at that moment: stage.py (where scenes are played), acts.py (which)
    render.py         City, Shot -> View: the pixels, and which part of the world each pixel shows; see camera/
    truth.py          View, Shot -> Truth: items.py, relations.py, labels.py, tags.py; words.py has the vocabulary
    write/            Photo -> files: msls, psg, mirflickr, fashion, celeba, cifar, photos, traces
    make.py           all of it, over all cores, to a folder; continues where it was interrupted

What these parts hand to each other is in model.py. The town imports only `core` and `io`.
"""
