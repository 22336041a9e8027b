"""Who has which photographs: the columns of FedVPR's Tab. 1, clients and photographs by city and continent (its Fig. 4
and 5), and a map of each city, thinned out. All of it ready for JSON.

A photograph that several clients have counts once for each. Standard deviations are those of all clients, not estimates
from a sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wayfare.core.protocols import Population
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.partition.continents import continent_of
from wayfare.places.partition.sequenced import Sequenced, city_name

MOST_POINTS = 5000  # of all maps together, or little more
_UNKNOWN = ""  # the continent of a city that could be anywhere


def census(split: Population, photos: PlacePhotos) -> dict[str, Any]:
    """ "table": numbers per client; "cities" and "continents": a row each; "maps": points, and proximity's discs."""
    held = _Held(split, photos)
    return {
        "table": held.table(),
        "cities": held.by(held.cities, held.city, {"continent": held.continent_of_city}),
        "continents": held.by(held.continents, held.continent, {}),
        "maps": held.maps(),
        "radius": split.provenance["settings"]["radius"] if held.centred else None,
    }


class _Held:
    """Every photograph that a client holds, in a row: `client[j]` has the photograph `row[j]`."""

    def __init__(self, split: Population, photos: PlacePhotos) -> None:
        self.split, self.photos, self.pool = split, photos, Sequenced(photos)
        self.centred = split.provenance.get("rule") == "proximity"  # a client's first photograph is its centre
        self.row = np.concatenate([np.empty(0, np.int64), *split])
        self.client = np.repeat(np.arange(len(split)), split.sizes)
        groups = np.unique(photos.group).tolist()  # others may have been for testing only
        city = {group: city_name(photos.groups[group]) for group in groups}
        continent = {group: continent_of(photos, group) or _UNKNOWN for group in groups}
        self.continent_of_city = {city[group]: continent[group] for group in groups}
        # the names, and the place among them of each photograph of the pool; -1 for a continent that is not known
        self.cities, self.city = self._coded(city)
        self.continents, self.continent = self._coded(continent)

    def table(self) -> dict[str, float | int | None]:
        """What is beside each other in Tab. 1, and what a client has on average beyond it."""
        clients, sequences = len(self.split), len(self.pool)
        parts = {
            "sequences": self._distinct(self.pool.sequence, sequences) // sequences,
            "cities": self._distinct(self.city, len(self.cities)) // len(self.cities),
        }
        if self.photos.query is not None:
            asks = self.photos.query[self.row]
            parts |= {"queries": self.client[asks], "database": self.client[~asks]}
        table: dict[str, float | int | None] = {}
        for name, owners in parts.items():
            per_client = np.bincount(owners, minlength=clients)
            table[f"{name}_mean"] = float(per_client.mean()) if clients else None
            table[f"{name}_sd"] = float(per_client.std()) if clients else None
        table["left_out"] = len(self.photos) - len(np.unique(self.row))
        return table

    def by(self, names: list[str], kind: np.ndarray, more: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
        """For each of the cities or continents: clients with photographs there, and what there is."""
        count = len(names)
        kinds = kind[self.row]
        images = np.bincount(kinds[kinds >= 0], minlength=count)
        clients = np.bincount(self._distinct(kind, count) % count if count else [], minlength=count)
        sequences = np.unique(self.pool.sequence[self.row])
        of_sequence = kind[self.pool.rows[self.pool.start[sequences]]]
        sequences = np.bincount(of_sequence[of_sequence >= 0], minlength=count)
        out = np.ones(len(self.photos), bool)
        out[self.row] = False
        left_out = np.bincount(kind[out & (kind >= 0)], minlength=count)
        return [
            {
                "name": name,
                **{column: values[name] for column, values in more.items()},
                "clients": int(clients[i]),
                "sequences": int(sequences[i]),
                "images": int(images[i]),
                "left_out": int(left_out[i]),
            }
            for i, name in enumerate(names)
        ]

    def maps(self) -> list[dict[str, Any]]:
        """One for each group with known positions: metres from its south-west corner, and whose each photograph is.

        Clients by their number (the 12 of "c12"), -1 for nobody's; of several clients the first.
        """
        place = np.stack((self.photos.easting, self.photos.northing), -1)
        known = np.isfinite(place).all(1)
        numbers = np.arange(len(self.split)) if self.split.numbers is None else self.split.numbers
        owner = np.full(len(self.photos), -1, np.int64)
        owner[self.row[::-1]] = numbers[self.client[::-1]]  # what is written last stays
        discs = self._discs()
        share = min(1.0, MOST_POINTS / max(int(known.sum()), 1))
        found = []
        for group in sorted(range(len(self.photos.groups)), key=self.photos.groups.__getitem__):
            rows = np.flatnonzero((self.photos.group == group) & known)
            if not len(rows):
                continue
            corner = place[rows].min(0)
            shown = rows[np.linspace(0, len(rows) - 1, int(np.ceil(share * len(rows)))).astype(np.int64)]
            centres = [(client, row) for client, row in discs if self.photos.group[row] == group and known[row]]
            x, y = (place[shown] - corner).round(1).T.tolist()
            found.append(
                {
                    "city": city_name(self.photos.groups[group]),
                    "images": len(rows),
                    "x": x,
                    "y": y,
                    "client": owner[shown].tolist(),
                    "discs": [[int(numbers[i]), *(place[row] - corner).round(1).tolist()] for i, row in centres],
                }
            )
        return found

    def _coded(self, names: dict[int, str]) -> tuple[list[str], np.ndarray]:
        listed = sorted(set(names.values()) - {_UNKNOWN})
        places = {name: place for place, name in enumerate(listed)}
        table = np.full(len(self.photos.groups), -1, np.int64)
        for group, name in names.items():
            table[group] = places.get(name, -1)
        return listed, table[self.photos.group]

    def _discs(self) -> list[tuple[int, int]]:
        """Each client and its centre, where the rule has centres."""
        return [(client, int(rows[0])) for client, rows in enumerate(self.split) if self.centred and len(rows)]

    def _distinct(self, kind: np.ndarray, count: int) -> np.ndarray:
        """client * count + kind, once for every pair that occurs."""
        kinds = kind[self.row]
        return np.unique(self.client[kinds >= 0] * count + kinds[kinds >= 0])
