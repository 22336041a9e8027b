"""Who is out in the town, where they are over the day, and what they photograph.

Residents keep to their neighbourhood: work or school, the shop, the place where one sits in the sun. Tourists arrive,
go from sight to sight and stay a while at each. Vehicles drive between the squares. Signage stands still and has a
model but no camera. Someone who is indoors is not seen: the trace has a gap. Stays are heavy-tailed, as in recorded
traces, and at a place people do not stand still but stroll about.

A walker's day follows from the seed, its name and the date; photographs of any date are taken on that date's ways, so
those of the traces' date are where the traces are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.town import photographing
from wayfare.town.model import GROUND, City, Shot
from wayfare.town.ways import Outing, Track, Ways

DATE = "2024-06-21"  # of the traces
START, END, SLOT = 6 * 3600.0, 18 * 3600.0, 30.0
ROLES = ("resident", "tourist", "vehicle", "signage")

_NEIGHBOURS = 10  # residents who share a neighbourhood
_NEAR, _FAR = 90.0, 230.0  # metres from the neighbourhood's middle: homes; work and school
_SPOTS = 16  # of the nearest squares and lawns, where residents spend their time
_SQUARE = 1.8  # radii of a square within which people are on it: it ends at the pavements around
_LANE = 1.6  # metres that vehicles keep to the right
_GREEN = [GROUND.index(name) for name in ("grass", "flower", "water")]
# what residents do: when they set out (between two hours), and the places on the way; the first and last are indoors
_DAYS = {
    "worker": (
        (6.2, 9.0, ("home", "work")),
        (11.3, 13.0, ("work", "leisure", "work")),
        (15.5, 17.3, ("work", "shop", "leisure", "home")),
    ),
    "pupil": (
        (7.0, 8.2, ("home", "work")),
        (12.0, 13.8, ("work", "shop", "leisure", "home")),
        (14.5, 16.5, ("home", "leisure", "shop", "home")),
    ),
    "retired": (
        (7.0, 9.5, ("home", "shop", "leisure", "home")),
        (10.0, 13.0, ("home", "leisure", "shop", "home")),
        (14.0, 16.5, ("home", "leisure", "shop", "home")),
    ),
}


@dataclass(frozen=True)
class Walkers:
    """The devices of a city, their traces and their photographs."""

    names: tuple[str, ...]
    roles: tuple[str, ...]  # of each: one of ROLES
    date: str  # of the traces
    start: float  # seconds since midnight, of the first slot
    slot: float  # seconds
    positions: np.ndarray  # float32 (slots, devices, 2): metres as in the city; NaN where a device is not out
    shots: tuple[Shot, ...]

    @property
    def stationary(self) -> np.ndarray:
        """Which devices never move, bool (devices,)."""
        return np.array([role == "signage" for role in self.roles], bool)


def population(
    city: City, residents: int, tourists: int, vehicles: int, signage: int, shots: int, seed: int
) -> Walkers:
    """The walkers of a city. Each one's day depends on its own number, and not on how many others there are."""
    counts = dict(zip(ROLES, (residents, tourists, vehicles, signage)))
    roles = tuple(role for role in ROLES for _ in range(counts[role]))
    names = tuple(f"{city.name}-{role}-{number:03}" for role in ROLES for number in range(counts[role]))
    town = _Town(city, seed)
    moments = np.arange(START, END + SLOT / 2, SLOT)
    positions = np.full((len(moments), len(names), 2), np.nan, np.float32)
    for place, (name, role) in enumerate(zip(names, roles)):
        for track in town.day(name, role, DATE) if shots else town.make_day(name, role, DATE):
            seen = (moments >= track.times[0]) & (moments <= track.times[-1])
            positions[seen, place] = track.at(moments[seen])
    moving = [(name, role) for name, role in zip(names, roles) if role != "signage"]
    taken = photographing.take(city, seed, moving, count=shots, day=town.day, today=DATE)
    return Walkers(names, roles, date=DATE, start=START, slot=SLOT, positions=positions, shots=taken)


