"""What walkers photograph: sequences of frames a few metres apart, on several dates, by day and by night.

Vehicles take long ones along streets, residents short ones on their ways, tourists a few frames around a sight, the
camera aimed at it; and those on foot turn to people near them. Each walker has one camera; some sequences are
panoramas, taken with another.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.town import life
from wayfare.town.model import Camera, City, Direction, Season, Shot, Weather
from wayfare.town.ways import Track
from wayfare.town.words import SIGHTS

Day = Callable[[str, str, str], tuple[Track, ...]]  # name, role, date: where someone is

PHONES = (
    Camera("Pico 5", 66, height=1.55, gain=(1.00, 1.00, 1.00), gamma=1.00, noise=3.0, vignette=0.10),
    Camera("Lumo X", 72, height=1.58, gain=(1.10, 1.00, 0.88), gamma=0.92, noise=4.0, vignette=0.15),  # warm and bright
    Camera("Astra 2", 62, height=1.52, gain=(0.90, 0.98, 1.12), gamma=1.08, noise=5.0, vignette=0.20),  # cold and hard
    Camera("Bokeh One", 56, height=1.60, gain=(1.05, 1.06, 0.94), gamma=1.15, noise=2.0, vignette=0.25),
    # an old one: green, flat, noisy
    Camera("Kiosk 700", 70, height=1.50, gain=(0.94, 1.04, 0.96), gamma=0.85, noise=8.0, vignette=0.30),
)
DASHCAMS = (
    Camera("Roadeye", 84, height=1.35, gain=(0.96, 1.02, 1.02), gamma=1.10, noise=6.0, vignette=0.35),
    Camera("Motoview Pro", 76, height=1.45, gain=(1.06, 0.98, 0.96), gamma=0.95, noise=4.0, vignette=0.20),
    Camera("Trucklens", 90, height=2.10, gain=(0.90, 1.00, 1.06), gamma=1.00, noise=7.0, vignette=0.40),
)
PANORAMA = Camera("Rondo 360", 360, height=2.20, gain=(1.00, 1.00, 1.00), gamma=1.00, noise=4.0, vignette=0.0)

_SHARES = {"vehicle": 0.4, "tourist": 0.35, "resident": 0.25}
_FRAMES = {"vehicle": (10, 24), "tourist": (4, 10), "resident": (5, 12)}  # fewest and most of a sequence
_SPACING = {"vehicle": (4.0, 6.5), "tourist": (2.0, 5.0), "resident": (2.5, 5.0)}  # metres between frames
_DIRECTIONS: tuple[Direction, ...] = ("Forward", "Backward", "Sideways")
_DIRECTION_SHARES = {"vehicle": (0.76, 0.1, 0.14), "resident": (0.6, 0.15, 0.25)}
_SIGHT_REACH, _TOO_CLOSE = 1.8, 4.0  # tourists photograph a sight from within so many radii of its square; metres
_OF_PEOPLE = 0.5  # share of walkers' sequences in which the camera turns to people who are near
_NEAR, _TURN = (2.5, 9.0), 50.0  # how near they are, metres, and how far it turns at most, degrees
_ORDINARY = ("walking on", "standing on")  # what people do that nobody takes a picture of
_LONGEST_PAUSE = 60.0  # seconds; after a longer one a new sequence begins
_TRIES = 12  # to find a piece of the way that is as wished
_SHORT = 6  # frames that a sequence may have however few photographs there are
_AGAIN = 0.8  # share of sequences for which a place is preferred that was photographed before
_PLACE = 17.0  # metres: two points in one square of this side are less than 25 apart
_TODAY = 0.35  # share of sequences taken on the traces' date
_NIGHT, _PANORAMAS = 0.125, 0.02  # shares of photographs

SUN: dict[Season, tuple[float, float]] = {  # hours of sunrise and sunset
    "spring": (6.4, 19.4), "summer": (5.0, 21.4), "autumn": (6.9, 18.4), "winter": (7.9, 16.7),
}  # fmt: skip
_SKIES: dict[Season, tuple[float, ...]] = {  # clear, cloudy, rain, fog, snow
    "spring": (0.45, 0.33, 0.16, 0.06, 0.0),
    "summer": (0.62, 0.25, 0.1, 0.03, 0.0),
    "autumn": (0.33, 0.35, 0.18, 0.14, 0.0),
    "winter": (0.28, 0.3, 0.08, 0.12, 0.22),
}
_WEATHERS: tuple[Weather, ...] = ("clear", "cloudy", "rain", "fog", "snow")
_SEASONS: tuple[Season, ...] = ("winter", "spring", "summer", "autumn")


def season_of(date: str, latitude: float) -> Season:
    """By the month, and on which side of the equator."""
    month = int(date[5:7]) + (6 if latitude < 0 else 0)
    return _SEASONS[month % 12 // 3]


def is_night(season: Season, time: float) -> bool:
    """Whether the sun has set."""
    sunrise, sunset = SUN[season]
    return not sunrise * 3600 <= time <= sunset * 3600


def weather_of(city: City, seed: int, date: str, time: float) -> Weather:
    """The same for everyone in the city for three hours; it does not snow in the tropics."""
    shares = np.array(_SKIES[season_of(date, city.latitude)])
    if abs(city.latitude) < 25:
        shares[2] += shares[4]
        shares[4] = 0
    rng = rng_for("town", city.name, seed, "weather", date, int(time // 10800))
    return _WEATHERS[int(rng.choice(len(shares), p=shares))]


def dates_of(city: City, seed: int, today: str) -> tuple[str, ...]:
    """When photographs are taken: today, and two dates in each season."""
    rng = rng_for("town", city.name, seed, "dates")
    months = [month for first in (1, 4, 7, 10) for month in rng.choice(np.arange(first, first + 3), 2, replace=False)]
    return (today, *(f"{rng.integers(2021, 2024)}-{month:02}-{rng.integers(1, 29):02}" for month in months))


def take(
    city: City, seed: int, walkers: Sequence[tuple[str, str]], count: int, day: Day, today: str
) -> tuple[Shot, ...]:
    """So many photographs by these walkers (name, role), in sequences; `day` says where they are on a date."""
    plan = _ShotPlan(city, seed, day, today)
    by_role = {role: [name for name, of in walkers if of == role] for role in _SHARES}
    left = {role: share for role, share in _SHARES.items() if by_role[role]}
    for role in list(left):
        wanted = round((count - len(plan.shots)) * left[role] / sum(left.values()))
        del left[role]
        plan.fill(role, by_role[role], wanted)
    return tuple(plan.shots)


@dataclass
class _Scene:
    """Where a sequence is taken: times, positions, headings of the camera."""

    times: np.ndarray
    points: np.ndarray
    headings: np.ndarray
    direction: Direction
    square: int = -1  # whose sight it is of


class _ShotPlan:
    """All photographs of a city, while they are planned."""

    def __init__(self, city: City, seed: int, day: Day, today: str) -> None:
        self.city, self.seed, self.day, self.today = city, seed, day, today
        self.dates = dates_of(city, seed, today)
        self.shots: list[Shot] = []
        self.nights = self.panoramas = 0
        self._seen: dict[tuple[int, int], set[str]] = {}  # on which dates each place was photographed
        # where sights are few, none is left out: those that nobody photographed so far
        self._unseen = set(range(len(city.squares))) if len(city.squares) < len(SIGHTS) else set()

    def fill(self, role: str, names: Sequence[str], wanted: int) -> None:
        """Sequences by each in turn, until there are enough photographs; two by each if they are few."""
        end = len(self.shots) + wanted
        longest = max(_SHORT, wanted // (2 * len(names)))
        number = 0
        while len(self.shots) < end:
            name = names[number % len(names)]
            rng = rng_for("town", self.city.name, self.seed, "sequence", name, number)
            frames = min(int(rng.integers(*_FRAMES[role], endpoint=True)), longest)
            room = end - len(self.shots)
            self._sequence(name, role, number, room if room < frames + 3 else frames, rng)
            number += 1

    def _dates_of(self, name: str) -> np.ndarray:
        """The other dates on which someone takes photographs."""
        return rng_for("town", self.city.name, self.seed, "dates", name).choice(self.dates[1:], 2, replace=False)

    def _sequence(self, name: str, role: str, number: int, frames: int, rng: np.random.Generator) -> None:
        dark = rng.random() < _NIGHT + (_NIGHT * len(self.shots) - self.nights) / 60
        date = self.today if not dark and rng.random() < _TODAY else str(rng.choice(self._dates_of(name)))
        season = season_of(date, self.city.latitude)
        scene = self._scene(self.day(name, role, date), role, date, frames, rng)
        later = 0.0
        if dark != is_night(season, float(scene.times[0])) and date != self.today:
            later = _shift(season, float(scene.times[0]), dark, rng)
        times = scene.times + later
        if role != "vehicle" and rng.random() < _OF_PEOPLE:
            scene.headings = self._turned_to_people(scene, times, date)
        weather = weather_of(self.city, self.seed, date, float(times[0]))
        night = is_night(season, float(times[0]))
        frames = len(times)
        pano = self.panoramas + frames / 2 <= _PANORAMAS * (len(self.shots) + frames)
        camera = PANORAMA if pano else camera_of(self.city, self.seed, name, role)
        sequence = _key(self.city.name, self.seed, name, number)
        for frame, (time, (x, y), heading) in enumerate(zip(times, scene.points, scene.headings)):
            key = _key(self.city.name, self.seed, name, number, frame)
            self.shots.append(
                Shot(
                    key,
                    self.city.name,
                    walker=name,
                    sequence=sequence,
                    frame=frame,
                    x=float(x),
                    y=float(y),
                    heading=float(heading) % 360,
                    time=float(time),
                    date=date,
                    camera=camera,
                    weather=weather,
                    season=season,
                    night=night,
                    direction=scene.direction,
                    pano=pano,
                    role=role,
                )
            )
            self._seen.setdefault(_cell(x, y), set()).add(date)
        self.nights += night * frames
        self.panoramas += pano * frames

    def _turned_to_people(self, scene: _Scene, times: np.ndarray, date: str) -> np.ndarray:
        """The camera's heading towards somebody near, preferring those who do something over passers-by."""
        headings = scene.headings.copy()
        moments = [life.Moment(x, y, time, date) for (x, y), time in zip(scene.points.tolist(), times.tolist())]
        for frame, crowd in enumerate(life.crowds(self.city, moments, _NEAR[1])):
            x, y, near = moments[frame].x, moments[frame].y, []
            for thing in crowd:
                distance = float(np.hypot(thing.x - x, thing.y - y))
                aim = float(np.degrees(np.arctan2(thing.x - x, thing.y - y)))
                turn = (aim - headings[frame] + 180) % 360 - 180
                if thing.kind == "person" and _NEAR[0] <= distance <= _NEAR[1] and abs(turn) <= _TURN:
                    near.append((thing.doing is None or thing.doing[0] in _ORDINARY, distance, turn))
            if near:
                headings[frame] += min(near)[2]
        return headings

    def _scene(self, tracks: tuple[Track, ...], role: str, date: str, frames: int, rng: np.random.Generator) -> _Scene:
        """The best of a few tries: of the requested length, and mostly where others were on another date."""
        spacing = float(rng.uniform(*_SPACING[role]))
        lengths = np.array([track.way[-1] for track in tracks])
        make = _of_sight if role == "tourist" and self.city.squares else _on_the_way
        again = rng.random() < _AGAIN
        best, most = _Scene(np.empty(0), np.empty((0, 2)), np.empty(0), "Forward"), 0.0
        for _ in range(_TRIES):
            track = tracks[int(rng.choice(len(tracks), p=lengths / lengths.sum()))]
            found = make(self.city, track, spacing, frames=frames, role=role, rng=rng)
            known = [bool(self._seen.get(_cell(x, y), set()) - {date}) for x, y in found.points] if again else []
            value = len(found.times) + sum(known)
            if found.square in self._unseen and len(found.times):
                value += frames
            if value > most:
                best, most = found, value
            if most >= frames * (1.8 if again else 1):
                break
        if not len(best.times):  # no sight in reach
            best = _on_the_way(self.city, tracks[int(lengths.argmax())], spacing, frames=frames, role=role, rng=rng)
        self._unseen.discard(best.square)
        return best


