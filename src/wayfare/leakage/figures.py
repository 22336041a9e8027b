"""A measured figure beside its baseline, and the reason where there is none."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


class NotMeasured(Exception):
    """Why an attack does not apply."""


@dataclass(frozen=True)
class LeakFigure:
    """What an attack finds, and what somebody finds who has not seen the messages."""

    name: str
    value: float
    baseline: float
    of: int = 0  # value and baseline are counts, of so many; 0: they are numbers
    low: float | None = None  # of a 95 % interval
    high: float | None = None


@dataclass
class Finding:
    """The figures of one attack, and what could not be measured."""

    attack: str  # what is done, in words
    baseline: str  # what the baseline is
    figures: list[LeakFigure] = field(default_factory=list)
    not_measured: list[str] = field(default_factory=list)

    def table(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)
