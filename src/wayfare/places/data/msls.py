"""Mapillary Street-level Sequences, as it is unpacked; the town is written in the same form.

    train_val/<city>/{query,database}/images/<key>.jpg
                                      seq_info.csv       key, sequence_key, frame_number
                                      raw.csv            key, lon, lat, ca, captured_at, pano
                                      postprocessed.csv  key, easting, northing, night, view_direction, ...
                                      subtask_index.csv  all, s2w, w2s, o2n, n2o, d2n, n2d          may be absent
    test/<city>/...                                      raw and postprocessed are withheld

Columns are found by name and rows of different files by key. Not every volume of pictures need be there: a city without
any is listed as a problem and left out.

Validation cities are the official ones, cph and sf, if any official city is present. In other trees, such as the
town's, it is the alphabetically last city, unless the caller names some; a single city is all for training.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wayfare.core.errors import DataError
from wayfare.io.findings import Findings, Problems, Progress
from wayfare.io.folders import moment
from wayfare.io.images import SUFFIXES
from wayfare.io.tables import Parser, Table, boolean, header, number, optional, read_csv, text, whole
from wayfare.io.utm import zone_name
from wayfare.places.data.place_photos import Group, PlacePhotos, coded, joined, text_column, verify_pictures

TRAIN_CITIES = (
    "trondheim", "london", "boston", "melbourne", "amsterdam", "helsinki", "tokyo", "toronto", "saopaulo", "moscow",
    "zurich", "paris", "bangkok", "budapest", "austin", "berlin", "ottawa", "phoenix", "goa", "amman", "nairobi",
    "manila",
)  # fmt: skip
VAL_CITIES = ("cph", "sf")
SUBTASKS = ("all", "s2w", "w2s", "o2n", "n2o", "d2n", "n2d")
DIRECTIONS = ("Forward", "Backward", "Sideways")
Subtask = Literal["all", "s2w", "w2s", "o2n", "n2o", "d2n", "n2d"]

_ROLES = ("database", "query")
_TABLES = ("seq_info.csv", "raw.csv", "postprocessed.csv")
_METRES = number(-2e7, 2e7)  # half of the way around the Earth


_is_key = re.compile(r"[\w-]{1,100}", re.ASCII).fullmatch


def _key(value: str) -> str:
    if not _is_key(value):
        raise ValueError(f"expected letters, digits, - and _, found {value[:40]!r}")
    return value


def _direction(value: str) -> str:
    found = value.strip().capitalize()
    if found not in DIRECTIONS:
        raise ValueError(f"expected {', '.join(DIRECTIONS)}, found {value[:40]!r}")
    return found


_COLUMNS: Mapping[str, Mapping[str, Parser]] = {
    "seq_info.csv": {"key": _key, "sequence_key": text, "frame_number": whole(0, 2**31)},
    "raw.csv": {
        "key": _key,
        "lon": number(-180, 180),
        "lat": number(-90, 90),
        "ca": optional(number(-720, 720), np.nan),
        "captured_at": optional(moment, None),
        "pano": boolean,
    },
    "postprocessed.csv": {
        "key": _key,
        "easting": _METRES,
        "northing": _METRES,
        "night": optional(boolean, False),
        "view_direction": optional(_direction, ""),
    },
}


def load(
    root: Path,
    *,
    cities: Sequence[str] | None = None,
    val_cities: Sequence[str] | None = None,
    test_cities: Sequence[str] = (),
    exclude_panos: bool = True,
    subtask: Subtask | None = None,
    strict: bool = False,
) -> PlacePhotos:
    """All photographs of the tree, or of some cities; `root` is the folder that holds train_val, or train_val itself.

    `subtask` keeps of the validation and test cities what that official subtask uses ("all" is the protocol of most
    published numbers); None keeps everything. `test_cities` are cities of train_val to be tested on, as some papers do.
    """
    if subtask is not None and subtask not in SUBTASKS:
        raise DataError(f"no subtask {subtask!r}; known: {', '.join(SUBTASKS)}", root)
    problems = Problems(strict)
    split_of = _splits(root, cities, val_cities, test_cities)
    parts: list[PlacePhotos] = []
    seen: dict[str, Path] = {}
    for folder, split in split_of.items():
        for role in _ROLES:
            try:
                part = _read(root, folder / role, folder.name, split, problems)
                if subtask is not None and split != "train":
                    part = part.take(_flags(part, folder / role, subtask))
            except DataError as error:
                problems.note(error)
                continue
            part = _first_time(part, folder / role, seen, problems)
            if len(part):
                parts.append(part.take(~part.pano) if exclude_panos and part.pano is not None else part)
    if not parts:
        raise problems.found[0] if problems.found else DataError("no photographs in it", root)
    return _one_zone_per_city(joined(parts))


def recognises(path: Path) -> bool:
    """Whether this is such a tree."""
    try:
        return bool(_cities(path))
    except DataError:
        return False


def check(path: Path, strict: bool = False, progress: Progress | None = None) -> Findings:
    """What is there and what is wrong with it; every picture is decoded."""
    photos = load(path, exclude_panos=False, strict=strict)
    whole_pictures = verify_pictures(photos, progress)
    query = photos.query if photos.query is not None else np.zeros(len(photos), bool)
    cities = {split: len(set(photos.city[photos.split == split])) for split in ("train", "val", "test")}
    counts: dict[str, int | float | str] = {
        "cities": len(photos.groups),
        **{f"{split} cities": count for split, count in cities.items() if count},
        "photos": len(photos),
        "queries": int(query.sum()),
        "database": int((~query).sum()),
        "sequences": len(photos.sequences),
        "by night": _count(photos.night),
        "panoramas": _count(photos.pano),
        "without position": int(np.isnan(photos.easting).sum()),
        "whole pictures": whole_pictures,
    }
    return Findings("msls", path, counts, photos.problems)


def _count(flags: np.ndarray | None) -> int:
    return 0 if flags is None else int(flags.sum())


# ---- Which cities, and what for


def _cities(root: Path) -> Sequence[tuple[str, Path]]:
    """The folders of cities, each with "train_val" or "test"."""
    bases = [("train_val", root / "train_val"), ("test", root / "test")]
    if not any(base.is_dir() for _, base in bases):
        bases = [("test" if root.name == "test" else "train_val", root)]
    try:
        folders = [(part, city) for part, base in bases if base.is_dir() for city in sorted(base.iterdir())]
        return [(part, city) for part, city in folders if _is_city(city)]
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", root) from error


def _is_city(folder: Path) -> bool:
    return any((folder / role / table).is_file() for role in _ROLES for table in _TABLES)


def _splits(
    root: Path, cities: Sequence[str] | None, val_cities: Sequence[str] | None, test_cities: Sequence[str]
) -> dict[Path, str]:
    """The folders of the cities wanted, each with "train", "val" or "test"."""
    if not root.is_dir():
        raise DataError("no such folder" if not root.exists() else "expected a folder, train_val's parent", root)
    found = _cities(root)
    if not found:
        raise DataError("no city in it: expected train_val/<city>/query/seq_info.csv and so on", root)
    trained = [folder.name for part, folder in found if part == "train_val"]
    if val_cities is None:
        official = set(trained) & {*TRAIN_CITIES, *VAL_CITIES}
        val_cities = VAL_CITIES if official else [name for name in trained if name not in test_cities][1:][-1:]
    elif absent := [name for name in val_cities if name not in trained]:
        raise DataError(f"no validation city {absent[0]!r}; found {', '.join(trained)}", root)
    names = {folder.name for _, folder in found}
    if absent := [name for name in (*(cities or ()), *test_cities) if name not in names]:
        raise DataError(f"no city {absent[0]!r}; found {', '.join(sorted(names))}", root)

    def use(part: str, city: str) -> str:
        return "test" if part == "test" or city in test_cities else "val" if city in val_cities else "train"

    return {folder: use(part, folder.name) for part, folder in found if cities is None or folder.name in cities}


# ---- One folder: the queries or the database of a city


def _read(root: Path, folder: Path, city: str, split: str, problems: Problems) -> PlacePhotos:
    withheld = split == "test" and not any((folder / name).exists() for name in ("raw.csv", "postprocessed.csv"))
    names = _TABLES[:1] if withheld else _TABLES
    found = {name: _PhotoRows(read_csv(folder / name, _COLUMNS[name], problems, key="key")) for name in names}
    order = found["seq_info.csv"]
    pictures = _pictures(folder / "images")
    rows = [row for row in range(len(order.keys)) if _complete(row, found, pictures, problems)]
    keys = [order.keys[row] for row in rows]
    _orphans(found, pictures, folder, problems)

    def column(name: str, field: str) -> list[Any]:
        return found[name].column(field, keys)

    sequences, sequence = coded(column("seq_info.csv", "sequence_key"))
    start = f"{folder.relative_to(root).as_posix()}/images/"
    values: dict[str, Any] = {
        "keys": text_column(keys),
        "files": text_column([start + pictures[key] for key in keys]),
        "sequence": sequence,
        "frame": np.array(column("seq_info.csv", "frame_number"), np.int64),
        "query": np.full(len(keys), folder.name == "query"),
        "split": np.full(len(keys), split, "U5"),
        "easting": np.full(len(keys), np.nan),
        "northing": np.full(len(keys), np.nan),
    }
    if not withheld:
        values |= {
            "easting": np.array(column("postprocessed.csv", "easting"), np.float64),
            "northing": np.array(column("postprocessed.csv", "northing"), np.float64),
            "night": np.array(column("postprocessed.csv", "night"), bool),
            "direction": np.array(column("postprocessed.csv", "view_direction"), "U8"),
            "latitude": np.array(column("raw.csv", "lat"), np.float64),
            "longitude": np.array(column("raw.csv", "lon"), np.float64),
            "heading": np.array(column("raw.csv", "ca"), np.float64) % 360,
            "captured": np.array(column("raw.csv", "captured_at"), "datetime64[ms]"),
            "pano": np.array(column("raw.csv", "pano"), bool),
        }
    return PlacePhotos(
        root=root,
        groups=(Group(city, ""),),
        group=np.zeros(len(keys), np.int32),
        sequences=sequences,
        subtasks=_subtasks(folder, keys, problems),
        problems=problems,
        **values,
    )


class _PhotoRows:
    """A table whose rows are found by key."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.keys: list[str] = table["key"]
        self.place = {key: row for row, key in enumerate(self.keys)}

    def column(self, field: str, keys: Sequence[str]) -> list[Any]:
        values = self.table[field]
        return [values[self.place[key]] for key in keys]


