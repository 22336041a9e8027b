"""Photographs sequence by sequence: what the splits of FedVPR (Sec. 4) deal out, and what the three of them share.

A sequence is never cut: its frames are one drive with one camera, and a client that had every second of them would have
photographs a few metres from those of its neighbour. Photographs without a sequence are sequences of one. A sequence
that runs through two groups (city and UTM zone) is two, because positions of different groups cannot be compared. One
with both queries and database photographs counts as either.

Sequences are numbered by city, zone and name, and the photographs of each are in the order of their keys: nothing here
depends on the order of the table's rows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from wayfare.core.errors import ConfigError, unknown
from wayfare.partition.split import Split, check_whole, origin
from wayfare.places.data.place_photos import Group, PlacePhotos
from wayfare.places.partition.continents import continent_of

GroupBy = Literal["city", "continent"]


class Sequenced:
    """The photographs of a pool as S whole sequences, city after city."""

    def __init__(self, photos: PlacePhotos) -> None:
        count = len(photos)
        sequence = photos.sequence if photos.sequence is not None else np.full(count, -1)
        alone = sequence < 0
        code = np.where(alone, len(photos.sequences) + np.arange(count), sequence)
        cell = photos.group.astype(np.int64) * (len(photos.sequences) + count) + code
        _, first, found = np.unique(cell, return_index=True, return_inverse=True)
        names = [
            (*photos.groups[photos.group[row]], photos.keys[row] if alone[row] else photos.sequences[sequence[row]])
            for row in first.tolist()
        ]
        order = sorted(range(len(first)), key=names.__getitem__)
        place = np.empty(len(first), np.int64)
        place[order] = np.arange(len(first))

        self.photos = photos
        self.sequence = place[found]  # (N,): of each photograph
        by_key = np.array(sorted(range(count), key=photos.keys.tolist().__getitem__), np.int64)
        self.rows = by_key[np.argsort(self.sequence[by_key], kind="stable")]  # of all, sequence after sequence
        self.start = np.concatenate([[0], np.cumsum(np.bincount(self.sequence, minlength=len(first)))]).astype(np.int64)
        self.group = photos.group[first][order]  # (S,)
        self.asks = photos.query if photos.query is not None else np.zeros(count, bool)  # (N,)
        self.query = np.bincount(self.sequence, self.asks, len(first)) > 0  # (S,): has any
        self.database = np.bincount(self.sequence, ~self.asks, len(first)) > 0

    def __len__(self) -> int:
        return len(self.group)

    def cities(self) -> list[tuple[Group, np.ndarray]]:
        """The groups in alphabetical order, each with its sequences."""
        members = {int(group): np.flatnonzero(self.group == group) for group in np.unique(self.group)}
        found = [(self.photos.groups[group], sequences) for group, sequences in members.items()]
        return sorted(found, key=lambda pair: pair[0])

    def rows_of(self, sequences: np.ndarray) -> np.ndarray:
        """Their photographs, one sequence after the other."""
        sizes = self.start[sequences + 1] - self.start[sequences]
        ends = np.cumsum(sizes)
        steps = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.start[sequences] - ends + sizes, sizes)
        found: np.ndarray = self.rows[steps]
        return found

    def enough(self, sequences: np.ndarray, least: int) -> bool:
        """The rule for a valid client: at least so many query and database sequences."""
        return bool(self.query[sequences].sum() >= least and self.database[sequences].sum() >= least)

    def split(
        self, rule: Any, rng: np.random.Generator, clients: Sequence[np.ndarray], groups: list[str] | None
    ) -> Split:
        """The split in which each client has these sequences, its photographs in the order of the table."""
        parts = [np.sort(self.rows_of(sequences)) for sequences in clients]
        return Split.from_parts(parts, provenance(rule, self.photos, rng), groups)

    def group_names(self, by: GroupBy, sequences: Sequence[int]) -> list[str]:
        """The city or the continent in which each of these sequences is."""
        named = {group: self._name(group, by) for group in dict.fromkeys(self.group[list(sequences)].tolist())}
        return [named[group] for group in self.group[list(sequences)].tolist()]

    def _name(self, group: int, by: GroupBy) -> str:
        if by == "city":
            return city_name(self.photos.groups[group])
        found = continent_of(self.photos, group)
        if found is None:
            raise ConfigError(
                f"groups = 'continent': {city_name(self.photos.groups[group])} has neither latitude and longitude nor "
                "a UTM zone, so nothing says on which continent it is; use groups = 'city'"
            )
        return found


def city_name(group: Group) -> str:
    """What a group is called; photographs that no city is known for by their zone."""
    return group.city or (f"zone {group.zone}" if group.zone else "all")


def sequenced(photos: PlacePhotos) -> Sequenced:
    """The pool for a rule that needs queries and a database."""
    if not len(photos):
        raise ConfigError("this split divides photographs among clients, and there are none to train on")
    if photos.query is None:
        raise ConfigError(
            f"{photos.root}: the files do not say which photographs are queries, and a client needs queries and "
            "a database: put them in folders query and database, give a table a column role, or set data.queries"
        )
    return Sequenced(photos)


def provenance(rule: Any, photos: PlacePhotos, rng: np.random.Generator) -> dict[str, Any]:
    """As `origin` has it for labels; the data are known by the photographs' keys, in the order of the table."""
    known = origin(rule, np.empty(0, np.int64), rng)
    del known["labels_sha256"]
    keys = hashlib.sha256("\n".join(photos.keys.tolist()).encode("utf-8", "surrogateescape")).hexdigest()
    return known | {"samples": len(photos), "photos_sha256": keys}


def check_settings(least: int, radius: float, clients: int = 0, groups: str = "city") -> None:
    """What the three rules have in common."""
    check_whole("least", least, 1)
    check_whole("clients", clients, 0)
    if isinstance(radius, bool) or not (radius > 0 and math.isfinite(radius)):
        raise ConfigError(f"radius must be a distance in metres above 0, not {radius!r}")
    if groups not in get_args(GroupBy):
        raise unknown("groups", str(groups), get_args(GroupBy))
