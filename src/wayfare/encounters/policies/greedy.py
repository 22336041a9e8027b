"""Greedy: merges that truly help by at least `least`, each tried before it is asked for. No device can do that.

It is a reference for Eq. 7: with `topology.matching = "best"` the largest true gain of a slot comes first, and the best
`least` is chosen with hindsight, after runs with several. A policy may still be better: what helps me now may be worth
less than what it would have done for others later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wayfare.core.exchange import Columns, Decision, Meeting, MergeOutcome, Predictor
from wayfare.encounters.policies import Plain, can_ask, check_between


@dataclass(frozen=True)
class Greedy(Plain):
    """Knows what every merge would give."""

    least: float = 0.0

    scored: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_between("least", self.least, 0, 1)

    def decide(self, columns: Columns, meeting: Meeting, predictor: Predictor | None) -> Decision:
        possible, predicted = can_ask(columns, meeting), np.full(len(meeting.me), np.nan)
        if possible.any():
            predicted[possible] = meeting.merged_accuracy(meeting.me[possible], meeting.peer[possible])
        return Decision(predicted > columns["score"][meeting.me] + self.least, predicted)

    def accept(self, columns: Columns, outcome: MergeOutcome) -> np.ndarray:
        return np.asarray(outcome.after >= outcome.before)
