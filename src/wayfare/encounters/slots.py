"""One slot of the day: who meets, who asks, what is sent, merged and adopted (FedTour, Algorithm 1, lines 6-29).

    contacts of the slot -> meetings -> policy.decide -> gate -> merge -> state

All of it is a function of the state before the slot, so that both sides of an exchange merge what the other had, and
the order of meetings does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from wayfare.core.bundle import Bundle
from wayfare.core.exchange import Columns, Decision, Meeting, MergeOutcome, Predictor
from wayfare.core.gate import Gate, Refusal, admit, merged
from wayfare.core.seeds import rng_for
from wayfare.core.values import Number
from wayfare.encounters.answers import checked_columns, checked_decision, checked_flags, seen_by
from wayfare.encounters.contacts import matching, priorities
from wayfare.encounters.heads import has_heads, probe_scores
from wayfare.encounters.laboratory import accuracy
from wayfare.encounters.predictors.regressor import Regressor
from wayfare.encounters.state import EncounterState, StoredModel

OWN_SCORES = {"own_before": Number(-1, 1), "own_after": Number(-1, 1)}  # -1: the device holds nothing out
_CLAIM = 0.99  # the accuracy that a liar claims
_REMEMBERED = 200_000  # merges whose accuracy an oracle remembers


@dataclass(frozen=True)
class Merge:
    """A new state, or where it is stored, and how good it was found to be; NaN where nobody tested it."""

    state: Bundle | StoredModel
    after: float = math.nan
    own_before: float = math.nan
    own_after: float = math.nan


class SlotRunner:
    """Runs slots: each one changes the state."""

    def __init__(self, state: EncounterState, make_predictor: Callable[[], Predictor | None]) -> None:
        self.state, self.scenario, self.policy = state, state.scenario, state.scenario.policy
        self._make_predictor = make_predictor
        self._oracle: dict[tuple[int, int], float] = {}  # accuracies of merges, by the checksums of the two

    @cached_property
    def predictor(self) -> Predictor | None:
        """Made when two devices first meet, as that may take long."""
        return self._make_predictor()

    def run(self, slot: int, gate: Gate) -> dict[str, Any]:
        """Run a slot. Returns what happened, for the run's log."""
        contacts, meeting = self._meetings(slot, gate)
        events: dict[str, Any] = {"slot": slot, "contacts": contacts, "met": 0}
        if not len(meeting.me):
            return events
        columns, link = self.state.columns, self.scenario.link
        policy = self.policy
        columns |= checked_columns(policy, "hear", policy.hear(seen_by(policy, columns), meeting))
        found = policy.decide(seen_by(policy, columns), meeting, self.predictor)
        decision = checked_decision(policy, found, len(meeting.me))
        self._count_predictions(meeting, decision)
        asks, predicted = decision.asks & meeting.announced & (columns["can_take"][meeting.me] > 0), decision.predicted
        if self.scenario.settings.matching == "best":
            chosen = _best_offers(columns, meeting, asks, predicted)
            meeting, asks, predicted = _only(meeting, chosen), asks[chosen], predicted[chosen]
        events["met"] = len(meeting.me) // 2
        np.add.at(columns["meetings"], meeting.me, 1)
        affordable = np.flatnonzero(link.affordable(columns, meeting, asks))
        transfers = link.fitting(self.scenario.contacts, columns, meeting, affordable)
        directions, events["cut"] = transfers.directions, transfers.cut
        if len(directions):
            pairs = np.sort(np.column_stack([meeting.me, meeting.peer])[directions], axis=1)
            # the two directions of a pair one after the other
            order = np.lexsort((directions, pairs[:, 1], pairs[:, 0]))
            directions, moved = directions[order], transfers.moved[order]
            events |= self._exchange(_only(meeting, directions), predicted[directions], moved, gate)
        return events

    # ---- who meets whom

    def _meetings(self, slot: int, gate: Gate) -> tuple[int, Meeting]:
        """At most one meeting per device (Eq. 5); for the best offer, everybody hears everybody first.

        Who meets whom does not depend on the policy (unless transfers take longer than a slot), so that runs with the
        same seed and different policies can be compared meeting by meeting.
        """
        scenario, columns = self.scenario, self.state.columns
        pairs, distances = scenario.contacts.at(slot)
        seed, rule = scenario.seed, scenario.settings.matching
        chance = rng_for(seed, slot, "meet").random(len(pairs))
        chosen = np.flatnonzero(~(columns["busy"][pairs] > slot).any(1))
        if rule != "best":
            priority = priorities(rule, pairs, distances, rng_for(seed, slot, "matching"))
            chosen = chosen[matching(pairs[chosen], priority[chosen])]
        one, other = pairs[chosen].T
        me, peer = np.concatenate([one, other]), np.concatenate([other, one])
        announced = columns["can_send"][peer] > 0
        if self.policy.delegates:  # the peer must have pictures, and both must be able to send and to take
            announced &= scenario.facts.labels[peer].sum(1) > 0
            announced &= (columns["can_take"][peer] > 0) & (columns["can_send"][me] > 0)
        begins = ~scenario.contacts.lasts(pairs[chosen], slot - 1, 1) if slot else np.ones(len(chosen), bool)
        return len(pairs), Meeting(
            slot=slot,
            me=me,
            peer=peer,
            announced=announced,
            score=np.where(scenario.liars[peer], _CLAIM, columns["score"][peer]),
            chance=np.tile(chance[chosen], 2),
            begins=np.tile(begins, 2),
            same_model=columns["check"][me] == columns["check"][peer],
            facts=scenario.facts,
            merged_accuracy=lambda mine, theirs: self._merged_accuracy(mine, theirs, gate),
        )

    def _merged_accuracy(self, mine: np.ndarray, theirs: np.ndarray, gate: Gate) -> np.ndarray:
        """What an oracle sees: the accuracy after each of these merges. The same two models are tested once."""
        state, scenario, checks = self.state, self.scenario, self.state.columns["check"]
        keys = [(int(checks[a]), int(checks[b])) for a, b in zip(mine, theirs)]
        pairs = dict(zip(keys, zip(mine.tolist(), theirs.tolist())))
        if len(self._oracle) + len(pairs) > _REMEMBERED:
            self._oracle.clear()
        new = {key: pair for key, pair in pairs.items() if key not in self._oracle}

        if has_heads(scenario) and self.policy.scored and new:
            both = [self._true_merge(a, b) for a, b in new.values()]
            self._oracle |= zip(new, probe_scores(scenario, [a for a, _ in new.values()], both).tolist())
            return np.array([self._oracle[key] for key in keys])

        def requests() -> Iterator[tuple[str, Bundle]]:
            for a, b in new.values():
                report = scenario.strategy.report(state.model(b), int(scenario.examples[b]))
                yield scenario.ids[a], scenario.message(a, state.model(a), report)

        expects = scenario.tally if self.policy.scored else {}
        for key, (_, reply) in zip(new, gate.run("look", requests(), expects, strict=True)):
            self._oracle[key] = accuracy(reply)
        return np.array([self._oracle[key] for key in keys])

    def _true_merge(self, me: int, peer: int) -> Bundle:
        """The state that a merge would give, without any exchange."""
        found = self.state.mean(me, peer)
        if found is not None:
            return found
        strategy, own = self.scenario.strategy, self.state.model(me)
        reports = [(i, strategy.report(self.state.model(i), int(self.scenario.examples[i]))) for i in (me, peer)]
        return strategy.merge(own, [(self.scenario.ids[i], report) for i, report in reports])

    def _count_predictions(self, meeting: Meeting, decision: Decision) -> None:
        """How many predictions there were, and how many the regressor made for accuracies it was not made from."""
        columns, made = self.state.columns, np.isfinite(decision.predicted)
        if not made.any():
            return
        np.add.at(columns["predictions"], meeting.me[made], 1)
        if isinstance(self.predictor, Regressor):
            self.state.reach = self.predictor.low, self.predictor.high
            outside = made & self.predictor.is_outside(columns["score"][meeting.me], meeting.score)
            np.add.at(columns["outside"], meeting.me[outside], 1)

    # ---- exchanges: every direction of `asked` is a model on its way from `peer` to `me`

    def _exchange(self, asked: Meeting, predicted: np.ndarray, moved: np.ndarray, gate: Gate) -> dict[str, Any]:
        link, columns = self.scenario.link, self.state.columns
        merges, failed = self._merges(asked, gate)
        travelled = link.account(columns, asked, moved)
        gate.bytes_up += travelled
        gate.bytes_down += travelled
        came = np.array([merge is not None for merge in merges])
        link.give_back(columns, asked.me[~came])
        if not came.any():
            return {"failed": failed}
        done = [merge for merge in merges if merge is not None]
        outcome = outcome_of(columns, _only(asked, came), done, predicted[came])
        policy = self.policy
        accepted = checked_flags(policy, "accept", policy.accept(seen_by(policy, columns), outcome), len(done))
        for me, merge, yes in zip(outcome.me, done, accepted):
            if yes:
                self.state.set_model(int(me), merge.state)
            else:
                self.state.discard(merge.state)
        columns["score"][outcome.me[accepted]] = outcome.after[accepted]
        known = np.isfinite(outcome.predicted) & (outcome.after > 0)
        error = np.abs(outcome.predicted - outcome.after)[known] / outcome.after[known]
        np.add.at(columns["error"], outcome.me[known], error)
        np.add.at(columns["tested"], outcome.me[known], 1)
        columns |= checked_columns(policy, "update", policy.update(seen_by(policy, columns), outcome, accepted))
        takers = [self.scenario.ids[i] for i in outcome.me]
        gate.clients.extend(takers)
        return {
            "failed": failed,
            "taker": takers,
            "giver": [self.scenario.ids[i] for i in outcome.peer],
            "predicted": _rounded(outcome.predicted),
            "before": _rounded(outcome.before),
            "after": _rounded(outcome.after),
            "adopted": accepted.tolist(),
        }

    def _merges(self, asked: Meeting, gate: Gate) -> tuple[list[Merge | None], int]:
        """For each direction the new state, None where something was refused at the gate; and how many failed."""
        scenario, policy = self.scenario, self.policy
        starts = self._starts(asked, gate)
        if not (policy.scored or policy.guarded or policy.delegates or scenario.settings.iterations):
            # only a mean: no device has to be asked
            return [self._merge(k, asked, start, gate) for k, start in enumerate(starts)], 0
        if has_heads(scenario) and not (policy.guarded or policy.delegates or scenario.settings.iterations):
            return self._tested_heads(asked, [self._merge(k, asked, s, gate) for k, s in enumerate(starts)]), 0
        return self._merges_on_devices(asked, starts, gate)

    def _tested_heads(self, asked: Meeting, merges: list[Merge | None]) -> list[Merge | None]:
        """The same merges, stored, with their accuracy on the probe."""
        done = {
            k: merge.state for k, merge in enumerate(merges) if merge is not None and isinstance(merge.state, Bundle)
        }
        if not done:
            return merges
        after = probe_scores(self.scenario, [int(asked.me[k]) for k in done], list(done.values()))
        for (k, state), score in zip(done.items(), after):
            merges[k] = Merge(self.state.store(state), float(score))
        return merges

    def _merges_on_devices(
        self, asked: Meeting, starts: Iterator[tuple[Bundle, Bundle | None] | None], gate: Gate
    ) -> tuple[list[Merge | None], int]:
        scenario, policy, devices = self.scenario, self.policy, asked.me.tolist()
        merges: list[Merge | None] = [None] * len(devices)
        direction, sent = {scenario.ids[me]: k for k, me in enumerate(devices)}, 0

        def requests() -> Iterator[tuple[str, Bundle]]:
            nonlocal sent
            for me, start in zip(devices, starts):
                if start is not None:
                    sent += 1
                    extra = {"keep": True, "own": policy.guarded, "iterations": scenario.iterations(me)}
                    yield scenario.ids[me], scenario.message(me, *start, extra)

        expects = scenario.initial.tensors | (scenario.tally if policy.scored else {})
        for id, reply in gate.run("meet", requests(), expects, OWN_SCORES):
            # stored at once, so that a slot's replies are not in memory together
            merges[direction[id]] = tested(reply, self.state.store(reply))
        return merges, sent - sum(merge is not None for merge in merges)

    def _merge(self, k: int, asked: Meeting, start: tuple[Bundle, Bundle | None] | None, gate: Gate) -> Merge | None:
        """Direction k's own state with what its peer sent; None where that cannot be merged."""
        if start is None:
            return None
        own, report = start
        if report is None:
            return Merge(own)
        strategy, me, peer = self.scenario.strategy, int(asked.me[k]), int(asked.peer[k])
        ids, examples = self.scenario.ids, int(self.scenario.examples[me])
        try:
            return Merge(merged(strategy, own, [(ids[me], strategy.report(own, examples)), ("peer", report)]))
        except Refusal as refusal:
            gate.refuse(ids[peer], refusal, to=ids[me])
            return None

    def _starts(self, asked: Meeting, gate: Gate) -> Iterator[tuple[Bundle, Bundle | None] | None]:
        """What each direction merges: the own state and what the peer sent; or the mean of both, and nothing.

        The mean is the same for the two directions of a pair, which stand together. None: it was refused at the gate.
        """
        trained = self._delegated(asked, gate) if self.policy.delegates else None
        pair, both = (-1, -1), None
        for k, (me, peer) in enumerate(zip(asked.me.tolist(), asked.peer.tolist())):
            if pair != (peer, me):
                both = self.state.mean(me, peer)
            pair = me, peer
            if both is not None:
                yield both, None
                continue
            report = trained[k] if trained else self._report(me, peer, asked.slot)
            admitted = None if report is None else self._admitted(report, me, peer, asked.slot, gate)
            if admitted is None:
                yield None
            elif trained:  # my own model, which the peer has trained
                yield merged(self.scenario.strategy, self.state.model(me), [(self.scenario.ids[peer], admitted)]), None
            else:
                yield self.state.model(me), admitted

    def _report(self, me: int, peer: int, slot: int) -> Bundle:
        """What the peer sends, as it arrives here."""
        scenario = self.scenario
        report = scenario.strategy.report(self.state.model(peer), int(scenario.examples[peer]))
        rng = rng_for(scenario.seed, slot, scenario.ids[me], "coding")
        return scenario.coding.received(report, self.state.base, rng)

    def _delegated(self, asked: Meeting, gate: Gate) -> list[Bundle | None]:
        """Everybody's own model, trained on its peer's pictures; all at once, as another program may wait for them."""
        scenario, strategy, initial = self.scenario, self.scenario.strategy, self.scenario.initial
        steps = {"iterations": self.policy.delegated_steps()}

        def requests() -> Iterator[tuple[str, Bundle]]:
            for me, peer in zip(asked.me, asked.peer):
                sent = strategy.send(self.state.model(int(me)), scenario.ids[peer])
                yield scenario.ids[peer], Bundle(sent.tensors, {**sent.values, **steps})

        trained = dict(gate.run("train", requests(), strategy.expects(initial), strategy.values(initial)))
        return [trained.get(scenario.ids[peer]) for peer in asked.peer]

    def _admitted(self, report: Bundle, me: int, peer: int, slot: int, gate: Gate) -> Bundle | None:
        """What a peer sends goes through the gate too."""
        scenario, own, limits = self.scenario, self.state.model(me), self.scenario.limits
        examples = int(scenario.examples[peer])
        tensors = self._lie(report, peer, slot) if scenario.liars[peer] else report.tensors
        sent = Bundle(tensors, {"n": examples, "round": gate.round})
        expects, most = scenario.strategy.report(own, 1).tensors, min(examples, limits.max_examples)
        try:
            admit(sent, expects, own.tensors, limits, round=gate.round, examples=most)
        except Refusal as refusal:
            gate.refuse(scenario.ids[peer], refusal, to=scenario.ids[me])
            return None
        return sent

    def _lie(self, report: Bundle, peer: int, slot: int) -> dict[str, dict[str, torch.Tensor]]:
        rng = rng_for(self.scenario.seed, slot, self.scenario.ids[peer], "lie")

        def instead(tensor: torch.Tensor) -> torch.Tensor:
            if self.scenario.settings.lie == "nan":
                return torch.full_like(tensor, math.nan)
            noise = torch.from_numpy(rng.standard_normal(tuple(tensor.shape)).astype(np.float32))
            return noise * tensor.std() if tensor.numel() > 1 else noise

        return {section: {n: instead(t) for n, t in weights.items()} for section, weights in report.tensors.items()}


