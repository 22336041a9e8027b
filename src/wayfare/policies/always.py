"""Always: whoever is near is asked, as long as the budget lasts. What an exchange is worth when nobody chooses."""

from __future__ import annotations

from dataclasses import dataclass

from wayfare.core.exchange import Ledger, Meeting, Predictor, Wish
from wayfare.policies import Plain, can_ask, unpredicted


@dataclass(frozen=True)
class Always(Plain):
    """Asks everybody, keeps everything."""

    def wants(self, ledger: Ledger, meeting: Meeting, predictor: Predictor | None) -> Wish:
        return unpredicted(can_ask(ledger, meeting))
