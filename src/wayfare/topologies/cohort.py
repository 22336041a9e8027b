"""A server's round in virtual time: who is asked, whose replies count, and when the round is over."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wayfare.core.bundle import Bundle
from wayfare.core.clock import Timetable, Trip
from wayfare.core.federation import Federation, Round
from wayfare.core.gate import Gate
from wayfare.core.seeds import rng_for
from wayfare.topologies import timing


@dataclass(frozen=True)
class Cohort:
    """Those who are asked in a round."""

    merged: tuple[Trip, ...]  # whose replies count, in the order asked
    spare: tuple[Trip, ...]  # asked to be on the safe side, and not needed
    late: tuple[Trip, ...]
    wanted: int
    end: float

    def tell(self, gate: Gate, federation: Federation, state: Bundle) -> None:
        """What the gate cannot see: messages to those who are not waited for, and replies that are missing."""
        gate.missing = self.wanted - len(self.merged)
        for trip in (*self.spare, *self.late):
            message = federation.strategy.send(state, trip.device)
            gate.bytes_down += federation.engine.bytes_down("train", message)
        for trip in self.late:
            gate.refuse(trip.device, timing.lateness(trip))

    def recorded(self, round: Round) -> Round:
        """The round, with the time in its state and in its record."""
        stopped = [_until(trip, self.end) for trip in self.spare]
        round.state = timing.later(round.state, self.end, [*self.merged, *stopped, *self.late])
        return timing.recorded(round, self.late, spare=[trip.device for trip in self.spare])


def cohort(federation: Federation, table: Timetable, state: Bundle, number: int, count: int) -> Cohort:
    """The cohort of a round in which so many replies are wanted; computed from the state before it."""
    everyone = np.arange(len(federation.population))
    places, start = timing.reachable(federation, table, state.number(timing.SECONDS), everyone)
    asked = math.ceil(table.clock.over * count - 1e-9)
    ids = timing.chosen(federation, places, asked, rng_for(federation.seed, number, "choose"))
    trips = timing.trips(federation, table, state, ids, start)
    wanted = min(count, len(trips))
    punctual = [trip for trip in trips if not trip.late]
    first = {id(trip) for trip in sorted(punctual, key=lambda trip: trip.end)[:wanted]}  # a tie: the first asked
    merged = tuple(trip for trip in punctual if id(trip) in first)
    late = tuple(trip for trip in trips if trip.late)
    return Cohort(
        merged,
        spare=tuple(trip for trip in punctual if id(trip) not in first),
        late=late,
        wanted=wanted,
        end=max(trip.end for trip in (merged if len(merged) == wanted else [*merged, *late])),
    )


def _until(trip: Trip, end: float) -> Trip:
    """A trip that was stopped then: it has cost its share."""
    if trip.end <= end:
        return trip
    return replace(trip, end=end, joules=trip.joules * (end - trip.start) / (trip.end - trip.start))
