"""What is in a folder that has no known layout, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path, PurePosixPath

from wayfare.core.errors import DataError
from wayfare.core.text import printable
from wayfare.io.folders import pictures_below
from wayfare.io.images import SUFFIXES, TO_READ_HEIC
from wayfare.io.tables import header

UNREAD = frozenset({".avif", ".bmp", ".gif", ".heic", ".heif", ".jxl", ".tif", ".tiff"}) - SUFFIXES  # other pictures
_PACKED = frozenset({".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar"})
_LOOKED_AT = 5000
_MOST_COLUMNS = 12  # that are listed
READ = (
    "what is read: a folder of pictures for each class; photos with positions (EXIF, or a CSV table file,lat,lon); "
    "photos with texts (a CSV table photo,text); psg.json; traces of devices; and data sets such as MSLS, MIRFlickr, "
    "CelebA (docs/getting-started.md)"
)


def contents(path: Path, forms: Mapping[str, str]) -> str:
    """What is there, and what is missing for it to be used; `forms` are those of traces."""
    if not path.is_dir():
        return _of_file(path, forms)
    try:
        pictures = [PurePosixPath(name) for name in pictures_below(path, _LOOKED_AT)]
        others = Counter(file.suffix.lower().lstrip(".") for file in islice(path.rglob("*"), _LOOKED_AT)
                         if file.suffix.lower() in UNREAD | _PACKED)  # fmt: skip
    except (OSError, DataError):
        return "it cannot be read"
    said = [f"{count:,} {ending.upper()} file{'s' * (count > 1)}, not read: {to_read(f'.{ending}')}"
            for ending, count in others.most_common(1)]  # fmt: skip
    return "; ".join([*_of_pictures(pictures), *said]) or f"no pictures ({', '.join(sorted(SUFFIXES))}) in it"


def to_read(suffix: str) -> str:
    """What to do with a file of a format that is not read."""
    if suffix in _PACKED:
        return "unpack first"
    return TO_READ_HEIC if suffix in (".heic", ".heif") else "convert to JPEG"


def _of_file(path: Path, forms: Mapping[str, str]) -> str:
    if path.suffix.lower() in _PACKED:
        return "an archive, and not of traces: unpack it, and name the folder"
    try:
        names = [printable(name, 40) for name in header(path, "")]
    except DataError:
        names = []
    if len(names) == 1:  # fields may be between blanks
        names = names[0].split()
    if len(names) < 2:
        return "it is neither a table of photos nor a trace"
    shown = ", ".join(names[:_MOST_COLUMNS])
    known = ", ".join(f"{name} ({about.removeprefix('traces: lines of ')})" for name, about in forms.items())
    said = f"its first line has {len(names)} fields, {shown}"
    return f"{said}; if these are traces, say with --layout of which form: {known}"


def _of_pictures(pictures: list[PurePosixPath]) -> list[str]:
    if not pictures:
        return []
    folders = sorted({str(file.parent) for file in pictures})
    count = f"{len(pictures):,}{' or more' if len(pictures) >= _LOOKED_AT else ''}"
    if folders == ["."]:
        return [
            f"{count} pictures without positions, texts or classes: put those of each class in a folder of its name, "
            "or add a table"
        ]
    if len(folders) == 1:
        return [f"{count} pictures, all in one folder, {folders[0]!r}: telling classes apart needs two or more"]
    return [f"{count} pictures in {len(folders)} folders, which are no class folders: expected DIR/<class>/*.jpg"]


def unknown_tables(path: Path) -> str:
    """The columns of tables that no reader knows."""
    files = sorted(file for file in path.glob("*.[ct]sv")) if path.is_dir() else []
    for file in files[:1]:
        names = max((header(file, delimiter) for delimiter in (",", ";", "\t")), key=len)
        listed = ", ".join(map(repr, names[:_MOST_COLUMNS]))
        return f"{file.name} has the columns {listed}: expected file, lat and lon, or photo and text"
    return ""