def _on_the_way(city: City, track: Track, spacing: float, frames: int, role: str, rng: np.random.Generator) -> _Scene:
    """Frames along the way, with the camera at a fixed angle to it."""
    metres = float(rng.uniform(0, track.way[-1])) + spacing * np.arange(frames)
    times, points, ways = track.along(metres[metres < track.way[-1]])
    direction = _DIRECTIONS[int(rng.choice(3, p=_DIRECTION_SHARES.get(role, (1, 0, 0))))]
    middle = len(ways) // 2
    turn = {"Forward": 0.0, "Backward": 180.0, "Sideways": _open_side(city, points[middle], ways[middle])}[direction]
    turn += rng.normal(0, 3)
    goes_on = np.append(True, np.diff(times) <= _LONGEST_PAUSE)
    return _until(times, points, ways + turn + rng.normal(0, 1.5, len(ways)), direction, goes_on)


def _open_side(city: City, point: np.ndarray, way: float) -> float:
    """90 or -90 degrees, to the right or to the left of the way: where the next wall is farther."""
    right = np.radians(way + 90)
    ahead, along = np.array([np.sin(right), np.cos(right)]), np.array([np.cos(right), -np.sin(right)])
    first, last = city.walls[:, :2] - point, city.walls[:, 2:4] - point
    crossed = (first @ along) * (last @ along) < 0  # walls on the line to the right and left
    share = (first @ along / (first @ along - last @ along + ~crossed))[crossed]
    distance = (first @ ahead)[crossed] * (1 - share) + (last @ ahead)[crossed] * share
    right_wall = distance[distance > 0].min(initial=np.inf)
    left_wall = -distance[distance < 0].max(initial=-np.inf)
    return 90.0 if right_wall >= left_wall else -90.0


