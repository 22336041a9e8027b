"""Pairs of a picture and a text with labels: what cross-modal hashing learns from, whatever the files look like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from wayfare.hashing.data.source import Bags, PairPictures
from wayfare.io.findings import Problems


@dataclass(frozen=True)
class Paired:
    """N pairs. Relevant to each other are two that share a label; one without labels is relevant to none."""

    name: str
    ids: np.ndarray  # str objects (N,): file names or numbers
    texts: np.ndarray  # str objects (N,): as written, "" where there is none or it is not known
    bags: Bags
    words: tuple[str, ...]  # of the columns of the bags; () where they are not known
    labels: np.ndarray  # bool (N, C)
    names: tuple[str, ...]  # of the labels
    levels: tuple[int, ...]  # how many labels are on each level, the coarse ones first
    pictures: PairPictures | None
    features: np.ndarray | None  # float32 (N, W): of the pictures
    query: np.ndarray  # int64 rows, rising
    train: np.ndarray  # int64 rows, rising: a part of `retrieval`
    retrieval: np.ndarray  # int64 rows, rising: all that are no queries
    within: tuple[int, ...] = ()  # which labels belong together, where these pairs do not show all; see `GivenTerms`
    left_out: Mapping[str, int] = field(default_factory=dict)  # pairs, by the reason
    problems: Problems = field(default_factory=Problems)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def without_words(self) -> np.ndarray:
        """bool (N,): whose bag is all zeros."""
        return np.asarray(abs(self.bags).sum(axis=1) == 0).reshape(len(self))
