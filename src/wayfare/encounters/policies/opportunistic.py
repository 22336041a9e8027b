"""Opportunistic federated learning (Lee et al., PerCom 2021): let those train my model who have pictures I care about.

A device asks a peer if the labels of the peer's pictures overlap with the classes its owner cares about, and what
comes back is its own model, trained by the peer. The label distributions are in what devices announce. The paper
knows no budget: here L is the same for every policy, in halves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wayfare.core.errors import ConfigError
from wayfare.core.exchange import Columns, Decision, Meeting, Predictor
from wayfare.encounters.policies import Plain, can_ask, check_between, unpredicted
from wayfare.encounters.predictors.overlap import label_overlap


@dataclass(frozen=True)
class Opportunistic(Plain):
    """Asks peers whose labels overlap enough with my targets."""

    threshold: float = 0.5  # from 0 (nothing in common) to 1 (the same distribution)

    delegates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_between("threshold", self.threshold, 0, 1)
        if self.threshold == 0:
            raise ConfigError("threshold = 0 would ask devices that hold no pictures to train; use a number above 0")

    def decide(self, columns: Columns, meeting: Meeting, predictor: Predictor | None) -> Decision:
        return unpredicted(can_ask(columns, meeting) & (label_overlap(meeting) >= self.threshold))
