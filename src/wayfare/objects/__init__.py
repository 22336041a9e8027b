"""Objects: what is in the photo? Image classification from labelled pictures.

A network f gives a photo x one number for each class, and training minimises the cross-entropy

    L = -log softmax(f(x))_y        y: the photo's class                            task.py, `loss`

FedTour (Sect. IV) trains VGG16 on CIFAR-10 in this way; its "rotation, magnification, etc" is `augment.py`, and the
counts of right answers per class by which its devices decide about each other's models are `tally.py`.

The path of one sample:

    data/       a reader of one layout (digits, cifar10, folder, town) gives pictures as uint8 and a class each
    loaded.py   keeps them, and makes batches of those that a client holds
    inputs.py   what the network sees: scaled pixels, or features that a frozen network computed once
    augment.py  changes the pixels of a training batch
    models.py   the classifiers; their layers are in `wayfare.nets`
    task.py     loss, evaluation, counts per class

`[data]` chooses the reader, `[model]` the classifier, `[task] augment` the augmentation. A data set of your own is a
class that extends `ObjectData` (docs/bring-your-own.md).
"""
