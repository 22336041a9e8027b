"""Where traces come from: files, packed files, folders and archives; and what each file is, by its first lines.

    table     a header with device, time and lat, lon (or x, y); stationary where it is known; the town's own form
    gpx       a track as satellite receivers and phones write it, a file per device
    visits    who was at which attraction when
    places    where attractions are: beside visits
    walk, positions, meetings, intervals, connections
              no header, numbers between blanks or commas (seconds, metres): `trace_columns` tells them apart;
              meetings (time, i, j) and intervals (i, j, start, end) may have a header

Nothing is unpacked but into a folder that is deleted again, and never more than the limits allow.
"""

from __future__ import annotations

import gzip
import io
import math
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from wayfare.core.errors import DataError
from wayfare.encounters.trace_columns import PlainForm, form_of, named_column
from wayfare.io.archives import unpack

MAX_BYTES = 2**30  # of one file, unpacked
MAX_RATIO = 100  # how much larger than the packed file it may be; small ones are let pass
Kind = Literal["table", "gpx", "visits", "places"] | PlainForm

_SUFFIXES = (".csv", ".tsv", ".txt", ".dat", ".gpx", ".gz")
_NO_TRACES = ("readme", "license", "copying")
_HEAD = 2**14  # bytes that show what a file is
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
_PHOTOS = frozenset({"file", "filename", "file_name", "image", "photo", "path"})
_LINES = 400  # of a file
_LOOKS = 20  # files of a folder that show what it is
_ALIASES = {
    "device": ("device", "user", "visitor", "id", "nsid"),
    "time": ("time", "timestamp", "datetime", "time_unix", "takenunix", "t"),
    "lat": ("lat", "latitude"),
    "lon": ("lon", "lng", "long", "longitude"),
    "x": ("x", "easting"),
    "y": ("y", "northing"),
    "stationary": ("stationary",),
    "poi": ("poi", "poiid"),
    "sequence": ("sequence", "seqid"),
    "one": ("i", "id1", "node1", "device1", "user1", "a", "device_a", "user_a", "source", "src", "from"),
    "other": ("j", "id2", "node2", "device2", "user2", "b", "device_b", "user_b", "target", "dst", "to"),
    "start": ("start", "begin", "start_time", "t_start"),
    "end": ("end", "stop", "end_time", "t_end"),
}


class TraceSource(NamedTuple):
    """A file's bytes, unpacked, and the name to call it by."""

    name: Path
    data: bytes


def recognises(path: Path) -> bool:
    """Whether the file, folder or archive looks like traces; only the beginnings of a few files are read."""
    try:
        if path.is_dir():
            found = [beginning(file) for file in _files(path)[:_LOOKS]]
        elif not path.is_file():
            found = []
        elif zipfile.is_zipfile(path):
            found = _zip_beginnings(path)
        else:
            data = beginning(path)
            found = [_first_in_tar(data) if _is_tar(data) else data]
        return any(kind_of(data) not in (None, "places") and not _of_photos(data) for data in found)
    except (DataError, OSError, *_UNREADABLE):
        return False


def _of_photos(data: bytes) -> bool:
    """A table of photographs may have all the columns of a trace; but each row has its file."""
    first = first_line(data).lower()
    return not _PHOTOS.isdisjoint(first.split(delimiter_of(first)))


# ---- Files, folders and archives


def sources(path: Path) -> Iterator[TraceSource]:
    """The files that may be traces: this one, or those in this folder or archive."""
    try:
        if path.is_dir():
            yield from (TraceSource(file, content(file)) for file in _files(path))
        elif not path.is_file():
            raise DataError("no such file or folder" if not path.exists() else "not a regular file", path)
        elif zipfile.is_zipfile(path) or _is_tar(beginning(path)):
            with tempfile.TemporaryDirectory() as scratch:
                root = Path(scratch) / "content"
                unpack(path, root, max_bytes=MAX_BYTES, max_ratio=MAX_RATIO)
                yield from (TraceSource(path / file.relative_to(root), content(file, path)) for file in _files(root))
        else:
            yield TraceSource(path, content(path))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise DataError(f"cannot be read: {error}", path) from error


def _files(folder: Path, deeper: int = 2) -> list[Path]:
    """Those that may be traces; if there are none, those in `traces`, or in the only folder."""
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    found = [entry for entry in entries if entry.name.lower().endswith(_SUFFIXES) and entry.is_file()]
    found = [entry for entry in found if not entry.name.lower().startswith(_NO_TRACES)]
    below = [entry for entry in entries if entry.is_dir()]
    below = [entry for entry in below if entry.name == "traces"] or below
    return _files(below[0], deeper - 1) if not found and len(below) == 1 and deeper else found


