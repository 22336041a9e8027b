"""Small scenes of street life: who is in them, how they relate to each other, and what they do.

A scene is played at a point, facing a heading, and its actors may move around that point as it grows older. What is
frequent is common in any street; what is rare is rare by design, so that learning it from photographs is hard.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from math import cos, pi, radians, sin
from typing import NamedTuple

from wayfare.town.model import Thing
from wayfare.town.site import SIZES

DICE = 32  # random numbers that a scene may use
_GROUND = -1


class Cast:
    """The things of one scene, in order of appearance; their ids are consecutive."""

    def __init__(
        self, first: int, x: float, y: float, heading: float, age: float, partner: int, room: float, dice: list[float]
    ) -> None:
        self.first, self.x, self.y, self.heading = first, x, y, heading
        self.age = age  # seconds since the scene began
        self.partner = partner  # the thing it is about: a bench, a sight
        self.room = room  # how far it may go from its point
        self._dice: Iterator[float] = iter(dice)
        self._ahead = sin(radians(heading)), cos(radians(heading))
        self.things: list[Thing] = []

    def roll(self, low: float = 0.0, high: float = 1.0) -> float:
        return low + (high - low) * next(self._dice)

    def actor(self, number: int) -> int:
        """The id of the scene's n-th thing, which may appear later."""
        return self.first + number

    def add(
        self,
        kind: str,
        doing: tuple[str, int] | None,
        ahead: float = 0.0,
        right: float = 0.0,
        z: float = 0.0,
        turn: float = 0.0,
        scale: float = 1.0,
    ) -> None:
        east, north = self._ahead
        width, depth, height = SIZES[kind]
        self.things.append(
            Thing(
                self.first + len(self.things), kind,
                self.x + east * ahead + north * right, self.y + north * ahead - east * right, z=z,
                width=width * scale, depth=depth * scale, height=height * scale,
                heading=(self.heading + turn) % 360, look=int(next(self._dice) * 2**31), doing=doing,
            )
        )  # fmt: skip

    def person(
        self, doing: tuple[str, int], ahead: float = 0.0, right: float = 0.0, z: float = 0.0, turn: float = 0.0,
        tall: float = 1.0,
    ) -> None:  # fmt: skip
        """A person; a standing adult if `tall` is 1."""
        scale = tall * (0.9 + 0.19 * next(self._dice))
        self.add("person", doing, ahead=ahead, right=right, z=z, turn=turn, scale=scale)


Scene = Callable[[Cast], None]
_CHILD, _SEATED = 0.72, 0.76


# ---- On the way: the scene moves along its heading


def _walk(cast: Cast) -> None:
    cast.person(("walking on", _GROUND))


def _walk_with_backpack(cast: Cast) -> None:
    cast.person(("walking on", _GROUND) if cast.roll() < 0.6 else ("carrying", cast.actor(1)))
    cast.add("backpack", ("on back of", cast.actor(0)), ahead=-0.26, z=0.95)


def _walk_with_handbag(cast: Cast) -> None:
    cast.person(("holding", cast.actor(1)))
    cast.add("handbag", None, right=0.36, z=0.5)


def _walk_with_umbrella(cast: Cast) -> None:
    cast.person(("holding", cast.actor(1)))
    cast.add("umbrella", ("over", cast.actor(0)), z=1.62)


def _walk_and_talk(cast: Cast) -> None:
    cast.person(("talking to", cast.actor(1)), right=-0.4)
    cast.person(("walking on", _GROUND), right=0.4)


def _walk_the_dog(cast: Cast) -> None:
    cast.person(("walking on", _GROUND) if cast.roll() < 0.6 else ("holding", cast.actor(1)))
    cast.add("dog", ("walking on", _GROUND), ahead=0.9, right=0.5, scale=cast.roll(0.7, 1.2))


def _pull_suitcase(cast: Cast) -> None:
    cast.person(("pulling", cast.actor(1)))
    cast.add("suitcase", None, ahead=-0.75, right=0.2)


def _carry_suitcase(cast: Cast) -> None:
    cast.person(("carrying", cast.actor(1)))
    cast.add("suitcase", None, right=0.45, z=0.15)


