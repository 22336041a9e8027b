"""Always: every nearby peer is asked as long as the budget lasts. A reference for policies that choose."""

from __future__ import annotations

from dataclasses import dataclass

from wayfare.core.exchange import Columns, Decision, Meeting, Predictor
from wayfare.encounters.policies import Plain, can_ask, unpredicted


@dataclass(frozen=True)
class Always(Plain):
    """Asks everybody, keeps everything."""

    def decide(self, columns: Columns, meeting: Meeting, predictor: Predictor | None) -> Decision:
        return unpredicted(can_ask(columns, meeting))
