"""The words and labels of a trained model, without a single pair: what is needed to make its network again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from wayfare.core.protocols import Progress
from wayfare.hashing.data.base import PairData
from wayfare.hashing.data.pairs import Paired
from wayfare.hashing.data.source import Stored, strings


@dataclass(frozen=True)
class WithoutPairs(PairData):
    """Words, labels, and the widths of texts and of given features."""

    words: tuple[str, ...]
    names: tuple[str, ...]
    levels: tuple[int, ...]
    text_width: int
    image_width: int  # 0 where the data brings no features

    @classmethod
    def of(cls, pairs: Paired) -> Self:
        """What these pairs have."""
        image = 0 if pairs.features is None else pairs.features.shape[1]
        return cls(pairs.words, pairs.names, pairs.levels, text_width=pairs.bags.shape[1], image_width=image)

    def load(self, progress: Progress, size: tuple[int, int] = (224, 224)) -> Paired:
        none = np.empty(0, np.int64)
        return Paired(
            name="no pairs",
            ids=strings([]),
            texts=strings([]),
            bags=csr_array((0, self.text_width), dtype=np.float32),
            words=self.words,
            labels=np.empty((0, len(self.names)), bool),
            names=self.names,
            levels=self.levels,
            pictures=Stored(np.empty((0, *size, 3), np.uint8), none, size),
            features=np.empty((0, self.image_width), np.float32),
            query=none,
            train=none,
            retrieval=none,
        )