def _pictures(folder: Path) -> dict[str, str]:
    """The picture files by key; one listing instead of a look at each file, for there are 1.6 million."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError as error:
        raise DataError(f"no pictures: {error.strerror}", folder, remedy="unpack the volume that has them") from error
    parts = (name.rpartition(".") for name in names)
    return {key: key + dot + suffix for key, dot, suffix in parts if dot + suffix.lower() in SUFFIXES}


def _complete(row: int, found: Mapping[str, _PhotoRows], pictures: Mapping[str, str], problems: Problems) -> bool:
    """Whether a photograph has a row in every table and a picture."""
    order = found["seq_info.csv"]
    key = order.keys[row]
    lacking = [name for name, rows in found.items() if key not in rows.place]
    if lacking:
        what = f"{key} has no usable row in {lacking[0]}"
    elif key not in pictures:
        what = f"{key} has no picture in images"
    else:
        return True
    problems.add(what, order.table.file, order.table.lines[row], "key", "remove the line, or supply what is missing")
    return False


def _orphans(found: Mapping[str, _PhotoRows], pictures: Mapping[str, str], folder: Path, problems: Problems) -> None:
    """Rows and pictures that the list of sequences does not know."""
    listed = found["seq_info.csv"].place
    for rows in list(found.values())[1:]:
        for key, line in zip(rows.keys, rows.table.lines):
            if key not in listed:
                problems.add(f"{key} is not in seq_info.csv", rows.table.file, line, "key", "remove the line")
    for key, name in pictures.items():
        if key not in listed:
            problems.add("no row in seq_info.csv", folder / "images" / name, remedy="remove it, or add the row")


def _subtasks(folder: Path, keys: Sequence[str], problems: Problems) -> dict[str, np.ndarray]:
    """The flags of each photograph; where the file has no keys, its running numbers are those of seq_info.csv."""
    path = folder / "subtask_index.csv"
    if not path.exists():
        return {}
    flags = dict.fromkeys(SUBTASKS, boolean)
    before = problems.count
    try:
        if "key" in header(path):
            table = read_csv(path, {"key": _key}, problems, also=flags, key="key")
            row_of = {key: row for row, key in enumerate(table["key"])}
        else:
            table = read_csv(path, {"": whole()}, problems, also=flags, key="")
            numbered = read_csv(folder / "seq_info.csv", {"": whole(), "key": _key}, Problems())
            row_of_number = {number: row for row, number in enumerate(table[""])}
            pairs = zip(numbered["key"], numbered[""])
            row_of = {key: row_of_number[number] for key, number in pairs if number in row_of_number}
    except DataError as error:
        problems.note(error)
        return {}
    if problems.count == before and (absent := [key for key in keys if key not in row_of]):
        problems.add(f"no row for {absent[0]} and {len(absent) - 1} others: they are in no subtask", path, field="key")
    rows = np.array([row_of.get(key, -1) for key in keys], np.int64)
    return {name: np.array([*table[name], False], bool)[rows] for name in SUBTASKS if name in table.columns}


# ---- All of them together


def _flags(part: PlacePhotos, folder: Path, subtask: str) -> np.ndarray:
    if subtask not in part.subtasks:
        raise DataError(
            f"the files do not say what subtask {subtask!r} uses", folder / "subtask_index.csv", field=subtask
        )
    return part.subtasks[subtask]


def _first_time(part: PlacePhotos, folder: Path, seen: dict[str, Path], problems: Problems) -> PlacePhotos:
    """Without those whose key has turned up in another folder."""
    new = np.array([seen.setdefault(key, folder) == folder for key in part.keys], bool)
    for row in np.flatnonzero(~new):
        key = part.keys[row]
        problems.add(f"{key} is in {seen[key]} already", part.root / part.files[row], field="key", remedy="remove one")
    return part.take(new)


def _one_zone_per_city(photos: PlacePhotos) -> PlacePhotos:
    """Name the UTM zone of each city: that of its middle, for its positions count as one system."""
    if photos.latitude is None or photos.longitude is None:
        return photos
    groups = []
    for place, group in enumerate(photos.groups):
        rows = (photos.group == place) & np.isfinite(photos.latitude)
        zone = zone_name(photos.latitude[rows], photos.longitude[rows]) if rows.any() else ""
        groups.append(Group(group.city, zone))
    return replace(photos, groups=tuple(groups))
