"""One real device: what it knows, decides and merges, by the same policies, programs and gate as the simulation's.

It is device 0 of its own columns; the peers that it has met are 1, 2, ... What a simulation looks up in a table of all
devices, a device hears from the other one (`DeviceOffer`). Who carries the messages is not its business.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from wayfare.core.bundle import Bundle, Value, digest
from wayfare.core.errors import ConfigError, StoreError
from wayfare.core.exchange import Columns, DeviceFacts, Exchange, Laboratory, Meeting
from wayfare.core.gate import Gate, Refusal, admit, merged
from wayfare.core.protocols import Client, Strategy, Task
from wayfare.encounters.beginning import budgets_of
from wayfare.encounters.laboratory import accuracy, expected_tally
from wayfare.encounters.scenario import merge_message
from wayfare.encounters.slots import OWN_SCORES, outcome_of, tested

_COUNTS = ("can_send", "can_take", "sent", "taken")
Published = tuple[float, float, float]


@dataclass(frozen=True)
class DeviceOffer:
    """What a device says of itself when it meets another: no position, no time."""

    announced: bool  # it can still send
    avoids: bool  # it keeps away from the other
    score: float  # its accuracy; NaN where the policy does without
    model: str  # digest
    examples: int
    labels: tuple[int, ...]  # samples of each class; () where the policy does not look at them


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a device is made of; none of it changes."""

    id: str
    task: Task
    strategy: Strategy
    exchange: Exchange
    initial: Bundle  # the base model, the same on all devices
    client: Client
    gate: Callable[[int], Gate]  # the door to its own programs, for a round
    measures: Callable[[int], Gate]  # the same, where it has the pictures that say how good a model is
    probe: np.ndarray  # which ones
    tells_labels: bool
    limit: int  # L, its own: signage may have another
    stationary: bool = False
    iterations: int = 0  # of training after a merge


@dataclass
class DeviceState:
    """What changes: the model, the columns of the policy, and how many rounds of work there were."""

    model: Bundle
    columns: Columns = field(default_factory=dict)
    round: int = 0
    published: Published | None = None  # the record from which budget and threshold were set


@dataclass(frozen=True)
class Merged:
    """What became of a model that was taken."""

    before: float
    after: float
    adopted: bool
    reason: str = ""  # why not