def content(file: Path, shown: Path | None = None) -> bytes:
    """All bytes of a file, unpacked; `shown` is what to call it."""
    shown = shown or file
    if (size := file.stat().st_size) > MAX_BYTES:
        raise DataError(f"too large: {size} bytes, at most {MAX_BYTES} are read", shown)
    data = file.read_bytes()
    if not data.startswith(b"\x1f\x8b"):
        return data
    most = min(MAX_BYTES, max(MAX_RATIO * size, 2**20))
    if len(unpacked := _gunzip(data, most + 1, shown)) > most:
        raise DataError(f"it unpacks to more than {most} bytes, the limit for a file of {size}", shown)
    return unpacked


def beginning(file: Path) -> bytes:
    """The first bytes of a file, unpacked."""
    with file.open("rb") as opened:
        data = opened.read(_HEAD)
    if not data.startswith(b"\x1f\x8b"):
        return data
    # a piece of a packed file can be unpacked as far as it goes
    try:
        return zlib.decompressobj(wbits=31).decompress(data, _HEAD)
    except zlib.error as error:
        raise DataError(f"cannot be unpacked: {error}", file) from error


def _gunzip(data: bytes, most: int, file: Path) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            return packed.read(most)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"cannot be unpacked: {error}", file) from error


def _is_tar(data: bytes) -> bool:
    return data[257:262] == b"ustar"


def _first_in_tar(data: bytes) -> bytes:
    """The beginning of the first regular file in the beginning of an archive."""
    place = 0
    while _is_tar(data[place:]):
        size, kind = int(data[place + 124 : place + 136].strip(b"\0 ") or b"0", 8), data[place + 156 : place + 157]
        place += 512
        if kind in (b"0", b"\0"):
            return data[place : place + size]
        place += -(-size // 512) * 512
    return b""


def _zip_beginnings(path: Path) -> list[bytes]:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.lower().endswith(_SUFFIXES)]
        found = []
        for name in names[:_LOOKS]:
            with archive.open(name) as file:
                found.append(file.read(_HEAD))
        return found


# ---- What a file is


def kind_of(data: bytes) -> Kind | None:
    """By the first lines."""
    first = first_line(data)
    if first.startswith("<"):
        return "gpx" if b"<gpx" in data[:_HEAD] else None
    names = names_of(first)
    located = {"lat", "lon"} <= names.keys() or {"x", "y"} <= names.keys()
    if {"device", "time"} <= names.keys() and (located or "poi" in names):
        return "table" if located else "visits"
    if "poi" in names and located:
        return "places"
    if {"one", "other"} <= names.keys() and not located:
        return "intervals" if {"start", "end"} <= names.keys() else "meetings" if "time" in names else None
    return form_of(_plain_rows(data, first))


def _plain_rows(data: bytes, first: str) -> list[list[str]]:
    """The fields of the first lines without a header; a few odd lines do not make another form of them."""
    lines = data[:_HEAD].decode("utf-8", "replace").splitlines()[: -1 if len(data) >= _HEAD else None]
    rows = [row for row in map(fields_of, lines[:_LINES]) if row]
    start = fields_of(first)
    named, linked = named_column(start), len(start) > 1 and start[1].upper() == "CONN"
    if len(start) < 3 or not (is_number(start[0]) or named is not None):
        return []

    def is_usual(row: list[str]) -> bool:
        return linked or (all(map(is_number, row[:3])) if named is None else named_column(row) == named)

    usual = [row for row in rows if len(row) == len(start) and is_usual(row)]
    return usual if 4 * len(usual) >= len(rows) else []


def first_line(data: bytes) -> str:
    lines = data[:_HEAD].decode("utf-8-sig", "replace").lstrip().splitlines()
    return lines[0].strip() if lines else ""


def delimiter_of(header: str) -> str:
    return max(",;\t", key=header.count)


def names_of(header: str) -> dict[str, str]:
    """What the known columns are called here."""
    found = [name.strip().strip('"') for name in header.split(delimiter_of(header))]
    lower = {name.lower(): name for name in reversed(found)}
    matches = {known: [lower[alias] for alias in aliases if alias in lower] for known, aliases in _ALIASES.items()}
    return {known: names[0] for known, names in matches.items() if names}


def fields_of(line: str) -> list[str]:
    return line.replace(",", " ").split()


def is_number(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False
