"""The town as Mapillary Street-level Sequences: train_val/<city>/{query,database} with pictures and four tables.

Whole sequences are queries, about a third of a city's photographs, chosen so that nearly every query has a photograph
of another sequence in the database within 25 m. As in the original, `captured_at` is a date without a time. A query is
in subtask `all` if it can be answered at all, and in `d2n` and so on if it is of the one kind and a photograph of the
other kind is near; a photograph of the database is in a subtask if it is of the other kind. "Old" is what was taken
before the middle one of a city's dates.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from wayfare.core.seeds import seed_for
from wayfare.io.utm import region
from wayfare.town.model import Photo, Shot

RADIUS = 25.0  # metres: what counts as the same place
# The largest share of photographs that are queries, and the least share of each query sequence that must be near the
# database. A very small city has little choice of sequences: if too few can be queries, the next aim is tried.
AIMS = ((1 / 3, 0.95), (1 / 3, 0.8), (1 / 2, 0.5), (1 / 2, 0.0))
ENOUGH = 1 / 5

_Entries = Sequence[tuple[Shot, dict[str, Any]]]


def wants(shot: Shot) -> bool:
    """All but signs, which stand still: the original is of cameras that move."""
    return shot.role != "signage"


def take(folder: Path, stage: Path, number: int, photo: Photo, jpeg: bytes) -> dict[str, Any]:
    """Write the picture to the database; `index`, which sees all, moves the queries."""
    _write(_picture(folder, photo.shot, "database"), jpeg)
    return {"latitude": photo.latitude, "longitude": photo.longitude}


def index(folder: Path, stage: Path, entries: _Entries, seed: int) -> None:
    """Choose the queries and write each city's tables."""
    for city in dict.fromkeys(shot.city for shot, _ in entries):
        _City(folder, [entry for entry in entries if entry[0].city == city], seed).write()


def _picture(folder: Path, shot: Shot, role: str) -> Path:
    return folder / "train_val" / shot.city / role / "images" / f"{shot.key}.jpg"


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


