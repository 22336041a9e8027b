"""Problems in a data set: raised at once, or listed while the rest of the data is used."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path

from wayfare.core.errors import DataError

MOST = 1_000  # problems that are listed; further ones are only counted
Progress = Callable[[int, int], None]  # pictures checked, pictures in all

_VARYING = re.compile(r"'[^']*'|[\d.,:]+")  # of a problem's text: values, by which two of a kind differ


def recogniser(test: Callable[[Path], bool]) -> Callable[[Path], bool]:
    """A layout's `recognises`: what cannot be read does not have the layout."""

    @wraps(test)
    def recognises(path: Path) -> bool:
        try:
            return test(path)
        except (OSError, ValueError, DataError):
            return False

    return recognises


class Problems:
    """Collects problems with single items of a data set; `strict` raises the first one instead."""

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self.found: list[DataError] = []
        self.count = 0
        self._used: set[int] = set()  # the places in `found` of items that are used all the same

    def add(
        self,
        what: str,
        file: str | Path,
        line: int | None = None,
        field: str | None = None,
        remedy: str = "",
        *,
        used: bool = False,
    ) -> None:
        """Record an item that is left out, or `used` all the same: where it is, what is wrong, and what to do."""
        if used and len(self.found) < MOST:
            self._used.add(len(self.found))
        self.note(DataError(what, file, line, field, remedy))

    def note(self, error: DataError) -> None:
        """Record an existing error."""
        if self.strict:
            raise error
        self.count += 1
        if len(self.found) < MOST:
            self.found.append(error)

    @property
    def left_out(self) -> list[DataError]:
        """Problems for which an item is left out."""
        return [error for place, error in enumerate(self.found) if place not in self._used]

    @property
    def odd(self) -> list[DataError]:
        """Problems of items that are used all the same."""
        return [error for place, error in enumerate(self.found) if place in self._used]


def by_kind(problems: Iterable[DataError]) -> list[str]:
    """The first problem of each kind, and how many more there are."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for problem in problems:
        kind = _VARYING.sub("", problem.field or ""), _VARYING.sub("", problem.what)
        kinds.setdefault(kind, []).append(str(problem))
    more = {kind: f"; {len(texts) - 1:,} more like this" if len(texts) > 1 else "" for kind, texts in kinds.items()}
    return [texts[0] + more[kind] for kind, texts in kinds.items()]


@dataclass(frozen=True)
class Findings:
    """What `wayfare data check` reports about one folder or file of a known layout."""

    layout: str  # "msls", "psg", ...
    root: Path
    counts: Mapping[str, int | float | str]  # in the order in which they are shown
    problems: Problems = field(default_factory=Problems)
