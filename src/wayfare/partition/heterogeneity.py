"""How different the clients of a split are, in three common measures.

For client u with class shares p_u and the shares q of all clients' samples together, averaged over clients:
normalised entropy H(p_u) / log n (1: all classes alike, 0: one class), total variation 1/2 sum |p_u - q| (0: like
the whole), and the largest share max p_u. Clients without samples count in the sizes only.

Clients are read in blocks, so memory does not grow with their number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Population
from wayfare.partition.split import Split

_BLOCK = 256


def describe(
    split: Population, labels: np.ndarray | None = None, classes: int | Sequence[str] | None = None
) -> dict[str, Any]:
    """JSON-ready: sizes always, label statistics where there are labels. `classes`: their number, or their names."""
    summary = _sizes(split)
    if labels is None:
        return summary
    n = _number(classes, labels)
    whole = np.bincount(_labels_of(split.pool(), labels, n), minlength=n)
    sums, clients = np.zeros(3), 0
    for table in _tables(split, labels, n, len(split)):
        table = table[table.sum(axis=1) > 0]
        sums += statistics(table, whole / whole.sum()).sum(axis=0) if len(table) else 0.0
        clients += len(table)
    entropy, variation, largest = (float(s) / clients if clients else None for s in sums)
    return summary | {"classes": n, "entropy": entropy, "total_variation": variation, "largest_share": largest}


def counts(split: Population, labels: np.ndarray, n_classes: int, limit: int = 200) -> np.ndarray:
    """Samples by client and class, (clients, n_classes), of the first `limit` clients."""
    tables = list(_tables(split, labels, n_classes, min(limit, len(split))))
    return np.concatenate(tables) if tables else np.zeros((0, n_classes), np.int64)


def by_main_class(split: Split, labels: np.ndarray, classes: Sequence[str]) -> Split:
    """The split with its clients grouped by the class of which each has most."""
    table = counts(split, labels, len(classes), limit=len(split))
    groups = [classes[int(k)] for k in table.argmax(axis=1)]
    return Split(split.offsets, split.indices, split.provenance | {"groups": "main class"}, groups, split.numbers)


def _sizes(split: Population) -> dict[str, Any]:
    clients, sizes, total, squares = len(split), split.sizes, 0, 0
    for start in range(0, clients, _BLOCK):
        block = sizes[start : start + _BLOCK].tolist()
        total += sum(block)
        squares += sum(size * size for size in block)
    # In Python's whole numbers, so that the difference of two large sums loses nothing.
    variance = (clients * squares - total * total) / clients**2 if clients else None
    return {
        "clients": clients,
        "samples": total,
        "size_mean": total / clients if clients else None,
        "size_sd": math.sqrt(variance) if variance is not None else None,
        "size_min": int(sizes.min()) if clients else None,
        "size_max": int(sizes.max()) if clients else None,
    }


def statistics(table: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """(clients, 3): normalised entropy, total variation, largest share; no row of `table` is empty."""
    shares = table / table.sum(axis=1, keepdims=True)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)  # 0 log 0 = 0
    entropy = -(shares * logs).sum(axis=1) / (math.log(len(whole)) if len(whole) > 1 else 1.0)
    variation = np.abs(shares - whole).sum(axis=1) / 2
    return np.stack([entropy, variation, shares.max(axis=1)], axis=1)


def _tables(split: Population, labels: np.ndarray, n: int, clients: int) -> Iterator[np.ndarray]:
    """Client-by-class counts of the first `clients` clients, a block at a time."""
    for start in range(0, clients, _BLOCK):
        parts = [split[i] for i in range(start, min(start + _BLOCK, clients))]
        row = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        cell = row * n + _labels_of(np.concatenate(parts), labels, n)
        yield np.bincount(cell, minlength=len(parts) * n).reshape(len(parts), n)


def _labels_of(indices: np.ndarray, labels: np.ndarray, n: int) -> np.ndarray:
    if len(indices) and indices.max() >= len(labels):
        raise ConfigError(
            f"the split has sample {indices.max()}, there are {len(labels)} labels: does it belong to another data set?"
        )
    found: np.ndarray = np.asarray(labels)[indices]
    if len(found) and not (found.min() >= 0 and found.max() < n):
        raise ConfigError(f"labels run {found.min()}..{found.max()}, with {n} classes they must run 0..{n - 1}")
    return found


def _number(classes: int | Sequence[str] | None, labels: np.ndarray) -> int:
    if classes is None:
        return int(labels.max()) + 1 if len(labels) else 0
    return int(classes) if isinstance(classes, (int, np.integer)) else len(classes)
