"""What the page shows of pictures with attributes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wayfare.attributes.data import celeba
from wayfare.attributes.table import PARTS
from wayfare.pages.counting import histogram
from wayfare.pages.dataset_parts import Bars, Strip
from wayfare.pages.gallery_parts import Gathered
from wayfare.pages.labelled_parts import class_rows, condition_strips
from wayfare.pages.thumbnails import PictureSource, Thumbnails, evenly

_SAMPLE = 16


def gather_celeba(path: Path, thumbnails: Thumbnails) -> Gathered:
    """Pictures, where there are any, and which attributes they have."""
    found = celeba.load(path)
    counts: dict[str, int | float | str] = {"pictures": len(found), "attributes": len(found.names)}
    if found.partition is not None:
        counts |= {f"to {name}": len(found.part(name)) for name in PARTS}
    if found.identity is not None:
        counts["identities"] = len(np.unique(found.identity))
    strips: list[Strip] = []
    rows: list[Strip] = []
    if found.folder is not None:
        pictures = found.folder

        def show(row: int) -> PictureSource:
            return PictureSource(pictures / str(found.files[row]), str(found.files[row]))

        sample = thumbnails.pictures(show(row) for row in evenly(range(len(found)), _SAMPLE))
        strips = [Strip(f"{len(sample)} of {len(found):,} pictures", sample)]
        strips += condition_strips(thumbnails, found.names, found.values, show)
        rows = class_rows(thumbnails, found.names, lambda place: np.flatnonzero(found.values[:, place]), show)
    percent = [100 * float(share) for share in found.values.mean(axis=0)] if len(found) else []
    return Gathered(
        counts=counts,
        problems=found.problems,
        strips=[strip for strip in strips if strip.pictures],
        classes=rows,
        bars=[
            histogram("Attributes of a picture", "pictures", found.values.sum(axis=1), "attributes"),
            Bars("How common each attribute is", "% of the pictures", found.names[: len(percent)], percent),
        ],
    )
