"""The nearest descriptors, exactly, and in an order that does not depend on blocks, threads or the library's build.

faiss is fast because it multiplies matrices, but the last bits of its distances depend on how it divides them. So faiss
only proposes a few more rows than needed. Their distances are then computed pair by pair in double precision; equal
distances are ordered by row. If faiss's rounding could have hidden a nearer row, more are proposed, and finally all
rows are compared. With a collapsed network (all descriptors nearly equal) this only takes longer.
"""

from __future__ import annotations

import faiss
import numpy as np
import torch

from wayfare.core.errors import WayfareError

BLOCK = 2**18  # numbers that are worked on at a time: 2 MB of them, to stay in the processor's cache
QUERIES = 2048  # queries that are worked on at a time
_SPARE = 16  # proposals beyond those wanted
_ROUNDING = 2.0**-24  # of single precision


def nearest(queries: np.ndarray, database: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the database nearest to each query and their squared distances, both (Q, min(count, D))."""
    queries, database = checked(queries, "queries"), checked(database, "database")
    count = min(count, len(database))
    rows = np.empty((len(queries), count), np.int64)
    distances = np.empty((len(queries), count), np.float64)
    if rows.size:
        if queries.shape[1] != database.shape[1]:
            raise ValueError(f"queries have {queries.shape[1]} dimensions, the database {database.shape[1]}")
        base = _Base(database)
        for start in range(0, len(queries), QUERIES):
            part = slice(start, start + QUERIES)
            rows[part], distances[part] = base.nearest(queries[part], count)
    return rows, distances


def pair_distances(left: np.ndarray, right: np.ndarray, left_rows: np.ndarray, right_rows: np.ndarray) -> np.ndarray:
    """Squared distances of listed pairs in double precision: equal descriptors give equal numbers wherever they are."""
    distances = np.empty(len(left_rows))
    step = max(1, BLOCK // max(1, left.shape[1]))
    for start in range(0, len(distances), step):
        part = slice(start, start + step)
        apart = np.subtract(left[left_rows[part]], right[right_rows[part]], dtype=np.float64)
        distances[part] = np.einsum("ij,ij->i", apart, apart)
    return distances


def checked(descriptors: np.ndarray, name: str) -> np.ndarray:
    """Descriptors as faiss wants them; NaN and infinity have no nearest."""
    if descriptors.ndim != 2:
        raise ValueError(f"descriptors of the {name} must be rows, not of shape {descriptors.shape}")
    descriptors = np.ascontiguousarray(descriptors, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        broken = np.flatnonzero(~np.isfinite(_lengths(descriptors)))
    if len(broken):
        raise WayfareError(
            f"{len(broken)} of {len(descriptors)} descriptors of the {name} are not finite, the first in row "
            f"{broken[0]}: the network has diverged (lower training.lr or set training.clip)"
        )
    return descriptors


class _Base:
    """A database to search in."""

    def __init__(self, database: np.ndarray) -> None:
        self.database = database
        self.centre = database.mean(0, dtype=np.float64).astype(np.float32)
        self.centred = database - self.centre  # distances stay as they are, faiss's rounding becomes less
        self.longest = float(_lengths(self.centred).max())

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        rows, distances, sure = self._proposed(queries, count, count + _SPARE)
        for attempt in (lambda q: self._proposed(q, count, 8 * (count + _SPARE)), lambda q: self._all(q, count)):
            if not sure.all():
                left = np.flatnonzero(~sure)
                rows[left], distances[left], sure[left] = attempt(queries[left])
        return rows, distances

    def _proposed(self, queries: np.ndarray, count: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The best `count` of faiss's `width` proposals, and whether no other row can be among them."""
        # as many threads as torch has (one in workers); where both share an OpenMP library this changes nothing
        faiss.omp_set_num_threads(torch.get_num_threads())
        width = min(width, len(self.database))
        centred = queries - self.centre
        roughly, proposals = faiss.knn(centred, self.centred, width)
        numbers = np.repeat(np.arange(len(queries)), width)
        exactly = pair_distances(queries, self.database, numbers, proposals.ravel()).reshape(proposals.shape)
        order = np.lexsort((proposals, exactly), axis=1)[:, :count]
        rows, distances = np.take_along_axis(proposals, order, 1), np.take_along_axis(exactly, order, 1)
        # |q|^2 + |d|^2 - 2 q.d is rounded by no more than this, in whatever order it is summed
        error = (queries.shape[1] + 16) * _ROUNDING * (_lengths(centred) + self.longest) ** 2
        sure = distances[:, -1] < roughly[:, -1] - error
        return rows, distances, sure | (width == len(self.database))

    def _all(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, bool]:
        """The same without faiss. Equal rows of the database are compared once."""
        first: dict[bytes, int] = {}
        same = np.array([first.setdefault(row.tobytes(), len(first)) for row in self.database])
        distinct = self.database[np.unique(same, return_index=True)[1]]
        one, others = np.zeros(len(distinct), np.int64), np.arange(len(distinct))
        rows = np.empty((len(queries), count), np.int64)
        distances = np.empty((len(queries), count))
        for number, query in enumerate(queries):
            away = pair_distances(query[None], distinct, one, others)[same]
            close = np.flatnonzero(away <= np.partition(away, count - 1)[count - 1])
            rows[number] = close[np.argsort(away[close], kind="stable")[:count]]
            distances[number] = away[rows[number]]
        return rows, distances, True


def _lengths(descriptors: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.sqrt(np.einsum("ij,ij->i", descriptors, descriptors))
    return found
