"""Who is out in the streets: the moving things near a point at a time.

Nothing is simulated step by step. The city has places where scenes can be played (a pavement, a bench, a square, a
crossing, a lane); each has its own clock that ticks every few minutes, and a number computed from place, day and tick
says whether something happens there, what, and how. So any moment can be asked for at once, cameras at the same place
and time see the same people, and whoever walks is a little further on a second later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.town import stage as stages
from wayfare.town.acts import DICE, PLAYS, SPEEDS, Cast
from wayfare.town.model import City, Thing
from wayfare.town.plane import bounded
from wayfare.town.stage import POST, ROUTE, ROUTES, Stage

FIRST_ID = 10_000_000  # of moving things: beyond those that stay all day
_ACTORS, _TICKS = 16, 16384  # ids that are kept free for a scene and for a place's day
_HOURS = np.array((0, 5, 6.5, 8.5, 10, 12.5, 14.5, 17.5, 19.5, 22, 24))
_BUSY = np.array((0.05, 0.04, 0.15, 0.75, 0.6, 1.0, 0.75, 1.0, 0.7, 0.25, 0.05))  # at these hours
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_THROWS = np.arange(1, DICE + 1, dtype=np.uint64) * _GOLDEN
_DRAWS = np.array([[1000], [1001], [1002], [_GOLDEN], [1003], [1004]], np.uint64)  # what a stroll's numbers come from
_STEPS = np.array([[0], [-1.5], [1.5]])  # metres: a walker's way is that between these
_ENDS = np.array([[-2], [ROUTE - 2], [2 * ROUTE - 2]])  # metres at which one begins to turn round
_AHEAD = np.array([[0], [1], [4]])  # metres: a vehicle turns to where it will be soon
_DELAY = 0.35  # vehicles start late by up to this share of the time between two of them
_WAY = PLAYS["way"]
_SHARES = np.array(_WAY.shares)
_SPEEDS = np.array([SPEEDS.get(scene, 1.25) for scene in _WAY.scenes])


class Moment(NamedTuple):
    """A place and a time to look at."""

    x: float
    y: float
    time: float
    date: str


# of places, (2, n), a radius, and the numbers of moments: whether any of that can then be seen
Sight = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class _Same:
    """A city as a key: equal only to itself."""

    def __init__(self, city: City) -> None:
        self.city = city

    def __hash__(self) -> int:
        return id(self.city)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.city is self.city


class _Day(NamedTuple):
    """The inputs from which a day is computed."""

    spots: np.ndarray  # uint64: a seed for each spot
    clocks: np.ndarray  # how far, from 0 to 1, its clock is ahead, so that not all tick at once
    lanes: np.ndarray  # uint64: a seed for each lane


class _Scenes(NamedTuple):
    """What is going on, in the order of moments and places."""

    moment: np.ndarray  # its number
    place: np.ndarray  # as in Stage.places
    tick: np.ndarray
    keys: np.ndarray  # uint64: of its random numbers
    where: np.ndarray  # float64 (4, n): x, y, heading, and seconds since it began


def crowd(city: City, x: float, y: float, time: float, date: str, radius: float = 60) -> tuple[Thing, ...]:
    """The moving things near a point, with what they hold, in the order of their ids."""
    return crowds(city, [Moment(x, y, time, date)], radius)[0]


def crowds(
    city: City, moments: Sequence[Moment], radius: float = 60, sight: Sight | None = None
) -> list[tuple[Thing, ...]]:
    """The same for several moments at once, which is much faster; visible scenes only."""
    stage, days = _stage(_Same(city)), [_day(_Same(city), moment.date) for moment in moments]
    here = np.array([moment[:3] for moment in moments]).T
    both = zip(_at_spots(stage, days, here, radius), _in_lanes(stage, days, here, radius), strict=True)
    scenes = _Scenes(*(np.concatenate(pair, -1) for pair in both))
    if sight is not None:
        seen = sight(scenes.where[:2], stage.spread.take(scenes.place), scenes.moment)
        scenes = _Scenes(*(part[..., seen] for part in scenes))
    first = FIRST_ID + (scenes.place * _TICKS + scenes.tick) * _ACTORS
    numbers = (part.tolist() for part in (scenes.moment, scenes.place, first, scenes.where.T))
    things: list[list[Thing]] = [[] for _ in moments]
    for moment, place, first_id, (x, y, facing, age), dice in zip(*numbers, _dice(scenes.keys), strict=True):
        play, partner, reach = stage.places[place]
        cast = Cast(first_id, x, y=y, heading=facing, age=age, partner=partner, room=reach, dice=dice)
        PLAYS[play].choose(cast.roll())(cast)
        things[moment] += cast.things
    return [tuple(some) for some in things]


# ---- Random numbers that can be looked up


def _mix(keys: np.ndarray) -> np.ndarray:
    """Hash each number, so that neighbouring numbers give unrelated values."""
    keys = (keys ^ (keys >> 30)) * 0xBF58476D1CE4E5B9
    keys = (keys ^ (keys >> 27)) * 0x94D049BB133111EB
    found: np.ndarray = keys ^ (keys >> 31)
    return found


def _unit(keys: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 1."""
    return (keys >> 11) * 2.0**-53


