"""Mining on one client: for each query a positive and hard negatives, from the client's own photographs only.

Collaborative Visual Place Recognition through Federated Learning (Dutto et al., 2024), Eq. 1 and 2. The positive is the
nearest in feature space of the database's photographs within `radius` metres; the negatives are the nearest of those
beyond `negative_radius`. Features are cached: computed for `refresh` queries at a time and used until these are done.
The modes are those of the deep visual geo-localization benchmark:

    partial     negatives from a pool of random photographs, drawn anew with each cache and shared by its queries
    full        the whole database is embedded; each query draws a pool of its own and adds the negatives it had before
    random      any photographs that are far enough; only queries and positives are embedded

With `sequences` (Tab. 6), negatives of a query come from the database's closest sequences only, `per_sequence` random
photographs of each: 333 and 3, or 20 and 50, are pools of about 1,000 from a city or from a neighbourhood.

Photographs of another group (city and zone) are never positives and always negatives. No margin is asked for: a query
gives a triplet even if its negatives are far already. A query without a positive or without a negative is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from wayfare.errors import ConfigError, WayfareError
from wayfare.tasks.vpr.search import checked, nearest, pair_distances

Embed = Callable[[np.ndarray], np.ndarray]
"""Descriptors (n, d) of these photographs by the network as it is now, in evaluation mode; leaves it as it was."""

BLOCK = 2**20  # distances on the ground that are computed at a time


@dataclass(frozen=True)
class Mining:
    """How triplets are chosen."""

    mode: Literal["partial", "full", "random"] = "partial"
    radius: float = 25.0  # metres; related code trains with 10
    negative_radius: float = 25.0
    negatives: int = 5  # of each query; where a query has fewer, they are repeated
    pool: int = 1000  # photographs among which negatives are looked for; all where a client has fewer
    refresh: int = 1000  # queries that one cache of features serves
    sequences: int = 0  # if > 0: only the closest sequences of the database
    per_sequence: int = 3

    def __post_init__(self) -> None:
        if self.mode not in ("partial", "full", "random"):
            raise ConfigError(f"mining mode {self.mode!r}: partial, full or random")
        for name in ("negatives", "pool", "refresh", "per_sequence"):
            if getattr(self, name) < 1:
                raise ConfigError(f"mining {name} = {getattr(self, name)}: at least 1")
        if not 0 <= self.radius <= self.negative_radius:
            raise ConfigError(
                f"mining radius {self.radius} and negative_radius {self.negative_radius}: a photograph would be both a "
                "positive and a negative; the second must not be smaller"
            )
        if self.sequences < 0 or (self.sequences and self.mode != "partial"):
            raise ConfigError(f"mining sequences = {self.sequences}: at least 0, and only in mode partial")


class Triplets(NamedTuple):
    """Places in the client's photographs."""

    query: np.ndarray  # int64 (B,)
    positive: np.ndarray  # int64 (B,)
    negatives: np.ndarray  # int64 (B, negatives), hardest first unless mode is random

    @property
    def photos(self) -> np.ndarray:
        """All in a row: queries, positives, the negatives of the first query, of the second, ..."""
        return np.concatenate((self.query, self.positive, self.negatives.ravel()))