def _of_sight(city: City, track: Track, spacing: float, frames: int, role: str, rng: np.random.Generator) -> _Scene:
    """Frames near a sight, the camera aimed at it, for as long as it stays on the same side of the walker."""
    metres = float(rng.uniform(0, track.way[-1])) + spacing * np.arange(frames)
    times, points, ways = track.along(metres[metres < track.way[-1]])
    sights = np.array([(square.x, square.y) for square in city.squares])
    nearest = int(np.hypot(*(sights - points[0]).T).argmin())
    gap = sights[nearest] - points
    distance = np.hypot(*gap.T)
    near = (distance < _SIGHT_REACH * city.squares[nearest].radius) & (distance > _TOO_CLOSE)
    aim = np.degrees(np.arctan2(*gap.T)) % 360
    turn = (aim - ways + 180) % 360 - 180  # how far the camera is turned from the way, to the right
    direction: Direction = "Forward" if abs(turn[0]) < 60 else "Backward" if abs(turn[0]) > 120 else "Sideways"
    usual = {"Forward": 0.0, "Backward": 180.0, "Sideways": 90 * np.sign(turn[0])}[direction]
    same_side = np.abs((turn - usual + 180) % 360 - 180) <= 60
    goes_on = near & same_side & np.append(True, np.diff(times) <= _LONGEST_PAUSE)
    if direction == "Backward" and rng.random() < 0.7:  # few photograph what they walk away from
        goes_on[:] = False
    scene = _until(times, points, aim + rng.normal(0, 4, len(aim)), direction, goes_on)
    scene.square = nearest
    return scene


