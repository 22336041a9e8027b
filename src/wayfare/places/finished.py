"""A finished run of places in use: descriptors of photos, an index of them, and where a photo was taken."""

from __future__ import annotations

from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import nn

from wayfare.finished import FinishedRun, Photos, whole
from wayfare.io.folders import photo_files
from wayfare.places.index import FACTS, Index
from wayfare.places.indexing import index_run
from wayfare.places.locate import Answer, locate
from wayfare.places.trained_model import TrainedPlaceModel, describe, load_model


class PlacesRun(FinishedRun):
    """Places of photos."""

    offers: ClassVar[tuple[str, ...]] = ("embed", "index", "locate")

    @cached_property
    def model(self) -> TrainedPlaceModel:
        return load_model(self.folder, self.device)

    @property
    def network(self) -> nn.Module:
        """Pictures (n, 3, height, width) with values from 0 to 1 -> descriptors (n, d)."""
        return self.model.net

    def inputs(self) -> dict[str, Any]:
        height, width = self.model.size
        return {"shape": ["n", 3, height, width], "colours": "RGB", "range": [0, 1]}

    def embed(self, photos: Photos) -> np.ndarray:
        parts = list(describe(self.model, photo_files(photos)))
        skipped = [item for part in parts for item in part.skipped]
        return whole(np.concatenate([part.descriptors for part in parts]), skipped)

    def index(self, photos: str | PathLike[str], out: str | PathLike[str] | None = None) -> Index:
        folder = self.index_folder(out)
        index_run(self.folder, Path(photos), folder)
        self._opened = Index(folder)
        return self._opened

    @cached_property
    def _opened(self) -> Index:
        folder = self.index_folder()
        if not (folder / FACTS).exists():
            self.lacks_index(folder)
        return Index(folder)

    def locate(self, photos: Photos, k: int = 5) -> Answer | list[Answer]:
        """Where a photo was taken; for a folder or several photos a list, from which unreadable ones are left out."""
        found = locate(self._opened, photo_files(photos), k)
        return self.one_or_all(photos, found.answers, found.skipped)
