"""Proximity: clients are neighbourhoods, sequences within a radius of a photograph (FedVPR, Sec. 4.1).

City by city, clients are formed one after the other: around a query photograph everything near that no client has yet
is gathered, and it is a client if there are at least two query and two database sequences (`least`). The paper leaves
open, and here it is:

    the centre          the query sequences of a city take turns in random order, each with one of its query photos
                        drawn at random, so that a long sequence is no likelier to be a centre than a short one
    what is near        a sequence that comes within the radius with at least one frame, which the centre's own always
                        does; so a client's photographs may reach beyond its disc, as far as the sequence goes
    what is not enough  goes back, and a later centre may gather it; only the centre has had its turn. What is left when
                        all have had theirs is in no client: the paper, too, loses more the smaller the radius (its
                        clients have 22.2, 23.5 and 23.7 thousand sequences in all with 1, 2 and 4 km, Tab. 1)

No sequence is in two clients. The first photograph of a client is its centre. A city's clients depend on the seed and
on that city alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Partition
from wayfare.core.seeds import rng_for
from wayfare.partition.split import Split
from wayfare.places.data.place_photos import Group, PlacePhotos
from wayfare.places.partition.sequenced import GroupBy, Sequenced, check_settings, provenance, sequenced

_STALE = 0.25  # share of a search tree's photographs that have a client already: then it is rebuilt without them


class Disc(NamedTuple):
    """A client: the sequences around a photograph."""

    centre: int  # row
    sequences: np.ndarray


@dataclass(frozen=True)
class Proximity(Partition):
    """Discs of `radius` metres, with at least `least` query and `least` database sequences each."""

    radius: float = 1000.0  # of a client's neighbourhood, in metres
    least: int = 2  # query and database sequences that it has at least
    groups: GroupBy = "city"  # what a hierarchy groups the clients by

    source: ClassVar[str] = "photos"

    def __post_init__(self) -> None:
        check_settings(self.least, self.radius, groups=self.groups)

    def __call__(self, photos: PlacePhotos, rng: np.random.Generator) -> Split:
        pool = sequenced(photos)
        found = [disc for city in self.discs(pool, int(rng.integers(2**63))).values() for disc in city]
        if not found:
            raise ConfigError(
                f"proximity: nowhere within {self.radius:g} m of a query are {self.least} query and {self.least} "
                "database sequences; raise radius or lower least"
            )
        parts = []
        for centre, sequences in found:
            rows = np.sort(pool.rows_of(sequences))
            parts.append(np.concatenate([[centre], rows[rows != centre]]))
        groups = pool.group_names(self.groups, [int(disc.sequences[0]) for disc in found])
        return Split.from_parts(parts, provenance(self, photos, rng), groups)

    def discs(self, pool: Sequenced, seed: int) -> dict[Group, list[Disc]]:
        """The clients of each city, in the order in which they were formed."""
        place = np.stack((pool.photos.easting, pool.photos.northing), -1)
        if not np.isfinite(place).all(1).any():
            raise ConfigError(
                f"{pool.photos.root}: proximity needs positions in metres, and these photographs have none"
            )
        return {
            group: self._in_city(pool, place, sequences, rng_for(seed, *group))
            for group, sequences in pool.cities()
        }  # fmt: skip

    def _in_city(
        self, pool: Sequenced, place: np.ndarray, sequences: np.ndarray, rng: np.random.Generator
    ) -> list[Disc]:
        def search_tree(rows: np.ndarray) -> cKDTree:
            return cKDTree(place[rows], compact_nodes=False, balanced_tree=False)  # quick to build: it is built often

        rows = pool.rows_of(sequences)
        rows = rows[np.isfinite(place[rows]).all(1)]
        free = np.zeros(len(pool), bool)
        free[sequences] = True
        found: list[Disc] = []
        if not len(rows):
            return found
        tree, taken = search_tree(rows), 0
        for centre in _centres(pool, rows, rng):
            if not free[pool.sequence[centre]]:
                continue
            near = pool.sequence[rows[tree.query_ball_point(place[centre], self.radius)]]
            gathered = np.unique(near[free[near]])
            if not pool.enough(gathered, self.least):
                continue
            found.append(Disc(int(centre), gathered))
            free[gathered] = False
            taken += int((pool.start[gathered + 1] - pool.start[gathered]).sum())
            if taken > _STALE * len(rows):
                rows = rows[free[pool.sequence[rows]]]
                tree, taken = search_tree(rows), 0
        return found


def _centres(pool: Sequenced, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One query photograph of each query sequence, both at random."""
    shuffled = rng.permutation(rows[pool.asks[rows]])
    _, first = np.unique(pool.sequence[shuffled], return_index=True)
    found: np.ndarray = shuffled[rng.permutation(first)]
    return found
