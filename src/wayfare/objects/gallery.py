"""What the page shows of pictures that have a class each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wayfare.io.findings import Problems
from wayfare.objects.data import cifar, folder
from wayfare.pages.counting import named
from wayfare.pages.gallery_parts import Gathered
from wayfare.pages.labelled_parts import MIXED, class_rows
from wayfare.pages.thumbnails import PictureSource, Thumbnails


def gather_cifar(path: Path, thumbnails: Thumbnails) -> Gathered:
    """Small pictures in batches."""
    train, test = cifar.load(path)

    def show(row: int) -> PictureSource:
        return PictureSource(train.images[row], train.classes[train.labels[row]])

    shape = train.images.shape
    return Gathered(
        counts={
            "training pictures": len(train),
            "test pictures": len(test),
            "classes": len(train.classes),
            "size": f"{shape[2]} x {shape[1]}",
        },
        problems=Problems(),
        classes=class_rows(thumbnails, train.classes, lambda place: np.flatnonzero(train.labels == place), show, MIXED),
        bars=[named("Training pictures by class", "pictures", train.classes, np.bincount(train.labels))],
    )


def gather_folder(path: Path, thumbnails: Thumbnails) -> Gathered:
    """A folder of pictures for each class."""
    classes = folder.files_by_class(path)
    files = [file for members in classes.values() for file in members]
    sizes = np.array([len(members) for members in classes.values()])
    starts = np.cumsum(sizes) - sizes

    def show(row: int) -> PictureSource:
        return PictureSource(files[row], f"{files[row].parent.name}/{files[row].name}")

    def members(place: int) -> np.ndarray:
        return np.arange(starts[place], starts[place] + sizes[place])

    return Gathered(
        counts={"pictures": len(files), "classes": len(classes)},
        problems=Problems(),
        classes=class_rows(thumbnails, tuple(classes), members, show, MIXED),
        bars=[named("Pictures by class", "pictures", tuple(classes), sizes)],
    )
