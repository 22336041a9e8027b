"""What values of a reply may be. Strategies and tasks declare them by name, as `expects` declares tensors.

    Number(0, 1)                 a share, such as an accuracy
    Number(0, 50, integer=True)  a count
    Flag()                       true or false
    Text(80)                     a text of at most so many characters

A name may hold one `*`, which stands for any text: `"R@*"`. The gate refuses what is not declared (`core/gate.py`).
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from wayfare.core.text import printable

LARGEST = 1e9  # of a number that nothing else bounds
MOST_METRICS = 100  # in one reply
_PLAIN = frozenset(" _-.,@%/:+()='&")


@dataclass(frozen=True)
class Number:
    """A finite number from `low` to `high`."""

    low: float = -LARGEST
    high: float = LARGEST
    integer: bool = False

    def fault(self, value: object) -> str:
        """What is wrong with a value; "" if nothing is."""
        if not isinstance(value, int if self.integer else int | float) or isinstance(value, bool):
            return f"{shown(value)}, expected {self}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{value}, expected {self}"
        return "" if self.low <= value <= self.high else f"{shown(value)}, expected {self}"

    def __str__(self) -> str:
        return f"{'an integer' if self.integer else 'a number'} from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Flag:
    """True or false."""

    def fault(self, value: object) -> str:
        """What is wrong with a value; "" if nothing is."""
        return "" if isinstance(value, bool) else f"{shown(value)}, expected true or false"


@dataclass(frozen=True)
class Text:
    """A text of at most `most` characters."""

    most: int = 100

    def fault(self, value: object) -> str:
        """What is wrong with a value; "" if nothing is."""
        if isinstance(value, str) and len(value) <= self.most:
            return ""
        return f"{shown(value)}, expected a text of at most {self.most} characters"


Kind = Number | Flag | Text

SHARE = Number(0, 1 + 1e-9)  # a mean of ones may be a rounding error above 1
LOSS = Number()
ANY_METRIC: Mapping[str, Kind] = {"*": Number()}
"""For a task that declares no metrics: any finite numbers, none beyond 1e9 in size."""
METRIC = "metric/"  # before the name of a metric among the values of a reply
_LONGEST_NAME = 64 + len(METRIC)


def metric_values(metrics: Mapping[str, Kind]) -> dict[str, Kind]:
    """A task's metrics as values of a reply."""
    return {METRIC + name: kind for name, kind in metrics.items()}


def fault_of(name: str, value: object, declared: Mapping[str, Kind]) -> str:
    """What is wrong with one value of a reply; "" if nothing is."""
    kind = _kind_of(name, declared)
    if kind is None:
        return f"{printable(name, 80)} is not declared, by the strategy's `values` or the task's `metrics`"
    fault = kind.fault(value)
    return f"{printable(name, 80)} is {fault}" if fault else ""


def is_plain(name: str) -> bool:
    """Whether a name is short and of letters, digits and a few signs: it becomes a heading, a column, a key."""
    return 0 < len(name) <= _LONGEST_NAME and all(
        c.isalnum() or c in _PLAIN or unicodedata.category(c).startswith("M") for c in name
    )


def _kind_of(name: str, declared: Mapping[str, Kind]) -> Kind | None:
    """What is declared under this name, or under a name with a `*` that fits it."""
    if name in declared or not is_plain(name):
        return declared.get(name)
    for pattern, kind in declared.items():
        start, star, end = pattern.partition("*")
        if star and name.startswith(start) and name.endswith(end) and len(name) >= len(start) + len(end):
            return kind
    return None


def shown(value: object) -> str:
    """A value from elsewhere in a message; Python refuses to print integers of thousands of digits."""
    if isinstance(value, int) and abs(value) >= 2**63:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str):
        return f"a text of {len(value)} characters" if len(value) > 60 else repr(printable(value))
    return printable(repr(value), 60)
