"""Opportunistic federated learning (Lee et al., PerCom 2021): let those train my model who have pictures I care about.

A device asks a peer if the labels of the peer's pictures overlap with the classes its owner cares about. As long as the
contact lasts, its model goes there and back: the peer trains it for a step, the result replaces mine, and I train it
for a step on my own pictures (their program: `SimpleOppDevice`; a step is one batch). The label distributions are in
what devices announce. There is no budget; with `limit` it has the L of the other policies, in halves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wayfare.core.errors import ConfigError
from wayfare.core.exchange import Columns, Decision, Meeting, Predictor
from wayfare.encounters.policies import Plain, can_ask, check_between, check_whole, unpredicted
from wayfare.encounters.predictors.overlap import label_overlap


@dataclass(frozen=True)
class Opportunistic(Plain):
    """Asks peers whose labels overlap enough with my targets."""

    limit: int = -1  # none; or L, transmissions and receptions together
    threshold: float = 0.5  # from 0 (nothing in common) to 1 (the same distribution)
    steps: int = 1  # batches that the peer trains in a slot, and then I

    delegates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_whole("limit", self.limit, -1)
        check_whole("steps", self.steps, 1)
        check_between("threshold", self.threshold, 0, 1)
        if self.threshold == 0:
            raise ConfigError("threshold = 0 would ask devices that hold no pictures to train; use a number above 0")

    def delegated_steps(self) -> int:
        return self.steps

    def decide(self, columns: Columns, meeting: Meeting, predictor: Predictor | None) -> Decision:
        return unpredicted(can_ask(columns, meeting) & (label_overlap(meeting) >= self.threshold))
