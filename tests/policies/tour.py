"""A tour on paper: devices, contacts and what merges give are written down; a policy decides the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wayfare.core.exchange import Facts, Ledger, Meeting, Outcome, Predictor, Wish


@dataclass(frozen=True)
class Mean:
    """In place of the regressor: the mean of the two accuracies and a little more, easy to do in the head."""

    bonus: float = 0.05

    def predict(self, mine: np.ndarray, meeting: Meeting) -> np.ndarray:
        return (mine + meeting.score) / 2 + self.bonus


def facts(score: Sequence[float], limit: int = 4, labels: Any = None, targets: Any = None) -> Facts:
    many = len(score)
    labels = np.ones((many, 2), np.int64) if labels is None else np.array(labels)
    targets = np.ones(labels.shape, bool) if targets is None else np.array(targets, bool)
    limits = np.full(many, limit, np.int64)
    return Facts(limits, np.array(score), labels.sum(axis=1), labels, targets, np.zeros(many, bool))


def meet(slot: int, pairs: Sequence[tuple[int, int]], known: Facts, ledger: Ledger, **given: Any) -> Meeting:
    """These pairs in both directions: first each (a, b) as a hears b, then each as b hears a."""
    a, b = np.array(pairs, np.int64).reshape(-1, 2).T
    me, peer = np.concatenate([a, b]), np.concatenate([b, a])
    both = {name: np.tile(given.pop(name, [0.0] * len(pairs)), 2) for name in ("chance", "begins", "alike")}
    columns = {
        "heard": ledger["can_send"][peer] > 0,
        "score": ledger["score"][peer],
        "chance": both["chance"],
        "begins": both["begins"].astype(bool),
        "alike": both["alike"].astype(bool),
        "look": lambda me, peer: np.full(len(me), np.nan),
    }
    return Meeting(slot=slot, me=me, peer=peer, facts=known, **columns | given)


@dataclass
class Tour:
    """A policy at work. `step` plays a slot; `merged[me]` is the accuracy that a merge of `me` has then."""

    policy: Any
    facts: Facts
    predictor: Predictor | None = None

    def __post_init__(self) -> None:
        none = np.zeros(len(self.facts.limit), np.int64)
        self.ledger = {"score": self.facts.score.copy(), "sent": none, "taken": none.copy()}
        self.ledger |= self.policy.begin(self.facts)

    def wish(self, slot: int, pairs: Sequence[tuple[int, int]], **given: Any) -> tuple[Meeting, Wish]:
        meeting = meet(slot, pairs, self.facts, self.ledger, **given)
        self.ledger |= self.policy.listens(self.ledger, meeting)
        return meeting, self.policy.wants(self.ledger, meeting, self.predictor)

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
        me, peer = meeting.me[wish.wanted], meeting.peer[wish.wanted]
        if not len(me):
            return []
        before = self.ledger["score"][me]
        after = np.array([(merged or {}).get(i, np.nan) for i in me.tolist()])
        tried = np.array([(own or {}).get(i, (np.nan, np.nan)) for i in me.tolist()]).reshape(-1, 2)
        outcome = Outcome(slot, me, peer, before, after, tried[:, 0], tried[:, 1], wish.predicted[wish.wanted])
        adopted = self.policy.adopts(self.ledger, outcome)
        self.ledger |= self.policy.took(self.ledger, outcome, adopted)
        for left, made, who in (("can_send", "sent", peer), ("can_take", "taken", me)):
            np.subtract.at(self.ledger[left], who, 1)
            np.add.at(self.ledger[made], who, 1)
        self.ledger["score"][me[adopted]] = after[adopted]
        return list(zip(me.tolist(), peer.tolist()))

    def column(self, name: str) -> list[Any]:
        return self.ledger[name].tolist()  # type: ignore[no-any-return]
