"""Devices that train while the server's model moves on: what `buffered` and `async` have in common.

A device is sent the current model, and its reply counts when it arrives, in virtual time. As soon as one has arrived,
another device is sent off. A round ends with a merge. What is under way is part of the state: which devices, since
when, and the messages that they hold; they train when their reply is due. So a round can be done again from the state
before it, and its result does not depend on the order in which a machine gets the devices done.

The staleness of a reply is the number of merges since its device was sent off; it makes the reply count for less:

    polynomial  s(t) = (1 + t)^-a                           FedBuff takes a = 0.5
    hinge       s(t) = 1 if t <= b, else 1 / (a (t - b) + 1)
    constant    s(t) = 1
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from wayfare.core.bundle import Bundle, Value, Weights
from wayfare.core.clock import Timetable, Trip
from wayfare.core.errors import ConfigError, MergeError, QuorumError
from wayfare.core.federation import Federation, Round
from wayfare.core.gate import Gate
from wayfare.core.protocols import MergeContext, MergeRule, Strategy, Topology
from wayfare.core.ranges import Range, check_ranges
from wayfare.core.seeds import rng_for
from wayfare.topologies import timing

_OF = "@"  # section "model@3" is of the message that devices hold since merge 3
_VERSION, _FLIGHTS, _SENT = "version", "flights", "sent"  # values: merges so far; what is under way; values of messages


@dataclass(frozen=True)
class Flight:
    """A device under way."""

    trip: Trip
    version: int  # merges before it was sent off


@dataclass
class _Plan:
    """What is under way while a round is planned."""

    time: float
    version: int
    flights: list[Flight]  # in the order in which they were sent off
    arrived: list[Flight] = field(default_factory=list)
    late: list[Flight] = field(default_factory=list)

    def busy(self) -> set[str]:
        """Who is under way, or was in this round: the model has not changed, so asking again would tell nothing."""
        return {flight.trip.device for flight in (*self.flights, *self.arrived, *self.late)}

    def advance(self, most: int) -> None:
        """Go on to the next moment at which somebody is done, and take what arrives then, up to so many in all."""
        self.time = max(self.time, min(flight.trip.end for flight in self.flights))
        for flight in [flight for flight in self.flights if flight.trip.end <= self.time]:
            if flight.trip.late:
                self.late.append(flight)
            elif len(self.arrived) < most:
                self.arrived.append(flight)
            else:
                continue
            self.flights.remove(flight)


@dataclass(frozen=True)
class Overlapping(Topology):
    """Devices that are not waited for."""

    concurrency: int = 0  # devices under way at the same time; 0: all clients
    staleness: Literal["polynomial", "hinge", "constant"] = "polynomial"  # how a stale reply counts for less
    a: float = 0.5  # of polynomial and hinge: how fast
    b: float = 4.0  # of hinge: merges for which a reply counts in full

    timed: ClassVar[bool] = True
    overlaps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_ranges("topology", self, {"concurrency": Range(0), "a": Range(0), "b": Range(0)})

    @property
    def arrivals(self) -> int:
        """Replies in a merge."""
        raise NotImplementedError

    def weight(self, staleness: int) -> float:
        """s(staleness)."""
        if self.staleness == "constant":
            return 1.0
        if self.staleness == "hinge":
            return 1.0 if staleness <= self.b else 1 / (self.a * (staleness - self.b) + 1)
        return float((1 + staleness) ** -self.a)

    def moved(self, now: Tensor, reply: Tensor, base: Tensor, share: float) -> Tensor:
        """What a trained weight of a reply counts as, of a device that was sent `base`."""
        raise NotImplementedError

    # ---- the topology

    def start(self, federation: Federation, state: Bundle) -> Bundle:
        more: dict[str, Value] = {"population": len(federation.population), _VERSION: 0, _FLIGHTS: "[]", _SENT: "{}"}
        return timing.begun(Bundle(state.tensors, {**state.values, **more}))

    def check(self, clients: int) -> None:
        """Refuse what cannot be asked of this many clients."""
        if self.concurrency > clients:
            raise ConfigError(f"topology.concurrency = {self.concurrency}, but {clients} clients take part")
        if self.arrivals > clients:
            raise ConfigError(f"topology.buffer = {self.arrivals}, but {clients} clients take part")

    def expected(self, federation: Federation) -> int:
        return self.arrivals

    def rounds(self, federation: Federation, state: Bundle, first: int) -> Iterator[Round]:
        trained = _trained(federation)
        for number in range(first, federation.rounds + 1):
            plan, gate = self._plan(federation, state, number), federation.gate(number, self.arrivals)
            void, warnings = False, list[str]()
            self._tell(federation, state, plan, gate)
            held = {flight.trip.device: flight for flight in plan.arrived}
            gate.aggregation = _Stale(self, trained, gate.aggregation, held, state)
            merged = server = _server(state)
            try:
                merged = gate.merge(federation.strategy, server, partial(_requests, federation, state, plan.arrived))
            except QuorumError:
                void = True
            except MergeError as error:
                void, warnings = True, [str(error)]
            state = _joined(federation, state, merged, plan, plan.version + (not void))
            round = Round(number, state, gate, void, warnings=warnings)
            ages = {device: plan.version - flight.version for device, flight in held.items()}
            if ages:
                round.metrics["clock/staleness"] = sum(ages.values()) / len(ages)
            yield timing.recorded(round, [flight.trip for flight in plan.late], staleness=ages)

    def _tell(self, federation: Federation, state: Bundle, plan: _Plan, gate: Gate) -> None:
        """What the gate cannot see: those who came too late, and replies that are missing."""
        gate.missing = self.arrivals - len(plan.arrived)
        for flight in plan.late:
            gate.bytes_down += federation.engine.bytes_down("train", _message(federation, state, flight))
            gate.refuse(flight.trip.device, timing.lateness(flight.trip))

    def next_requests(self, federation: Federation, state: Bundle, round: int) -> Iterator[tuple[str, Bundle]]:
        return _requests(federation, state, self._plan(federation, state, round).arrived)

    # ---- who is under way

    def _plan(self, federation: Federation, state: Bundle, number: int) -> _Plan:
        """The round as far as the clock tells it: who arrives, and who is under way then."""
        table = federation.timetable
        if table is None:
            raise ConfigError(f"the topology {type(self).__name__.lower()!r} needs a [clock]")
        plan = _Plan(state.number(timing.SECONDS), int(state.number(_VERSION)), _flights(state))
        departures = 0
        while len(plan.arrived) < self.arrivals:
            # the first draw of a round is that of a server, which asks all its clients at once
            purpose = ("choose",) if not departures else ("choose", departures)
            next_start = self._depart(federation, table, state, plan, rng_for(federation.seed, number, *purpose))
            departures += 1
            if not plan.flights:
                break  # everybody has been asked in this round
            if next_start < min(flight.trip.end for flight in plan.flights):
                plan.time = next_start
            else:
                plan.advance(self.arrivals)
        return plan

    def _depart(
        self, federation: Federation, table: Timetable, state: Bundle, plan: _Plan, rng: np.random.Generator
    ) -> float:
        """Send devices off, as many as may be under way; returns when another one could be, if nothing else happens."""
        everyone, busy = federation.population, plan.busy()
        count = (self.concurrency or len(everyone)) - len(plan.flights)
        taken = [place for device in busy if (place := everyone.find(device)) is not None]
        free = np.delete(np.arange(len(everyone)), taken)
        if count < 1 or not len(free):
            return math.inf
        places, time = timing.reachable(federation, table, plan.time, free)
        if time > plan.time and plan.flights:
            return time
        plan.time = time
        ids = timing.chosen(federation, places, count, rng)
        plan.flights += [
            Flight(trip, plan.version) for trip in timing.trips(federation, table, _server(state), ids, time)
        ]
        others = np.setdiff1d(free, places)
        if count <= len(places) or not len(others):
            return math.inf
        return timing.reachable(federation, table, time, others)[1]


def _trained(federation: Federation) -> frozenset[str]:
    """The names of the weights that are trained; the others are statistics."""
    if federation.task is None:
        return frozenset()
    net = federation.strategy.prepare(federation.task, federation.task.network())
    return frozenset(name for name, parameter in net.named_parameters() if parameter.requires_grad)


# ---- the state: that of the server, and what is under way


def _server(state: Bundle) -> Bundle:
    """Without the messages that are under way."""
    return Bundle({name: part for name, part in state.tensors.items() if _OF not in name}, dict(state.values))


def _flights(state: Bundle) -> list[Flight]:
    found = json.loads(str(state.values[_FLIGHTS]))
    return [Flight(Trip(**{k: v for k, v in each.items() if k != "version"}), each["version"]) for each in found]


def _message(federation: Federation, state: Bundle, flight: Flight) -> Bundle:
    """What this device was sent."""
    suffix = f"{_OF}{flight.version}"
    held = {name.removesuffix(suffix): part for name, part in state.tensors.items() if name.endswith(suffix)}
    if held:
        sent = Bundle(held, json.loads(str(state.values[_SENT])).get(str(flight.version), {}))
    else:
        sent = federation.strategy.send(_server(state), flight.trip.device)
    return timing.message(sent, flight.trip)


def _requests(federation: Federation, state: Bundle, flights: Sequence[Flight]) -> Iterator[tuple[str, Bundle]]:
    return ((flight.trip.device, _message(federation, state, flight)) for flight in flights)


def _joined(federation: Federation, before: Bundle, merged: Bundle, plan: _Plan, version: int) -> Bundle:
    """The state after a round: the server's, the messages that are still held, the time."""
    tensors, sent = dict(merged.tensors), dict[str, dict[str, object]]()
    for flight in plan.flights:
        name = str(flight.version)
        if flight.version == version or name in sent:
            continue
        message = _message(federation, before, replace(flight, trip=replace(flight.trip, whole=True, weak=False)))
        tensors |= {f"{section}{_OF}{name}": part for section, part in message.tensors.items()}
        sent[name] = dict(message.values)
    flights = [{**asdict(flight.trip), "version": flight.version} for flight in plan.flights]
    values = {**merged.values, _VERSION: version, _FLIGHTS: json.dumps(flights), _SENT: json.dumps(sent)}
    ended = [flight.trip for flight in (*plan.arrived, *plan.late)]
    return timing.later(Bundle(tensors, values), plan.time, ended)


