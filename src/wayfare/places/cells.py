"""Large indexes are searched in part: descriptors are divided into cells, and only the cells nearest to a query count.

The centres of the cells are found by k-means on a sample. Within the cells that are searched, every descriptor is
compared as it is (an inverted file without compression), so distances are exact and only a match in another cell can be
missed. A new descriptor goes to the cell of its nearest centre: nothing is built again.
"""

from __future__ import annotations

import math

import faiss
import numpy as np
import torch

from wayfare.core.errors import StoreError

EXACT = 300_000  # photographs up to which all descriptors are compared
_PROBES = 32  # cells that are searched
_PER_CENTRE, _ROUNDS, _SEED = 64, 10, 0  # of k-means: descriptors for each centre, iterations
_BLOCK = 50_000  # descriptors that are assigned at a time


def centres_of(descriptors: np.ndarray) -> np.ndarray:
    """The centres of as many cells as the square root of the number of descriptors."""
    faiss.omp_set_num_threads(torch.get_num_threads())
    count = max(1, math.isqrt(len(descriptors)))
    rows = np.random.default_rng(_SEED).permutation(len(descriptors))[: _PER_CENTRE * count]
    kmeans = faiss.Kmeans(
        descriptors.shape[1], count, niter=_ROUNDS, seed=_SEED, min_points_per_centroid=1,
        max_points_per_centroid=_PER_CENTRE,
    )  # fmt: skip
    kmeans.train(np.ascontiguousarray(descriptors[np.sort(rows)], np.float32))
    return np.asarray(kmeans.centroids, np.float32)


def cells_of(descriptors: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The cell of each descriptor, int32: the number of its nearest centre."""
    faiss.omp_set_num_threads(torch.get_num_threads())
    cells = np.empty(len(descriptors), np.int32)
    for start in range(0, len(descriptors), _BLOCK):
        part = np.ascontiguousarray(descriptors[start : start + _BLOCK], np.float32)
        cells[start : start + _BLOCK] = faiss.knn(part, centres, 1)[1][:, 0]
    return cells


class Cells:
    """Which descriptors are in which cell."""

    def __init__(self, centres: np.ndarray, cells: np.ndarray, gone: np.ndarray) -> None:
        """`cells` is the cell of each row; rows that are `gone` are never found."""
        if len(cells) and not 0 <= int(cells.min()) <= int(cells.max()) < len(centres):
            raise StoreError(f"cells run beyond {len(centres)}: the index is damaged; make it again in another folder")
        self.centres = np.ascontiguousarray(centres)
        kept = np.setdiff1d(np.arange(len(cells)), gone)
        self._rows = kept[np.argsort(cells[kept], kind="stable")]
        self._ends = np.cumsum(np.bincount(cells[kept], minlength=len(centres)))
        self.sizes = np.diff(self._ends, prepend=0)

    def candidates(self, query: np.ndarray, least: int) -> np.ndarray:
        """The rows of the nearest cells, in order: of 32 cells, and of more until there are `least` rows."""
        order = faiss.knn(query[None], self.centres, len(self.centres))[1][0]
        enough = int(np.searchsorted(np.cumsum(self.sizes[order]), least)) + 1
        chosen = order[: max(_PROBES, enough)]
        rows = [self._rows[self._ends[cell] - self.sizes[cell] : self._ends[cell]] for cell in chosen.tolist()]
        return np.sort(np.concatenate(rows))