class LoneDevice:
    """Begins, offers, decides, and merges what it has taken."""

    def __init__(self, parts: Parts, state: DeviceState | None = None, published: Published | None = None) -> None:
        self.parts = parts
        if "tally" not in parts.task.provides:
            raise ConfigError(f"{type(parts.task).__name__} cannot measure a model class by class (no tally)")
        if parts.exchange.delegates:
            raise ConfigError(f"{type(parts.exchange).__name__} needs a simulation: others train a device's model")
        self.predictor = parts.exchange.predictor(_NoLaboratory())
        self.state = state or self._begun(published)

    # ---- the beginning (Algorithm 1, lines 1-5)

    def _begun(self, published: Published | None) -> DeviceState:
        parts, state = self.parts, DeviceState(self.parts.initial, {}, 1)
        if len(parts.client.train) and not parts.stationary:
            gate, base = parts.gate(1), parts.initial
            asked = [(parts.id, parts.strategy.send(base, parts.id))]
            for _, reply in gate.run("train", asked, parts.strategy.expects(base), parts.strategy.values(base)):
                state.model = merged(parts.strategy, base, [(parts.id, reply)])
            if gate.refused:
                raise ConfigError(f"{parts.id} cannot train: {gate.refused[0]['reason']}")
        score = self._score(state.model, 1) if parts.exchange.scored else math.nan
        return self._with_budget(state, score, published)

    def begin_anew(self, published: Published | None) -> None:
        """A new day, or a record that came before the first exchange: the budget is set again, the model stays."""
        self._with_budget(self.state, float(self.state.columns["score"][0]), published)

    def _with_budget(self, state: DeviceState, score: float, published: Published | None) -> DeviceState:
        facts = replace(self._facts(np.array([score])), published=published)
        state.columns = {name: np.zeros(1, np.int64) for name in _COUNTS} | {"score": np.array([score])}
        state.columns |= budgets_of(self.parts.exchange, facts)
        state.published = published
        return state

    def _score(self, model: Bundle, round: int) -> float:
        parts = self.parts
        values: dict[str, Value] = {**parts.initial.values, "n": max(1, len(parts.probe))}
        message = merge_message(model, None, values, torch.from_numpy(parts.probe))
        tally = expected_tally(len(parts.task.classes))
        [(_, reply)] = parts.measures(round).run("look", [(parts.id, message)], tally, strict=True)
        return accuracy(reply)

    @property
    def examples(self) -> int:
        """How much its model weighs where examples count."""
        return max(1, len(self.parts.client.train))

    @property
    def is_unspent(self) -> bool:
        """Whether nothing of its budget was used."""
        return not (self.state.columns["sent"][0] or self.state.columns["taken"][0])

    # ---- a meeting

    def offer(self, peer: int, slot: int) -> DeviceOffer:
        """What it says to this peer."""
        columns = self.state.columns
        away = bool(self.parts.exchange.avoided(columns, self._meeting(peer, _NOTHING, slot))[0])
        labels = tuple(int(count) for count in self._labels()) if self.parts.tells_labels else ()
        return DeviceOffer(
            announced=bool(columns["can_send"][0] > 0),
            avoids=away,
            score=float(columns["score"][0]),
            model=digest(self.state.model["model"]),
            examples=self.examples,
            labels=labels,
        )

    def decide(self, peer: int, theirs: DeviceOffer, slot: int, **contact: Any) -> tuple[bool, float]:
        """Whether it asks for the peer's model, and what it expects of that."""
        meeting, columns = self._meeting(peer, theirs, slot, **contact), self.state.columns
        columns |= self.parts.exchange.hear(columns, meeting)
        decision = self.parts.exchange.decide(columns, meeting, self.predictor)
        asks = bool(decision.asks[0] and theirs.announced and not theirs.avoids and columns["can_take"][0] > 0)
        return asks, float(decision.predicted[0])

    def report(self) -> Bundle:
        """What it sends to who asks."""
        return self.parts.strategy.report(self.state.model, self.examples)

    def count(self, way: str, by: int = 1) -> None:
        """A model was sent, or taken; or with -1 it was not after all (Eq. 6)."""
        left = {"sent": "can_send", "taken": "can_take"}[way]
        self.state.columns[way] = self.state.columns[way] + by
        self.state.columns[left] = self.state.columns[left] - by

    def admitted(self, data: bytes) -> Bundle:
        """What a peer has sent, if it is lawful; else Refusal."""
        own, limits = self.state.model, self.parts.gate(self.state.round).policy
        try:
            sent = Bundle.unpack(data)
        except StoreError as error:
            raise Refusal(f"form: {error}") from error
        sent = Bundle(sent.tensors, {"n": sent.values.get("n", 0), "round": self.state.round})
        expects = self.parts.strategy.report(own, 1).tensors
        admit(sent, expects, own.tensors, limits, round=self.state.round, examples=limits.max_examples)
        return sent

    def merge(self, sent: Bundle, peer: int, predicted: float, slot: int) -> Merged:
        """Merge what was taken, test it, and keep it if the policy says so."""
        parts, state = self.parts, self.state
        state.round += 1
        values: dict[str, Value] = {**parts.initial.values, "n": self.examples, "keep": True}
        values |= {"own": parts.exchange.guarded, "iterations": parts.iterations}
        message, expects = merge_message(state.model, sent, values, None), parts.initial.tensors
        gate = parts.gate(state.round)
        replies = [reply for _, reply in gate.run("meet", [(parts.id, message)], expects, OWN_SCORES)]
        before = float(state.columns["score"][0])
        if not replies:
            return Merged(before, math.nan, False, gate.refused[0]["reason"])
        new = Bundle({name: replies[0][name] for name in parts.initial.tensors}, dict(parts.initial.values))
        after = self._score(new, state.round) if parts.exchange.scored else math.nan
        merge = replace(tested(replies[0], new), after=after)
        meeting = self._meeting(peer, _NOTHING, slot)
        outcome = outcome_of(state.columns, meeting, [merge], np.array([predicted]))
        adopted = parts.exchange.accept(state.columns, outcome)
        if adopted[0]:
            state.model = new
            state.columns["score"] = outcome.after.copy()
        state.columns |= parts.exchange.update(state.columns, outcome, adopted)
        is_worse = not adopted[0] and merge.own_after < merge.own_before
        reason = "worse on this device's held-out pictures" if is_worse else ""
        return Merged(before, float(outcome.after[0]), bool(adopted[0]), reason)

    # ---- as a policy sees it

    def _labels(self) -> np.ndarray:
        labels = self.parts.task.labels
        if labels is None:
            raise ConfigError(f"encounters need one class per sample, which {type(self.parts.task).__name__} has not")
        return np.bincount(labels[self.parts.client.train], minlength=len(self.parts.task.classes))

    def _facts(self, score: np.ndarray, peer: int = 0, theirs: DeviceOffer | None = None) -> DeviceFacts:
        count, classes = peer + 1, len(self.parts.task.classes)
        labels, examples = np.zeros((count, classes), np.int64), np.ones(count, np.int64)
        if theirs is not None and len(theirs.labels) == classes:
            labels[peer], examples[peer] = theirs.labels, theirs.examples
        labels[0], examples[0] = self._labels(), self.examples
        return DeviceFacts(
            limit=np.full(count, self.parts.limit, np.int64),
            score=score,
            examples=examples,
            labels=labels,
            targets=np.ones((count, classes), bool),
            stationary=np.full(count, self.parts.stationary),
        )

    def _meeting(self, peer: int, theirs: DeviceOffer, slot: int, chance: float = 1.0, begins: bool = True) -> Meeting:
        score = np.array([theirs.score])
        return Meeting(
            slot=slot,
            me=np.array([0]),
            peer=np.array([peer]),
            announced=np.array([theirs.announced]),
            score=score,
            chance=np.array([chance]),
            begins=np.array([begins]),
            same_model=np.array([theirs.model == digest(self.state.model["model"])])
            if theirs.model
            else np.zeros(1, bool),
            facts=replace(self._facts(np.full(peer + 1, math.nan), peer, theirs), published=self.state.published),
            merged_accuracy=_no_oracle,
        )


_NOTHING = DeviceOffer(announced=False, avoids=False, score=math.nan, model="", examples=1, labels=())


def _no_oracle(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    raise ConfigError("an oracle needs both models: it works in a simulation only")


class _NoLaboratory(Laboratory):
    """A device alone has no other models to learn from."""

    @property
    def labels(self) -> np.ndarray:
        raise _alone()

    @property
    def classes(self) -> int:
        raise _alone()

    @property
    def key(self) -> str:
        raise _alone()

    def train(self, samples: Any) -> Any:
        raise _alone()

    def mixed(self, models: Any, groups: Any) -> Any:
        raise _alone()

    def merged(self, models: Any, pairs: np.ndarray) -> np.ndarray:
        raise _alone()

    def rng(self, purpose: str) -> np.random.Generator:
        raise _alone()


def _alone() -> ConfigError:
    return ConfigError(
        "a device alone has no laboratory for its predictor: make a study once and set exchange.regressor to its file, "
        "or set exchange.predict_with = 'overlap'"
    )
