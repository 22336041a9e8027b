"""Pairs in a CSV table: on each line a picture's file, a text, and labels.

    photo,text,labels                              and if known id, and split: query, train or retrieval
    img/1.jpg,"Red shirt, long sleeves",shirt;red

Which columns these are can be said; columns of usual names are found. Several labels in one field are parted by ";".

    photo     "image", or a pattern with columns in braces: "pictures/{code}.png"
    text      "title", or several columns, one after the other: "title+keywords"
    labels    "kind"             the labels of one column
              "kind:50"          those that at least 50 lines have
              "kind:50+colour"   the labels of two columns, on one level
              "group>kind:50"    on two levels, the coarse one first
              "words:10"         the words of the text that at least 10 lines have, and at most a third of all

A table without a column of labels has "words:5", or no labels where no word is in so many lines; then only a
contrastive loss can learn from it. Files are named from the table's folder, or from `images` or `photos` in it. Columns
are parted by commas, semicolons or tabs. A text may be empty, and so may labels.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from wayfare.core.errors import ConfigError, DataError
from wayfare.hashing.data.base import PairFiles
from wayfare.hashing.data.source import PairSource, find_pictures, strings
from wayfare.hashing.data.words import tokens
from wayfare.io.findings import Findings, Problems, Progress, recogniser
from wayfare.io.folders import inside
from wayfare.io.probe import check_pictures
from wayfare.io.tables import Parser, Table, header, optional, read_csv, text

_USUAL = {
    "photo": ("photo", "image", "picture", "file", "filename", "file_name", "path", "image_path"),
    "text": ("text", "caption", "captions", "title", "description", "name", "tags", "keywords"),
    "labels": ("labels", "label", "classes", "class", "category", "categories"),
}
_BESIDE = (".", "images", "photos")
_WORDS, _FEW_LINES = "words", 5  # the labels of a table that has no column of labels
_WITHOUT = {True: "words that texts share stand for them", False: "and texts share too few words to stand for them"}
_MOST_WORDS, _LETTERS = 200, 3  # words that are labels, and letters of the shortest
_COLUMN = re.compile(r"\{([^{}]+)\}")
_ROLES = {
    "query": "query", "test": "query", "train": "train", "training": "train",
    "retrieval": "retrieval", "database": "retrieval", "val": "retrieval", "validation": "retrieval",
}  # fmt: skip


@dataclass(frozen=True)
class _Column:
    """A column of labels, and how many lines must have one for it to count."""

    name: str
    least: int


@dataclass(frozen=True)
class TablePairs(PairFiles):
    """A table, or the only one of a folder."""

    labels: str = ""  # columns, as above
    text: str = ""
    photo: str = ""
    min_count: int = 2  # texts that a word of the vocabulary is in
    max_words: int = 10_000

    _counts: ClassVar[tuple[str, ...]] = ("query", "train", "min_count", "max_words")

    def read(self, path: Path, problems: Problems) -> PairSource:
        file = table_file(path)
        columns = header(file, "")
        photo = self.photo or _usual(columns, "photo", file)
        texts = (self.text or _usual(columns, "text", file)).split("+")
        levels = _levels(self.labels or _usual_labels(columns), self.terms.rare)
        photos = _COLUMN.findall(photo) or [photo]
        by_words = _by_words(levels, columns)
        named = [] if by_words else [column.name for level in levels for column in level]
        for name in (*photos, *texts, *named):
            if name not in columns:
                raise ConfigError(f"{file} has no column {name!r}; it has {', '.join(map(repr, columns[:30]))}")
        table = _table(file, photos, texts, [] if by_words else levels, problems)
        names = _picture_names(photo, table, problems)
        files, _ = find_pictures([file.parent / place for place in _BESIDE], names)
        for row, place in enumerate(files):
            if place is None and names[row]:
                problems.add(f"no such picture: {names[row][:80]!r}", file, table.lines[row], photo, "add it")
        rows = [row for row, place in enumerate(files) if place is not None]
        if not rows:
            raise DataError(f"none of its {len(table)} pairs has a picture", file, remedy="name files from its folder")
        said = [" ".join(part for name in texts if (part := table[name][row])) for row in rows]
        if by_words:
            shown, matrix, counts = _word_labels(said, levels[0][0].least, self.terms.rare)
            if not shown and self.labels:
                raise DataError(
                    f"no word is in {levels[0][0].least} lines or more, and in a third at most", file,
                    remedy='name a column of labels (data.labels), or lower the number: data.labels = "words:2"',
                )  # fmt: skip
        else:
            shown, matrix, counts = _labels(table, levels, rows)
        return PairSource(
            name="table",
            ids=[table["id"][row] if "id" in table.columns else names[row] for row in rows],
            labels=matrix,
            names=shown,
            levels=counts,
            texts=said,
            root=file.parent,
            files=[place for place in files if place is not None],
            drop=("untexted",) if by_words else ("unlabelled",),
            roles=strings([table["split"][row] for row in rows]) if "split" in table.columns else None,
            min_count=self.min_count,
            max_words=self.max_words,
            problems=problems,
        )


def read(path: Path, problems: Problems) -> PairSource:
    """The pairs of a table whose columns have usual names."""
    return TablePairs().read(path, problems)


@recogniser
def recognises(path: Path) -> bool:
    """Whether it is a table, or a folder with one, that has pictures, texts and labels in columns of usual names."""
    columns = {name.lower() for name in header(table_file(path), "")}
    if {"lat", "latitude"} & columns or not all(columns & set(_USUAL[kind]) for kind in ("photo", "text")):
        return False
    return bool(columns & set(_USUAL["labels"])) or bool(columns & set(_USUAL["text"]) - {"name"})


@recogniser
def _has_pictures(path: Path) -> bool:
    return bool({name.lower() for name in header(table_file(path), "")} & set(_USUAL["photo"]))


def near_miss(path: Path) -> str:
    """What a table of pictures lacks."""
    if path.suffix.lower() not in ("", ".csv") or not _has_pictures(path):
        return ""
    columns = header(table_file(path), "")
    if {"lat", "latitude", "lon", "lng", "longitude"} & {name.lower() for name in columns}:
        return ""
    return (
        f"{table_file(path)} names pictures, but has no column of texts ({', '.join(_USUAL['text'][:4])}); it has "
        f"{', '.join(map(repr, columns[:30]))}; `wayfare init --text COLUMN` says which"
    )


def usual_columns(columns: Sequence[str]) -> dict[str, str]:
    """The column of each role that has a usual name; "" where none has."""
    by_name = {name.lower(): name for name in reversed(columns)}
    return {role: next((by_name[name] for name in names if name in by_name), "") for role, names in _USUAL.items()}


def check(
    path: Path, strict: bool = False, progress: Progress | None = None, columns: Mapping[str, str] | None = None
) -> Findings:
    """Read all lines, decode all pictures. `columns`: settings of `TablePairs` for columns of other names."""
    named = columns or {}
    data = TablePairs(photo=named.get("photo", ""), text=named.get("text", ""), labels=named.get("labels", ""))
    source = data.read(path, Problems(strict))
    labels = data.labels or _usual_labels(header(table_file(path), ""))
    labelled = not labels.startswith(_WORDS)
    counts: dict[str, int | float | str] = {
        **({} if labelled else {"no column of labels": _WITHOUT[bool(source.names)]}),
        "pairs": len(source),
        "whole pictures": check_pictures(source.files or [], source.problems, progress),
        "without a word": int((~source.worded).sum()),
        "labels": len(source.names),
        "without a label": int((~source.labelled).sum()),
    }
    return Findings("csv_pairs", path, counts, source.problems)


# ---- Columns


def table_file(path: Path) -> Path:
    """The table itself, or the only one of a folder."""
    if not path.is_dir():
        return path
    tables = sorted(file for file in path.iterdir() if file.suffix.lower() == ".csv")
    named = [file for file in tables if file.stem.lower() == "pairs"] or tables
    if len(named) != 1:
        found = ", ".join(file.name for file in named[:5]) or "none"
        raise DataError(f"expected one CSV table in it, found {found}", path, remedy="name the table itself")
    return named[0]


def _usual(columns: Sequence[str], kind: str, file: Path) -> str:
    by_name = {name.lower(): name for name in reversed(columns)}
    for name in _USUAL[kind]:
        if name in by_name:
            return by_name[name]
    found = ", ".join(map(repr, columns[:30])) or "nothing"
    remedy = f"say {kind} = the name of one of its columns"
    raise DataError(f"no column {' or '.join(_USUAL[kind][:3])}; found {found}", file, 1, kind, remedy)


def _usual_labels(columns: Sequence[str]) -> str:
    """The column of labels; without one, words of the texts are labels."""
    by_name = {name.lower(): name for name in reversed(columns)}
    return next((by_name[name] for name in _USUAL["labels"] if name in by_name), f"{_WORDS}:{_FEW_LINES}")


def _by_words(levels: Sequence[Sequence[_Column]], columns: Sequence[str]) -> bool:
    return [column.name for level in levels for column in level] == [_WORDS] and _WORDS not in columns


def _levels(labels: str, rare: bool) -> list[list[_Column]]:
    """Columns of labels by level: "a:50+b>c" is [[a, b], [c]]; with `rare`, as if no number were there."""
    levels = []
    for level in labels.split(">"):
        columns = []
        for part in level.split("+"):
            name, mark, least = part.strip().rpartition(":")
            if mark and least.isdecimal() and name:
                columns.append(_Column(name.strip(), 1 if rare else int(least)))
            elif part.strip():
                columns.append(_Column(part.strip(), 1))
            else:
                raise ConfigError(f"labels = {labels!r}: expected columns, as in 'kind:50+colour' or 'group>kind'")
        levels.append(columns)
    return levels


def _table(
    file: Path, photos: Sequence[str], texts: Sequence[str], levels: Sequence[Sequence[_Column]], problems: Problems
) -> Table:
    parsers: dict[str, Parser] = dict.fromkeys(texts, str.strip)
    parsers |= {column.name: str.strip for level in levels for column in level}
    parsers |= dict.fromkeys(photos, text)
    also: Mapping[str, Parser] = {"id": text, "split": optional(_role, "retrieval")}
    also = {name: parser for name, parser in also.items() if name not in parsers}
    has_ids = "id" in also and "id" in header(file, "")
    if has_ids:
        parsers, also = {**parsers, "id": text}, {name: also[name] for name in also if name != "id"}
    return read_csv(file, parsers, problems, also=also, key="id" if has_ids else None, delimiter="")


def _role(value: str) -> str:
    found = _ROLES.get(value.strip().lower())
    if found is None:
        raise ValueError(f"expected query, train or retrieval, found {value[:40]!r}")
    return found


def _picture_names(photo: str, table: Table, problems: Problems) -> list[str]:
    """Each line's file; "" where its name cannot be one."""
    names = []
    for row in range(len(table)):
        filled = _COLUMN.sub(lambda match, row=row: str(table[match[1]][row]), photo)  # type: ignore[misc]
        try:
            names.append(inside(filled if _COLUMN.search(photo) else table[photo][row]))
        except ValueError as error:
            problems.add(str(error), table.file, table.lines[row], photo, "correct or remove the line")
            names.append("")
    return names


