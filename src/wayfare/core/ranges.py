"""Ranges of numbers, and the check that settings lie in theirs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from wayfare.core.errors import ConfigError


class Range(NamedTuple):
    """From `low` to `high`; `open_low` and `open_high`: without these themselves."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def holds(self, value: float) -> bool:
        """Whether a value is in it."""
        above = value > self.low if self.open_low else value >= self.low
        return above and (value < self.high if self.open_high else value <= self.high)

    def __str__(self) -> str:
        low = f"{'above' if self.open_low else 'at least'} {self.low:g}"
        high = f"{'below' if self.open_high else 'at most'} {self.high:g}"
        if math.isinf(self.high):
            return low
        return high if math.isinf(self.low) else f"{low}, {high}"


def check_ranges(section: str, settings: object, ranges: Mapping[str, Range]) -> None:
    """Refuse a setting that lies outside its range."""
    for name, allowed in ranges.items():
        value = getattr(settings, name)
        if not allowed.holds(value):
            raise ConfigError(f"{section}.{name} = {value} is out of range: expected {allowed}")
