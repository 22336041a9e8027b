"""What topologies with a [clock] have in common: who can be asked, and what goes into the state and the record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from wayfare.core.bundle import Bundle, Value
from wayfare.core.clock import Timetable, Trip
from wayfare.core.federation import Federation, Round
from wayfare.core.gate import Refusal

SECONDS, JOULES = "clock_seconds", "clock_joules"  # values of the state: since the run began


def begun(state: Bundle) -> Bundle:
    """The state at virtual time 0."""
    return Bundle(state.tensors, {**state.values, SECONDS: 0.0, JOULES: 0.0})


def later(state: Bundle, time: float, ended: Iterable[Trip]) -> Bundle:
    """The state at this time, after these trips."""
    joules = state.number(JOULES) + sum(trip.joules for trip in ended)
    return Bundle(state.tensors, {**state.values, SECONDS: time, JOULES: joules})


def reachable(federation: Federation, table: Timetable, time: float, places: np.ndarray) -> tuple[np.ndarray, float]:
    """Which of these positions can be asked, and when: now, or as soon as the first of them can be reached."""
    if table.devices.always:
        return places, time
    ids = [federation.population.id(int(place)) for place in places]
    if now := [place for place, id in zip(places, ids, strict=True) if table.can_start(id, time)]:
        return np.array(now, np.int64), time
    soonest = min(table.next_start(id, time) for id in ids)
    return np.array([p for p, id in zip(places, ids, strict=True) if table.can_start(id, soonest)], np.int64), soonest


def chosen(federation: Federation, places: np.ndarray, count: int, rng: np.random.Generator) -> list[str]:
    """The ids of so many of these positions, as the strategy chooses them."""
    found = federation.strategy.choose(federation.population.sizes[places], min(count, len(places)), rng)
    return [federation.population.id(int(places[place])) for place in found]


def trips(federation: Federation, table: Timetable, state: Bundle, ids: Sequence[str], time: float) -> list[Trip]:
    """What these devices do with a message that is sent now."""
    strategy, engine = federation.strategy, federation.engine

    def one(id: str) -> Trip:
        weak = table.is_weak(id)
        sent = _with(strategy.send(state, id), {"weak": True} if weak else {})
        up = engine.bytes_up("train", Bundle(strategy.expects_of(state, sent)))
        return table.trip(id, time, engine.bytes_down("train", sent), up, effort=strategy.effort(weak))

    return [one(id) for id in ids]


def message(sent: Bundle, trip: Trip) -> Bundle:
    """What this device is sent: also the number of its steps, if it does fewer than all, and that it is weak."""
    more: dict[str, Value] = {} if trip.whole else {"iterations": trip.steps}
    return _with(sent, more | {"weak": True} if trip.weak else more)


def _with(sent: Bundle, values: dict[str, Value]) -> Bundle:
    return Bundle(sent.tensors, {**sent.values, **values}) if values else sent


def lateness(trip: Trip) -> Refusal:
    """What is recorded of a device that was not waited for."""
    return Refusal(f"late: not done {trip.end - trip.start:.4g} virtual seconds after it was asked")


def recorded(round: Round, late: Sequence[Trip], **events: object) -> Round:
    """A round whose record says what the clock showed at its end, and who came too late."""
    state = round.state
    round.metrics |= {"clock/seconds": state.number(SECONDS), "clock/joules": state.number(JOULES)}
    round.events["clock"] = {"late": [trip.device for trip in late], **events}
    return round