def _push_bicycle(cast: Cast) -> None:
    cast.person(("pushing", cast.actor(1)))
    cast.add("bicycle", None, ahead=0.3, right=0.5)


def _skateboard(cast: Cast) -> None:
    cast.person(("riding", cast.actor(1)), z=0.13)
    cast.add("skateboard", None)


def _run(cast: Cast) -> None:
    cast.person(("running on", _GROUND))


def _chase(cast: Cast) -> None:
    cast.add("dog", ("chasing", cast.actor(1)))
    cast.add("cat", ("running on", _GROUND), ahead=1.9)


def _eat_on_the_way(cast: Cast) -> None:
    cast.person(("eating", cast.actor(1)))
    cast.add("fruit" if cast.roll() < 0.6 else "cake", None, ahead=0.22, right=0.1, z=1.25)


def _lead_group(cast: Cast) -> None:
    cast.person(("guiding", cast.actor(1)), ahead=1.2)
    cast.person(("walking on", _GROUND), right=-0.4)
    cast.person(("walking on", _GROUND), ahead=-0.7, right=0.3)


def _lead_horse(cast: Cast) -> None:
    cast.person(("pulling", cast.actor(1)), ahead=1.6)
    cast.add("horse", ("walking on", _GROUND))


# ---- On the road


def _driver(kind: str) -> Scene:
    def drive(cast: Cast) -> None:
        cast.add(kind, ("driving on", _GROUND))

    return drive


def _rider(kind: str, z: float, tall: float) -> Scene:
    def ride(cast: Cast) -> None:
        cast.person(("riding", cast.actor(1)), ahead=-0.1, z=z, tall=tall)
        cast.add(kind, ("running on", _GROUND) if kind == "horse" else ("driving on", _GROUND))

    return ride


def _cross(cast: Cast) -> None:
    """From one side of the road to the other; the point is in the middle."""
    gone = 1.3 * cast.age - cast.room
    if gone < cast.room:
        way, turn = (gone, 0) if cast.roll() < 0.5 else (-gone, 180)
        cast.person(("crossing", _GROUND), ahead=way, right=cast.roll(-0.7, 0.7), turn=turn)


def _cross_with_bag(cast: Cast) -> None:
    _cross(cast)
    if cast.things:
        person = cast.things[0]
        back = -0.26 if abs(person.heading - cast.heading % 360) < 1 else 0.26
        cast.x, cast.y = person.x, person.y
        cast.add("backpack", ("on back of", person.id), ahead=back, z=0.95)


# ---- At a place


def _stand(cast: Cast) -> None:
    cast.person(("standing on", _GROUND))


def _stand_with_bag(cast: Cast) -> None:
    cast.person(("standing on", _GROUND))
    cast.add("backpack", ("on back of", cast.actor(0)), ahead=-0.26, z=0.95)


def _talk(cast: Cast) -> None:
    cast.person(("talking to", cast.actor(1)), right=-0.5, turn=90)
    cast.person(("talking to", cast.actor(0)) if cast.roll() < 0.3 else ("standing on", _GROUND), right=0.5, turn=-90)


def _hold_umbrella(cast: Cast) -> None:
    cast.person(("holding", cast.actor(1)))
    cast.add("umbrella", ("over", cast.actor(0)), z=1.62)


def _hold_dog(cast: Cast) -> None:
    cast.person(("standing on", _GROUND))
    cast.add("dog", ("sitting on", _GROUND) if cast.roll() < 0.5 else ("standing on", _GROUND), ahead=0.8, right=0.4)


def _wait_with_suitcase(cast: Cast) -> None:
    cast.person(("holding", cast.actor(1)))
    cast.add("suitcase", ("standing on", _GROUND), right=0.5)


def _look(cast: Cast) -> None:
    cast.person(("looking at", cast.partner))


def _photograph(cast: Cast) -> None:
    cast.person(("photographing", cast.partner))


def _guide(cast: Cast) -> None:
    cast.person(("guiding", cast.actor(1)), ahead=1.6, turn=180)
    cast.person(("looking at", cast.partner), right=-0.8)
    cast.person(("standing on", _GROUND), ahead=-0.4)
    cast.person(("looking at", cast.partner), right=0.8)