def _dice(keys: np.ndarray) -> list[list[float]]:
    """For each key the random numbers of its scene."""
    found: list[list[float]] = _unit(_mix(keys[:, None] + _THROWS)).tolist()
    return found


@lru_cache(maxsize=4)
def _stage(same: _Same) -> Stage:
    return stages.find(same.city)


@lru_cache(maxsize=32)
def _day(same: _Same, date: str) -> _Day:
    stage = _stage(same)
    rng = rng_for("town life", same.city.name, same.city.seed, date)
    spots = rng.integers(2**63, size=(stage.numbers.shape[1],), dtype=np.uint64)
    lanes = rng.integers(2**63, size=(stage.paces.shape[1],), dtype=np.uint64)
    return _Day(spots, _unit(_mix(spots)), lanes)


# ---- The query


def _is_near(places: np.ndarray, here: np.ndarray, radius: float | np.ndarray) -> np.ndarray:
    """Which of these places, (2, n), are near enough."""
    gap = places - here
    gap *= gap
    return np.asarray(gap[0] + gap[1] < radius * radius)


def _near(places: np.ndarray, here: np.ndarray, radius: float | np.ndarray) -> list[np.ndarray]:
    """The numbers of the places, (2, n), that are so near, one array for each moment."""
    return [_is_near(places, point[:, None], radius).nonzero()[0] for point in here[:2].T]


def _at_spots(stage: Stage, days: Sequence[_Day], here: np.ndarray, radius: float) -> _Scenes:
    near = _near(stage.numbers[:2], here, stage.numbers[3] + radius)
    moment = np.arange(len(near)).repeat([len(some) for some in near])
    place = np.concatenate(near)
    seeds = np.concatenate([day.spots.take(some) for day, some in zip(days, near)])
    clocks = np.concatenate([day.clocks.take(some) for day, some in zip(days, near)])
    period, busy = stage.numbers[4:].take(place, axis=1)
    time = here[2].take(moment)
    clock = time / period + clocks
    tick = np.floor(clock)
    age = (clock - tick) * period
    keys = _mix(seeds ^ (tick.astype(np.uint64) * _GOLDEN))
    on = (_unit(keys) < busy * np.interp((time - age) / 3600, _HOURS, _BUSY)).nonzero()[0]
    moment, place, tick, keys = (part.take(on) for part in (moment, place, tick, keys))
    where = stage.numbers[:4].take(place, axis=1)
    where[3] = age.take(on)
    strolls = (place < stage.strolls).nonzero()[0]
    found = _stroll(stage, keys.take(strolls), where[3].take(strolls), place.take(strolls))
    where[:3, strolls] = found
    close = np.ones(len(place), bool)
    close[strolls] = _is_near(found[:2], here[:2].take(moment.take(strolls), axis=1), radius)
    return _Scenes(moment[close], place[close], tick[close].astype(np.int64), keys[close], where[:, close])


