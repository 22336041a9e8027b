"""The photographs of one client, and which of its queries are near which photographs of its database.

What is near is computed once and kept for all rounds of mining; only the network's features change. Photographs of
another group (city and zone) are never near: they are always negatives. A query without a positive or without a
negative cannot be trained on.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from wayfare.core.errors import WayfareError


class ClientPhotos:
    """A client's queries and database, by their rows among the client's photographs."""

    def __init__(
        self,
        positions: np.ndarray,
        groups: np.ndarray,
        query: np.ndarray,
        *,
        radius: float = 25.0,
        negative_radius: float = 25.0,
        sequence: np.ndarray | None = None,
        pairs: np.ndarray | None = None,
    ) -> None:
        """Positions are metres (N, 2), NaN where unknown; `query` is a mask, the rest is the database.

        `sequence` (N,) is -1 for photographs without one. Sets of frames give `pairs` (P, 2) of a query and a
        photograph of the same place instead of positions: these are the positives, all others negatives.
        """
        self.positions, self.groups, self.sequence, self.pairs = positions, groups, sequence, pairs
        self.radius, self.negative_radius = radius, negative_radius
        known = np.isfinite(positions).all(1) if pairs is None else np.ones(len(query), bool)
        self.database = np.flatnonzero(~query & known)
        self.queries = np.flatnonzero(query & known)
        if pairs is None:
            near, metres = self._near()
        else:
            near = np.unique(pairs[query[pairs[:, 0]] & ~query[pairs[:, 1]]], axis=0)
            metres = np.zeros(len(near))
        # near photographs in the order of query and photograph; a key beyond all others ends the list
        self._near_key = np.append(near[:, 0] * len(query) + near[:, 1], np.iinfo(np.int64).max)
        self._near_photo, self._is_positive = near[:, 1], metres <= radius
        self._first = np.searchsorted(near[:, 0], np.arange(len(query) + 1))
        self.has_positive = np.bincount(near[self._is_positive, 0], minlength=len(query))[self.queries] > 0
        self.has_negative = np.diff(self._first)[self.queries] < len(self.database)
        self.usable = self.queries[self.has_positive & self.has_negative]
        self.previous: dict[int, np.ndarray] = {}  # the negatives a query had last, for miners that use them again

    def check_usable(self) -> None:
        """Refuse a client of which no query can be trained on, saying why."""
        if len(self.usable):
            return
        raise WayfareError(
            f"nothing to train on: of {len(self.queries)} queries with a position, {int((~self.has_positive).sum())} "
            f"have no photograph of the database within {self.radius:g} m and {int((~self.has_negative).sum())} have "
            f"none beyond {self.negative_radius:g} m"
        )

    def positives(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Number of the query, and photograph, of all positives of these queries."""
        owner, photo, is_positive = self._near_to(queries)
        return owner[is_positive], photo[is_positive]

    def most_near(self, queries: np.ndarray, pool: np.ndarray) -> int:
        """How many photographs of a pool are near one of these queries, at most."""
        owner, photo, _ = self._near_to(queries)
        return int(np.bincount(owner[np.isin(photo, pool)], minlength=1).max())

    def are_near(self, queries: np.ndarray, photos: np.ndarray) -> np.ndarray:
        """Whether a photograph is within the negative radius of a query; the arrays are broadcast."""
        key = queries * len(self.groups) + photos
        near: np.ndarray = self._near_key[np.searchsorted(self._near_key, key)] == key
        return near

    def far(self, query: int, count: int, rng: np.random.Generator) -> np.ndarray:
        """At most `count` random photographs beyond the negative radius."""
        near = np.searchsorted(self.database, self._near_photo[self._first[query] : self._first[query + 1]])
        rest = len(self.database) - len(near)
        rank = rng.choice(rest, min(count, rest), replace=False)
        # the r-th that is not near comes after as many near ones as have at most r others before them
        found: np.ndarray = self.database[rank + np.searchsorted(near - np.arange(len(near)), rank, "right")]
        return found

    def apart(self, queries: np.ndarray, photos: np.ndarray) -> np.ndarray:
        """Which photographs of the database are known to be negatives of which queries: bool (queries, photographs)."""
        return ~self.are_near(queries[:, None], photos[None, :]) & np.isin(photos, self.database)

    def _near_to(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Number of the query, photograph, and whether it is a positive, of all that are near these queries."""
        counts = self._first[queries + 1] - self._first[queries]
        owner = np.repeat(np.arange(len(queries)), counts)
        entry = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts - self._first[queries], counts)
        return owner, self._near_photo[entry], self._is_positive[entry]

    def _near(self) -> tuple[np.ndarray, np.ndarray]:
        """Query and photograph of all pairs within the negative radius, in order, and the metres between them."""
        found, metres = [np.empty((0, 2), np.int64)], [np.empty(0)]
        for group in np.unique(self.groups[self.queries]):
            queries = self.queries[self.groups[self.queries] == group]
            photos = self.database[self.groups[self.database] == group]
            if len(photos):
                trees = cKDTree(self.positions[queries]), cKDTree(self.positions[photos])
                near = trees[0].sparse_distance_matrix(trees[1], self.negative_radius, output_type="ndarray")
                found.append(np.stack((queries[near["i"]], photos[near["j"]]), 1))
                metres.append(near["v"])
        pairs, distances = np.concatenate(found), np.concatenate(metres)
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        return pairs[order], distances[order]
