"""Mining on one client: for each query a positive and hard negatives, from the client's own photographs only.

Collaborative Visual Place Recognition through Federated Learning (Dutto et al., 2024), Eq. 1 and 2. The positive is the
nearest in feature space of the database's photographs within `radius` metres (Eq. 1); the negatives are the nearest of
those beyond `negative_radius` (Eq. 2). Features are cached: computed for `refresh` queries at a time and used until
these are done. A miner is a class with one method, `choose`; the first three are those of the deep visual
geo-localization benchmark:

    partial     negatives from a pool of random photographs, drawn again for each cache and shared by its queries
    full        the whole database is embedded; each query draws a pool of its own and adds the negatives it had before
    random      any photographs that are far enough; only queries and positives are embedded
    local       (Tab. 6) negatives of a query come from the database's closest `sequences` only, `per_sequence` random
                photographs of each: 333 and 3, or 20 and 50, are pools of about 1,000 from a city or a neighbourhood

No margin is required: a query gives a triplet even if its negatives are far already. A query without a positive or
without a negative is left out. What counts as one local epoch is a setting, `steps`:

    queries     every usable query once
    images      (Tab. 4) floor(N_k / B) batches of B triplets, N_k the number of the client's photographs, queries and
                database together: the usable queries in turn, as often as it takes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.places.client_photos import ClientPhotos
from wayfare.places.nearest import checked, nearest, pair_distances

Embed = Callable[[np.ndarray], np.ndarray]
"""Descriptors (n, d) of these photographs by the network as it is now, in evaluation mode; leaves it as it was."""

BLOCK = 2**20  # distances on the ground that are computed at a time


class Triplets(NamedTuple):
    """Rows of the client's photographs."""

    query: np.ndarray  # int64 (B,)
    positive: np.ndarray  # int64 (B,)
    negatives: np.ndarray  # int64 (B, negatives), hardest first unless they are random

    @property
    def photos(self) -> np.ndarray:
        """All in a row: queries, positives, the negatives of the first query, of the second, ..."""
        return np.concatenate((self.query, self.positive, self.negatives.ravel()))


