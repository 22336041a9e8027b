"""Helpers for reading users' folders: parsing dates, checking file names, listing pictures."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path, PurePosixPath

from wayfare.core.errors import DataError
from wayfare.io.images import SUFFIXES


@lru_cache(1024)  # neighbouring photographs often have the same date
def moment(value: str) -> int:
    """Parse a date, with or without a time, in any of the usual formats, to milliseconds since 1970.

    2014-08-08, 2014-08-08T12:30:00+02:00, 2014:08:08 12:30:00 (EXIF), 20140808_123000, 201408; ten digits are seconds
    since 1970, thirteen milliseconds. A date without a time zone is read as UTC.
    """
    text = value.strip().replace("_", "T")
    try:
        if re.fullmatch(r"\d{10}|\d{13}", text, re.ASCII):
            return int(text) * (1 if len(text) == 13 else 1000)
        if re.fullmatch(r"\d{12}|\d{14}", text, re.ASCII):
            text = f"{text[:8]}T{text[8:]}"
        elif re.fullmatch(r"\d{4}|\d{6}", text, re.ASCII):  # only a year, or a year and a month
            text += "0101"[len(text) - 4 :]
        text = re.sub(r"^(\d{4}):(\d\d):", r"\1-\2-", text)
        if not re.fullmatch(r"\d{4}-?\d\d-?\d\d([T ].{2,30})?", text, re.ASCII):  # fromisoformat accepts stranger ones
            raise ValueError
        found = datetime.fromisoformat(text)
        zoned = found if found.tzinfo else found.replace(tzinfo=UTC)
        return round((zoned - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    except (ValueError, OverflowError):
        shown = repr(value if len(value) <= 40 else value[:37] + "...")
        raise ValueError(f"expected a date and time such as 2024-06-21T08:15:23, found {shown}") from None


def inside(name: str) -> str:
    """Normalise a file name relative to the data set's folder; raise if it points outside the folder."""
    path = PurePosixPath(name.strip().replace("\\", "/"))
    if not path.parts:
        raise ValueError("expected the name of a file, found none")
    if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", path.parts[0]):
        raise ValueError(f"{name[:80]!r} points outside the folder")
    return str(path)


def pictures_below(root: Path, most: int | None = None) -> list[str]:
    """All picture files below a folder, as sorted names with "/"; hidden files and cyclic links are left out.

    With `most`, stop after the first few: enough to see what kind of folder it is.
    """
    found: list[str] = []
    todo = [("", frozenset({root.resolve()}))]  # folders to visit, each with its resolved parents
    while todo and (most is None or len(found) < most):
        start, above = todo.pop()
        try:
            entries = sorted(os.scandir(root / start), key=lambda entry: entry.name)
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    true_place = Path(entry.path).resolve()
                    if true_place not in above:
                        todo.append((f"{start}{entry.name}/", above | {true_place}))
                elif PurePosixPath(entry.name).suffix.lower() in SUFFIXES:
                    found.append(start + entry.name)
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", root / start) from error
    return sorted(found)[:most]


def photo_files(photos: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    """A photo, a folder of photos, or several of either, as files, as often as they are named."""
    given = [photos] if isinstance(photos, str | os.PathLike) else photos
    files: list[Path] = []
    for path in map(Path, given):
        if not path.exists():
            raise DataError("no such file or folder", path)
        files += [path / name for name in pictures_below(path)] if path.is_dir() else [path]
    if not files:
        raise DataError("no JPEG, PNG or WebP pictures in it", Path(next(iter([*given, "."]))))
    return files
