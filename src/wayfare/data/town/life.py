"""Who is out in the streets: the moving things near a point at a time.

Nothing is simulated step by step. The city has places where scenes can be played (a pavement, a bench, a square, a
crossing, a lane); each has its own clock that ticks every few minutes, and a number computed from place, day and tick
says whether something happens there, what, and how. So any moment can be asked for at once, cameras at the same place
and time see the same people, and whoever walks is a little further on a second later.
"""

from __future__ import annotations

from functools import lru_cache
from math import atan2, degrees, hypot
from typing import NamedTuple

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.data.town import stage as stages
from wayfare.data.town.acts import DICE, PLAYS, SPEEDS, Cast
from wayfare.data.town.model import City, Thing
from wayfare.data.town.stage import POST, ROUTE, ROUTES, Stage

FIRST_ID = 10_000_000  # of moving things: beyond those that stay all day
_ACTORS, _TICKS = 16, 16384  # ids that are kept free for a scene and for a place's day
_HOURS = (0, 5, 6.5, 8.5, 10, 12.5, 14.5, 17.5, 19.5, 22, 24)
_BUSY = (0.05, 0.04, 0.15, 0.75, 0.6, 1.0, 0.75, 1.0, 0.7, 0.25, 0.05)  # at these hours
_DELAY = 0.35  # vehicles start late by up to this share of the time between two of them
_WAY = PLAYS["way"]
_SPEEDS = np.array([SPEEDS.get(scene, 1.25) for scene in _WAY.scenes])
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class _Same:
    """A city as a key: equal only to itself."""

    def __init__(self, city: City) -> None:
        self.city = city

    def __hash__(self) -> int:
        return id(self.city)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.city is self.city


class _Day(NamedTuple):
    """What one day is computed from."""

    spots: np.ndarray  # uint64: a seed for each spot
    clocks: np.ndarray  # how far, from 0 to 1, its clock is ahead, so that not all tick at once
    lanes: np.ndarray  # uint64: a seed for each lane


def crowd(city: City, x: float, y: float, time: float, date: str, radius: float = 60) -> tuple[Thing, ...]:
    """The moving things near a point, with what they hold, in the order of their ids."""
    stage = _stage(_Same(city))
    day = _day(_Same(city), date)
    return tuple(_at_spots(stage, day, x, y, time, radius) + _in_lanes(stage, day, x, y, time, radius))


# ---- Random numbers that can be looked up


def _mix(keys: np.ndarray) -> np.ndarray:
    """Each number's bits well shuffled, so that neighbours have nothing in common."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def _unit(keys: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 1."""
    return (keys >> np.uint64(11)) * 2.0**-53


def _dice(keys: np.ndarray) -> list[list[float]]:
    """For each key the random numbers of its scene."""
    steps = np.arange(1, DICE + 1, dtype=np.uint64) * _GOLDEN
    return _unit(_mix(keys[:, None] + steps)).tolist()


@lru_cache(maxsize=32)
def _stage(same: _Same) -> Stage:
    return stages.find(same.city)


@lru_cache(maxsize=64)
def _day(same: _Same, date: str) -> _Day:
    stage = _stage(same)
    rng = rng_for("town life", same.city.name, same.city.seed, date)
    spots, lanes = (rng.integers(2**63, size=count, dtype=np.uint64) for count in (len(stage.spots), len(stage.lanes)))
    return _Day(spots, _unit(_mix(spots)), lanes)


# ---- The query


def _at_spots(stage: Stage, day: _Day, x: float, y: float, time: float, radius: float) -> list[Thing]:
    spot_x, spot_y, reach, period, busy = stage.numbers
    near = np.flatnonzero((spot_x - x) ** 2 + (spot_y - y) ** 2 < (reach + radius) ** 2)
    seed, period = day.spots[near], period[near]
    clock = time / period + day.clocks[near]
    tick = np.floor(clock)
    age = (clock - tick) * period
    keys = _mix(seed ^ (tick.astype(np.uint64) * _GOLDEN))
    on = _unit(keys) < busy[near] * np.interp((time - age) / 3600, _HOURS, _BUSY)
    near, tick, age, keys = near[on], tick[on], age[on], keys[on]
    strolls = int(np.searchsorted(near, stage.strolls))  # these come first
    places = _stroll(stage, keys[:strolls], age[:strolls], near[:strolls])
    close = np.ones(len(near), bool)
    close[:strolls] = (places[:, 0] - x) ** 2 + (places[:, 1] - y) ** 2 < radius * radius
    places, dice = places[close[:strolls]].tolist(), _dice(keys[close])
    things: list[Thing] = []
    scenes = zip(near[close].tolist(), tick[close].tolist(), age[close].tolist(), dice, strict=True)
    for i, (number, at_tick, old, row) in enumerate(scenes):
        spot = stage.spots[number]
        at_x, at_y, facing = places[i] if i < len(places) else (spot.x, spot.y, spot.heading)
        first = FIRST_ID + (number * _TICKS + int(at_tick)) * _ACTORS
        cast = Cast(first, at_x, at_y, facing, old, spot.partner, spot.reach, row)
        PLAYS[spot.play].choose(cast.roll())(cast)
        things += cast.things
    return things


