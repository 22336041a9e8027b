"""The photographs of a data set once they are read: the table, the decoded pictures, and what is trained and tested on.

This is what a task holds beside its settings. Reading happens on first use, or in `prepare`, which reports progress.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from wayfare.core.errors import DataError
from wayfare.core.protocols import Progress
from wayfare.io.decoded import Decoded, decoded
from wayfare.places.client_photos import ClientPhotos
from wayfare.places.data.base import PlaceData
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.data.train_test import TrainTest, divide
from wayfare.places.feature_maps import FeatureMaps

if TYPE_CHECKING:
    from wayfare.places.descriptor import Descriptor
    from wayfare.places.mining import Miner

_GIB = 2.0**30


class PlaceSamples:
    """A data set that is read once."""

    def __init__(self, data: PlaceData) -> None:
        self.data = data
        self._read: tuple[PlacePhotos, Decoded] | None = None
        self._maps: dict[tuple[str, str], FeatureMaps] = {}

    @property
    def table(self) -> PlacePhotos:
        """Every photograph whose picture can be read."""
        return self.read(_silent)[0]

    @property
    def images(self) -> Decoded:
        """The pictures, row by row of the table."""
        return self.read(_silent)[1]

    def read(self, progress: Progress) -> tuple[PlacePhotos, Decoded]:
        """Table and pictures; reads them where that has not been done yet."""
        if self._read is None:
            photos, data = self.data.load(progress), self.data
            self._divide(photos)  # refuses what cannot be trained or tested on, before pictures are decoded
            size, room = (data.height, data.width), data.cache * _GIB
            images = decoded(photos.root, photos.paths(), size, room, _named(progress, "reading photographs"))
            if not len(images):
                first = images.skipped[0]
                raise DataError(f"none of {len(photos)} photographs can be read: {first.reason}", first.file)
            self._read = photos.take(images.kept) if len(images) < len(photos) else photos, images
        return self._read

    @cached_property
    def divided(self) -> TrainTest:
        """Which photographs are trained and tested on."""
        return self._divide(self.table)

    def _divide(self, photos: PlacePhotos) -> TrainTest:
        data = self.data
        return divide(photos, data.queries, data.test, name=data.test_name, own=data.own, piece=data.piece)

    @cached_property
    def pool(self) -> PlacePhotos:
        """The photographs that partitions deal out."""
        return self.divided.photos.take(self.divided.pool)

    @property
    def skipped(self) -> list[dict[str, str]]:
        """Files that were left out, and why."""
        broken = [{"file": str(item.file), "reason": item.reason} for item in self.images.skipped]
        problems = self.table.problems.left_out
        return broken + [{"file": str(e.file or self.table.root), "reason": str(e)} for e in problems]

    def maps(self, net: Descriptor, progress: Progress | None = None) -> FeatureMaps:
        """The feature maps of the pictures from the frozen part of a network."""
        key = net.trunk_key, net.mean.device.type  # other kinds of devices round differently
        if key not in self._maps:
            counted = None if progress is None else _named(progress, "frozen layers")
            self._maps[key] = FeatureMaps(net, self.images, self.data.cache * _GIB, counted)
        return self._maps[key]

    def of_client(self, rows: np.ndarray, miner: Miner) -> ClientPhotos:
        """What a client that has these rows of the table mines in."""
        photos = self.divided.photos.take(rows)
        query = photos.query if photos.query is not None else np.zeros(len(photos), bool)
        return ClientPhotos(
            np.stack((photos.easting, photos.northing), 1), photos.group, query,
            radius=miner.radius, negative_radius=miner.negative_radius, sequence=photos.sequence, pairs=photos.pairs,
        )  # fmt: skip


def _silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def _named(progress: Progress, what: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(what, done, total)
