"""Photographs of the synthetic town, which is an MSLS tree: made on first use, nothing to download."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wayfare.core.protocols import Progress
from wayfare.io.cache import cache_dir
from wayfare.places.data.base import folder_in_layout
from wayfare.places.data.msls_photos import MslsPhotos
from wayfare.places.data.place_photos import PlacePhotos


@dataclass(frozen=True)
class TownPhotos(MslsPhotos):
    """The town of this size and seed; or, with a `path`, one that `wayfare town` made there."""

    size: Literal["tiny", "small", "city"] = "small"  # of the synthetic town
    seed: int = 0  # another seed is another town

    def read(self, progress: Progress) -> PlacePhotos:
        made = folder_in_layout(Path(self.path), "msls") if self.path else self._made(progress)
        return self.read_tree(made)

    def _made(self, progress: Progress) -> Path:
        from wayfare.town.make import Spec, make  # slow to import, and not needed where there is a path

        spec = Spec(self.size, self.seed, layouts=("msls",))
        folder = cache_dir() / "towns" / f"{spec.size}-{spec.seed}-form{spec.form}"
        make(folder, spec, progress=lambda text, done, total: progress(f"making the town: {text}", done, total))
        return folder / "msls"
