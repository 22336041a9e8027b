"""A tour on paper: devices, contacts and what merges give are written down; a policy decides the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wayfare.core.exchange import Columns, Decision, DeviceFacts, Meeting, MergeOutcome, Predictor


@dataclass(frozen=True)
class Mean:
    """In place of the regressor: the mean of the two accuracies and a little more, easy to do in the head."""

    bonus: float = 0.05

    def predict(self, mine: np.ndarray, meeting: Meeting) -> np.ndarray:
        return (mine + meeting.score) / 2 + self.bonus


def facts(score: Sequence[float], limit: int = 4, labels: Any = None, targets: Any = None) -> DeviceFacts:
    many = len(score)
    labels = np.ones((many, 2), np.int64) if labels is None else np.array(labels)
    targets = np.ones(labels.shape, bool) if targets is None else np.array(targets, bool)
    limits = np.full(many, limit, np.int64)
    return DeviceFacts(
        limits, np.array(score), labels.sum(axis=1), labels=labels, targets=targets, stationary=np.zeros(many, bool)
    )


def meet(slot: int, pairs: Sequence[tuple[int, int]], known: DeviceFacts, columns: Columns, **given: Any) -> Meeting:
    """These pairs in both directions: first each (a, b) as a hears b, then each as b hears a."""
    a, b = np.array(pairs, np.int64).reshape(-1, 2).T
    me, peer = np.concatenate([a, b]), np.concatenate([b, a])
    both = {name: np.tile(given.pop(name, [0.0] * len(pairs)), 2) for name in ("chance", "begins", "same_model")}
    columns = {
        "announced": columns["can_send"][peer] > 0,
        "score": columns["score"][peer],
        "chance": both["chance"],
        "begins": both["begins"].astype(bool),
        "same_model": both["same_model"].astype(bool),
        "merged_accuracy": lambda me, peer: np.full(len(me), np.nan),
    }
    return Meeting(slot=slot, me=me, peer=peer, facts=known, **columns | given)


@dataclass
class Tour:
    """A policy at work. `step` plays a slot; `merged[me]` is the accuracy that a merge of `me` has then."""

    policy: Any
    facts: DeviceFacts
    predictor: Predictor | None = None

    def __post_init__(self) -> None:
        none = np.zeros(len(self.facts.limit), np.int64)
        self.columns = {"score": self.facts.score.copy(), "sent": none, "taken": none.copy()}
        self.columns |= self.policy.begin(self.facts)

    def wish(self, slot: int, pairs: Sequence[tuple[int, int]], **given: Any) -> tuple[Meeting, Decision]:
        meeting = meet(slot, pairs, self.facts, self.columns, **given)
        self.columns |= self.policy.hear(self.columns, meeting)
        return meeting, self.policy.decide(self.columns, meeting, self.predictor)

    def step(
        self,
        slot: int,
        pairs: Sequence[tuple[int, int]],
        merged: Mapping[int, float] | None = None,
        own: Mapping[int, tuple[float, float]] | None = None,
        **given: Any,
    ) -> list[tuple[int, int]]:
        """Who took whose model, [(me, peer), ...]."""
        meeting, wish = self.wish(slot, pairs, **given)
        me, peer = meeting.me[wish.asks], meeting.peer[wish.asks]
        if not len(me):
            return []
        before = self.columns["score"][me]
        after = np.array([(merged or {}).get(i, np.nan) for i in me.tolist()])
        tried = np.array([(own or {}).get(i, (np.nan, np.nan)) for i in me.tolist()]).reshape(-1, 2)
        outcome = MergeOutcome(
            slot,
            me,
            peer=peer,
            before=before,
            after=after,
            own_before=tried[:, 0],
            own_after=tried[:, 1],
            predicted=wish.predicted[wish.asks],
        )
        adopted = self.policy.accept(self.columns, outcome)
        self.columns |= self.policy.update(self.columns, outcome, adopted)
        for left, made, who in (("can_send", "sent", peer), ("can_take", "taken", me)):
            np.subtract.at(self.columns[left], who, 1)
            np.add.at(self.columns[made], who, 1)
        self.columns["score"][me[adopted]] = after[adopted]
        return list(zip(me.tolist(), peer.tolist()))

    def column(self, name: str) -> list[Any]:
        return self.columns[name].tolist()  # type: ignore[no-any-return]