class Features:
    """Descriptors of some of the client's photographs, each embedded once."""

    def __init__(self, embed: Embed, *photos: np.ndarray) -> None:
        self.photos = np.unique(np.concatenate(photos))
        self.descriptors = checked(np.asarray(embed(self.photos)), "client's photographs")
        if len(self.descriptors) != len(self.photos):
            raise ValueError(f"{len(self.photos)} photographs but {len(self.descriptors)} descriptors")

    def __getitem__(self, photos: np.ndarray) -> np.ndarray:
        return self.descriptors[np.searchsorted(self.photos, photos)]

    def distances(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Squared distances of listed pairs."""
        rows = np.searchsorted(self.photos, left), np.searchsorted(self.photos, right)
        return pair_distances(self.descriptors, self.descriptors, *rows)


class Choice(NamedTuple):
    """The negatives of some queries."""

    features: Features  # of the queries, their positives, and what the negatives were chosen from
    negatives: np.ndarray  # int64 (queries, negatives)
    found: np.ndarray  # bool (queries,): false where there is no negative


@dataclass(frozen=True)
class Miner:
    """How triplets are chosen; a subclass says how negatives are."""

    radius: float = 25.0  # metres; related code trains with 10
    negative_radius: float = 25.0
    negatives: int = 5  # of each query; where a query has fewer, they are repeated
    refresh: int = 1000  # queries that one cache of features serves
    steps: Literal["queries", "images"] = field(default="queries", kw_only=True)  # what makes a local epoch

    def __post_init__(self) -> None:
        _check_counts(negatives=self.negatives, refresh=self.refresh)
        if self.steps not in ("queries", "images"):
            raise ConfigError(f"mining.steps = {self.steps!r}: 'queries' or 'images'")
        if not 0 <= self.radius <= self.negative_radius:
            raise ConfigError(
                f"mining.radius = {self.radius} and negative_radius = {self.negative_radius}: a photograph would be "
                "both a positive and a negative; the second must not be smaller"
            )

    def choose(
        self, client: ClientPhotos, queries: np.ndarray, positives: np.ndarray, embed: Embed, rng: np.random.Generator
    ) -> Choice:
        """The negatives of these queries. `positives` are all their positives, which need features too."""
        raise NotImplementedError

    def triplets(
        self, client: ClientPhotos, embed: Embed, rng: np.random.Generator, batch: int = 2
    ) -> Iterator[Triplets]:
        """One local epoch over the usable queries, in random order, `batch` at a time."""
        client.check_usable()
        if self.steps == "queries":
            yield from self._pass(client, embed, rng, batch)
            return
        left = max(1, len(client.groups) // batch)
        while left:
            before = left
            for triplets in islice(self._pass(client, embed, rng, batch), left):
                yield triplets
                left -= 1
            if left == before:
                return  # no query got a negative

    def _pass(self, client: ClientPhotos, embed: Embed, rng: np.random.Generator, batch: int) -> Iterator[Triplets]:
        order = rng.permutation(client.usable)
        for start in range(0, len(order), self.refresh):
            mined = self.mine(client, order[start : start + self.refresh], embed, rng)
            for first in range(0, len(mined.query), batch):
                yield Triplets(*(part[first : first + batch] for part in mined))

    def mine(self, client: ClientPhotos, queries: np.ndarray, embed: Embed, rng: np.random.Generator) -> Triplets:
        """Triplets of these queries (each usable), without those that got no negative."""
        owner, photo = client.positives(queries)
        features, negatives, found = self.choose(client, queries, photo, embed, rng)
        distances = features.distances(queries[owner], photo)
        positive, _ = _first_of_each(owner, photo, distances, len(queries), 1)
        return Triplets(queries[found], positive[found, 0], negatives[found])

    def hardest(self, queries: np.ndarray, owner: np.ndarray, photo: np.ndarray, features: Features) -> Choice:
        """The nearest of each query's own candidates: `photo[i]` is one of the query number `owner[i]`."""
        distances = features.distances(queries[owner], photo)
        found, counts = _first_of_each(owner, photo, distances, len(queries), self.negatives)
        return Choice(features, *_repeated(found, counts, self.negatives))


@dataclass(frozen=True)
class PartialMiner(Miner):
    """The hardest of a pool that the queries of a cache share."""

    pool: int = 1000  # photographs that are searched for negatives; all if a client has fewer

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_counts(pool=self.pool)

    def choose(
        self, client: ClientPhotos, queries: np.ndarray, positives: np.ndarray, embed: Embed, rng: np.random.Generator
    ) -> Choice:
        size = min(self.pool, len(client.database))
        pool = np.sort(rng.choice(client.database, size, replace=False))
        features = Features(embed, queries, positives, pool)
        # those that are near count too, so as many more are looked for
        count = self.negatives + client.most_near(queries, pool)
        found = pool[nearest(features[queries], features[pool], count)[0]]
        near = client.are_near(queries[:, None], found)
        found = np.take_along_axis(found, np.argsort(near, axis=1, kind="stable"), 1)
        return Choice(features, *_repeated(found, (~near).sum(1), self.negatives))


@dataclass(frozen=True)
class FullMiner(PartialMiner):
    """The hardest of a pool of each query's own, and of the negatives it had before."""

    def choose(
        self, client: ClientPhotos, queries: np.ndarray, positives: np.ndarray, embed: Embed, rng: np.random.Generator
    ) -> Choice:
        if len(client.database) <= self.pool:
            return super().choose(client, queries, positives, embed, rng)
        features = Features(embed, queries, client.database)
        none = np.empty(0, np.int64)
        pools = [
            np.union1d(client.far(query, self.pool, rng), client.previous.get(int(query), none)) for query in queries
        ]
        owner = np.repeat(np.arange(len(queries)), [len(pool) for pool in pools])
        choice = self.hardest(queries, owner, np.concatenate(pools), features)
        client.previous.update(zip(queries.tolist(), choice.negatives))
        return choice


@dataclass(frozen=True)
class RandomMiner(Miner):
    """Any negatives."""

    def choose(
        self, client: ClientPhotos, queries: np.ndarray, positives: np.ndarray, embed: Embed, rng: np.random.Generator
    ) -> Choice:
        features = Features(embed, queries, positives)
        drawn = [np.resize(client.far(query, self.negatives, rng), self.negatives) for query in queries]
        return Choice(features, np.stack(drawn), np.ones(len(queries), bool))


@dataclass(frozen=True)
class LocalMiner(Miner):
    """The hardest of the closest sequences of the database."""

    sequences: int = 20
    per_sequence: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_counts(sequences=self.sequences, per_sequence=self.per_sequence)

    def choose(
        self, client: ClientPhotos, queries: np.ndarray, positives: np.ndarray, embed: Embed, rng: np.random.Generator
    ) -> Choice:
        owner, photo = self._candidates(client, queries, rng)
        return self.hardest(queries, owner, photo, Features(embed, queries, positives, photo))

    def _candidates(
        self, client: ClientPhotos, queries: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """A few photographs of each of the closest sequences, the same of a sequence for all queries of a cache."""
        if client.sequence is None or client.pairs is not None:
            raise ConfigError("mining = 'local' needs photographs with positions and sequences")
        sequence = client.sequence
        owners, photos = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for group in np.unique(client.groups[queries]):
            numbers = np.flatnonzero(client.groups[queries] == group)
            known = client.database[(client.groups[client.database] == group) & (sequence[client.database] >= 0)]
            known = known[np.lexsort((rng.random(len(known)), sequence[known]))]  # shuffled within each sequence
            for part, near in self._closest(client, queries, numbers, known):
                owners.append(part)
                photos.append(near)
        owner, photo = np.concatenate(owners), np.concatenate(photos)
        far = ~client.are_near(queries[owner], photo)
        return owner[far], photo[far]

    def _closest(
        self, client: ClientPhotos, queries: np.ndarray, numbers: np.ndarray, photos: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Number of a query and photograph, of the first `per_sequence` of its closest sequences."""
        if not len(photos) or client.sequence is None:
            return
        first = np.flatnonzero(np.diff(client.sequence[photos], prepend=-1))
        sizes = np.diff(first, append=len(photos))
        drawn = np.arange(len(photos)) - np.repeat(first, sizes) < self.per_sequence
        place = np.repeat(np.arange(len(first)), sizes)
        step = max(1, BLOCK // len(photos))
        for start in range(0, len(numbers), step):
            part = numbers[start : start + step]
            offsets = client.positions[queries[part], None] - client.positions[photos][None]
            metres = np.minimum.reduceat(np.hypot(offsets[..., 0], offsets[..., 1]), first, axis=1)
            chosen = np.zeros(metres.shape, bool)
            np.put_along_axis(chosen, np.argsort(metres, axis=1, kind="stable")[:, : self.sequences], True, 1)
            row, column = np.nonzero(chosen[:, place] & drawn)
            yield part[row], photos[column]


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ConfigError(f"mining.{name} = {count}: expected at least 1")


def _first_of_each(
    owner: np.ndarray, photo: np.ndarray, distances: np.ndarray, owners: int, wanted: int
) -> tuple[np.ndarray, np.ndarray]:
    """The nearest photographs of each owner, (owners, wanted), equal ones in their order; and how many there are."""
    order = np.lexsort((photo, distances, owner))
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