class _City:
    """All photographs of one city, in the order of sequences and frames."""

    def __init__(self, folder: Path, entries: _Entries, seed: int) -> None:
        first_seen = {sequence: place for place, sequence in enumerate(dict.fromkeys(s.sequence for s, _ in entries))}
        ordered = sorted(entries, key=lambda entry: (first_seen[entry[0].sequence], entry[0].frame))
        self.folder = folder
        self.shots = [shot for shot, _ in ordered]
        self.latitude = np.array([facts["latitude"] for _, facts in ordered])
        self.longitude = np.array([facts["longitude"] for _, facts in ordered])
        self.easting, self.northing, _ = region(self.latitude, self.longitude)
        self.sequence = np.array([first_seen[shot.sequence] for shot in self.shots])
        self.pairs = self.near_pairs()
        self.query = self.choose_queries([seed_for(seed, "msls query", name) for name in first_seen])

    def near_pairs(self) -> np.ndarray:
        """(P, 2): flat photographs of different sequences, within the radius, each pair both ways round."""
        place = np.stack((self.easting, self.northing), -1)
        pairs = cKDTree(place).query_pairs(RADIUS, output_type="ndarray")
        pano = np.array([shot.pano for shot in self.shots])
        usable = (self.sequence[pairs[:, 0]] != self.sequence[pairs[:, 1]]) & ~pano[pairs].any(1)
        return np.concatenate((pairs[usable], pairs[usable][:, ::-1]))

    def choose_queries(self, lots: Sequence[int]) -> np.ndarray:
        """Which photographs are queries; none only if the city is a single sequence."""
        order = np.argsort(lots, kind="stable").tolist()
        query = np.zeros(len(self.shots), bool)
        for share, answered in AIMS:
            if query.mean() < ENOUGH:
                query = max(query, self.attempt(order, int(share * len(query)), answered), key=np.sum)
        return query

    def attempt(self, order: Sequence[int], most: int, answered: float) -> np.ndarray:
        """Go through the sequences and make queries of those that can be answered by what is then the database.

        A sequence is passed over if it, or a query sequence chosen before, would lose touch with the database.
        """
        near = self.pairs[np.argsort(self.pairs[:, 0], kind="stable")]
        count = np.bincount(near[:, 0], minlength=len(self.shots))  # near photographs that are in the database
        start = np.concatenate(([0], np.cumsum(count)))
        flat = np.array([not shot.pano for shot in self.shots])
        query = np.zeros(len(self.shots), bool)
        for sequence in order:
            members = np.flatnonzero(self.sequence == sequence)
            if query.sum() + len(members) > most:
                continue
            neighbours = np.concatenate([near[start[row] : start[row + 1], 1] for row in members])
            after = count - np.bincount(neighbours, minlength=len(count))
            touched = {sequence, *self.sequence[neighbours[query[neighbours]]].tolist()}
            counts = [after[(self.sequence == other) & flat] for other in touched]
            if all((found > 0).mean() >= answered for found in counts if len(found)):
                query[members] = True
                count = after
        return query

    def subtasks(self) -> dict[str, np.ndarray]:
        """Flags of every photograph."""
        dates = np.array([shot.date for shot in self.shots])
        new = dates >= np.sort(dates)[len(dates) // 2]
        season = np.array([shot.season for shot in self.shots])
        night = np.array([shot.night for shot in self.shots])
        summer, winter = season == "summer", season == "winter"
        whole = np.ones(len(dates), bool)
        kinds = {
            "all": (whole, whole),
            "s2w": (summer, winter),
            "w2s": (winter, summer),
            "o2n": (~new, new),
            "n2o": (new, ~new),
            "d2n": (~night, night),
            "n2d": (night, ~night),
        }
        asked, found = self.pairs[self.query[self.pairs[:, 0]] & ~self.query[self.pairs[:, 1]]].T
        flags = {}
        for name, (kind, other) in kinds.items():
            answered = np.zeros(len(dates), bool)
            answered[asked[other[found]]] = True
            flags[name] = np.where(self.query, kind & answered, other)
        return flags

    def clusters(self) -> list[int]:
        """A number for each square of 25 m, in the order in which they turn up."""
        cells = zip(np.floor(self.easting / RADIUS).tolist(), np.floor(self.northing / RADIUS).tolist())
        numbers: dict[tuple[float, float], int] = {}
        return [numbers.setdefault(cell, len(numbers)) for cell in cells]

    def tables(self) -> dict[str, dict[str, Sequence[object]]]:
        """The four files, as columns."""
        return {
            "seq_info.csv": {
                "sequence_key": [shot.sequence for shot in self.shots],
                "frame_number": [shot.frame for shot in self.shots],
            },
            "raw.csv": {
                "lon": self.longitude.tolist(),
                "lat": self.latitude.tolist(),
                "ca": [float(shot.heading) for shot in self.shots],
                "captured_at": [shot.date for shot in self.shots],
                "pano": [bool(shot.pano) for shot in self.shots],
            },
            "postprocessed.csv": {
                "easting": self.easting.tolist(),
                "northing": self.northing.tolist(),
                "unique_cluster": self.clusters(),
                "control_panel": [False] * len(self.shots),  # no dashboard is ever in the picture
                "night": [bool(shot.night) for shot in self.shots],
                "view_direction": [shot.direction for shot in self.shots],
            },
            "subtask_index.csv": {name: flags.tolist() for name, flags in self.subtasks().items()},
        }

    def write(self) -> None:
        tables = self.tables()
        for role, chosen in (("database", ~self.query), ("query", self.query)):
            images = _picture(self.folder, self.shots[0], role).parent
            images.mkdir(parents=True, exist_ok=True)
            rows = np.flatnonzero(chosen).tolist()
            for name, columns in tables.items():
                with (images.parent / name).open("w", newline="", encoding="utf-8") as file:
                    table = csv.writer(file, lineterminator="\n")
                    table.writerow(["", "key", *columns])
                    for number, row in enumerate(rows):
                        table.writerow([number, self.shots[row].key, *(column[row] for column in columns.values())])
        for row in np.flatnonzero(self.query).tolist():
            source = _picture(self.folder, self.shots[row], "database")
            if source.exists():  # otherwise this was interrupted after it had been moved
                source.replace(_picture(self.folder, self.shots[row], "query"))