def _pigeons(cast: Cast) -> None:
    for k in range(2 + int(cast.roll() * 3)):
        angle, away = cast.roll(0, 2 * pi), cast.roll(0.2, 1.6)
        doing = ("walking on", _GROUND) if k % 2 else ("standing on", _GROUND)
        cast.add("bird", doing, away * sin(angle), away * cos(angle), turn=cast.roll(0, 360))


def _feed_birds(cast: Cast) -> None:
    cast.person(("feeding", cast.actor(1)))
    for side in (-0.4, 0.3):
        cast.add("bird", ("standing on", _GROUND), ahead=cast.roll(1.0, 1.6), right=side, turn=180)


def _fly_over(cast: Cast) -> None:
    """One bird, or two, in a wide circle."""
    radius, height, angle = cast.roll(7, 14), cast.roll(5, 13), cast.roll(0, 2 * pi) + cast.age * 0.45
    for k in range(1 + int(cast.roll() * 2)):
        lag = angle - 0.18 * k
        turn = 90 - lag * 180 / pi
        cast.add(
            "bird",
            ("flying over", _GROUND),
            radius * cos(lag),
            right=radius * sin(lag),
            z=height,
            turn=turn + 90,
            scale=1.7,
        )


def _kick_ball(cast: Cast) -> None:
    away = 1.0 + 0.5 * sin(cast.age)
    cast.person(("kicking", cast.actor(1)), tall=_CHILD)
    cast.add("sports ball", ("on", _GROUND), ahead=away * 0.7)


def _play_ball(cast: Cast) -> None:
    cast.person(("playing with", cast.actor(2)), ahead=-2.0, tall=_CHILD)
    cast.person(("standing on", _GROUND), ahead=2.0, turn=180, tall=_CHILD)
    cast.add("sports ball", None, ahead=1.5 * sin(cast.age * 0.8), z=0.5 + 0.4 * abs(cos(cast.age * 0.8)))


def _play_with_dog(cast: Cast) -> None:
    cast.person(("playing with", cast.actor(1)))
    cast.add("dog", ("running on", _GROUND), 2.2 * cos(cast.age * 0.7), 2.2 * sin(cast.age * 0.7), turn=cast.age * 40)


def _fly_kite(cast: Cast) -> None:
    cast.person(("flying", cast.actor(1)), tall=_CHILD)
    cast.add("kite", ("flying over", _GROUND), 7 + sin(cast.age * 0.5), 1.5 * sin(cast.age * 0.3), cast.roll(5, 10))


def _chase_in_circles(cast: Cast) -> None:
    for k, (kind, doing) in enumerate((("dog", ("chasing", cast.actor(1))), ("cat", ("running on", _GROUND)))):
        angle = cast.age * 0.8 + k * 0.7
        cast.add(kind, doing, 2.5 * cos(angle), 2.5 * sin(angle), turn=angle * 180 / pi + 90)


def _lie(cast: Cast) -> None:
    cast.add("person", ("lying on", _GROUND), scale=1.0)
    person = cast.things[-1]
    cast.things[-1] = person._replace(width=1.7, depth=0.5, height=0.4)


def _sit_down(cast: Cast) -> None:
    cast.person(("sitting on", _GROUND), tall=0.52)


def _picnic(cast: Cast) -> None:
    cast.person(("eating", cast.actor(1)), tall=0.52)
    cast.add("cake" if cast.roll() < 0.5 else "fruit", ("on", _GROUND), ahead=0.6, scale=1.4)
    cast.person(("sitting on", _GROUND), ahead=1.3, turn=180, tall=0.52)


def _cat(cast: Cast) -> None:
    cast.add("cat", ("sitting on", _GROUND) if cast.roll() < 0.6 else ("lying on", _GROUND))


def _stray_dog(cast: Cast) -> None:
    cast.add("dog", ("lying on", _GROUND) if cast.roll() < 0.5 else ("standing on", _GROUND))


def _graze(cast: Cast) -> None:
    cast.add("horse", ("standing on", _GROUND), turn=cast.roll(0, 360))


