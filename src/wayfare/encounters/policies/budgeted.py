"""Budgeted: take what is worth a reception. It needs no study, and nothing from a server.

    step = (best accuracy heard of - mine) / receptions left

A peer is asked if it is better than me by at least one step: with few receptions left it is worth waiting for a better
peer, with many almost any better peer will do. A peer from which I took a model is asked again only after its accuracy
has risen by `risen`; and a merge that lowers my accuracy is undone. The budget is divided in halves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.core.exchange import Columns, Decision, DeviceFacts, Meeting, MergeOutcome, Predictor
from wayfare.encounters.policies import Plain, can_ask, check_between, direction, unpredicted

_ROUNDING = 1e-9  # with one reception left the step leads exactly to the best


@dataclass(frozen=True)
class Budgeted(Plain):
    """Asks who is better by the step that the budget allows."""

    risen: float = 0.02  # by how much a peer must have become better since I took its model

    scored: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_between("risen", self.risen, 0, 1)

    def begin(self, facts: DeviceFacts) -> Columns:
        if not np.isfinite(facts.score).all():
            raise ConfigError("'budgeted' must know the accuracy of every model when the tour begins")
        return super().begin(facts) | {
            "best": facts.score.astype(np.float64),  # accuracy that I have heard of
            "offers": np.empty(0, np.int64),  # of this slot: from whom to whom, and the accuracy that was announced
            "offered": np.empty(0),
            "taken_from": np.empty(0, np.int64),  # the same of the last model that was taken
            "taken_at": np.empty(0),
        }

    def hear(self, columns: Columns, meeting: Meeting) -> Columns:
        heard = meeting.announced & np.isfinite(meeting.score)
        best = columns["best"].copy()
        np.maximum.at(best, meeting.me[heard], meeting.score[heard])
        return {
            "best": best,
            "offers": direction(meeting.me, meeting.peer),
            "offered": meeting.score.astype(np.float64),
        }

    def decide(self, columns: Columns, meeting: Meeting, predictor: Predictor | None) -> Decision:
        me, mine = meeting.me, columns["score"][meeting.me]
        step = np.maximum(columns["best"][me] - mine, 0) / np.maximum(columns["can_take"][me], 1)
        before = _values_of(direction(me, meeting.peer), columns["taken_from"], columns["taken_at"])
        has_risen = np.isnan(before) | (meeting.score >= before + self.risen - _ROUNDING)
        worth = (meeting.score > mine) & (meeting.score >= mine + step - _ROUNDING)
        return unpredicted(can_ask(columns, meeting) & has_risen & worth)

    def accept(self, columns: Columns, outcome: MergeOutcome) -> np.ndarray:
        return np.asarray(outcome.after >= outcome.before)

    def update(self, columns: Columns, outcome: MergeOutcome, adopted: np.ndarray) -> Columns:
        now = direction(outcome.me, outcome.peer)
        at = _values_of(now, columns["offers"], columns["offered"])
        others = ~np.isin(columns["taken_from"], now)
        return {
            "taken_from": np.concatenate([columns["taken_from"][others], now]),
            "taken_at": np.concatenate([columns["taken_at"][others], at]),
        }


def _values_of(asked: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The value of each of these keys, each of which is there once; NaN where it is not there."""
    found = np.full(len(asked), np.nan)
    if not len(keys):
        return found
    order = np.argsort(keys)
    place = np.minimum(np.searchsorted(keys, asked, sorter=order), len(keys) - 1)
    there = keys[order[place]] == asked
    found[there] = values[order[place[there]]]
    return found
