"""The published record: the lowest, median and highest accuracy of all devices, and of how many.

FedTour sets budgets and thresholds by these three (Algorithm 1, lines 3-5), and a device alone cannot know them. They
come from a signage device, which has heard many; from an invitation; or from what the device itself heard on the day
before. Without them the budget is divided equally, and the threshold begins at the device's own accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from wayfare.core.errors import ConfigError

_FEWEST = 3  # devices: fewer have no median that says anything
_MOST = 10**9
Ends = tuple[float, float, float]


@dataclass(frozen=True)
class PublishedRecord:
    """As it is passed on: no name, no time, no place."""

    low: float
    median: float
    high: float
    devices: int = 0  # 0: nobody said

    @property
    def ends(self) -> Ends:
        """As policies take it."""
        return self.low, self.median, self.high

    def values(self) -> list[float | int]:
        """As it is said in a message."""
        return [self.low, self.median, self.high, self.devices]

    def __str__(self) -> str:
        return ",".join(map(repr, self.values()))

    @classmethod
    def read(cls, text: str) -> PublishedRecord:
        """From three accuracies, and how many devices they are of if that is known."""
        try:
            low, middle, high, *more = (float(part) for part in text.split(","))
            found = record_in([low, middle, high, int(*more) if more else 0])
        except (ValueError, TypeError, OverflowError):
            found = None
        if found is None:
            raise ConfigError(
                f"{text!r} is not a published record: expected the lowest, median and highest accuracy from 0 to 1, "
                "such as 0.1,0.4,0.8"
            )
        return found


def record_in(values: Any) -> PublishedRecord | None:
    """From a message or a file; None if it is not one."""
    if not isinstance(values, list) or len(values) != 4 or any(isinstance(value, bool) for value in values):
        return None
    low, middle, high, devices = values
    if not all(isinstance(end, int | float) for end in (low, middle, high)) or not isinstance(devices, int):
        return None
    if not (0 <= low <= middle <= high <= 1 and 0 <= devices <= _MOST):
        return None  # before they are floats: an integer may be too large for one
    return PublishedRecord(float(low), float(middle), float(high), devices)


def record_of(accuracies: Iterable[float]) -> PublishedRecord | None:
    """Of what was heard; None if it is too little."""
    known = [value for value in accuracies if math.isfinite(value)]
    if len(known) < _FEWEST:
        return None
    return PublishedRecord(min(known), float(median(known)), max(known), len(known))
