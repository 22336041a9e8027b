"""A folder of somebody's own photographs with positions, in any form; `photos.py` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Progress
from wayfare.places.data import photos
from wayfare.places.data.base import PlaceData, folder_in_layout, read_folder
from wayfare.places.data.place_photos import PlacePhotos


@dataclass(frozen=True)
class PhotoFolder(PlaceData):
    """Photographs at `path`: a CSV table, names with positions, EXIF, or paired video frames."""

    tolerance: int = -1  # of paired frames without a file of pairs: how many frames two of one place may be apart

    def read(self, progress: Progress) -> PlacePhotos:
        if not self.path:
            raise ConfigError("data.path must be given: a folder of photographs with positions")
        root = folder_in_layout(Path(self.path), "photos")
        return photos.load(root, tolerance=self._frames())

    def read_own(self) -> PlacePhotos:
        return read_folder(Path(self.path), self._frames())

    def _frames(self) -> int | None:
        return self.tolerance if self.tolerance >= 0 else None