def _lean(cast: Cast) -> None:
    cast.person(("leaning on", cast.partner), ahead=-0.3)


def _stand_by(cast: Cast) -> None:
    cast.person(("standing on", _GROUND), ahead=-0.6)


def _dog_at_lamp(cast: Cast) -> None:
    cast.add("dog", ("standing on", _GROUND), ahead=-0.6, turn=cast.roll(0, 360))


def _enter(cast: Cast) -> None:
    """Towards a door; the point is half a metre before it."""
    cast.person(("entering", _GROUND), ahead=min(0.2, 0.06 * cast.age - 1.0))


def _stand_at_door(cast: Cast) -> None:
    cast.person(("standing on", _GROUND), turn=180)


def _lean_on_wall(cast: Cast) -> None:
    cast.person(("leaning on", _GROUND), ahead=0.25, turn=180)


# ---- At benches, tables and stalls


def _sit(cast: Cast) -> None:
    cast.person(("sitting on", cast.partner), ahead=0.1, right=cast.roll(-0.5, 0.5), tall=_SEATED)


def _sit_at_table(cast: Cast) -> None:
    cast.person(("sitting on", cast.partner), ahead=0.1, tall=_SEATED)


def _eat_at_table(cast: Cast) -> None:
    cast.person(("eating", cast.actor(1)), ahead=0.1, tall=_SEATED)
    cast.add("cake" if cast.roll() < 0.7 else "fruit", None, ahead=0.6, z=0.75)


def _sit_and_talk(cast: Cast) -> None:
    cast.person(("talking to", cast.actor(1)), ahead=0.1, right=-0.42, turn=30, tall=_SEATED)
    cast.person(("sitting on", cast.partner), ahead=0.1, right=0.42, turn=-30, tall=_SEATED)


def _sit_and_feed(cast: Cast) -> None:
    cast.person(("feeding", cast.actor(1)), ahead=0.1, tall=_SEATED)
    for side in (-0.3, 0.5):
        cast.add("bird", ("standing on", _GROUND), ahead=cast.roll(1.2, 1.8), right=side, turn=180)


def _sit_with_bag(cast: Cast) -> None:
    cast.person(("sitting on", cast.partner), ahead=0.1, right=-0.4, tall=_SEATED)
    cast.add("backpack" if cast.roll() < 0.5 else "handbag", ("on", cast.partner), right=0.35, z=0.45)


def _sleep_on_bench(cast: Cast) -> None:
    cast.add("person", ("lying on", cast.partner), z=0.42)
    cast.things[-1] = cast.things[-1]._replace(width=1.7, depth=0.45, height=0.4)


def _cat_on_bench(cast: Cast) -> None:
    cast.add("cat", ("sitting on", cast.partner), z=0.45, right=cast.roll(-0.5, 0.5))


def _buy(cast: Cast) -> None:
    cast.person(("buying from", cast.partner))
    cast.add("handbag", None, right=0.36, z=0.5)


def _carry_fruit(cast: Cast) -> None:
    cast.person(("holding", cast.actor(1)))
    cast.add("fruit", None, ahead=0.25, z=1.0, scale=1.6)


# ---- At and in the water


def _ducks(cast: Cast) -> None:
    for k in range(1 + int(cast.roll() * 3)):
        angle = cast.age * 0.12 + 2.1 * k
        cast.add("duck", ("swimming in", _GROUND), 0.9 * cos(angle), 0.9 * sin(angle), turn=angle * 180 / pi + 90)


def _feed_ducks(cast: Cast) -> None:
    """The point is on the shore, the heading to the water."""
    cast.person(("feeding", cast.actor(1)))
    for side in (-0.6, 0.5):
        cast.add("duck", ("swimming in", _GROUND), ahead=cast.roll(1.6, 2.2), right=side, turn=180)


def _sail(cast: Cast) -> None:
    cast.add("boat", ("driving on", _GROUND), ahead=2.5 * sin(cast.age * 0.1), scale=0.8)


# ---- What is played where, and how often


class Play(NamedTuple):
    """Scenes with their cumulative shares."""

    scenes: tuple[Scene, ...]
    shares: tuple[float, ...]

    def choose(self, roll: float) -> Scene:
        return self.scenes[bisect(self.shares, roll * self.shares[-1])]


