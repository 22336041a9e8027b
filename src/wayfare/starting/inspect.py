"""What is in a folder, what is odd about it, and by whom its photos can be divided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wayfare.core.errors import ConfigError, DataError, unknown
from wayfare.core.protocols import SampleFiles
from wayfare.io.findings import Findings, by_kind
from wayfare.io.folders import pictures_below
from wayfare.io.images import shape_of
from wayfare.io.layouts import FoundLayout, find
from wayfare.io.tables import header
from wayfare.partition.column import FOLDER, NAMES, folders, read_column, tables_in
from wayfare.starting.columns import PairColumns, columns_of
from wayfare.starting.sentences import described

TASKS = {  # what can be learnt from each layout, the usual first
    "photos": ("places", "objects"),
    "msls": ("places",),
    "folder": ("objects",),
    "cifar": ("objects",),
    "psg": ("scenes",),
    "celeba": ("attributes",),
    "traces": ("tour",),
    "csv_pairs": ("hashing",),
    "mirflickr": ("hashing",),
    "fashion": ("hashing",),
    "nuswide": ("hashing",),
    "coco": ("hashing",),
    "wikipedia": ("hashing",),
}
_PAIRS = "csv_pairs"
_PEOPLE = (
    "photographer",
    "owner",
    "user",
    "person",
    "author",
    "device",
    "camera",
    "phone",
    "region",
    "city",
    "session",
)
_FEWEST, _MOST = 2, 1000  # owners
_LOOKED_AT = 50  # pictures whose shape is looked at


@dataclass(frozen=True)
class Inspected:
    """A data set, and what was found out about it."""

    found: FoundLayout
    findings: Findings
    tasks: tuple[str, ...]  # what can be learnt from it
    owners: dict[str, int] = field(default_factory=dict)  # columns, or "folder", that name owners, and how many
    columns: PairColumns = field(default_factory=PairColumns)  # of a table, where they have no usual names

    @property
    def path(self) -> Path:
        return self.found.path

    @property
    def odd(self) -> list[str]:
        """What is odd about it: the first of each kind, and how many more there are."""
        return by_kind(self.findings.problems.found)

    def task(self, wanted: str = "") -> str:
        if wanted and wanted not in self.tasks:
            raise unknown("task", wanted, self.tasks, f"{self.path}, which is {self.found.layout!r}")
        return wanted or self.tasks[0]

    def sentence(self) -> str:
        """What it is, in a line."""
        columns = f" ({self.columns.sentence()}; --photo, --text and --labels name others)" if self.columns else ""
        return f"{self.path}: {described(self.found.layout, self.findings.counts)}{columns}"


def inspect(
    path: Path,
    layout: str = "",
    progress: Callable[[int, int], None] | None = None,
    told: PairColumns | None = None,
) -> Inspected:
    """Look at a folder or file; every picture is opened. `told` names columns of a table of photos and texts."""
    there = sets_at(path, layout, told)
    if len(there) > 1:
        listed = ", ".join(f"{item.path.name} ({item.layout})" for item in there)
        raise ConfigError(f"{path} holds several data sets: name one of {listed}")
    found = there[0]
    if found.layout not in TASKS:
        raise DataError(
            f"cannot make a recipe for the layout {found.layout!r}", path, remedy="see docs/bring-your-own.md"
        )
    tasks = TASKS[found.layout]
    if found.layout == "photos" and not _has_classes(found.path):
        tasks = ("places",)
    columns = PairColumns(**(found.columns or {}))
    return Inspected(found, found.check(progress=progress), tasks, _owners(found), columns)


def sets_at(path: Path, layout: str = "", told: PairColumns | None = None) -> list[FoundLayout]:
    """The data sets at a path. Columns of a table of photos and texts are those told, or guessed by what they hold."""
    told = told or PairColumns()
    if told and layout not in ("", _PAIRS):
        raise ConfigError(f"--photo, --text and --labels name columns of a table (csv_pairs), not of --layout {layout}")
    if not told and layout != _PAIRS:
        try:
            return find(path, layout)
        except DataError:
            if layout or not columns_of(path, told):
                raise
    columns = columns_of(path, told)
    if columns is None:
        raise DataError("no table of photos and texts", path, remedy="give --photo and --text, columns of a CSV table")
    return [FoundLayout(_PAIRS, path, columns=columns.settings)]


def _has_classes(path: Path) -> bool:
    """Whether the photos are in several folders, which may be classes."""
    held = Counter(name.partition("/")[0] for name in pictures_below(path) if name.count("/") == 1)
    return len(held) > 1 and min(held.values()) > 1


def _owners(found: FoundLayout) -> dict[str, int]:
    """By what the photos can be given to people: columns of usual names, and folders of people."""
    if found.layout not in ("photos", "csv_pairs", "folder"):
        return {}
    owners: dict[str, int] = {}
    for table in tables_in(found.path):
        try:
            columns = _columns(table)
            for column in (each for each in columns if each.lower() in _PEOPLE):
                owners[column] = len({value for value in read_column(table, column).values() if value})
        except DataError:
            continue
    if found.path.is_dir() and not owners:
        owners |= _by_folder(found)
    return {name: count for name, count in owners.items() if _FEWEST <= count <= _MOST}


def _columns(table: Path) -> list[str]:
    first = max((header(table, delimiter) for delimiter in (",", ";", "\t")), key=len)
    return first if {name.lower() for name in first} & set(NAMES) else []


def _by_folder(found: FoundLayout) -> dict[str, int]:
    names = pictures_below(found.path)
    deep = 2 if found.layout == "folder" else 1  # below a person's folder come class folders, or photos
    if not names or any(name.count("/") < deep for name in names):
        return {}
    if {name.partition("/")[0] for name in names} & {"train", "test", "query", "database", "images", "photos"}:
        return {}
    try:
        return {FOLDER: len(set(folders(SampleFiles(found.path, tuple(names)))))}
    except DataError:
        return {}


def mostly_upright(root: Path) -> bool:
    """Whether most pictures are higher than wide; some fifty are looked at."""
    names = pictures_below(root) if root.is_dir() else []
    votes = []
    for name in names[:: max(1, len(names) // _LOOKED_AT)]:
        try:
            height, width = shape_of(root / name)
        except DataError:
            continue
        votes.append(height > width)
    return sum(votes) * 2 > len(votes)


def data_settings(inspected: Inspected) -> dict[str, Any]:
    """[data] of a recipe: the layout's reader and the path."""
    names = {"csv_pairs": "table", "cifar": "cifar10"}
    name = names.get(inspected.found.layout, inspected.found.layout)
    return {"name": name, "path": str(inspected.path.resolve()), **inspected.columns.settings}
