"""Never: no exchanges. Devices learn only from their own pictures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wayfare.core.exchange import Columns, Decision, Meeting, Predictor
from wayfare.encounters.policies import Plain, unpredicted


@dataclass(frozen=True)
class Never(Plain):
    """Asks nobody."""

    def decide(self, columns: Columns, meeting: Meeting, predictor: Predictor | None) -> Decision:
        return unpredicted(np.zeros(len(meeting.me), bool))
