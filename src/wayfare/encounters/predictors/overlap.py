"""Overlap: a peer helps as far as its pictures show what I care about. Needs no study and nobody's accuracy but mine.

The overlap of two distributions over classes is the sum of the smaller share of each: 0 if they have nothing in
common, 1 if they are equal. Mine is uniform over the classes its owner cares about (Eq. 4); the peer's is that of the
labels of its pictures. A peer without pictures has an overlap of 0. The predicted gain is

    rate * overlap * (1 - my accuracy)

i.e. the best peer there can be closes a quarter of what I lack. It cannot be negative: this predictor sees who may
help, not who would harm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wayfare.core.exchange import Meeting


@dataclass(frozen=True)
class Overlap:
    """A gain in proportion to the overlap of labels."""

    rate: float = 0.25

    def predict(self, mine: np.ndarray, meeting: Meeting) -> np.ndarray:
        return np.asarray(mine + self.rate * label_overlap(meeting) * (1 - mine))


def label_overlap(meeting: Meeting) -> np.ndarray:
    """How much of my target distribution the peer's labels cover, from 0 to 1."""
    targets, labels = _shares(meeting.facts.targets[meeting.me]), _shares(meeting.facts.labels[meeting.peer])
    return np.asarray(np.minimum(targets, labels).sum(axis=1).round(12))  # six sixths are 1, not a hair less


def _shares(counts: np.ndarray) -> np.ndarray:
    """Rows that sum to 1; a row of nothing stays nothing."""
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