# ---- merging


@dataclass(frozen=True)
class _Stale(MergeRule):
    """Before another rule, or a strategy's merge: replies as if their devices had been sent the model of now."""

    topology: Overlapping
    trained: frozenset[str]
    inner: MergeRule
    flights: Mapping[str, Flight]
    state: Bundle  # before the round, with the messages

    def merge(
        self, strategy: Strategy, state: Bundle, replies: Iterable[tuple[str, Bundle]], context: MergeContext
    ) -> Bundle:
        moved = ((device, self._moved(device, reply, state)) for device, reply in replies)
        return self.inner.merge(strategy, state, moved, context)

    def _moved(self, device: str, reply: Bundle, state: Bundle) -> Bundle:
        flight, version = self.flights[device], int(state.number(_VERSION))
        share = self.topology.weight(version - flight.version)
        now = state["model"]
        held = self.state.tensors.get(f"model{_OF}{flight.version}", now)
        move: Callable[[Tensor, Tensor, Tensor, float], Tensor] = self.topology.moved
        model: Weights = {
            name: (move if name in self.trained else mixed)(now[name], each, held[name], share)
            for name, each in reply["model"].items()
        }
        return reply.with_(model=model)


def mixed(now: Tensor, reply: Tensor, base: Tensor, share: float) -> Tensor:
    """Part of the way from the server's value to the reply's: between the two, as a variance must stay."""
    if share == 1:
        return reply
    start = now.double()
    return (start + share * (reply.double() - start)).to(reply.dtype)