class _Place:
    """An area for strolling: from spot to nearby spot, with a stay at each."""

    def __init__(self, ways: Ways, spots: np.ndarray) -> None:
        self.spots = spots
        self.legs: dict[int, list[tuple[float, list[int]]]] = {}
        for spot in map(int, spots):
            near = spots[np.argsort(ways.distances(spot)[spots], kind="stable")[1:10]]
            self.legs[spot] = [ways.leg(spot, int(other)) for other in near]

    def some(self, rng: np.random.Generator) -> int:
        return int(self.spots[rng.integers(len(self.spots))])

    def stroll(self, outing: Outing, seconds: float, rng: np.random.Generator) -> None:
        if outing.here not in self.legs:
            outing.go(self.some(rng))
        end = outing.time + seconds
        while outing.time < end:
            for chance, which in rng.random((32, 2)).tolist():  # drawing many at once is quicker
                outing.stay(_power(chance, 5, 300, 0.9))
                legs = self.legs[outing.here]
                outing.follow(*legs[int(which * len(legs))])
                if outing.time >= end:
                    break


class _Hood(NamedTuple):
    """A neighbourhood: nodes of homes, of everything else, of the shop, and of the meeting place."""

    near: np.ndarray
    all: np.ndarray
    shop: int
    meeting: _Place


