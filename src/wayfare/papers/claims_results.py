"""Verdicts as files: one JSON file for each paper, data set and selection of claims, from which the pages are made."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from wayfare.core.errors import DataError
from wayfare.core.text import printable
from wayfare.io.tables import read_json
from wayfare.papers.verdicts import Verdict

FOLDER = Path("claims") / "results"  # below the folder of the documentation
Rule = Literal["sequential", "three seeds"]


@dataclass(frozen=True)
class Setting:
    """What verdicts rest on."""

    publication: str
    title: str
    called: str  # the data, for a heading
    date: str
    scale: str
    data: str  # with the settings that were changed
    settings: str  # in words
    runs: int
    seconds: float  # of all runs together
    only: str = ""  # of the paper's claims; "" for all
    code: tuple[str, ...] = ()  # digests, as in the runs' manifests
    rule: Rule = "sequential"


@dataclass(frozen=True)
class ClaimResults:
    """Verdicts of one session of runs, as JSON has them."""

    setting: Setting
    verdicts: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, setting: Setting, verdicts: Sequence[Verdict]) -> ClaimResults:
        return cls(setting, tuple(verdict.as_dict() for verdict in verdicts))

    @property
    def name(self) -> str:
        """The file's, without its end."""
        setting = self.setting
        rule = "" if setting.rule == "sequential" else "earlier"
        words = " ".join((setting.publication, setting.called, setting.scale, setting.only, rule))
        return slug(words)

    def write(self, docs: Path) -> None:
        """In place of the file of the same paper, data and selection."""
        folder = docs / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        content = {"setting": asdict(self.setting), "verdicts": self.verdicts}
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / f"{self.name}.json").write_text(text + "\n", encoding="utf-8")


def read_results(docs: Path) -> list[ClaimResults]:
    """All files of a folder of documentation, the oldest first."""
    found = [_read(file) for file in sorted((docs / FOLDER).glob("*.json"))]
    return sorted(found, key=lambda each: (each.setting.rule == "sequential", each.setting.date))


@dataclass(frozen=True)
class _VerdictRow:
    """A verdict in a file, as `Verdict.as_dict` writes it."""

    id: str
    claim: str
    source: str
    verdict: Literal["holds", "does not hold", "undecided", "untested"]
    effect: float | None
    interval: tuple[float, float] | None
    seeds: int
    unit: str
    paper: float | None
    pair: str
    pairs_holding: tuple[int, int] | None
    visible: float | None
    margin: float
    direction: str
    reason: str
    note: str


@dataclass(frozen=True)
class _ResultsFile:
    setting: Setting
    verdicts: tuple[_VerdictRow, ...]


def _read(file: Path) -> ClaimResults:
    content = read_json(file)
    try:
        found = TypeAdapter(_ResultsFile).validate_json(json.dumps(content), strict=True)
        if slug(found.setting.publication) != found.setting.publication:  # it names a page
            raise ValueError(f"{found.setting.publication!r} is no short name of a paper")
    except ValueError as error:  # pydantic's errors are ValueErrors
        raise DataError(f"not results of `wayfare claims --docs`: {printable(error, 500)}", file) from error
    return ClaimResults(found.setting, tuple(map(asdict, found.verdicts)))


def slug(words: str) -> str:
    """For the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
