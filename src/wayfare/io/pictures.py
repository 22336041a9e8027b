"""Labelled pictures in memory: what every reader of a classification data set returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wayfare.core.errors import DataError


class Skipped(NamedTuple):
    """A file that was left out, and why."""

    file: str
    reason: str


@dataclass(frozen=True)
class Pictures:
    """Pictures as uint8 (N, H, W, C) with one label each; the array may be memory-mapped."""

    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    skipped: tuple[Skipped, ...] = ()

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4:
            raise DataError(f"pictures must be uint8 (N, H, W, C), not {self.images.dtype} {self.images.shape}")
        if self.labels.shape != (len(self.images),):
            raise DataError(f"{len(self.images)} pictures but labels of shape {self.labels.shape}")
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            found = f"{self.labels.min()} to {self.labels.max()}"
            raise DataError(f"labels run from {found}, but there are {len(self.classes)} classes")

    def __len__(self) -> int:
        return len(self.images)
