"""Gossip: FedTour's baseline. Two that meet exchange their models with a probability of 10 %, whatever they are worth.

The draw is one per pair, so both ask or neither does; with L in halves a device that cannot send cannot receive
either, and an exchange is never one-sided. Every merge is kept and nobody needs to know how good a model is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from wayfare.core.errors import unknown
from wayfare.core.exchange import Columns, Decision, Meeting, Predictor
from wayfare.encounters.policies import Plain, can_ask, check_between, unpredicted

Per = Literal["slot", "encounter"]


@dataclass(frozen=True)
class Gossip(Plain):
    """A coin for each contact."""

    probability: float = 0.1
    per: Per = "slot"  # point 13: a draw in every slot of a contact, or only in the one in which it begins

    def __post_init__(self) -> None:
        super().__post_init__()
        check_between("probability", self.probability, 0, 1)
        if self.per not in get_args(Per):
            raise unknown("per", str(self.per), get_args(Per), "gossip")

    def decide(self, columns: Columns, meeting: Meeting, predictor: Predictor | None) -> Decision:
        drawn = meeting.chance < self.probability
        if self.per == "encounter":
            drawn &= meeting.begins
        return unpredicted(drawn & can_ask(columns, meeting))
