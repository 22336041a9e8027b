"""A folder of somebody's own photographs, in any of the forms in which people have them.

    table    a CSV file in the folder: file, lat, lon, and if known heading, time, sequence, night, city, role, split
    names    names that begin with @ and tell the position (place_names.py)
    frames   two folders of video frames, query and ref, and which of them show the same place (frames.py)
    exif     nothing but photographs: each says itself where it was taken

Pictures may be in folders of any depth. Folders called train, val, test and database, query (queries, ref, ...) say
what the photographs in them are for; where there are none, that is for the caller to choose. Photographs with no other
sequence that are in several folders get their folder as their sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar

import numpy as np

from wayfare.core.errors import DataError
from wayfare.io import earth, exif
from wayfare.io.findings import Findings, Problems, Progress
from wayfare.io.folders import inside, moment, pictures_below
from wayfare.io.tables import Parser, Table, boolean, header, number, one_of, optional, read_csv, whole
from wayfare.io.utm import region
from wayfare.places.data import frames, place_names
from wayfare.places.data.place_photos import Group, PlacePhotos, coded, text_column, verify_pictures

Fact = TypeVar("Fact")
Form = Literal["table", "names", "frames", "exif"]

_SPLITS = ("train", "val", "test")
_NOWHERE = "the position (0, 0) is that of no photo"
_FAR, _MOST = 100_000.0, 0.8  # metres from the middle in which most photos of a city are, and how many that is
_ROLES = dict.fromkeys(frames.QUERIES, True) | dict.fromkeys(frames.REFERENCES, False)
_LOOKED_AT = 50  # photographs that show what kind of folder it is
_LISTED = 5000  # among which these are chosen
_GEOTAGGED = 0.75  # of the photographs of class folders have positions, if they are photographs of places
_BESIDE = ("", "images/", "photos/")  # where a table's files are, from the table

_ALIASES: Mapping[str, tuple[str, ...]] = {
    "file": ("file", "filename", "file_name", "image", "photo", "path", "name", "sourcefile", "datei", "dateiname"),
    "lat": ("lat", "latitude", "gpslatitude", "gps_latitude", "breitengrad", "breite"),
    "lon": (
        "lon",
        "lng",
        "long",
        "longitude",
        "gpslongitude",
        "gps_longitude",
        "längengrad",
        "laengengrad",
        "länge",
        "laenge",
    ),
    "heading": ("heading", "bearing", "compass", "compass_angle", "azimuth"),
    "time": ("time", "timestamp", "datetime", "captured_at"),
    "date": ("date",),
    "sequence": ("sequence", "sequence_key", "sequence_id", "session"),
    "frame": ("frame", "frame_number"),
    "night": ("night",),
    "camera": ("camera", "device", "model"),
    "city": ("city",),
    "role": ("role",),
    "split": ("split",),
}
_NEEDED: Mapping[str, Parser] = {"file": inside, "lat": number(-90, 90), "lon": number(-180, 180)}
_UNKNOWN = {"heading": np.nan, "frame": -1, "night": False, "split": ""}  # what stands for an odd value
_KNOWN: Mapping[str, Parser] = {
    "heading": optional(number(-360, 360), np.nan),
    "time": str.strip,
    "date": str.strip,
    "sequence": str.strip,
    "frame": optional(whole(0, 2**31), -1),
    "night": optional(boolean, False),
    "camera": str.strip,
    "city": str.strip,
    "role": one_of("query", "database"),
    "split": optional(one_of(*_SPLITS), ""),
}


def load(
    root: Path,
    *,
    table: Path | None = None,
    truth: Path | None = None,
    tolerance: int | None = None,
    strict: bool = False,
) -> PlacePhotos:
    """The photographs of a folder that have a position.

    `table` is needed where the folder has several tables. `truth` and `tolerance` are for sets of frames: a file that
    says which belong together, or the number of frames by which two equally long sets may differ.
    """
    problems = Problems(strict)
    if truth is not None or tolerance is not None:
        return frames.load(root, truth, tolerance, problems)
    form: Form = "table" if table is not None else form_of(root)
    return frames.load(root, None, None, problems) if form == "frames" else _load(root, form, table, problems)


def _load(root: Path, form: Form, table: Path | None, problems: Problems) -> PlacePhotos:
    if form == "table":
        photos = _from_table(root, table or _table_in(root), problems)
    elif form == "names":
        photos = _from_names(root, problems)
    else:
        photos = _from_exif(root, problems)
    if form != "names":
        _note_far(photos, problems)
    if not len(photos):
        raise _all_of(problems, root) if problems.found else DataError("no JPEG, PNG or WebP pictures in it", root)
    return photos


def _all_of(problems: Problems, root: Path) -> DataError:
    """Why no photograph is left, with more than the first reason."""
    first, *others = problems.found
    if not others:
        return first
    kinds = {(problem.field, problem.remedy): problem for problem in reversed(problems.found)}
    listed = "; ".join(str(problem) for problem in reversed(list(kinds.values())[-5:]))
    more = f"; {problems.count - min(5, len(kinds)):,} more like this" if problems.count > len(kinds) else ""
    outside = all("out of range" in str(problem) for problem in problems.found if problem.field is not None)
    swapped = "; are latitude and longitude swapped?" if outside and first.field is not None else ""
    return DataError(f"no photo can be used: {listed}{more}{swapped}", root)


def _note_far(photos: PlacePhotos, problems: Problems) -> None:
    """Name photographs that are far from where most of their city's are; they are kept, for they may be right."""
    if photos.latitude is None or photos.longitude is None:
        return
    cities = photos.city
    for city in dict.fromkeys(cities.tolist()):
        rows = np.flatnonzero(cities == city)
        places = np.stack((photos.latitude[rows], photos.longitude[rows]), 1)
        rows, places = rows[np.isfinite(places).all(1)], places[np.isfinite(places).all(1)]
        space = earth.from_centre(places)
        far = np.linalg.norm(space - np.median(space, axis=0), axis=1) if len(rows) else np.empty(0)
        if len(rows) and (far <= _FAR).mean() >= _MOST:
            for row in np.flatnonzero(far > _FAR).tolist():
                what = f"{far[row] / 1000:,.0f} km from where most photos were taken; it is used anyway"
                problems.add(what, photos.root / photos.files[rows[row]], remedy="is its position right?", used=True)


