"""Column: a client for each owner, who is named by a column of a table, or by the folder that a photo is in.

    [partition]
    name = "column"
    column = "photographer"     # of the table in the data's folder; or "folder": a folder for each person

Photos that no line names, or whose field is empty, belong to nobody.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar

import numpy as np

from wayfare.core.errors import ConfigError, DataError, unknown
from wayfare.core.protocols import Partition, Population, SampleFiles
from wayfare.io.tables import decode_text, delimiter_of, read_text
from wayfare.partition.split import Split, check_whole, deal, origin

FOLDER = "folder"
NAMES = ("file", "filename", "file_name", "image", "photo", "picture", "path", "image_path", "name", "id")


@dataclass(frozen=True)
class Column(Partition):
    """A client for each value of a column, or for each folder."""

    source: ClassVar[str] = "files"

    column: str = FOLDER  # of the table, or "folder"
    table: str = ""  # a CSV file; empty: the one in the data's folder that has the column
    least: int = 1  # owners with fewer samples take no part

    def __post_init__(self) -> None:
        check_whole("least", self.least, 1)
        if not self.column:
            raise ConfigError("partition.column is empty: name a column of the table, or 'folder'")

    def __call__(self, dealt: SampleFiles, rng: np.random.Generator) -> Split:
        if not isinstance(dealt, SampleFiles):
            raise ConfigError("the partition 'column' needs data that is files: this data has none")
        values = folders(dealt) if self.column == FOLDER else self._column(dealt)
        count = Counter(value for value in values if value)
        owners = sorted(value for value, held in count.items() if held >= self.least)
        if not owners:
            raise DataError(f"nobody has {self.least} samples by {self.column!r}", dealt.root)
        place = {name: number for number, name in enumerate(owners)}
        owner = np.array([place.get(value, -1) for value in values], np.int64)
        about = origin(self, np.maximum(owner, 0), rng) | {"owners": owners, "unowned": int((owner < 0).sum())}
        return deal(owner, len(owners), rng, about)

    def _column(self, dealt: SampleFiles) -> list[str]:
        file = Path(self.table) if self.table else table_with(dealt.root, self.column)
        by_name = read_column(file, self.column)
        return [by_name.get(name, by_name.get(PurePosixPath(name).name, "")) for name in dealt.files]


def folders(dealt: SampleFiles) -> list[str]:
    """The first folder of each file: the person's, where there is one for each."""
    found = [name.partition("/")[0] if "/" in name else "" for name in dealt.files]
    if len({each for each in found if each}) < 2:
        raise DataError("its photos are not in folders of several people", dealt.root, remedy="name a column instead")
    return found


def tables_in(root: Path) -> list[Path]:
    """The tables in a data set's folder, or the table itself."""
    if root.is_file():
        return [root]
    return sorted(file for file in root.glob("*") if file.suffix.lower() in (".csv", ".tsv") and file.is_file())


def table_with(root: Path, column: str) -> Path:
    """The table of a folder that has a column."""
    known: set[str] = set()
    for file in tables_in(root):
        names = _rows(file)[0]
        if column in names:
            return file
        known |= set(names)
    if not known:
        raise DataError(f"no table with a column {column!r} in it", root, remedy="name one with partition.table")
    raise unknown("column", column, {*known, FOLDER}, f"partition.column in {root}")


def read_column(file: Path, column: str) -> dict[str, str]:
    """The values of a column by the name of the file, with and without its folders."""
    names, *rows = _rows(file)
    keys = [place for place, name in enumerate(names) if name.lower() in NAMES]
    if column not in names:
        raise unknown("column", column, names, str(file))
    if not keys:
        raise DataError("no column that names the files", file, 1, "file", "add one called 'file'")
    at, found = names.index(column), dict[str, str]()
    for row in rows:
        if len(row) == len(names):
            for key in keys:
                name = row[key].strip().replace("\\", "/")
                found[name] = found[PurePosixPath(name).name] = row[at].strip()
    return found


def _rows(file: Path) -> list[list[str]]:
    text = read_text(file)
    first = text.partition("\n")[0]
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(first)))
    return [[name.strip() for name in rows[0]], *rows[1:]] if rows else [[]]


# ---- Partitions as tables


def as_csv(split: Population, files: SampleFiles | None) -> bytes:
    """A partition as a table: sample, client, and the file where there is one."""
    written = io.StringIO(newline="")
    table = csv.writer(written, lineterminator="\n")
    table.writerow(["sample", "client", *(["file"] if files else [])])
    for position in range(len(split)):
        for sample in np.sort(split[position]).tolist():
            table.writerow([sample, split.id(position), *([files.files[sample]] if files else [])])
    return written.getvalue().encode()


def from_csv(data: bytes, file: Path, samples: int) -> Split:
    """What `as_csv` wrote, or a table of one's own with the columns sample and client; clients may have any names."""
    text = decode_text(data, file)
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(text.partition("\n")[0])))
    names = [name.strip().lower() for name in rows[0]] if rows else []
    if not {"sample", "client"} <= set(names):
        remedy = 'a table of files and owners is read by partition.name = "column"'
        raise DataError(
            f"expected the columns sample and client, found {', '.join(names) or 'none'}", file, 1, remedy=remedy
        )
    at, who = names.index("sample"), names.index("client")
    held: dict[str, list[int]] = {}
    seen: set[int] = set()
    for line, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        text = row[at].strip() if len(row) > max(at, who) else ""
        if not text.isdecimal() or int(text) >= samples or int(text) in seen:
            what = f"{text[:20]!r}: expected a sample from 0 to {samples - 1} that is on no other line"
            raise DataError(what, file, line, "sample", "correct or remove the line")
        seen.add(int(text))
        held.setdefault(row[who].strip(), []).append(int(text))
    if not held:
        raise DataError("no sample in it", file)
    order = sorted(held, key=lambda name: (len(name), name))
    parts = [np.array(held[name], np.int64) for name in order]
    return Split.from_parts(parts, {"rule": "file", "samples": samples, "owners": order})