def _until(
    times: np.ndarray, points: np.ndarray, headings: np.ndarray, direction: Direction, goes_on: np.ndarray
) -> _Scene:
    """The frames up to the first interruption."""
    end = len(times) if goes_on.all() else int(goes_on.argmin())
    return _Scene(times[:end], points[:end], headings[:end], direction)


def _cell(x: float, y: float) -> tuple[int, int]:
    return int(x // _PLACE), int(y // _PLACE)


def camera_of(city: City, seed: int, name: str, role: str) -> Camera:
    """The walker's own camera."""
    pool = DASHCAMS if role == "vehicle" else PHONES
    return pool[int(rng_for("town", city.name, seed, "camera", name).integers(len(pool)))]


def _shift(season: Season, time: float, dark: bool, rng: np.random.Generator) -> float:
    """Seconds later (or earlier) at which it is dark, or light."""
    sunrise, sunset = SUN[season]
    hour = rng.uniform(sunset + 0.3, 23.3) if dark else rng.uniform(sunrise + 0.2, sunset - 0.4)
    return float(hour * 3600 - time)


def _key(*parts: int | str) -> str:
    """22 letters, digits, - and _, as Mapillary's."""
    text = "\x1f".join(map(str, ("town key", *parts)))
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())[:22].decode()
