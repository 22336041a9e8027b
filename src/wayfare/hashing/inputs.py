"""The pairs of a task once they are loaded: labels and inputs by rows of all pairs, queries included."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from wayfare.core.protocols import Progress, silent
from wayfare.hashing.data.base import PairData
from wayfare.hashing.data.pairs import Paired
from wayfare.hashing.images import Reader
from wayfare.hashing.model import PairEncoders
from wayfare.hashing.nets import VIEWS


class PairInputs:
    """Pairs, and what encoders are shown of them. Nothing is read before it is needed or `prepare` is called."""

    def __init__(self, data: PairData, model: PairEncoders) -> None:
        self._data, self._image, self._text = data, model.image, model.text
        self._pairs: Paired | None = None
        self._readers: dict[str, Reader] = {}
        self._phrases: dict[str, Tensor] = {}

    def prepare(self, progress: Progress) -> None:
        """Do everything that takes long."""
        self._read_pairs(progress)
        for view in VIEWS:
            self._reader(view, progress)

    def read(self, progress: Progress) -> None:
        """Read the pairs, but show their pictures to no network yet."""
        self._read_pairs(progress)

    def _read_pairs(self, progress: Progress) -> Paired:
        if self._pairs is None:
            self._pairs = self._data.load(progress, self._image.size)
        return self._pairs

    def _reader(self, view: str, progress: Progress) -> Reader:
        if view not in self._readers:
            side = self._text if view == "text" else self._image
            self._readers[view] = side.reader(self.pairs, progress)
        return self._readers[view]

    @property
    def pairs(self) -> Paired:
        return self._read_pairs(silent)

    @property
    def levels(self) -> tuple[int, ...]:
        """How many labels are on each level; of more than two levels, the two finest are used."""
        return self.pairs.levels[-2:]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the fine labels."""
        return self.pairs.names[-self.levels[-1] :]

    def labels(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Bool (n, C) of each level, the fine one last."""
        ends = np.cumsum(self.pairs.levels)[-len(self.levels) :]
        chosen = self.pairs.labels[rows]
        return tuple(chosen[:, end - count : end] for end, count in zip(ends, self.levels, strict=True))

    @cached_property
    def within(self) -> Tensor | None:
        """Which fine class belongs to which coarse one, (C1, C2). All pairs say it: it is no secret of any of them."""
        if len(self.levels) < 2:
            return None
        if self.pairs.within:
            found = torch.zeros(self.levels, dtype=torch.bool)
            found.view(-1)[list(self.pairs.within)] = True
            return found
        coarse, fine = self.labels(np.arange(len(self.pairs)))
        return torch.from_numpy(coarse.T.astype(np.float32) @ fine.astype(np.float32) > 0)

    def of(self, view: str, rows: np.ndarray) -> Tensor:
        """A batch: bags of words (n, D), features (n, W), or colours 0..255 (n, 3, H, W)."""
        return self._reader(view, silent)(rows)

    def label_text(self, asked: np.ndarray) -> str:
        """The names of labels, bool (C,), as people ask for things; "" if the text side can read none of them."""
        text = " ".join(self.names[label].lower() for label in np.flatnonzero(asked)[::-1])
        return text if self._text.reads(text, self._words) else ""

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(self.pairs.words)

    def of_texts(self, texts: Sequence[str]) -> Tensor:
        """A batch of texts that are in no pair; they are kept, for they come again."""
        fresh = sorted(set(texts) - self._phrases.keys())
        if fresh:
            self._phrases |= dict(zip(fresh, self._text.inputs(fresh, self.pairs.words)))
        return torch.stack([self._phrases[text] for text in texts])