def recognises(path: Path) -> bool:
    """Whether these are photographs with positions, in any form."""
    try:
        form, listed = form_of(path), pictures_below(path, _LISTED)
    except DataError:
        return False
    some = listed[:: max(1, len(listed) // _LOOKED_AT)]
    if form != "exif" or not some:
        return bool(some)
    share = sum(exif.has_position(path / name) for name in some) / len(some)
    return share >= _GEOTAGGED if _is_of_classes(listed) else share > 0


def _is_of_classes(listed: Sequence[str]) -> bool:
    """Whether all pictures are in folders, and in several: they may be of classes, with a position here and there."""
    folders = {name.rpartition("/")[0] for name in listed}
    return "" not in folders and len(folders) > 1


def near_miss(path: Path) -> str:
    """What a table of photographs lacks, where there is one that says half of where they were taken."""
    tables = sorted(path.glob("*.csv")) + sorted(path.glob("*.tsv")) if path.is_dir() else []
    for file in tables:
        called = _columns_of(file)[1]
        missing = [column for column in _NEEDED if column not in called]
        if len(missing) == 1 and "file" not in missing:
            return f"{file} has {called['file']!r}, but no column {missing[0]!r}: so positions are unknown"
        if missing == ["file"]:
            return f"{file} has positions, but no column 'file': so the photos are unknown"
    return ""


def form_of(root: Path) -> Form:
    """Which form a folder has."""
    if not root.is_dir():
        raise DataError("no such folder" if not root.exists() else "expected a folder of photographs", root)
    if _tables_in(root):
        return "table"
    first = pictures_below(root, _LOOKED_AT)
    if any(PurePosixPath(name).name.startswith("@") for name in first):
        return "names"
    if frames.recognises(root) and not any(exif.has_position(root / name) for name in first[:5]):
        return "frames"
    return "exif"


def check(path: Path, strict: bool = False, progress: Progress | None = None) -> Findings:
    """What is there and what is wrong with it; every picture is decoded."""
    problems = Problems(strict)
    form = form_of(path)
    if form == "frames":
        photos = frames.load(path, None, None, problems, truth_needed=False)
    else:
        photos = _load(path, form, None, problems)
    whole_pictures = verify_pictures(photos, progress)
    counts: dict[str, int | float | str] = {"form": form, "photos": len(photos)}
    if photos.query is not None:
        counts |= {"queries": int(photos.query.sum()), "database": int((~photos.query).sum())}
    if photos.sequence is not None:
        counts["sequences"] = len(photos.sequences)
    if photos.night is not None:
        counts["by night"] = int(photos.night.sum())
    if form != "frames":
        counts["zones"] = ", ".join(sorted({group.zone or "?" for group in photos.groups}))
        counts["width, m"] = round(_extent(photos, photos.easting))
        counts["height, m"] = round(_extent(photos, photos.northing))
        counts |= _middle(photos)
    counts["whole pictures"] = whole_pictures
    return Findings("photos", path, counts, problems)


def _extent(photos: PlacePhotos, metres: np.ndarray) -> float:
    """Of the largest group, from side to side."""
    return max(float(np.ptp(metres[photos.group == group])) for group in np.unique(photos.group))


def _middle(photos: PlacePhotos) -> dict[str, float]:
    """The usual latitude and longitude: who exchanged the two sees it."""
    if photos.latitude is None or photos.longitude is None:
        return {}
    sides = {"latitude": photos.latitude, "longitude": photos.longitude}
    return {name: round(float(np.nanmedian(values)), 4) for name, values in sides.items()}


# ---- A table


def _tables_in(root: Path) -> list[Path]:
    """The tables in a folder that say where photographs were taken."""
    try:
        files = sorted(file for file in root.iterdir() if file.suffix.lower() in (".csv", ".tsv"))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", root) from error
    return [file for file in files if file.is_file() and _needed_columns(_columns_of(file)[1])]


def _table_in(root: Path) -> Path:
    found = _tables_in(root)
    if len(found) > 1:
        raise DataError(f"several tables: {', '.join(file.name for file in found)}", root, remedy="say which one")
    return found[0]


def _columns_of(file: Path) -> tuple[str, dict[str, str]]:
    """The delimiter, and what each known column is called in this file."""
    best: tuple[str, dict[str, str]] = (",", {})
    for delimiter in (",", ";", "\t"):
        names = header(file, delimiter)
        called = {}
        for column, aliases in _ALIASES.items():
            if match := [name for alias in aliases for name in names if name.lower() == alias]:
                called[column] = match[0]
        if len(called) > len(best[1]):
            best = delimiter, called
    return best


def _needed_columns(called: Mapping[str, str]) -> bool:
    return all(column in called for column in _NEEDED)


def _from_table(root: Path, file: Path, problems: Problems) -> PlacePhotos:
    delimiter, called = _columns_of(file)
    needed = {called.get(column, column): parser for column, parser in _NEEDED.items()}
    if delimiter != ",":  # where columns are parted by semicolons, spreadsheets write 43,9 for 43.9
        needed |= {called[side]: _with_comma(_NEEDED[side]) for side in ("lat", "lon") if side in called}
    also = {called[column]: parser for column, parser in _KNOWN.items() if column in called}
    unknown = {called[column]: value for column, value in _UNKNOWN.items() if column in called}
    key = called.get("file", "file")
    table = read_csv(file, needed, problems, also=also, key=key, delimiter=delimiter, unknown=unknown)
    columns = {column: table[name] for column, name in called.items() if name in table.columns}
    captured = _moments(table, called, problems)
    names, found = _found_pictures(root, table, called["file"], problems)
    placed = _placed(table, called, problems)
    keep = [row for row in range(len(table)) if found[row] and placed[row]]
    kept = {column: [values[row] for row in keep] for column, values in columns.items()}
    return _with_degrees(
        root,
        [names[row] for row in keep],
        kept["lat"],
        kept["lon"],
        problems,
        cities=kept.get("city"),
        captured=[captured[row] for row in keep] if {"time", "date"} & set(called) else None,
        **{name: kept.get(name) for name in ("heading", "sequence", "frame", "night", "camera", "role", "split")},
    )


def _with_comma(parser: Parser) -> Parser:
    return lambda value: parser(value.replace(",", ".", 1))


def _placed(table: Table, called: Mapping[str, str], problems: Problems) -> list[bool]:
    """Whether each row has a position: (0, 0), in the sea off Africa, is what programs write where there is none."""
    found = []
    for line, north, east in zip(table.lines, table[called["lat"]], table[called["lon"]]):
        found.append(bool(north or east))
        if not found[-1]:
            problems.add(_NOWHERE, table.file, line, called["lat"], "supply the position, or remove the line")
    return found


def _moments(table: Table, called: Mapping[str, str], problems: Problems) -> list[int | None]:
    """When each was taken, from a time, a date or both; None where that cannot be told."""
    dates = table[called["date"]] if "date" in called else [""] * len(table)
    times = table[called["time"]] if "time" in called else [""] * len(table)
    field = called.get("time", called.get("date"))
    found: list[int | None] = []
    for line, date, time in zip(table.lines, dates, times):
        if date and time.isdecimal():  # a spreadsheet makes 94711 of 094711
            time = time.zfill(6)
        stamp = f"{date}T{time}" if date and time else date or time
        try:
            found.append(moment(stamp) if stamp else None)
        except ValueError as error:
            problems.add(
                f"{error}; only this field is left out", table.file, line, field, "correct or empty it", used=True
            )
            found.append(None)
    return found


def _found_pictures(root: Path, table: Table, field: str, problems: Problems) -> tuple[list[str], list[bool]]:
    """The picture of each row, below the folder, and whether it is there."""
    pictures = set(pictures_below(root))
    beside, top = table.file.resolve().parent, root.resolve()  # names count from the table, if it is in the folder
    start = f"{beside.relative_to(top).as_posix()}/" if top in beside.parents else ""
    names: list[str] = []
    found = []
    used: dict[str, int] = {}
    for name, line in zip(table[field], table.lines):
        places = [start + folder + name for folder in _BESIDE]
        place = next((place for place in places if place in pictures), "")
        if not place:
            problems.add(f"no picture {name!r}", table.file, line, field, "supply it, or remove the line")
        elif (first := used.setdefault(place, line)) != line:
            problems.add(f"{name!r} is already on line {first}", table.file, line, field, "remove one of them")
            place = ""
        names.append(place)
        found.append(bool(place))
    for orphan in sorted(pictures - set(used)):
        problems.add(f"not in {table.file.name}", root / orphan, remedy="add a line for it, or remove it")
    return names, found


# ---- Names with @, and EXIF


def _of_each(root: Path, read: Callable[[Path], Fact], problems: Problems) -> tuple[list[str], list[Fact]]:
    """The pictures of which `read` can tell something, and what that is."""
    files, facts = [], []
    for file in pictures_below(root):
        try:
            facts.append(read(root / file))
            files.append(file)
        except DataError as error:
            problems.note(error)
    return files, facts


def _from_names(root: Path, problems: Problems) -> PlacePhotos:
    files, named = _of_each(root, place_names.parse, problems)
    groups = {group: place for place, group in enumerate(dict.fromkeys(item.group for item in named))}
    sequences, sequence = coded([item.sequence for item in named])
    columns: dict[str, Any] = {
        "latitude": np.array([item.latitude for item in named], np.float64),
        "longitude": np.array([item.longitude for item in named], np.float64),
        "heading": np.array([item.heading for item in named], np.float64),
    }
    columns = {name: column for name, column in columns.items() if np.isfinite(column).any()}
    if any(item.captured is not None for item in named):
        columns["captured"] = np.array([item.captured for item in named], "datetime64[ms]")
    if sequences:
        columns |= {"sequence": sequence, "frame": np.array([item.frame for item in named], np.int64)}
    if any(item.night is not None for item in named):
        columns["night"] = np.array([bool(item.night) for item in named], bool)
        columns["direction"] = np.array([item.direction for item in named], "U8")
    return PlacePhotos(
        root=root,
        files=text_column(files),
        keys=text_column(files),
        groups=tuple(groups),
        group=np.array([groups[item.group] for item in named], np.int32),
        easting=np.array([item.easting for item in named], np.float64),
        northing=np.array([item.northing for item in named], np.float64),
        split=_splits(files),
        query=_roles(files),
        sequences=sequences,
        problems=problems,
        **columns,
    )


def _from_exif(root: Path, problems: Problems) -> PlacePhotos:
    files, facts = _of_each(root, exif.read_facts, problems)
    return _with_degrees(
        root,
        files,
        [item.latitude for item in facts],
        [item.longitude for item in facts],
        problems,
        heading=[item.heading for item in facts],
        captured=[item.captured for item in facts],
        camera=[item.camera for item in facts],
    )


# ---- One table of all


def _with_degrees(
    root: Path,
    files: Sequence[str],
    latitude: Sequence[float],
    longitude: Sequence[float],
    problems: Problems,
    *,
    cities: Sequence[str] | None = None,
    captured: Sequence[int | None] | None = None,
    heading: Sequence[float] | None = None,
    sequence: Sequence[str] | None = None,
    frame: Sequence[int] | None = None,
    night: Sequence[bool] | None = None,
    camera: Sequence[str] | None = None,
    role: Sequence[str] | None = None,
    split: Sequence[str] | None = None,
) -> PlacePhotos:
    """Photographs whose positions are degrees; each city has its own zone, or as many as it needs."""
    north, east = np.array(latitude, np.float64), np.array(longitude, np.float64)
    easting, northing = np.empty(len(files)), np.empty(len(files))
    of_city: dict[str, list[int]] = {}
    for row, city in enumerate(cities if cities is not None else [""] * len(files)):
        of_city.setdefault(city, []).append(row)
    groups: dict[Group, int] = {}
    group = np.empty(len(files), np.int32)
    for city, rows in of_city.items():
        easting[rows], northing[rows], zones = region(north[rows], east[rows])
        group[rows] = [groups.setdefault(Group(city, zone), len(groups)) for zone in zones]
    sequences, codes = coded(sequence if sequence is not None else _folders(files))
    return PlacePhotos(
        root=root,
        files=text_column(files),
        keys=text_column(files),
        groups=tuple(groups),
        group=group,
        easting=easting,
        northing=northing,
        split=_splits(files) if split is None else np.array(split, "U5"),
        query=_roles(files) if role is None else np.array([name == "query" for name in role], bool),
        latitude=north,
        longitude=east,
        heading=None if heading is None else np.array(heading, np.float64) % 360,
        captured=None if captured is None else np.array(captured, "datetime64[ms]"),
        sequences=sequences,
        sequence=codes if sequences else None,
        frame=None if frame is None else np.array(frame, np.int64),
        night=None if night is None else np.array(night, bool),
        camera=None if camera is None else text_column(camera),
        problems=problems,
    )


def _folders(files: Sequence[str]) -> list[str]:
    """Each photograph's folder, if there are several."""
    folders = [file.rpartition("/")[0] for file in files]
    return folders if len(set(folders)) > 1 else [""] * len(files)


def _splits(files: Sequence[str]) -> np.ndarray:
    found = [next((part for part in file.split("/")[:-1] if part in _SPLITS), "") for file in files]
    return np.array(found, "U5")


def _roles(files: Sequence[str]) -> np.ndarray | None:
    """Which are queries, if the folders say so for every one."""
    found = [next((_ROLES[part] for part in file.split("/")[:-1] if part in _ROLES), None) for file in files]
    return np.array(found, bool) if files and None not in found else None
