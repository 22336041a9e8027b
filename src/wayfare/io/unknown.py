"""What is in a folder that has no known layout, and what to do about it."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path, PurePosixPath

from wayfare.core.errors import DataError
from wayfare.io.folders import pictures_below
from wayfare.io.images import SUFFIXES
from wayfare.io.tables import header

UNREAD = frozenset({".avif", ".bmp", ".gif", ".heic", ".heif", ".jxl", ".tif", ".tiff"})  # pictures of other formats
_LOOKED_AT = 5000
READ = (
    "what is read: a folder of pictures for each class; photos with positions (EXIF, or a CSV table file,lat,lon); "
    "photos with texts (a CSV table photo,text); psg.json; traces of devices; and data sets such as MSLS, MIRFlickr, "
    "CelebA (docs/getting-started.md)"
)


def contents(path: Path) -> str:
    """What is there, and what is missing for it to be used."""
    if not path.is_dir():
        return "it is neither a table of photos nor a trace"
    try:
        pictures = [PurePosixPath(name) for name in pictures_below(path, _LOOKED_AT)]
        others = Counter(file.suffix.lower().lstrip(".") for file in islice(path.rglob("*"), _LOOKED_AT)
                         if file.suffix.lower() in UNREAD)  # fmt: skip
    except (OSError, DataError):
        return "it cannot be read"
    said = [f"{count:,} {ending.upper()} files, which are not read: convert them to JPEG"
            for ending, count in others.most_common(1)]  # fmt: skip
    return "; ".join([*_of_pictures(pictures), *said]) or f"no pictures ({', '.join(sorted(SUFFIXES))}) in it"


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
        listed = ", ".join(map(repr, names[:12]))
        return f"{file.name} has the columns {listed}: expected file, lat and lon, or photo and text"
    return ""
