"""FedTour (Algorithm 1): ask for a peer's model only if the predicted accuracy is above an adaptive threshold.

    begin     threshold: the median accuracy of all devices, or my own if that is higher         (line 1)
              L is divided by accuracy: good models are sent more often, poor ones receive more  (lines 2-3)
    meeting   who can still send announces its accuracy Q                                        (lines 7-8)
              I ask if my accuracy plus the predicted change exceeds my threshold                (lines 14-18)
              after a merge the threshold goes up if it was a success, and down if not           (lines 22-27)

The paper leaves points open. The number of the point is beside each setting, and the default is the paper's own words
(or, where it has none, the plainest reading). Read so without a setting: a threshold moves only when a merge has
happened (point 3); it goes up also when accuracy fell but is still above it (4); who cannot send is not heard, but
hears (7); each direction of a meeting decides on its own (9).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np

from wayfare.core.errors import ConfigError, unknown
from wayfare.core.exchange import Columns, Decision, DeviceFacts, Laboratory, Meeting, MergeOutcome, Predictor
from wayfare.encounters.policies import can_ask, check_between, check_whole
from wayfare.encounters.predictors import FEWEST, check_name, make

Start = Literal["median", "running_median"]
Base = Literal["threshold", "accuracy"]
Same = Literal["ask", "refuse"]


@dataclass(frozen=True)
class FedTour:
    """Algorithm 1, with its open points as settings."""

    limit: int = 40  # L
    predict_with: str = "regressor"  # a module of wayfare.encounters.predictors, or package.module:Name
    # point 14: a file that a study has written; if empty, models are made and merged before the tour, `lab` of them
    regressor: str = ""
    lab: int = 33
    # point 1: the median of all devices' accuracies, from a list that all upload when they start; or, without the
    # list, of the accuracies heard until the first merge (in hundredths; before the first is heard, my own)
    start: Start = "median"
    # point 2: the factors, and of what: of the current threshold (Sect. V-A), or of the accuracy after the merge
    # (how Algorithm 1 calls its functions). Never above 1
    raise_by: float = 1.1
    lower_by: float = 0.9
    base: Base = "threshold"
    floor: bool = False  # point 2: the threshold is never below my own accuracy
    rollback: bool = False  # point 5: a merge that lowered accuracy is undone; the threshold still learns from it
    # point 6: at least so many of each are left to everyone; with 0 the best never receive and the poorest never send
    reserve: int = 0
    # point 12: for so many slots after an exchange the same two do not exchange again
    cooldown: int = 0
    same: Same = "ask"  # point 12: whether to ask a peer that announces the very model that I have
    # reliability D: accuracies leave a device (to peers and to the list) only in steps of this; 0: as they are
    quantise: float = 0.0

    scored: ClassVar[bool] = True
    guarded: ClassVar[bool] = False
    delegates: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, value in (("limit", self.limit), ("reserve", self.reserve), ("cooldown", self.cooldown)):
            check_whole(name, value)
        check_whole("lab", self.lab, FEWEST if self.predict_with == "regressor" and not self.regressor else 2)
        check_between("raise_by", self.raise_by, 1, 10)
        check_between("lower_by", self.lower_by, 0, 1)
        check_between("quantise", self.quantise, 0, 0.5)
        for name, options in (("start", Start), ("base", Base), ("same", Same)):
            if getattr(self, name) not in get_args(options):
                raise unknown(name, str(getattr(self, name)), get_args(options), "fedtour")
        if 2 * self.reserve > self.limit:
            raise ConfigError(
                f"reserve = {self.reserve} of each, sending and receiving, is more than limit = {self.limit} allows; "
                f"use at most {self.limit // 2}"
            )
        check_name(self.predict_with)
        if self.regressor and self.predict_with != "regressor":
            raise ConfigError(
                f"regressor = {self.regressor!r} is not read with predict_with = {self.predict_with!r}; "
                "leave out one of them"
            )

    def predictor(self, laboratory: Laboratory) -> Predictor:
        return make(self.predict_with, laboratory, self.lab, self.regressor)

    def delegated_steps(self) -> int:
        return 0

    def quantised(self, score: np.ndarray) -> np.ndarray:
        """Accuracies as others get to know them. Doing it twice changes nothing more."""
        if self.quantise == 0:
            return score
        return np.minimum(np.rint(score / self.quantise) * self.quantise, 1)

    def begin(self, facts: DeviceFacts) -> Columns:
        if not np.isfinite(facts.score).all():
            raise ConfigError(
                f"fedtour must know how good every model is when the tour begins, and of "
                f"{np.count_nonzero(~np.isfinite(facts.score))} of {len(facts.score)} devices it is not known; "
                "give the devices pictures to test it on"
            )
        score = facts.score.astype(np.float64)
        known = self.quantised(score[~facts.stationary] if not facts.stationary.all() else score)  # people's devices
        low, middle, high = facts.published or (known.min(), np.median(known), known.max())
        can_send = _transmissions(score, (low, high), facts.limit, self.reserve)
        columns = {"can_send": can_send, "can_take": facts.limit - can_send}
        if self.start == "median":
            columns["threshold"] = np.maximum(middle, score)
        else:
            columns["threshold"] = score
            columns["announcements"] = np.zeros((len(score), 101), np.int32)  # how often each hundredth was heard
            columns["merged"] = np.zeros(len(score), bool)
        if self.cooldown:
            columns["cooling"] = np.empty((0, 3), np.int64)  # me, peer, the last slot in which they do not exchange
        return columns

    def hear(self, columns: Columns, meeting: Meeting) -> Columns:
        if self.start == "median":
            return {}
        new = meeting.announced & np.isfinite(meeting.score) & ~columns["merged"][meeting.me]
        if not new.any():
            return {}
        me = meeting.me[new]
        counts, threshold = columns["announcements"].copy(), columns["threshold"].copy()
        hundredths = np.rint(100 * np.clip(self.quantised(meeting.score[new]), 0, 1)).astype(np.int64)
        np.add.at(counts, (me, hundredths), 1)
        threshold[me] = np.maximum(_median(counts[me]), columns["score"][me])
        return {"announcements": counts, "threshold": threshold}

    def decide(self, columns: Columns, meeting: Meeting, predictor: Predictor | None) -> Decision:
        if predictor is None:
            raise ConfigError("fedtour needs a predictor, but none is set: set exchange.predict_with")
        possible = can_ask(columns, meeting) & ~self.avoided(columns, meeting)
        if self.same == "refuse":
            possible &= ~meeting.same_model
        predicted = np.full(len(meeting.me), np.nan)
        if possible.any():  # nothing is predicted that cannot be: an oracle has to merge for each
            considered = self._part(meeting, possible)
            predicted[possible] = predictor.predict(columns["score"][considered.me], considered)
        return Decision(predicted > columns["threshold"][meeting.me], predicted)

    def avoided(self, columns: Columns, meeting: Meeting) -> np.ndarray:
        """Pairs that keep away from each other in this slot, whichever of them has a reason."""
        if not self.cooldown:
            return np.zeros(len(meeting.me), bool)
        return remembered(columns["cooling"], meeting)

    def accept(self, columns: Columns, outcome: MergeOutcome) -> np.ndarray:
        if self.rollback:
            return outcome.after >= outcome.before
        return np.ones(len(outcome.me), bool)

    def update(self, columns: Columns, outcome: MergeOutcome, adopted: np.ndarray) -> Columns:
        me, before, after = outcome.me, outcome.before, outcome.after
        held = np.where(adopted, after, before)
        current = columns["threshold"][me]
        success = (after > current) | (after > before)
        moved = np.where(success, self.raise_by, self.lower_by) * (current if self.base == "threshold" else held)
        if self.floor:
            moved = np.maximum(moved, held)
        changed = {"threshold": columns["threshold"].copy()}
        changed["threshold"][me] = np.minimum(moved, 1)
        if self.start == "running_median":
            changed["merged"] = columns["merged"].copy()
            changed["merged"][me] = True
        if self.cooldown:
            rows = np.column_stack([me, outcome.peer, np.full(len(me), outcome.slot + self.cooldown)])
            old = columns["cooling"]
            changed["cooling"] = np.concatenate([old[old[:, 2] > outcome.slot], rows])
        return changed

    def _part(self, meeting: Meeting, chosen: np.ndarray) -> Meeting:
        """These directions of a meeting, with the peers' accuracies as they are announced."""
        names = ("me", "peer", "announced", "chance", "begins", "same_model")
        parts = {name: getattr(meeting, name)[chosen] for name in names}
        return replace(meeting, **parts, score=self.quantised(meeting.score[chosen]))


