"""Chance: the predicted gain is drawn evenly from -spread to +spread, whoever the peer is. A control for the others.

The draw comes from the pair's own number (`Meeting.chance`), so it is the same in every replay. Digits further down
are used, other ones in each direction: the two sides draw independently of each other and of a policy that goes by
the leading digits, as gossip does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wayfare.core.exchange import Meeting


@dataclass(frozen=True)
class Chance:
    """A gain out of the blue."""

    spread: float = 0.2

    def predict(self, mine: np.ndarray, meeting: Meeting) -> np.ndarray:
        shift = np.where(meeting.me < meeting.peer, 2.0**10, 2.0**20)
        draw = (meeting.chance * shift) % 1
        return np.clip(mine + self.spread * (2 * draw - 1), 0, 1)
