"""Small pictures for the page, from files or arrays; what cannot be opened is left out and listed."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from wayfare.core.errors import DataError
from wayfare.io.images import decode
from wayfare.pages.dataset_parts import Picture

SIDE = 168  # pixels, of a picture in a contact sheet
SMALL = 72  # of one in a row of many
_QUALITY = {SIDE: 80, SMALL: 70}


class PictureSource(NamedTuple):
    """A picture requested for the page."""

    source: Path | np.ndarray  # a file, or uint8 (H, W, 3)
    words: str
    caption: str = ""


class Thumbnails:
    """Opens pictures and remembers which could not be."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.conditions: set[str] = set()  # those of which there are pictures already: night, fog, ...

    def pictures(self, wanted: Iterable[PictureSource], side: int = SIDE) -> list[Picture]:
        """As many as can be opened."""
        return [made for item in wanted if (made := self.picture(item, side)) is not None]

    def pairs(self, wanted: Iterable[tuple[PictureSource, PictureSource]]) -> list[Picture]:
        """Two by two; a pair of which one cannot be opened is left out."""
        made = [self.pictures(pair) for pair in wanted]
        return [picture for pair in made if len(pair) == 2 for picture in pair]

    def picture(self, wanted: PictureSource, side: int = SIDE) -> Picture | None:
        """One, or None."""
        pixels = self.pixels(wanted.source)
        if pixels is None:
            return None
        image = Image.fromarray(pixels)
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        file = io.BytesIO()
        image.save(file, "JPEG", quality=_QUALITY.get(side, 82))
        return Picture(file.getvalue(), image.width, image.height, wanted.words, wanted.caption)

    def pixels(self, source: Path | np.ndarray) -> np.ndarray | None:
        """uint8 (H, W, 3), or None."""
        if isinstance(source, np.ndarray):
            return np.repeat(source, 3, axis=2) if source.shape[2] == 1 else np.ascontiguousarray(source[..., :3])
        try:
            return decode(source)
        except DataError as error:
            self.broken.append(str(error))
            return None


def evenly(rows: Sequence[int] | np.ndarray, most: int) -> list[int]:
    """So many of the rows, spread evenly over them: the same ones every time."""
    if not len(rows):
        return []
    places = np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int)
    return [int(rows[place]) for place in np.unique(places)]
