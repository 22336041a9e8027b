"""Exchange policies: which device asks for whose model when devices meet, and whether a merge is kept.

Each is one module with a frozen dataclass of the same name, as `wayfare.core.exchange.Exchange` describes it.
Here is what those share that predict nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.core.exchange import Columns, Decision, DeviceFacts, Laboratory, Meeting, MergeOutcome, Predictor


@dataclass(frozen=True)
class Plain:
    """Budget L in two halves, no predictions, no scores, every merge kept: all but whom to ask."""

    limit: int = 40  # L, transmissions and receptions together

    scored: ClassVar[bool] = False
    guarded: ClassVar[bool] = False
    delegates: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_whole("limit", self.limit)

    def predictor(self, laboratory: Laboratory) -> Predictor | None:
        return None

    def begin(self, facts: DeviceFacts) -> Columns:
        half = facts.limit // 2  # of an odd L one stays unused, so that sending and taking are worth the same
        return {"can_send": half, "can_take": half.copy()}

    def delegated_steps(self) -> int:
        return 0

    def hear(self, columns: Columns, meeting: Meeting) -> Columns:
        return {}

    def avoided(self, columns: Columns, meeting: Meeting) -> np.ndarray:
        return np.zeros(len(meeting.me), bool)

    def accept(self, columns: Columns, outcome: MergeOutcome) -> np.ndarray:
        return np.ones(len(outcome.me), bool)

    def update(self, columns: Columns, outcome: MergeOutcome, adopted: np.ndarray) -> Columns:
        return {}


def can_ask(columns: Columns, meeting: Meeting) -> np.ndarray:
    """Where the peer has announced itself and I may still receive, bool."""
    return np.asarray(meeting.announced & (columns["can_take"][meeting.me] > 0))


def unpredicted(asks: np.ndarray) -> Decision:
    """The decision of a policy that does not predict what it will get."""
    return Decision(asks, np.full(len(asks), np.nan))


def direction(me: np.ndarray, peer: np.ndarray) -> np.ndarray:
    """A number for each direction of a pair: from `peer` to `me`."""
    return np.asarray(me << 32 | peer)


def check_whole(name: str, value: int, least: int = 0) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, not {value!r}")


def check_between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also refuses NaN
        raise ConfigError(f"{name} must be between {low:g} and {high:g}, not {value!r}")
