"""Photographs of a tree of Mapillary Street-level Sequences; `msls.py` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Progress
from wayfare.places.data import msls
from wayfare.places.data.base import PlaceData, folder_in_layout
from wayfare.places.data.place_photos import PlacePhotos


@dataclass(frozen=True)
class MslsPhotos(PlaceData):
    """An MSLS tree at `path`."""

    test_cities: tuple[str, ...] = ()  # instead of the official ones; all others are then for training
    subtask: Literal["", "all", "s2w", "w2s", "o2n", "n2o", "d2n", "n2d"] = ""  # the queries to test with; "": every

    @property
    def test_name(self) -> str:
        return self.subtask or "all"

    def read(self, progress: Progress) -> PlacePhotos:
        if not self.path:
            raise ConfigError("data.path must be given: the folder of an MSLS tree")
        return self.read_tree(folder_in_layout(Path(self.path), "msls"))

    def read_tree(self, root: Path) -> PlacePhotos:
        """The tree in this folder."""
        validation = () if self.test_cities else None
        return msls.load(root, val_cities=validation, test_cities=self.test_cities, subtask=self.subtask or None)
