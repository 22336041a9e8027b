"""Guarded: FedTour among peers that may be wrong or lie about their models.

Algorithm 1 trusts every announcement and keeps every merge. Here a device tests a merge on its own held-out pictures
(on the probe, if it has none) and adopts it only if it is no worse there. Each device remembers for itself:

    a refused merge   it avoids that peer for `back_off` slots, and twice as long each further time
    a lie             the result is more than `lie` below what the announced accuracy suggested: it avoids that peer
                      for the rest of the tour, so spam from one peer costs one reception

Whom a device keeps away from neither gets its model nor can give it one. Peers are known by their place in the
columns: who comes back under a new identity is not recognised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wayfare.core.exchange import Columns, DeviceFacts, Meeting, MergeOutcome
from wayfare.encounters.policies import check_between, check_whole
from wayfare.encounters.policies.fedtour import FedTour, remembered

_FOREVER = np.iinfo(np.int64).max
_MOST_DOUBLINGS = 30  # longer than any tour, and far from overflowing


@dataclass(frozen=True)
class Guarded(FedTour):
    """FedTour that tests a merge before it adopts it."""

    back_off: int = 120  # an hour of slots of 30 s
    lie: float = 0.15

    guarded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("back_off", self.back_off)
        check_between("lie", self.lie, 0, 1)

    def begin(self, facts: DeviceFacts) -> Columns:
        # me, peer, the last slot in which I keep away, refused merges so far. Rows stay: the next time is twice as
        # long. Each has cost a reception, so there are never more than the budgets of all devices together
        return super().begin(facts) | {"shunned": np.empty((0, 4), np.int64)}

    def avoided(self, columns: Columns, meeting: Meeting) -> np.ndarray:
        return np.asarray(super().avoided(columns, meeting) | remembered(columns["shunned"], meeting))

    def accept(self, columns: Columns, outcome: MergeOutcome) -> np.ndarray:
        has_own = np.isfinite(outcome.own_before)
        no_worse = np.where(has_own, outcome.own_after >= outcome.own_before, outcome.after >= outcome.before)
        return np.asarray(no_worse & super().accept(columns, outcome))

    def update(self, columns: Columns, outcome: MergeOutcome, adopted: np.ndarray) -> Columns:
        changed = super().update(columns, outcome, adopted)
        shortfall = outcome.predicted - outcome.after
        lied = np.isfinite(outcome.predicted) & ~(shortfall <= self.lie)  # a merge without an accuracy is one too
        bad = lied | ~adopted
        if not bad.any():
            return changed
        me, peer, lied = outcome.me[bad], outcome.peer[bad], lied[bad]
        old = columns["shunned"]
        _, again, now = np.intersect1d(old[:, 0] << 32 | old[:, 1], me << 32 | peer, True, return_indices=True)
        times = np.ones(len(me), np.int64)
        times[now] += old[again, 3]
        length = self.back_off * 2 ** np.minimum(times - 1, _MOST_DOUBLINGS)
        until = np.where(lied, _FOREVER, outcome.slot + length)
        rows = np.column_stack([me, peer, until, times])
        return changed | {"shunned": np.concatenate([np.delete(old, again, axis=0), rows])}
