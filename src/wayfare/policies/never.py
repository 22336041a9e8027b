"""Never: nobody asks anybody. What devices know from their own pictures alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wayfare.core.exchange import Ledger, Meeting, Predictor, Wish
from wayfare.policies import Plain, unpredicted


@dataclass(frozen=True)
class Never(Plain):
    """Asks nobody."""

    def wants(self, ledger: Ledger, meeting: Meeting, predictor: Predictor | None) -> Wish:
        return unpredicted(np.zeros(len(meeting.me), bool))