def merged_events(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What happened in the slots of a round: sums, and of exchanges also in which slot (`at`)."""
    if len(events) == 1:
        return events[0]
    names = {name: type(value) for event in events for name, value in event.items() if name != "slot"}
    sums = {name: sum((event.get(name, kind()) for event in events), kind()) for name, kind in names.items()}
    if "taker" in sums:
        sums["at"] = [event["slot"] for event in events for _ in event.get("taker", ())]
    empty = sum(not event["contacts"] for event in events)
    return {"slot": events[0]["slot"], "slots": len(events), "empty": empty, **sums}


def _best_offers(columns: Columns, meeting: Meeting, asks: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Who of those who ask each other meet: the largest expected gain first. The others remain free (point 11)."""
    gain = np.where(asks, np.nan_to_num(predicted - columns["score"][meeting.me]), -np.inf)
    half = len(gain) // 2
    either = np.maximum(gain[:half], gain[half:])
    candidates = np.flatnonzero(either > -np.inf)
    pairs = np.column_stack([meeting.me[:half], meeting.peer[:half]])
    kept = candidates[matching(pairs[candidates], -either[candidates])]
    return np.concatenate([kept, kept + half])


def _only(meeting: Meeting, directions: np.ndarray) -> Meeting:
    arrays = {f.name: getattr(meeting, f.name) for f in fields(meeting)}
    return replace(meeting, **{n: a[directions] for n, a in arrays.items() if isinstance(a, np.ndarray)})


def tested(reply: Bundle, stored: StoredModel | Bundle) -> Merge:
    """What a reply to `meet` says of the state that came of it."""
    own = [reply.number(name, -1.0) for name in ("own_before", "own_after")]
    before, after = (math.nan if score < 0 else score for score in own)  # below 0: the device holds none out
    return Merge(stored, accuracy(reply), before, after)


def outcome_of(columns: Columns, taken: Meeting, merges: list[Merge], predicted: np.ndarray) -> MergeOutcome:
    """What happened, for the policy: a merge for each direction of the meeting."""
    after, own_before, own_after = np.array([(m.after, m.own_before, m.own_after) for m in merges]).T
    return MergeOutcome(
        slot=taken.slot,
        me=taken.me,
        peer=taken.peer,
        before=columns["score"][taken.me],
        after=after,
        own_before=own_before,
        own_after=own_after,
        predicted=predicted,
    )


def _rounded(values: np.ndarray) -> list[float | None]:
    return [None if math.isnan(value) else round(float(value), 6) for value in values]
