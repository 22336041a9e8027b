"""What happens in one slot: who meets, who asks, what is sent, merged and adopted (FedTour, Algorithm 1, lines 6-29).

All of it is a function of the ledger before the slot, so that both sides of an exchange merge what the other had, and
the order of meetings does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from wayfare.core.bundle import Bundle
from wayfare.core.exchange import Ledger, Meeting, Outcome
from wayfare.core.protocols import Failure
from wayfare.core.seeds import rng_for
from wayfare.core.traffic import Refusal, Traffic, admit
from wayfare.data.contacts import matching, priorities
from wayfare.errors import DeviceError
from wayfare.topologies.tour import Place, Tour, accuracy

_CLAIM = 0.99  # the accuracy that a liar claims
_LOOKED = 200_000  # merges whose accuracy an oracle remembers


def play_slot(tour: Tour, number: int, slot: int, ledger: Ledger, traffic: Traffic) -> dict[str, Any]:
    """Play a slot: the ledger is changed in place. Returns what happened, for the run's log."""
    contacts, meeting = _who_meets(tour, number, slot, ledger)
    events: dict[str, Any] = {"slot": slot, "contacts": contacts, "met": 0}
    if not len(meeting.me):
        return events
    ledger |= tour.exchange.listens(ledger, meeting)
    wish = tour.exchange.wants(ledger, meeting, tour.predictor)
    wanted, predicted = wish.wanted & meeting.heard & (ledger["can_take"][meeting.me] > 0), wish.predicted
    if tour.settings.matching == "best":
        chosen = _best_offers(ledger, meeting, wanted, predicted)
        meeting, wanted, predicted = _only(meeting, chosen), wanted[chosen], predicted[chosen]
    events["met"] = len(meeting.me) // 2
    np.add.at(ledger["meetings"], meeting.me, 1)
    asked = np.flatnonzero(tour.link.affordable(ledger, meeting, wanted))
    directions, events["cut"] = tour.link.fitting(tour.contacts, ledger, meeting, asked)
    if len(directions):
        pairs = np.sort(np.column_stack([meeting.me, meeting.peer])[directions], axis=1)
        directions = directions[np.lexsort((directions, pairs[:, 1], pairs[:, 0]))]  # the two ways of a pair together
        events |= _exchange(tour, number, ledger, traffic, _only(meeting, directions), predicted[directions])
    return events


