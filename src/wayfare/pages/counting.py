"""Distributions for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from wayfare.pages.dataset_parts import Bars

_BINS = 16


def tally(title: str, unit: str, values: Iterable[str], log: bool = False) -> Bars:
    """How often each value occurs."""
    counts = Counter(values)
    return Bars(title, unit, list(counts), list(counts.values()), log=log)


def named(title: str, unit: str, names: Sequence[str], counts: np.ndarray, log: bool = False) -> Bars:
    """Counts of named things; those that never occur are left out."""
    occurring = [(name, int(count)) for name, count in zip(names, counts) if count]
    return Bars(title, unit, [name for name, _ in occurring], [count for _, count in occurring], log=log)


def histogram(title: str, unit: str, values: np.ndarray, axis: str) -> Bars:
    """How whole numbers are spread, in a few classes of equal width."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    width = max(1, -(-(high - low + 1) // _BINS))
    counts = np.bincount((values - low) // width, minlength=1)
    starts = [low + width * place for place in range(len(counts))]
    names = [str(start) if width == 1 else f"{start}–{start + width - 1}" for start in starts]
    return Bars(title, unit, names, counts.tolist(), ordered=True, axis=axis)
