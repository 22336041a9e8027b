"""Photographs of places: where and when each was taken, in one table whatever the layout they came in.

Positions are metres (UTM) and may only be compared within a group, which is a city and its zone: the same easting and
northing exist in sixty zones. `PlacePhotos.positives` keeps to that. Pictures stay in their files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from wayfare.core.errors import DataError
from wayfare.io.findings import Problems, Progress
from wayfare.io.images import decode_all

_CHUNK = 512  # pictures that are verified at a time
_SEEN = (8, 8)  # the size they are decoded to: read to the end, at an eighth of the work

_ROWS = ("files", "keys", "group", "easting", "northing", "split")  # columns that every layout has
# columns that a layout may lack: type, and what stands for "not known" in a row
_COLUMNS: Mapping[str, tuple[Any, Any]] = {
    "query": (bool, False),
    "latitude": (np.float64, np.nan),
    "longitude": (np.float64, np.nan),
    "heading": (np.float64, np.nan),
    "captured": ("datetime64[ms]", np.datetime64("NaT")),
    "sequence": (np.int32, -1),
    "frame": (np.int64, -1),
    "night": (bool, False),
    "direction": ("U8", ""),
    "pano": (bool, False),
    "camera": (object, ""),
}


class Group(NamedTuple):
    """Photographs whose positions can be compared."""

    city: str  # "" where the layout has no cities
    zone: str  # "33N", "34S": UTM zone and hemisphere; "" where it is not known


@dataclass(frozen=True)
class PlacePhotos:
    """N photographs, a column of N values for each thing known; a column that the layout lacks is None."""

    root: Path
    files: np.ndarray  # str: below root, with "/"
    keys: np.ndarray  # str: unique; MSLS's own, elsewhere the file
    groups: tuple[Group, ...]
    group: np.ndarray  # int32: place in groups
    easting: np.ndarray  # float64, metres; NaN where the data set keeps it to itself, as MSLS does for its test cities
    northing: np.ndarray
    split: np.ndarray  # "train", "val", "test", or "" where nothing says
    query: np.ndarray | None = None  # bool: a query; otherwise it is in the database
    latitude: np.ndarray | None = None
    longitude: np.ndarray | None = None
    heading: np.ndarray | None = None  # degrees clockwise from north
    captured: np.ndarray | None = None  # datetime64[ms], as the camera's clock had it
    sequences: tuple[str, ...] = ()
    sequence: np.ndarray | None = None  # int32: place in sequences, -1 for none
    frame: np.ndarray | None = None  # int64: place in its sequence
    night: np.ndarray | None = None  # bool
    direction: np.ndarray | None = None  # "Forward", "Backward", "Sideways"
    pano: np.ndarray | None = None  # bool: 360 degrees
    camera: np.ndarray | None = None  # str
    subtasks: Mapping[str, np.ndarray] = field(default_factory=dict)  # bool each: MSLS's "all", "d2n", ...
    pairs: np.ndarray | None = None  # int64 (P, 2): rows of a query and of a photo of the same place, in sets of frames
    problems: Problems = field(default_factory=Problems)

    def __post_init__(self) -> None:
        for name in (*_ROWS, *_COLUMNS):
            column = getattr(self, name)
            if column is not None and column.shape != (len(self),):
                raise DataError(f"{len(self)} photographs but {name} has shape {column.shape}", self.root, field=name)
        if len(self) and not 0 <= int(self.group.min()) <= int(self.group.max()) < len(self.groups):
            raise DataError(f"groups run beyond {len(self.groups)}", self.root, field="group")
        if len(set(self.keys.tolist())) != len(self):
            raise DataError("two photographs have the same key", self.root, field="key")

    def __len__(self) -> int:
        return len(self.files)

    @property
    def city(self) -> np.ndarray:
        """The name of each photograph's city."""
        found: np.ndarray = text_column([group.city for group in self.groups])[self.group]
        return found

    def paths(self) -> list[Path]:
        """Where the pictures are."""
        return [self.root / file for file in self.files]

    def take(self, which: np.ndarray) -> PlacePhotos:
        """Some of the photographs: a mask, or rows, each at most once."""
        rows = np.flatnonzero(which) if np.asarray(which).dtype == bool else np.asarray(which, np.int64)
        columns = {name: getattr(self, name) for name in (*_ROWS, *_COLUMNS)}
        changes: dict[str, Any] = {name: None if c is None else c[rows] for name, c in columns.items()}
        changes["subtasks"] = {name: column[rows] for name, column in self.subtasks.items()}
        if self.pairs is not None:
            new_row = np.full(len(self), -1, np.int64)
            new_row[rows] = np.arange(len(rows))
            pairs = new_row[self.pairs]
            changes["pairs"] = pairs[(pairs >= 0).all(1)]
        return replace(self, **changes)

    def positives(
        self, radius: float, queries: np.ndarray | None = None, database: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """For each query the rows of the database at most `radius` metres away, in order, never of another group.

        Queries and database are rows; by default what the layout says. Sets of frames know their pairs: the radius
        then plays no part.
        """
        if queries is None or database is None:
            if self.query is None:
                raise DataError(
                    "the files do not say which photographs are queries", self.root, remedy="choose them yourself"
                )
            queries = np.flatnonzero(self.query) if queries is None else queries
            database = np.flatnonzero(~self.query) if database is None else database
        queries, database = np.asarray(queries, np.int64), np.asarray(database, np.int64)
        return self._paired(queries, database) if self.pairs is not None else self._near(radius, queries, database)

    def _near(self, radius: float, queries: np.ndarray, database: np.ndarray) -> list[np.ndarray]:
        place = np.stack((self.easting, self.northing), -1)
        known = np.isfinite(place).all(1)
        found = [np.empty(0, np.int64)] * len(queries)
        for group in np.unique(self.group[queries]):
            asked = np.flatnonzero((self.group[queries] == group) & known[queries])
            rows = database[(self.group[database] == group) & known[database]]
            if len(rows) and len(asked):
                near = cKDTree(place[rows]).query_ball_point(place[queries[asked]], radius, return_sorted=True)
                for number, members in zip(asked, near):
                    found[number] = rows[np.asarray(members, np.int64)]
        return found

    def _paired(self, queries: np.ndarray, database: np.ndarray) -> list[np.ndarray]:
        pairs = self.pairs if self.pairs is not None else np.empty((0, 2), np.int64)
        pairs = pairs[np.isin(pairs[:, 1], database)]
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        first = np.searchsorted(pairs[:, 0], queries, "left")
        last = np.searchsorted(pairs[:, 0], queries, "right")
        return [pairs[start:end, 1] for start, end in zip(first, last)]


def text_column(values: Sequence[str]) -> np.ndarray:
    """Strings as an array; not numpy's own kind, in which one long name makes every row as long."""
    column = np.empty(len(values), object)
    column[:] = values
    return column


def coded(values: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """The distinct values in the order of their first appearance, and each value's place among them; "" is -1."""
    places: dict[str, int] = {}
    codes = [places.setdefault(value, len(places)) if value else -1 for value in values]
    return tuple(places), np.array(codes, np.int32)


def joined(parts: Sequence[PlacePhotos]) -> PlacePhotos:
    """Several tables as one. A column that any of them has is kept; the others' rows then say "not known"."""
    first = parts[0]
    groups = {group: place for place, group in enumerate(dict.fromkeys(g for part in parts for g in part.groups))}
    sequences = {name: place for place, name in enumerate(dict.fromkeys(s for part in parts for s in part.sequences))}
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ROWS}
    columns["group"] = np.concatenate([_recoded(part.group, part.groups, groups) for part in parts])
    for name in _COLUMNS:
        if any(getattr(part, name) is not None for part in parts):
            columns[name] = np.concatenate([_filled(part, name, sequences) for part in parts])
    names = dict.fromkeys(name for part in parts for name in part.subtasks)
    absent = [np.zeros(len(part), bool) for part in parts]
    columns["subtasks"] = {
        name: np.concatenate([part.subtasks.get(name, none) for part, none in zip(parts, absent)]) for name in names
    }
    return PlacePhotos(
        root=first.root, groups=tuple(groups), sequences=tuple(sequences), problems=first.problems, **columns
    )


def _recoded(codes: np.ndarray, names: Sequence[Any], places: Mapping[Any, int]) -> np.ndarray:
    table = np.array([*(places[name] for name in names), -1], np.int32)  # the last one is what -1 finds
    found: np.ndarray = table[codes]
    return found


def _filled(part: PlacePhotos, name: str, sequences: Mapping[str, int]) -> np.ndarray:
    kind, unknown = _COLUMNS[name]
    column = getattr(part, name)
    if column is None:
        return np.full(len(part), unknown, kind)
    return _recoded(column, part.sequences, sequences) if name == "sequence" else column


def verify_pictures(photos: PlacePhotos, progress: Progress | None = None) -> int:
    """Decode every picture to its end; those that fail are problems. How many are whole."""
    whole, paths = 0, photos.paths()
    for start in range(0, len(paths), _CHUNK):
        _, kept, broken = decode_all(paths[start : start + _CHUNK], _SEEN)
        whole += len(kept)
        for item in broken:
            photos.problems.add(item.reason, item.file, remedy="remove it, or copy it again")
        if progress is not None:
            progress(min(start + _CHUNK, len(paths)), len(paths))
    return whole
