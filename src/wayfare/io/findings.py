"""Problems in a data set: raised at once, or listed while the rest of the data is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path

from wayfare.core.errors import DataError

MOST = 1_000  # problems that are listed; further ones are only counted
Progress = Callable[[int, int], None]  # pictures checked, pictures in all


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

    def add(
        self, what: str, file: str | Path, line: int | None = None, field: str | None = None, remedy: str = ""
    ) -> None:
        """Record an item that is left out: file, line and field, what is wrong, and what to do."""
        self.note(DataError(what, file, line, field, remedy))

    def note(self, error: DataError) -> None:
        """Record an existing error."""
        if self.strict:
            raise error
        self.count += 1
        if len(self.found) < MOST:
            self.found.append(error)


@dataclass(frozen=True)
class Findings:
    """What `wayfare data check` reports about one folder or file of a known layout."""

    layout: str  # "msls", "psg", ...
    root: Path
    counts: Mapping[str, int | float | str]  # in the order in which they are shown
    problems: Problems = field(default_factory=Problems)
