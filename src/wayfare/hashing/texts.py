"""Texts that go into an index: a line each, or a table that says which photo each belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wayfare.core.errors import DataError
from wayfare.hashing.data.source import find_pictures
from wayfare.io.findings import Problems
from wayfare.io.folders import inside
from wayfare.io.tables import header, read_csv, read_text
from wayfare.io.tables import text as some_text

_PHOTO = ("file", "photo", "image", "picture", "filename", "file_name", "path", "image_path")
_TEXT = ("text", "caption", "captions", "title", "description", "tags", "keywords")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_BESIDE = (".", "images", "photos")


@dataclass(frozen=True)
class Texts:
    """Texts of one line, each with the photo it belongs to, if that is known."""

    texts: Sequence[str]
    photos: Sequence[Path | None]
    problems: Problems = field(default_factory=Problems)

    def of_photos(self) -> dict[Path, list[str]]:
        """The texts of each photo."""
        found: dict[Path, list[str]] = {}
        for text, photo in zip(self.texts, self.photos):
            if photo is not None:
                found.setdefault(photo, []).append(text)
        return found

    def of_texts(self) -> dict[str, list[Path]]:
        """The photos of each text; a text that appears twice is one."""
        found: dict[str, list[Path]] = {}
        for text, photo in zip(self.texts, self.photos):
            found.setdefault(text, []).extend([] if photo is None else [photo])
        return found


def read_texts(file: Path, photos: Path | None = None) -> Texts:
    """A text file with a text on each line; or a table, .csv or .tsv, with columns of texts and of photos.

    Photos are named from the folder `photos`, from the table's own, or from `images` or `photos` in one of these.
    """
    if file.suffix.lower() not in _DELIMITERS:
        lines = [" ".join(line.split()) for line in read_text(file).splitlines()]
        kept = [line for line in lines if line]
        if not kept:
            raise DataError("no text in it", file, remedy="write one on each line")
        return Texts(kept, [None] * len(kept))
    return _table(file, photos, _DELIMITERS[file.suffix.lower()])


def _table(file: Path, photos: Path | None, delimiter: str) -> Texts:
    problems, columns = Problems(), header(file, delimiter)
    text = next((name for name in columns if name.lower() in _TEXT), None)
    photo = next((name for name in columns if name.lower() in _PHOTO), None)
    if text is None:
        raise DataError(f"no column of texts; found {', '.join(map(repr, columns[:20]))}", file, 1,
                        remedy=f"name it {_TEXT[0]!r}, and the column of photos {_PHOTO[0]!r}")  # fmt: skip
    parsers = {text: some_text} | ({} if photo is None else {photo: str.strip})
    table = read_csv(file, parsers, problems, delimiter=delimiter)
    if not len(table):
        raise DataError(f"no text in it; {problems.count} lines cannot be used", file)
    names = [""] * len(table) if photo is None else [_name(name) for name in table[photo]]
    roots = [root for root in (photos, file.parent) if root is not None]
    found, _ = find_pictures([root / place for root in roots for place in _BESIDE], names)
    for row, place in enumerate(found):
        if place is None and photo is not None and table[photo][row]:
            problems.add(
                f"no such photo: {table[photo][row][:80]!r}", file, table.lines[row], photo, "its text is kept"
            )
    texts = [" ".join(value.split()) for value in table[text]]
    return Texts(texts, [None if place is None else place.resolve() for place in found], problems)


def _name(name: str) -> str:
    try:
        return inside(name)
    except ValueError:
        return ""  # is listed as a photo that is not there