def _transmissions(score: np.ndarray, ends: tuple[float, float], limit: np.ndarray, reserve: int) -> np.ndarray:
    """txn = L (Q - Qmin) / (Qmax - Qmin), rounded; half of L where all are equal. Point 6."""
    low, high = ends
    txn = limit // 2 if high <= low else np.rint(limit * ((score - low) / (high - low))).astype(np.int64)
    kept = np.minimum(reserve, limit // 2)
    return np.asarray(np.clip(txn, kept, limit - kept))


def _median(counts: np.ndarray) -> np.ndarray:
    """The median of each row of counts of hundredths; no row is empty."""
    below, half = counts.cumsum(axis=1), counts.sum(axis=1, keepdims=True) / 2
    return np.asarray((below >= half).argmax(axis=1) + (below > half).argmax(axis=1)) / 200


def remembered(rows: np.ndarray, meeting: Meeting) -> np.ndarray:
    """Where a row (one, other, until, ...) still counts for a pair of the meeting, in either direction."""
    counts = rows[rows[:, 2] >= meeting.slot]
    return np.isin(_pair(meeting.me, meeting.peer), _pair(counts[:, 0], counts[:, 1]))


def _pair(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """A number for two devices that does not depend on their order."""
    return np.asarray((np.minimum(one, other) << 32) | np.maximum(one, other))