class _Town:
    """What all days in a city have in common."""

    def __init__(self, city: City, seed: int) -> None:
        self.city, self.seed = city, seed
        self.paths, self.roads = Ways(city, road=False), Ways(city, road=True)
        rng = self.rng("places")
        squares = [(square.x, square.y, square.radius) for square in city.squares]
        self.squares = [_Place(self.paths, self.paths.around(x, y, _SQUARE * radius, 3)) for x, y, radius in squares]
        self.kerbs = [self.roads.around(x, y, 0, 4) for x, y, _ in squares]  # where vehicles stop for them
        self.fame = 1 / (1 + rng.permutation(len(squares)).astype(float))  # some sights draw more people than others
        self.fame /= self.fame.sum()
        border = np.minimum(self.paths.points, (city.width, city.height) - self.paths.points).min(axis=1)
        border[~self.paths.quiet] = np.inf
        outer = np.argsort(border, kind="stable")[: max(2, len(border) // 10)]
        self.stations = rng.choice(outer, 2, replace=False)  # where tourists come from
        self.lawns = self._lawns()
        self._hoods: dict[int, _Hood] = {}
        self._days: dict[tuple[str, str], tuple[Track, ...]] = {}

    def rng(self, *what: str) -> np.random.Generator:
        return rng_for("town", self.city.name, self.seed, "walkers", *what)

    def day(self, name: str, role: str, date: str) -> tuple[Track, ...]:
        """Where someone is on a date, kept for the photographs."""
        if (name, date) not in self._days:
            self._days[name, date] = self.make_day(name, role, date)
        return self._days[name, date]

    def make_day(self, name: str, role: str, date: str) -> tuple[Track, ...]:
        """The same, not kept. What does not change from day to day follows from the name alone."""
        makers: dict[str, Callable[..., list[Track]]] = {
            "resident": self._resident,
            "tourist": self._tourist,
            "vehicle": self._vehicle,
            "signage": self._signage,
        }
        return tuple(makers[role](name, self.rng(name), self.rng(name, date)))

    def _lawns(self) -> np.ndarray:
        """Nodes in the green: parks, mostly."""
        reach = int(9 / self.city.cell)
        green = np.isin(self.city.ground, _GREEN)
        cells = (self.paths.points[:, ::-1] / self.city.cell).astype(int)
        share = [
            green[max(row - reach, 0) : row + reach, max(column - reach, 0) : column + reach].mean()
            for row, column in cells
        ]
        found = np.flatnonzero((np.array(share) > 0.5) & self.paths.quiet)
        return found if len(found) else np.concatenate([square.spots for square in self.squares])

    # ---- Residents

    def _hood(self, number: int) -> _Hood:
        if number not in self._hoods:
            rng = self.rng("hood", str(number))
            far = self.paths.distances(int(rng.choice(np.flatnonzero(self.paths.quiet)))).copy()
            far[~self.paths.quiet] = np.inf
            near = np.flatnonzero(far < _NEAR)
            leisure = np.unique(np.concatenate((self.lawns, *(square.spots for square in self.squares))))
            meeting = _Place(self.paths, leisure[np.argsort(far[leisure], kind="stable")[:_SPOTS]])
            self._hoods[number] = _Hood(near, np.flatnonzero(far < _FAR), int(rng.choice(near)), meeting)
        return self._hoods[number]

    def _resident(self, name: str, always: np.random.Generator, rng: np.random.Generator) -> list[Track]:
        hood = self._hood(int(name.rpartition("-")[2]) // _NEIGHBOURS)
        places = {"home": int(always.choice(hood.near)), "work": int(always.choice(hood.all)), "shop": hood.shop}
        pace, aside = _gait(always)
        kind = str(always.choice(list(_DAYS), p=(0.45, 0.2, 0.35)))
        tracks: list[Track] = []
        for earliest, latest, stops in _DAYS[kind]:
            begin = max(3600 * rng.uniform(earliest, latest), tracks[-1].times[-1] + 1200 if tracks else 0)
            outing = Outing(self.paths, places[stops[0]], begin, pace, aside)
            for stop in stops[1:-1]:
                if stop == "leisure":
                    hood.meeting.stroll(outing, _stay(rng, 600, 7200, 0.5), rng)
                else:
                    outing.go(places[stop])
                    outing.stay(_stay(rng, 60, 900))
            outing.go(places[stops[-1]])
            tracks.append(outing.track())
        return tracks

    # ---- Tourists

    def _tourist(self, name: str, always: np.random.Generator, rng: np.random.Generator) -> list[Track]:
        pace, aside = _gait(always)
        outing = Outing(self.paths, int(always.choice(self.stations)), 3600 * rng.uniform(7.5, 11.0), pace, aside)
        leave = 3600 * rng.uniform(15.0, 17.7)
        left: list[int] = []
        while outing.time < leave:
            if not left:  # all seen: some again
                count = min(len(self.squares), int(rng.integers(4, 8)))
                left = rng.choice(len(self.squares), count, replace=False, p=self.fame).tolist()
            far = self.paths.distances(outing.here)
            left.sort(key=lambda square: float(far[self.squares[square].spots].min()))
            square = self.squares[left.pop(0)]
            outing.go(square.some(rng), lambda count: (rng.random(count) < 0.2) * rng.uniform(10, 120, count))
            square.stroll(outing, _stay(rng, 600, 5400, 0.5), rng)
        outing.go(int(always.choice(self.stations)))
        return [outing.track()]

    # ---- Vehicles and signage

    def _vehicle(self, name: str, always: np.random.Generator, rng: np.random.Generator) -> list[Track]:
        pace = float(np.clip(always.normal(8.0, 0.8), 5.5, 11.0))
        stops = np.flatnonzero(self.roads.quiet)
        outing = Outing(self.roads, int(always.choice(stops)), 3600 * rng.uniform(6.0, 8.0), pace, _LANE)
        end = 3600 * rng.uniform(16.0, 18.0)
        while outing.time < end:
            to_square = rng.random() < 0.75
            aim = int(rng.choice(self.kerbs[int(rng.choice(len(self.kerbs), p=self.fame))] if to_square else stops))
            # a queue before a red light, someone who crosses
            outing.go(aim, lambda count: (rng.random(count) < 0.15) * rng.uniform(4, 40, count))
            outing.stay(_stay(rng, 60, 1800, 0.6))
        return [outing.track()]

    def _signage(self, name: str, always: np.random.Generator, rng: np.random.Generator) -> list[Track]:
        """Every other one on a square, the others on a pavement."""
        on_square = int(name.rpartition("-")[2]) % 2 == 0
        square = self.squares[int(always.choice(len(self.squares), p=self.fame))]
        node = square.some(always) if on_square else int(always.choice(np.flatnonzero(self.paths.quiet)))
        outing = Outing(self.paths, node, START, 1.0, aside=float(always.uniform(-0.5, 0.5)))
        outing.stay(END - START)
        return [outing.track()]


def _gait(rng: np.random.Generator) -> tuple[float, float]:
    """Speed in metres per second, and the preferred side of the pavement."""
    return float(np.clip(rng.normal(1.2, 0.15), 0.8, 1.8)), float(rng.uniform(-0.5, 0.5))


def _stay(rng: np.random.Generator, least: float, most: float, tail: float = 0.9) -> float:
    """Seconds, by a power law between two limits: many short ones, a few very long."""
    return _power(float(rng.random()), least, most, tail)


def _power(chance: float, least: float, most: float, tail: float) -> float:
    found: float = least * (1 - chance * (1 - (least / most) ** tail)) ** (-1 / tail)
    return found