def _play(weights: Mapping[Scene, float]) -> Play:
    return Play(tuple(weights), tuple(accumulate(weights.values())))


PLAYS: dict[str, Play] = {
    "way": _play({
        _walk: 45, _walk_with_backpack: 11, _walk_with_handbag: 8, _walk_and_talk: 9, _walk_with_umbrella: 4,
        _walk_the_dog: 5, _pull_suitcase: 3, _run: 4, _eat_on_the_way: 2.4, _push_bicycle: 2, _skateboard: 1.5,
        _carry_suitcase: 1.2, _lead_group: 0.8, _lead_horse: 0.3, _chase: 0.6,
    }),
    "traffic": _play({_driver("car"): 78, _driver("truck"): 9, _driver("bus"): 8, _rider("motorcycle", 0.35, 0.9): 5}),
    "cycling": _play({
        _rider("bicycle", 0.35, 0.9): 84, _rider("motorcycle", 0.35, 0.9): 9, _rider("horse", 0.85, 0.85): 4,
        _rider("skateboard", 0.13, 1.0): 3,
    }),
    "crossing": _play({_cross: 7, _cross_with_bag: 3}),
    "corner": _play({
        _stand: 40, _talk: 22, _stand_with_bag: 10, _hold_dog: 6, _wait_with_suitcase: 4, _hold_umbrella: 4,
        _pigeons: 6, _cat: 2, _stray_dog: 2, _fly_over: 8,
    }),
    "lamp": _play({_lean: 1, _stand_by: 4, _dog_at_lamp: 1}),
    "door": _play({_stand_at_door: 40, _enter: 24, _cat: 14, _talk: 10, _lean_on_wall: 7, _stray_dog: 6}),
    "bench": _play({
        _sit: 46, _sit_and_talk: 20, _sit_with_bag: 12, _eat_at_table: 4, _sit_and_feed: 3, _cat_on_bench: 3,
        _sleep_on_bench: 1,
    }),
    "chair": _play({_sit_at_table: 6, _eat_at_table: 2}),
    "stall": _play({_stand: 5, _buy: 3, _carry_fruit: 2, _walk_with_handbag: 2}),
    "square": _play({
        _stand: 24, _talk: 18, _stand_with_bag: 9, _look: 12, _photograph: 9, _pigeons: 9, _feed_birds: 5,
        _hold_dog: 3, _guide: 1.8, _sit_down: 2, _hold_umbrella: 2, _play_ball: 1.2, _kick_ball: 1.5,
        _play_with_dog: 1.2, _fly_kite: 1, _cat: 1, _wait_with_suitcase: 2, _fly_over: 6, _chase_in_circles: 0.8,
    }),
    "lawn": _play({
        _pigeons: 16, _sit_down: 16, _hold_dog: 10, _talk: 8, _picnic: 4, _play_with_dog: 5, _lie: 4, _play_ball: 3,
        _kick_ball: 2, _fly_kite: 2, _graze: 3, _chase_in_circles: 1, _fly_over: 8, _cat: 3, _stand: 12,
    }),
    "pond": _play({_ducks: 1}),
    "shore": _play({_feed_ducks: 3, _stand: 4, _sit_down: 2, _talk: 2, _pigeons: 2}),
    "basin": _play({_sail: 3, _ducks: 2}),
}  # fmt: skip
SPEEDS: dict[Scene, float] = {_run: 2.4, _chase: 2.4, _skateboard: 2.6, _lead_group: 0.9}  # of scenes on the way, m/s
# how far from its point a scene's things may reach, metres; from a crossing, that much farther than the road is wide
SPREAD: dict[str, float] = {
    "way": 3.5, "traffic": 6.0, "cycling": 6.0, "crossing": 2.0, "corner": 16.0, "lamp": 2.0, "door": 2.0, "bench": 3.0,
    "chair": 2.0, "stall": 2.0, "square": 16.0, "lawn": 16.0, "pond": 2.0, "shore": 4.0, "basin": 6.0,
}  # fmt: skip
