"""Where photographs of places come from: what every data set has in common, and reading a folder in any known layout.

A data set is a frozen dataclass that extends `PlaceData` and has one method, `read`, which gives a table of
photographs. What they look like is not read here: `samples.PlaceSamples` decodes the pictures of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from wayfare.components import part
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Data, Progress
from wayfare.io import layouts
from wayfare.places.data import msls, photos
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.data.train_test import Queries, TestSplit

_SPLITS = {
    "layout": "wayfare.places.data.train_test:LayoutSplit",
    "sequences": "wayfare.places.data.train_test:SequenceSplit",
    "strips": "wayfare.places.data.train_test:StripSplit",
}


@dataclass(frozen=True)
class PlaceData(Data):
    """Photographs of places, the size they are seen at, and which of them are queries and tested on."""

    path: str = ""  # the folder they are in
    height: int = 96  # of photos as the network sees them, in pixels
    width: int = 128  # of photos as the network sees them, in pixels
    queries: Queries = "layout"
    test: TestSplit = part("test", "layout", _SPLITS)
    piece: float = 0.0  # metres; if > 0, sequences are cut where they leave a square of this size
    own: bool = False  # the folder is a device's own: nothing is held back to test with
    cache: float = 8.0  # GiB on disk for decoded pictures, and for maps of frozen layers; beyond it they are made again

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 32:
            raise ConfigError(f"data.height and width = {self.height} x {self.width}: expected at least 32 x 32 pixels")
        if self.piece < 0 or self.cache < 0:
            raise ConfigError(f"data.piece = {self.piece} and data.cache = {self.cache}: expected at least 0")

    def read(self, progress: Progress) -> PlacePhotos:
        """The table of photographs; what takes long reports to `progress`."""
        raise NotImplementedError

    @property
    def test_name(self) -> str:
        """What the layout's own set of test queries is called."""
        return "all"

    def load(self, progress: Progress) -> PlacePhotos:
        """The table; a device's own folder may be in another layout than the server's."""
        return self.read_own() if self.own else self.read(progress)

    def read_own(self) -> PlacePhotos:
        """The table of a device's own folder."""
        return read_folder(Path(self.path))

    def on_folder(self, path: str) -> Self | None:
        return replace(self, path=path, own=True)


def read_folder(root: Path, tolerance: int | None = None) -> PlacePhotos:
    """The photographs of a folder, whichever of the two layouts it has; `tolerance` is for paired frames."""
    found = {item.layout: item.path for item in layouts.find(root)}
    if "msls" in found:
        return msls.load(found["msls"])
    if "photos" in found:
        return photos.load(found["photos"], tolerance=tolerance)
    raise _other_layout(root, found)


def folder_in_layout(root: Path, layout: str) -> Path:
    """The folder at or in `root` that has this layout."""
    found = {item.layout: item.path for item in layouts.find(root)}
    if layout in found:
        return found[layout]
    if other := {"msls", "photos"} & set(found):
        raise ConfigError(f"data.path = {root}: it has the layout {other.pop()!r}, so set data.name to that")
    raise _other_layout(root, found)


def _other_layout(root: Path, found: dict[str, Path]) -> ConfigError:
    return ConfigError(f"data.path = {root}: a data set in the layout {sorted(found)[0]!r}; expected msls or photos")
