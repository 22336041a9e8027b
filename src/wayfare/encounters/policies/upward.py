"""Upward: ask every peer whose announced accuracy is higher than mine by a margin.

With `strangers` a device asks each peer once: the second model of the same peer is often much like the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wayfare.core.exchange import Columns, Decision, DeviceFacts, Meeting, MergeOutcome, Predictor
from wayfare.encounters.policies import Plain, can_ask, check_between, direction, unpredicted


@dataclass(frozen=True)
class Upward(Plain):
    """Asks those who are better."""

    margin: float = 0.0  # 0.05: at least five points better
    strangers: bool = False  # asks nobody twice

    scored: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_between("margin", self.margin, 0, 1)

    def begin(self, facts: DeviceFacts) -> Columns:
        known = {"known": np.empty((0, 2), np.int64)} if self.strangers else {}  # me, whom I have taken from
        return super().begin(facts) | known

    def decide(self, columns: Columns, meeting: Meeting, predictor: Predictor | None) -> Decision:
        better = meeting.score > columns["score"][meeting.me] + self.margin
        if self.strangers:
            better &= ~np.isin(direction(meeting.me, meeting.peer), direction(*columns["known"].T))
        return unpredicted(can_ask(columns, meeting) & better)

    def update(self, columns: Columns, outcome: MergeOutcome, adopted: np.ndarray) -> Columns:
        if not self.strangers:
            return {}
        return {"known": np.concatenate([columns["known"], np.column_stack([outcome.me, outcome.peer])])}