def _stroll(stage: Stage, keys: np.ndarray, age: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """x, y and heading of those who walk around a block; to the end of their route and back."""
    which, start, pace, east, north = _unit(_mix(keys + np.arange(1000, 1005, dtype=np.uint64)[:, None]))
    row = stage.first_route[numbers] + (which * ROUTES).astype(int)
    scene = np.searchsorted(_WAY.shares, _unit(_mix(keys + _GOLDEN)) * _WAY.shares[-1], side="right")
    run = (start * ROUTE + (0.85 + 0.3 * pace) * _SPEEDS[scene] * age) % (2 * ROUTE)
    s = np.minimum(run, 2 * ROUTE - run)
    place, before, after = _along(stage.routes, row, np.stack((s, np.maximum(s - 1.5, 0), np.minimum(s + 1.5, ROUTE))))
    way = after - before
    # who comes to an end turns round, within four metres
    turned = np.clip((run - np.array((0, ROUTE, 2 * ROUTE))[:, None] + 2) / 4, 0, 1).sum(0) - 1
    facing = np.degrees(np.arctan2(way[:, 0], way[:, 1])) + 180 * turned
    return np.column_stack((place[:, 0] + 0.7 * east - 0.35, place[:, 1] + 0.7 * north - 0.35, facing))


def _along(points: np.ndarray, row: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Points at some metres from the start of routes."""
    whole = np.minimum(s.astype(int), points.shape[1] - 2)
    part = (s - whole)[..., None]
    return np.asarray(points[row, whole] * (1 - part) + points[row, whole + 1] * part)


def _in_lanes(stage: Stage, day: _Day, x: float, y: float, time: float, radius: float) -> list[Thing]:
    """Vehicles: those of a lane start one after the other and keep their distance."""
    post_x, post_y, post_lane, post_s = stage.posts
    near = np.flatnonzero((post_x - x) ** 2 + (post_y - y) ** 2 < (radius + POST) ** 2)
    lane = post_lane[near].astype(np.int64)
    pace, gap, _ = stage.paces[:, lane]
    # the last that can have come so far as half way to the next post, and the one behind it
    latest = ((time - post_s[near] / pace) / gap + 0.6 * POST / (pace * gap)).astype(np.int64)
    pairs = np.unique(np.concatenate((latest, latest - 1)) + np.tile(lane, 2) * _TICKS)
    lane, number = pairs // _TICKS, pairs % _TICKS
    keys = _mix(day.lanes[lane] ^ (number.astype(np.uint64) * _GOLDEN))
    pace, gap, busy = stage.paces[:, lane]
    start = (number + _DELAY * _unit(_mix(keys))) * gap
    on = _unit(keys) < busy * np.interp(start / 3600, _HOURS, _BUSY)
    driven = (pace * (time - start))[on].tolist()
    things: list[Thing] = []
    for at, which, s, row in zip(lane[on].tolist(), number[on].tolist(), driven, _dice(keys[on]), strict=True):
        points, whole = stage.lanes[at].points, int(s)
        if not 0 <= s < len(points) - 5:
            continue
        (ax, ay), (bx, by), (cx, cy) = points[whole].tolist(), points[whole + 1].tolist(), points[whole + 4].tolist()
        here_x, here_y = ax + (bx - ax) * (s - whole), ay + (by - ay) * (s - whole)
        if hypot(here_x - x, here_y - y) < radius:
            first = FIRST_ID + ((len(stage.spots) + at) * _TICKS + which) * _ACTORS
            cast = Cast(first, here_x, here_y, degrees(atan2(cx - ax, cy - ay)) % 360, 0.0, -1, 0.0, row)
            PLAYS[stage.lanes[at].play].choose(cast.roll())(cast)
            things += cast.things
    return things
