"""Clustering: clients are parts of a city that look alike, wherever they are (FedVPR, Sec. 4.1).

K-means in each city over the features that the task's untrained network has of its photographs. What is
clustered is the mean feature of a sequence, not the photographs one by one: those would cut sequences apart, but the
paper's clients have whole ones (Tab. 1: 678 clients with 36 of them are the 24 thousand that proximity deals out too)
and are valid or not by how many they have.

A city gets as many clusters as the proximity split with this radius and seed has clients in it (2000 m in the paper),
or, with `clients`, a share by its number of sequences. Then, as in the paper, the same rule for valid clients holds: a
cluster with fewer than `least` query or database sequences is no client, so there may be fewer clients than asked for
(there, 678 of 713).

Nothing depends on the order of rows or on the number of threads: sums go in the order of keys, in float64, on one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Partition
from wayfare.core.seeds import seed_for
from wayfare.partition.split import Split
from wayfare.places.data.place_photos import Group, PlacePhotos
from wayfare.places.partition.proximity import Proximity
from wayfare.places.partition.sequenced import GroupBy, Sequenced, check_settings, city_name, sequenced

_STARTS = 4  # of K-means: the best one is taken


@dataclass(frozen=True)
class Clustering(Partition):
    """K-means over sequences in each city; `clients` in all, or 0 for as many as proximity with `radius` has."""

    clients: int = 0
    radius: float = 1000.0
    least: int = 2
    groups: GroupBy = "city"  # what a hierarchy groups the clients by

    source: ClassVar[str] = "features"

    def __post_init__(self) -> None:
        check_settings(self.least, self.radius, self.clients, self.groups)

    def __call__(self, pool_features: tuple[PlacePhotos, np.ndarray], rng: np.random.Generator) -> Split:
        photos, features = pool_features
        pool = sequenced(photos)
        if features.ndim != 2 or len(features) != len(photos):
            raise ConfigError(f"clustering: {len(photos)} photographs, but features of shape {features.shape}")
        seed = int(rng.integers(2**63))
        wanted = self._wanted(pool, seed)
        clients: list[np.ndarray] = []
        for group, sequences in pool.cities():
            if wanted[group]:
                number = _clusters(_means(pool, features, sequences), wanted[group], seed_for(seed, *group))
                clusters = [sequences[number == k] for k in range(number.max() + 1)]
                clients += [cluster for cluster in clusters if pool.enough(cluster, self.least)]
        if not clients:
            raise ConfigError(
                f"clustering: no cluster has {self.least} query and {self.least} database sequences; lower clients or "
                "least, or raise radius"
            )
        return pool.split(self, rng, clients, pool.group_names(self.groups, [int(part[0]) for part in clients]))

    def _wanted(self, pool: Sequenced, seed: int) -> dict[Group, int]:
        """The number of clusters of each city."""
        if not self.clients:
            discs = Proximity(self.radius, self.least).discs(pool, seed)
            return {group: len(found) for group, found in discs.items()}
        return _shares(self.clients, {group: (len(s), self._most(pool, s)) for group, s in pool.cities()})

    def _most(self, pool: Sequenced, sequences: np.ndarray) -> int:
        """How many valid clients a city can have at best."""
        return int(min(pool.query[sequences].sum(), pool.database[sequences].sum()) // self.least)


def _shares(clients: int, cities: dict[Group, tuple[int, int]]) -> dict[Group, int]:
    """Clusters for each city by its number of sequences, at least one and at most what it can have."""
    able = {group: size for group, (size, most) in cities.items() if most}
    most = sum(limit for _, limit in cities.values())
    if not len(able) <= clients <= most:
        raise ConfigError(
            f"clustering: clients = {clients}, but each city ({', '.join(map(city_name, able)) or 'there is none'}) "
            f"needs one, and their sequences are enough for {most}"
        )
    shares = dict.fromkeys(cities, 0) | dict.fromkeys(able, 1)
    for _ in range(clients - len(able)):  # to the city with most sequences per cluster, as seats are given to parties
        open_ = [group for group in able if shares[group] < cities[group][1]]
        shares[max(open_, key=lambda group: able[group] / (shares[group] + 1))] += 1
    return shares


def _means(pool: Sequenced, features: np.ndarray, sequences: np.ndarray) -> np.ndarray:
    """The mean feature of each sequence, float64."""
    sizes = pool.start[sequences + 1] - pool.start[sequences]
    chosen = features[pool.rows_of(sequences)].astype(np.float64)
    if not np.isfinite(chosen).all():
        raise ConfigError("clustering: features of some photographs are not finite numbers")
    sums: np.ndarray = np.add.reduceat(chosen, np.cumsum(sizes) - sizes, axis=0)
    found: np.ndarray = sums / sizes[:, None]
    return found


def _clusters(points: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The cluster of each point, numbered from 0 in the order of their first points."""
    from sklearn.cluster import KMeans  # a second to import

    count = min(count, len(np.unique(points, axis=0)))
    with threadpool_limits(1):  # threads would add up their sums in any order
        found = KMeans(count, n_init=_STARTS, random_state=seed % 2**32, algorithm="lloyd").fit_predict(points)
    _, first, number = np.unique(found, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number]
