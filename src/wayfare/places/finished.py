"""A finished run of places in use: descriptors of photos, an index of them, and where a photo was taken."""

from __future__ import annotations

from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from wayfare.core.errors import ConfigError
from wayfare.finished import FinishedRun, Photos, whole
from wayfare.io.folders import photo_files
from wayfare.places.calibration import SCORES
from wayfare.places.index import FACTS, Index
from wayfare.places.indexing import index_run
from wayfare.places.locate import Answer, locate
from wayfare.places.trained_model import TrainedPlaceModel, describe, load_model
from wayfare.portable import PortablePart, as_input, picture_input, picture_preparing, spread_rows


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

    def portable(self) -> tuple[PortablePart, ...]:
        def own(count: int) -> tuple[Tensor, ...]:
            divided, images = self.task.loaded.divided, self.task.loaded.images
            rows = np.concatenate((divided.test_queries, divided.test_database))
            return (as_input(np.asarray(images[rows[spread_rows(len(rows), count)]])),)

        size, net = self.model.size, self.model.net.settled()
        return (PortablePart("image", net, (picture_input(size),), "descriptor", picture_preparing(size), own=own),)

    def thresholds(self) -> dict[str, Any]:
        """Of the run's index, where there is one."""
        folder = self.index_folder()
        return thresholds_of(Index(folder)) if (folder / FACTS).exists() else {}

    def embed(self, photos: Photos) -> np.ndarray:
        parts = list(describe(self.model, photo_files(photos)))
        skipped = [item for part in parts for item in part.skipped]
        return whole(np.concatenate([part.descriptors for part in parts]), skipped)

    def index(self, photos: str | PathLike[str] | None = None, out: str | PathLike[str] | None = None) -> Index:
        folder = self.index_folder(out)
        index_run(self.folder, self.own_photos() if photos is None else Path(photos), folder)
        self._opened = Index(folder)
        return self._opened

    def own_photos(self) -> Path:
        """Where the photos are that the run learnt from."""
        if not self.task.data.path:
            raise ConfigError(
                f"{self.folder} learnt from data without a path: say which photos to index, .index(photos) or --photos"
            )
        return Path(self.task.data.path)

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


def thresholds_of(index: Index) -> dict[str, Any]:
    """How an index computes the confidence of an answer; or why it has none."""
    found = index.facts.calibration
    if found is None:
        return {"confidence": None, "why": why_uncalibrated(index), "radius_m": index.facts.radius}
    return {
        "confidence": {
            "scores": list(SCORES), "weights": list(found.weights), "bias": found.bias,
            "centre": list(found.centre), "scale": list(found.scale),
        },
        "threshold": found.threshold, "precision": found.precision, "recall": found.recall, "wanted": found.wanted,
        "strangers": found.strangers, "queries": found.queries, "doubts": list(found.doubts),
        "radius_m": index.facts.radius,
    }  # fmt: skip


def why_uncalibrated(index: Index) -> str:
    """Why an index has no confidence, without the folder that it was made in."""
    first, colon, reason = index.facts.uncalibrated.partition(": ")
    return reason if colon and Path(first).is_absolute() else index.facts.uncalibrated