def together(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What happened in the slots of a round, as if they were one: the first of them."""
    if len(events) == 1:
        return events[0]
    names = {name: type(value) for event in events for name, value in event.items() if name != "slot"}
    sums = {name: sum((event.get(name, kind()) for event in events), kind()) for name, kind in names.items()}
    return {"slot": events[0]["slot"], **sums}


# ---- who meets whom


def _who_meets(tour: Tour, number: int, slot: int, ledger: Ledger) -> tuple[int, Meeting]:
    """At most one meeting per device (Eq. 5); for the best offer, everybody hears everybody first.

    Who meets whom does not depend on the policy (unless transfers take longer than a slot), so that runs with the same
    seed and different policies can be compared meeting by meeting.
    """
    pairs, distances = tour.contacts.at(slot)
    seed, rule = tour.federation.seed, tour.settings.matching
    chance = rng_for(seed, slot, "meet").random(len(pairs))
    chosen = np.flatnonzero(~(ledger["busy"][pairs] > slot).any(1))
    if rule != "best":
        priority = priorities(rule, pairs, distances, rng_for(seed, slot, "matching"))
        chosen = chosen[matching(pairs[chosen], priority[chosen])]
    one, other = pairs[chosen].T
    me, peer = np.concatenate([one, other]), np.concatenate([other, one])
    heard = ledger["can_send"][peer] > 0
    if tour.exchange.delegates:  # the peer must have pictures, and both must be able to send and to take
        heard &= (tour.facts.labels[peer].sum(1) > 0) & (ledger["can_take"][peer] > 0) & (ledger["can_send"][me] > 0)
    begins = ~tour.contacts.lasts(pairs[chosen], slot - 1, 1) if slot else np.ones(len(chosen), bool)
    return len(pairs), Meeting(
        slot=slot, me=me, peer=peer, heard=heard, score=np.where(tour.liars[peer], _CLAIM, ledger["score"][peer]),
        chance=np.tile(chance[chosen], 2), begins=np.tile(begins, 2),
        alike=ledger["check"][me] == ledger["check"][peer], facts=tour.facts,
        look=lambda mine, theirs: _look(tour, number, ledger, mine, theirs),
    )  # fmt: skip


def _best_offers(ledger: Ledger, meeting: Meeting, wanted: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Who of those who want each other meet: the largest expected gain first. The others remain free (point 11)."""
    gain = np.where(wanted, np.nan_to_num(predicted - ledger["score"][meeting.me]), -np.inf)
    half = len(gain) // 2
    either = np.maximum(gain[:half], gain[half:])
    asked = np.flatnonzero(either > -np.inf)
    pairs = np.column_stack([meeting.me[:half], meeting.peer[:half]])
    kept = asked[matching(pairs[asked], -either[asked])]
    return np.concatenate([kept, kept + half])


def _only(meeting: Meeting, directions: np.ndarray) -> Meeting:
    arrays = {f.name: getattr(meeting, f.name) for f in fields(meeting)}
    return replace(meeting, **{n: a[directions] for n, a in arrays.items() if isinstance(a, np.ndarray)})


# ---- what becomes of it


@dataclass(frozen=True)
class Merge:
    """A new state, or where it lies, and how good it was found to be; NaN where nobody looked."""

    state: Bundle | Place
    after: float = math.nan
    own_before: float = math.nan
    own_after: float = math.nan


def _exchange(
    tour: Tour, number: int, ledger: Ledger, traffic: Traffic, asked: Meeting, predicted: np.ndarray
) -> dict[str, Any]:
    """Every direction of `asked` is a model on its way from `peer` to `me`."""
    merges = _merged(tour, number, ledger, asked, traffic)
    count = tour.link.account(ledger, asked, np.arange(len(asked.me)))
    traffic.bytes_up += count * tour.link.size
    traffic.bytes_down += count * tour.link.size
    came = np.array([isinstance(merge, Merge) for merge in merges])
    tour.link.give_back(ledger, asked.me[~came])
    events = {"failed": sum(isinstance(merge, Failure) for merge in merges)}
    if not came.any():
        return events
    done = [merge for merge in merges if isinstance(merge, Merge)]
    outcome = _outcome(ledger, _only(asked, came), done, predicted[came])
    adopted = tour.exchange.adopts(ledger, outcome)
    for me, merge, yes in zip(outcome.me, done, adopted):
        if yes:
            tour.put(ledger, int(me), merge.state)
        elif isinstance(merge.state, tuple):
            tour.rows.release(merge.state[0])
    ledger["score"][outcome.me[adopted]] = outcome.after[adopted]
    ledger |= tour.exchange.took(ledger, outcome, adopted)
    takers = [tour.ids[i] for i in outcome.me]
    traffic.clients.extend(takers)
    return events | {
        "taker": takers,
        "giver": [tour.ids[i] for i in outcome.peer],
        "predicted": _rounded(outcome.predicted),
        "before": _rounded(outcome.before),
        "after": _rounded(outcome.after),
        "adopted": adopted.tolist(),
    }


def _merged(tour: Tour, number: int, ledger: Ledger, asked: Meeting, traffic: Traffic) -> list[Merge | Failure | None]:
    """For each direction the new state, or why there is none; None: it was refused at the gate."""
    starts = _starts(tour, number, ledger, asked, traffic)
    if not (tour.exchange.scored or tour.exchange.guarded or tour.settings.iterations):
        # only a mean: no device has to be asked
        return [
            None if start is None else Merge(_mean(tour, me, *start)) for me, start in zip(asked.me.tolist(), starts)
        ]
    extra = {"keep": True, "own": tour.exchange.guarded}
    merges: list[Merge | Failure | None] = [None] * len(asked.me)
    told: list[int] = []

    def requests() -> Iterator[tuple[str, Bundle]]:
        for k, (me, start) in enumerate(zip(asked.me.tolist(), starts)):
            if start is not None:
                told.append(k)
                yield tour.ids[me], tour.message(number, me, *start, extra | {"iterations": tour.iterations(me)})

    for place, (id, reply) in enumerate(tour.call("meet", requests())):
        tour.admitted(id, "meet", reply, traffic)
        # written at once, so that a slot's replies are not in memory together
        merges[told[place]] = reply if isinstance(reply, Failure) else _found(reply, tour.keep(reply))
    return merges


def _mean(tour: Tour, me: int, own: Bundle, said: Bundle | None) -> Bundle:
    if said is None:
        return own
    mine = tour.strategy.report(own, int(tour.examples[me]))
    return tour.strategy.merge(own, [(tour.ids[me], mine), ("peer", said)])


def _found(reply: Bundle, place: Place) -> Merge:
    own = [reply.number(name, -1.0) for name in ("own_before", "own_after")]
    return Merge(place, accuracy(reply), *(math.nan if score < 0 else score for score in own))  # below 0: it holds none


def _starts(
    tour: Tour, number: int, ledger: Ledger, asked: Meeting, traffic: Traffic
) -> Iterator[tuple[Bundle, Bundle | None] | None]:
    """What each who asked goes on from, one after the other: its own state and what the peer sent; or the mean of both.

    The mean is the same for the two ways of a pair, which stand together. None: it was refused at the gate.
    """
    trained = _delegated(tour, number, ledger, asked, traffic) if tour.exchange.delegates else None
    pair, both = (-1, -1), None
    for k, (me, peer) in enumerate(zip(asked.me.tolist(), asked.peer.tolist())):
        if tour.averages and pair != (peer, me):
            both = tour.mean(ledger, me, peer)
        pair = me, peer
        if both is not None:
            yield both, None
            continue
        report = trained[k] if trained else tour.strategy.report(tour.held(ledger, peer), int(tour.examples[peer]))
        said = report
        if report is not None:
            said = _through_the_gate(tour, number, asked.slot, ledger, me, peer, report, traffic)
        yield None if said is None else (tour.held(ledger, me), said)


def _delegated(tour: Tour, number: int, ledger: Ledger, asked: Meeting, traffic: Traffic) -> list[Bundle | None]:
    """Everybody's own model, trained on its peer's pictures; all at once, as another program may wait for them."""
    sent = (tour.strategy.send(tour.held(ledger, int(me)), tour.ids[peer]) for me, peer in zip(asked.me, asked.peer))
    requests = (
        (tour.ids[peer], Bundle(told.tensors, {**told.values, "round": number})) for peer, told in zip(asked.peer, sent)
    )
    return [tour.admitted(id, "train", reply, traffic) for id, reply in tour.call("train", requests)]


def _through_the_gate(
    tour: Tour, number: int, slot: int, ledger: Ledger, me: int, peer: int, reply: Bundle, traffic: Traffic
) -> Bundle | None:
    own, examples = tour.held(ledger, me), int(tour.examples[peer])
    tensors = _lie(tour, slot, peer, reply) if tour.liars[peer] else reply.tensors
    said = Bundle(tensors, {"n": examples, "round": number})
    try:
        admit(said, tour.strategy.report(own, 1).tensors, own.tensors, tour.federation.policy, number, examples)
    except Refusal as refusal:
        traffic.refused.append({"device": tour.ids[peer], "to": tour.ids[me], "reason": str(refusal)})
        return None
    return said


def _lie(tour: Tour, slot: int, peer: int, reply: Bundle) -> dict[str, dict[str, torch.Tensor]]:
    rng = rng_for(tour.federation.seed, slot, tour.ids[peer], "lie")

    def instead(tensor: torch.Tensor) -> torch.Tensor:
        if tour.settings.lie == "nan":
            return torch.full_like(tensor, math.nan)
        noise = torch.from_numpy(rng.standard_normal(tuple(tensor.shape)).astype(np.float32))
        return noise * tensor.std() if tensor.numel() > 1 else noise

    return {section: {name: instead(t) for name, t in weights.items()} for section, weights in reply.tensors.items()}


def _outcome(ledger: Ledger, taken: Meeting, merges: list[Merge], predicted: np.ndarray) -> Outcome:
    after, before, own = np.array([(merge.after, merge.own_before, merge.own_after) for merge in merges]).T
    return Outcome(taken.slot, taken.me, taken.peer, ledger["score"][taken.me], after, before, own, predicted)


def _look(tour: Tour, number: int, ledger: Ledger, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """What an oracle sees: the accuracy after each of these merges. The same two models are looked at once."""
    keys = [(int(ledger["check"][a]), int(ledger["check"][b])) for a, b in zip(mine, theirs)]
    pairs = dict(zip(keys, zip(mine.tolist(), theirs.tolist())))
    if len(tour.looked) + len(pairs) > _LOOKED:
        tour.looked.clear()
    new = {key: pair for key, pair in pairs.items() if key not in tour.looked}

    def requests() -> Iterator[tuple[str, Bundle]]:
        for a, b in new.values():
            said = tour.strategy.report(tour.held(ledger, b), int(tour.examples[b]))
            yield tour.ids[a], tour.message(number, a, tour.held(ledger, a), said)

    for key, (id, reply) in zip(new, tour.call("look", requests())):
        if isinstance(reply, Failure):
            raise DeviceError(id, "look", reply.reason, reply.detail)
        tour.looked[key] = accuracy(reply)
    return np.array([tour.looked[key] for key in keys])


def _rounded(values: np.ndarray) -> list[float | None]:
    return [None if math.isnan(value) else round(float(value), 6) for value in values]