# ---- Labels


def _word_labels(texts: Sequence[str], least: int, rare: bool) -> tuple[list[str], np.ndarray, tuple[int, ...]]:
    """Words of the texts as labels, as `_labels` gives them; with `rare`, however many lines have them."""
    held = [{word for word in tokens(text) if len(word) >= _LETTERS and word.isalpha()} for text in texts]
    counts = Counter(word for words in held for word in words)
    most = len(texts) if rare else max(len(texts) // 3, least)
    ranked = sorted((-count, word) for word, count in counts.items() if least <= count <= most)
    names = sorted(word for _, word in ranked[: None if rare else _MOST_WORDS])
    found = np.array([[name in words for name in names] for words in held], bool).reshape(len(texts), len(names))
    return names, found, (len(names),)


def _labels(
    table: Table, levels: Sequence[Sequence[_Column]], rows: Sequence[int]
) -> tuple[list[str], np.ndarray, tuple[int, ...]]:
    """The labels' names, bool (N, C), and how many are on each level; a level's are in the order of their letters."""
    names: list[str] = []
    parts: list[np.ndarray] = []
    counts: list[int] = []
    for level in levels:
        held = len(names)
        for column in level:
            fields = [{label.strip() for label in table[column.name][row].split(";")} - {""} for row in rows]
            frequent = Counter(label for field in fields for label in field)
            kept = sorted(label for label, count in frequent.items() if count >= column.least)
            place_of = {label: place for place, label in enumerate(kept)}
            part = np.zeros((len(rows), len(kept)), bool)
            for row, field in enumerate(fields):
                part[row, [place_of[label] for label in field if label in place_of]] = True
            names += [f"{column.name}: {label}" if label in names else label for label in kept]
            parts.append(part)
        counts.append(len(names) - held)
        if not counts[-1]:
            shown = "+".join(f"{column.name}:{column.least}" for column in level)
            raise DataError(f"no label of {shown}", table.file, remedy="name another column, or lower its number")
    return names, np.concatenate(parts, axis=1), tuple(counts)
