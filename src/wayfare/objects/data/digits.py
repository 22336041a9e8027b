"""Scikit-learn's 1,797 handwritten digits, 8 x 8 pixels: a real data set that needs no download."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wayfare.core.protocols import Progress
from wayfare.io.pictures import Pictures
from wayfare.objects.data import ObjectData

_EVERY = 5  # one of so many is a test picture


@dataclass(frozen=True)
class Digits(ObjectData):
    """Digits as uint8 (N, 8, 8, 1)."""

    def load(self, progress: Progress) -> tuple[Pictures, Pictures]:
        """Always the same split: every fifth digit of a class is for testing."""
        from sklearn.datasets import load_digits  # here: it takes seconds to import, and most runs do without

        found = load_digits()
        images = np.rint(found.images * (255 / 16)).astype(np.uint8)[..., None]
        labels = found.target.astype(np.int64)
        test = np.zeros(len(labels), bool)
        for digit in range(10):
            test[np.flatnonzero(labels == digit)[_EVERY - 1 :: _EVERY]] = True
        classes = tuple(str(digit) for digit in range(10))
        return Pictures(images[~test], labels[~test], classes), Pictures(images[test], labels[test], classes)