class Miner:
    """The photographs of one client: what is near what is found out once, features come anew with every cache."""

    def __init__(
        self,
        positions: np.ndarray,
        groups: np.ndarray,
        query: np.ndarray,
        mining: Mining = Mining(),
        sequence: np.ndarray | None = None,
        pairs: np.ndarray | None = None,
    ) -> None:
        """Positions are metres (N, 2), NaN where unknown; `query` is a mask, the rest is the database.

        `sequence` (N,) is needed for limited areas, -1 for none. Sets of frames give `pairs` (P, 2) of a query and a
        photograph of the same place instead of positions: these are the positives, all others negatives.
        """
        if mining.sequences and (sequence is None or pairs is not None):
            raise ConfigError("mining.sequences needs photographs with positions and sequences")
        self.mining, self.positions, self.groups, self.sequence = mining, positions, groups, sequence
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
        self._near_photo, self._is_positive = near[:, 1], metres <= mining.radius
        self._first = np.searchsorted(near[:, 0], np.arange(len(query) + 1))
        self.has_positive = np.bincount(near[self._is_positive, 0], minlength=len(query))[self.queries] > 0
        self.has_negative = np.diff(self._first)[self.queries] < len(self.database)
        self.usable = self.queries[self.has_positive & self.has_negative]
        self._before: dict[int, np.ndarray] = {}  # mode full: the negatives that a query had last

    def triplets(self, embed: Embed, rng: np.random.Generator, batch: int = 2) -> Iterator[Triplets]:
        """One pass over the usable queries, in random order, `batch` at a time."""
        if not len(self.usable):
            raise WayfareError(f"nothing to train on: {self.why_unusable()}")
        order = rng.permutation(self.usable)
        for start in range(0, len(order), self.mining.refresh):
            mined = self.mine(order[start : start + self.mining.refresh], embed, rng)
            for first in range(0, len(mined.query), batch):
                yield Triplets(*(part[first : first + batch] for part in mined))

    def why_unusable(self) -> str:
        """What keeps queries from being trained on, in a sentence."""
        radii = self.mining.radius, self.mining.negative_radius
        return (
            f"of {len(self.queries)} queries with a position, {int((~self.has_positive).sum())} have no photograph of "
            f"the database within {radii[0]:g} m and {int((~self.has_negative).sum())} have none beyond {radii[1]:g} m"
        )

    def mine(self, queries: np.ndarray, embed: Embed, rng: np.random.Generator) -> Triplets:
        """Triplets of these queries (each usable) with features of now; of a few none, if the pool has no negative."""
        owner, photo, is_positive = self._near_to(queries)
        owner, photo = owner[is_positive], photo[is_positive]
        if self.mining.mode == "random":
            features = _Features(embed, np.concatenate((queries, photo)))
            choices = [self._far(query, self.mining.negatives, rng) for query in queries]
            negatives = np.stack([np.resize(choice, self.mining.negatives) for choice in choices])
            enough = np.ones(len(queries), bool)
        elif self.mining.sequences:
            among, candidate = self._local(queries, rng)
            features = _Features(embed, np.concatenate((queries, photo, candidate)))
            negatives, enough = self._hardest(queries, among, candidate, features)
        elif self.mining.mode == "full" and len(self.database) > self.mining.pool:
            features = _Features(embed, np.concatenate((queries, self.database)))
            among, candidate = self._own_pools(queries, rng)
            negatives, enough = self._hardest(queries, among, candidate, features)
            self._before.update(zip(queries.tolist(), negatives))
        else:
            size = min(self.mining.pool, len(self.database))
            pool = np.sort(rng.choice(self.database, size, replace=False))
            features = _Features(embed, np.concatenate((queries, photo, pool)))
            negatives, enough = self._hardest_of_pool(queries, pool, features)
        away = features.distances(queries[owner], photo)
        positive, _ = _first_of_each(owner, photo, away, len(queries), 1)
        return Triplets(queries[enough], positive[enough, 0], negatives[enough])

    def apart(self, queries: np.ndarray, photos: np.ndarray) -> np.ndarray:
        """Which photographs of the database are known to be negatives of which queries: bool (queries, photographs)."""
        return ~self._are_near(queries[:, None], photos[None, :]) & np.isin(photos, self.database)

    # ---- on the ground

    def _near(self) -> tuple[np.ndarray, np.ndarray]:
        """Query and photograph of all pairs within the negative radius, in order, and the metres between them."""
        from scipy.spatial import cKDTree

        found, metres = [np.empty((0, 2), np.int64)], [np.empty(0)]
        for group in np.unique(self.groups[self.queries]):
            queries = self.queries[self.groups[self.queries] == group]
            photos = self.database[self.groups[self.database] == group]
            if len(photos):
                trees = cKDTree(self.positions[queries]), cKDTree(self.positions[photos])
                near = trees[0].sparse_distance_matrix(trees[1], self.mining.negative_radius, output_type="ndarray")
                found.append(np.stack((queries[near["i"]], photos[near["j"]]), 1))
                metres.append(near["v"])
        pairs, away = np.concatenate(found), np.concatenate(metres)
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        return pairs[order], away[order]

    def _near_to(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Number of the query, photograph, and whether it is a positive, of all that are near these queries."""
        counts = self._first[queries + 1] - self._first[queries]
        owner = np.repeat(np.arange(len(queries)), counts)
        entry = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts - self._first[queries], counts)
        return owner, self._near_photo[entry], self._is_positive[entry]

    def _are_near(self, queries: np.ndarray, photos: np.ndarray) -> np.ndarray:
        key = queries * len(self.groups) + photos
        near: np.ndarray = self._near_key[np.searchsorted(self._near_key, key)] == key
        return near

    def _far(self, query: int, count: int, rng: np.random.Generator) -> np.ndarray:
        """At most `count` random photographs beyond the negative radius."""
        near = np.searchsorted(self.database, self._near_photo[self._first[query] : self._first[query + 1]])
        rest = len(self.database) - len(near)
        rank = rng.choice(rest, min(count, rest), replace=False)
        # the r-th that is not near comes after as many near ones as have at most r others before them
        return self.database[rank + np.searchsorted(near - np.arange(len(near)), rank, "right")]

    def _own_pools(self, queries: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        none = np.empty(0, np.int64)
        pools = [
            np.union1d(self._far(query, self.mining.pool, rng), self._before.get(int(query), none)) for query in queries
        ]
        return np.repeat(np.arange(len(queries)), [len(pool) for pool in pools]), np.concatenate(pools)

    def _local(self, queries: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """A few photographs of each of the closest sequences, the same of a sequence for all queries of a cache."""
        sequence = self.sequence if self.sequence is not None else np.full(len(self.groups), -1)
        among, candidate = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for group in np.unique(self.groups[queries]):
            numbers = np.flatnonzero(self.groups[queries] == group)
            photos = self.database[(self.groups[self.database] == group) & (sequence[self.database] >= 0)]
            photos = photos[np.lexsort((rng.random(len(photos)), sequence[photos]))]  # shuffled within each sequence
            if not len(photos):
                continue
            first = np.flatnonzero(np.diff(sequence[photos], prepend=-1))
            sizes = np.diff(first, append=len(photos))
            drawn = np.arange(len(photos)) - np.repeat(first, sizes) < self.mining.per_sequence
            place = np.repeat(np.arange(len(first)), sizes)
            for start in range(0, len(numbers), max(1, BLOCK // len(photos))):
                part = numbers[start : start + max(1, BLOCK // len(photos))]
                apart = self.positions[queries[part], None] - self.positions[photos][None]
                closest = np.minimum.reduceat(np.hypot(apart[..., 0], apart[..., 1]), first, axis=1)
                chosen = np.zeros(closest.shape, bool)
                order = np.argsort(closest, axis=1, kind="stable")[:, : self.mining.sequences]
                np.put_along_axis(chosen, order, True, 1)
                row, column = np.nonzero(chosen[:, place] & drawn)
                among.append(part[row])
                candidate.append(photos[column])
        owner, photo = np.concatenate(among), np.concatenate(candidate)
        far = ~self._are_near(queries[owner], photo)
        return owner[far], photo[far]

    # ---- in feature space

    def _hardest_of_pool(
        self, queries: np.ndarray, pool: np.ndarray, features: _Features
    ) -> tuple[np.ndarray, np.ndarray]:
        """The nearest of a pool that all queries share, and whether there is any."""
        wanted = self.mining.negatives
        owner, photo, _ = self._near_to(queries)
        most_near = int(np.bincount(owner[np.isin(photo, pool)], minlength=1).max())
        found, _ = nearest(features[queries], features[pool], wanted + most_near)
        near = self._are_near(queries[:, None], pool[found])
        found = np.take_along_axis(pool[found], np.argsort(near, axis=1, kind="stable"), 1)
        return _repeated(found, (~near).sum(1), wanted)

    def _hardest(
        self, queries: np.ndarray, owner: np.ndarray, photo: np.ndarray, features: _Features
    ) -> tuple[np.ndarray, np.ndarray]:
        """The nearest of each query's own candidates, and whether there is any."""
        away = features.distances(queries[owner], photo)
        found, counts = _first_of_each(owner, photo, away, len(queries), self.mining.negatives)
        return _repeated(found, counts, self.mining.negatives)


class _Features:
    """Descriptors of some of the client's photographs, each embedded once."""

    def __init__(self, embed: Embed, photos: np.ndarray) -> None:
        self.photos = np.unique(photos)
        self.descriptors = checked(np.asarray(embed(self.photos)), "client's photographs")
        if len(self.descriptors) != len(self.photos):
            raise ValueError(f"{len(self.photos)} photographs but {len(self.descriptors)} descriptors")

    def __getitem__(self, photos: np.ndarray) -> np.ndarray:
        return self.descriptors[np.searchsorted(self.photos, photos)]

    def distances(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        rows = np.searchsorted(self.photos, left), np.searchsorted(self.photos, right)
        return pair_distances(self.descriptors, self.descriptors, *rows)


def _first_of_each(
    owner: np.ndarray, photo: np.ndarray, away: np.ndarray, owners: int, wanted: int
) -> tuple[np.ndarray, np.ndarray]:
    """The nearest photographs of each owner, (owners, wanted), equal ones in their order; and how many there are."""
    order = np.lexsort((photo, away, owner))
    counts = np.bincount(owner, minlength=owners)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    best = np.zeros((owners, wanted), np.int64)
    kept = place < wanted
    best[owner[order][kept], place[kept]] = photo[order][kept]
    return best, counts


def _repeated(found: np.ndarray, counts: np.ndarray, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `wanted` of each row's `counts` photographs, from the start again where there are fewer."""
    columns = np.arange(wanted) % np.maximum(1, np.minimum(counts, wanted))[:, None]
    return np.take_along_axis(found, columns, 1), counts > 0
