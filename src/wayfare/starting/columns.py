"""Which columns of a table name photos, texts and labels, where they have names of one's own."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from wayfare.core.errors import ConfigError, DataError, unknown
from wayfare.hashing.data import csv_pairs
from wayfare.io.folders import pictures_below
from wayfare.io.tables import delimiter_of, read_text

_LINES = 2000  # that are looked at
_KEYWORDS = ("keywords", "tags")
_EXAMPLES = 3  # of what a column holds
_MOST_FOUND, _MANY_WORDS = 0.8, 2.0  # of the photos a column names; words of a text, in the mean
_FEW, _OFTEN = 200, 5  # labels at most, and lines that each has in the mean


@dataclass(frozen=True)
class PairColumns:
    """The columns of a table of pairs, as `[data]` names them; nothing: a column of a usual name."""

    photo: str = ""
    text: str = ""
    labels: str = ""

    def __bool__(self) -> bool:
        return bool(self.photo or self.text or self.labels)

    @property
    def settings(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if value}

    def sentence(self) -> str:
        """How the table is read, in a line."""
        return ", ".join(f"{role} from {value!r}" for role, value in self.settings.items())


def columns_of(path: Path, told: PairColumns) -> PairColumns | None:
    """What was told, and the rest by what the columns hold; None if photos or texts cannot be found."""
    try:
        file, values = _values(path)
    except (DataError, csv.Error):
        return None
    names = list(values)
    _check_known(told, names, file)
    usual = csv_pairs.usual_columns(names)
    photo = told.photo or usual["photo"] or _photo_column(values, file.parent)
    left = [name for name in names if name != photo and f"{{{name}}}" not in photo]
    text = told.text or _with_keywords(usual["text"], names) or _text_column({name: values[name] for name in left})
    if not photo or not text:
        return None
    left = [name for name in left if name not in text.split("+")]
    labels = told.labels or usual["labels"] or _label_column({name: values[name] for name in left})
    return PairColumns(photo, text, labels)


def guessed(path: Path, found: PairColumns, told: PairColumns) -> dict[str, dict[str, str]]:
    """For "text" and "labels", where they were guessed: the columns that it may be, the guess first, with examples."""
    _, values = _values(path)
    usual, free = csv_pairs.usual_columns(list(values)), [name for name in values if name != found.photo]
    asked: dict[str, dict[str, str]] = {}
    for role, guess in (("text", found.text), ("labels", found.labels)):
        if getattr(told, role) or usual[role] or len(free) < 2:
            continue
        order = sorted(free, key=lambda name: name != guess)
        asked[role] = {name: ", ".join(list(dict.fromkeys(filter(None, values[name])))[:_EXAMPLES]) for name in order}
    return asked


def _values(path: Path) -> tuple[Path, dict[str, list[str]]]:
    """The table, and its columns as far as they are looked at."""
    file = csv_pairs.table_file(path)
    text = read_text(file)
    lines = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter_of(text.partition("\n")[0]))
    rows = list(islice(lines, _LINES))
    names = [name for name in rows[0] if name] if rows else []
    return file, {name: [(row[name] or "").strip() for row in rows] for name in names}


def _check_known(told: PairColumns, names: list[str], file: Path) -> None:
    """Refuse a column that the table lacks; patterns and labels are checked when they are read."""
    if not names and told:
        raise ConfigError(f"{file} has no lines")
    for name in told.text.split("+") if told.text else []:
        if name not in names:
            raise unknown("column", name, names, str(file))


def _photo_column(values: dict[str, list[str]], root: Path) -> str:
    """The column that names pictures: as files, or as "assets/{code}.png" without their folder and ending."""
    pictures = [PurePosixPath(name) for name in pictures_below(root)]
    files = {str(file) for file in pictures} | {"/".join(file.parts[1:]) for file in pictures}
    for name, held in values.items():
        if sum(value.replace("\\", "/") in files for value in held) >= _MOST_FOUND * len(held):
            return name
    by_stem = {file.stem: file for file in pictures}
    for name, held in values.items():
        kinds = Counter((str(by_stem[value].parent), by_stem[value].suffix) for value in held if value in by_stem)
        (folder, suffix), count = next(iter(kinds.most_common(1)), (("", ""), 0))
        if count >= _MOST_FOUND * len(held):
            return f"{'' if folder == '.' else folder + '/'}{{{name}}}{suffix}"
    return ""


def _with_keywords(text: str, names: list[str]) -> str:
    """The column of texts, and those of keywords beside it: people look for "sad", and the name is "crying face"."""
    more = [name for name in names if name.lower() in _KEYWORDS and name != text]
    return "+".join([text, *more]) if text else ""


def _text_column(values: dict[str, list[str]]) -> str:
    """The column with the most words, if most of its texts differ."""
    words = {
        name: sum(len(value.split()) for value in held) / max(1, len(held))
        for name, held in values.items()
        if len(set(held)) > len(held) / 2
    }
    best = max(words, key=lambda name: words[name], default="")
    return best if best and words[best] >= _MANY_WORDS else ""


def _label_column(values: dict[str, list[str]]) -> str:
    """The column that says the most of those whose values come again and again; numbers are no labels."""
    kinds = {
        name: len(set(held) - {""})
        for name, held in values.items()
        if not all(value.replace(".", "", 1).isdecimal() for value in held if value)
    }
    fit = {name: count for name, count in kinds.items() if 1 < count <= min(_FEW, len(values[name]) / _OFTEN)}
    return max(fit, key=lambda name: fit[name], default="")