def _stroll(stage: Stage, keys: np.ndarray, age: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """x, y and heading of those who walk around a block; to the end of their route and back."""
    draws = _unit(_mix(keys + _DRAWS))
    which, start, pace, share = draws[:4]
    row = stage.first_route.take(numbers) + (which * ROUTES).astype(int)
    scene = _SHARES.searchsorted(share * _SHARES[-1], side="right")
    run = (start * ROUTE + (0.85 + 0.3 * pace) * _SPEEDS.take(scene) * age) % (2 * ROUTE)
    s = np.minimum(run, 2 * ROUTE - run)
    # where they are, and where they were and will be
    place, before, after = _along(stage.routes, row, bounded(s + _STEPS, 0, ROUTE)).transpose(1, 0, 2)
    way = after - before
    # who comes to an end turns round, within four metres
    turned = bounded((run - _ENDS) / 4, 0, 1).sum(0) - 1
    result = np.empty((3, len(keys)))
    result[:2] = place + 0.7 * draws[4:] - 0.35
    result[2] = np.degrees(np.arctan2(way[0], way[1])) + 180 * turned
    return result


def _along(points: np.ndarray, row: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Points at some metres from the start of routes: x and y along the first axis."""
    whole = np.minimum(s.astype(int), ROUTE - 1)
    part = s - whole
    at = row * (ROUTE + 1) + whole
    found: np.ndarray = points.take(at, axis=1) * (1 - part) + points.take(at + 1, axis=1) * part
    return found


def _in_lanes(stage: Stage, days: Sequence[_Day], here: np.ndarray, radius: float) -> _Scenes:
    """Vehicles: those of a lane start one after the other and keep their distance."""
    near = _near(stage.posts[:2], here, radius + POST)
    moment = np.arange(len(near)).repeat([len(some) for some in near])
    lane, per_second, late = stage.posts[2:].take(np.concatenate(near), axis=1)
    # the last that can have come so far as half way to the next post, and the one behind it
    latest = (here[2].take(moment) * per_second - late).astype(np.int64)
    lanes = stage.paces.shape[1]
    latest += (moment * lanes + lane.astype(np.int64)) * _TICKS
    pairs = np.unique(np.concatenate((latest, latest - 1)))
    lane, number = np.divmod(pairs, _TICKS)
    moment, lane = np.divmod(lane, lanes)
    seeds = np.stack([day.lanes for day in days])[moment, lane]
    keys = _mix(seeds ^ (number.astype(np.uint64) * _GOLDEN))
    pace, gap, busy = stage.paces.take(lane, axis=1)
    start = (number + _DELAY * _unit(_mix(keys))) * gap
    s = pace * (here[2].take(moment) - start)
    first, last = stage.spans.take(lane, axis=1)
    on = (_unit(keys) < busy * np.interp(start / 3600, _HOURS, _BUSY)) & (s >= 0) & (s < last)
    moment, lane, number, keys, s, first = (part[on] for part in (moment, lane, number, keys, s, first))
    whole = s.astype(np.int64)
    place, after, ahead = stage.tracks.take(first + whole + _AHEAD, axis=1).transpose(1, 0, 2)
    way = ahead - place
    where = np.zeros((4, len(s)))
    where[:2] = place + (after - place) * (s - whole)
    where[2] = np.degrees(np.arctan2(way[0], way[1])) % 360
    close = _is_near(where[:2], here[:2].take(moment, axis=1), radius)
    spots = stage.numbers.shape[1]
    return _Scenes(moment[close], spots + lane[close], number[close], keys[close], where[:, close])
