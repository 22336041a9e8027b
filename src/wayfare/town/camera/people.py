"""How people and animals look: sprites by pose, by visible side, and by a number that determines clothes."""

from __future__ import annotations

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.town.camera.atlas import Colour, Pen, shade
from wayfare.town.camera.solids import ATLAS, Shape, Solid

_SKIN = ((246, 214, 188), (232, 190, 156), (206, 160, 122), (168, 118, 84), (124, 82, 58), (92, 60, 44))
_HAIR = ((40, 32, 28), (84, 58, 40), (134, 92, 52), (206, 170, 108), (158, 74, 40), (172, 170, 168))
_TOPS = ((200, 52, 52), (44, 94, 168), (236, 232, 222), (62, 132, 92), (232, 178, 52), (116, 70, 140), (54, 58, 70),
         (228, 122, 70), (122, 178, 200), (206, 110, 140), (140, 150, 86), (30, 44, 82))  # fmt: skip
_LEGS = ((46, 58, 92), (58, 56, 58), (120, 104, 84), (86, 96, 106), (34, 36, 42), (150, 134, 112), (92, 64, 52))
PEOPLE = 48  # different people
_TALL = {"stand": 1.72, "walk": 1.72, "run": 1.72, "raise": 1.72, "sit": 1.31, "low": 0.9, "ride": 1.55, "lie": 0.4}
_POSES = {
    "walking on": "walk", "crossing": "walk", "pulling": "walk", "pushing": "walk", "entering": "walk",
    "carrying": "walk", "guiding": "walk", "running on": "run", "kicking": "run", "chasing": "run", "riding": "ride",
    "lying on": "lie", "photographing": "raise", "flying": "raise", "playing with": "raise",
}  # fmt: skip


def pose_of(doing: str, height: float) -> str:
    """The pose that goes with what a person does and how high they are while doing it."""
    pose = _POSES.get(doing, "stand")
    if pose in ("lie", "ride"):
        return pose
    if doing == "sitting on" or pose == "stand":
        if height < 1.05 and doing in ("sitting on", "eating"):
            return "low"
        if height < 1.45 and doing in ("sitting on", "eating", "feeding", "talking to"):
            return "sit"
    return pose


def person(look: int, pose: str, side: str, cold: bool) -> Shape:
    """A person as seen from one side: front, back, left or right."""
    number = look % PEOPLE
    key = ("person", number, pose, side, cold)
    solid = Solid()
    wide = 1.0 if pose == "lie" else 1.45 if pose in ("walk", "run", "ride", "raise", "sit", "low") else 1.2
    solid.card(0, 0, 0, wide, 1, sprite=ATLAS.entry(key, lambda: _draw_person(number, pose, side, cold, wide * 0.5)))
    return solid.shape()


class _Body:
    """Draws in metres: x from the middle, y up; to the right is ahead in a side view."""

    def __init__(self, pen: Pen, wide: float, tall: float, flip: bool) -> None:
        self.pen, self.wide, self.tall, self.sign = pen, wide, tall, -1 if flip else 1

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return 0.5 + self.sign * x / self.wide, y / self.tall

    def limb(self, points: list[tuple[float, float]], colour: Colour, thick: float) -> None:
        self.pen.line([self._at(*point) for point in points], colour, thick / self.wide)
        for x, y in points:
            self.blob(x, y, thick / 2, thick / 2, colour)

    def blob(self, x: float, y: float, rx: float, ry: float, colour: Colour) -> None:
        self.pen.disc(*self._at(x, y), rx / self.wide, ry / self.tall, colour)

    def part(self, points: list[tuple[float, float]], colour: Colour) -> None:
        self.pen.shape([self._at(*point) for point in points], colour)


def _colours_of(pick: list[int]) -> list[Colour]:
    """Skin, hair, top, legs."""
    return [(*colours[pick[k] % len(colours)], 255) for k, colours in enumerate((_SKIN, _HAIR, _TOPS, _LEGS))]


def _draw_person(number: int, pose: str, side: str, cold: bool, wide: float) -> Pen:
    if pose == "lie":
        return _draw_lying(number, side)
    rng = rng_for("person", number)
    pick = [int(value) for value in rng.integers(0, 1 << 30, 8)]
    skin, hair, top, legs = _colours_of(pick)
    skirt, long_hair, hat = pick[4] % 5 == 0, pick[5] % 5 < 2, pick[6] % 7 == 0
    if cold:
        top, skirt = shade(top, 0.8), False
    shoes = ((44, 38, 36, 255), (230, 228, 222, 255), (96, 62, 44, 255))[pick[7] % 3]
    tall = _TALL[pose]
    pen = Pen(64, 128 if tall > 1.4 else 96)
    body = _Body(pen, wide, tall, flip=side == "left")
    profile = side in ("left", "right")
    hip, neck = _draw_legs(body, pose, profile, skin if skirt else legs, shoes)
    coat = cold or pick[4] % 6 == 1
    lean = {"run": 0.1, "ride": 0.24}.get(pose, 0.02) if profile else 0.0
    if skirt and pose in ("stand", "walk", "run", "raise"):
        body.part([(-0.13, hip + 0.1), (0.13, hip + 0.1), (0.21, hip - 0.34), (-0.21, hip - 0.34)], legs)
    half, waist = (0.12, 0.115) if profile else (0.2, 0.15)
    low = hip - 0.22 if coat and pose in ("stand", "walk", "raise") else hip - 0.04
    body.part([(-waist - 0.01, low), (waist + 0.01, low), (half + lean, neck - 0.03), (lean + half * 0.5, neck + 0.03),
               (lean - half * 0.5, neck + 0.03), (-half + lean, neck - 0.03)], top)  # fmt: skip
    if coat and side == "front":
        body.part([(-0.012, low), (0.012, low), (0.012, neck), (-0.012, neck)], shade(top, 0.6))
    elif side == "front" and pick[6] % 3 == 0:
        body.part([(-0.07, neck + 0.02), (0.07, neck + 0.02), (0, neck - 0.2)], (240, 238, 232, 255))
    _draw_arms(
        body, pose, profile=profile, neck=neck, hip=hip, lean=lean, half=half, sleeve=shade(top, 0.84), skin=skin
    )
    head = neck + 0.16
    ahead = lean * 1.25
    if long_hair:
        behind = -0.05 if profile else 0.0
        body.blob(ahead + behind, head - 0.06, 0.125, 0.19, hair)
    throat = (ahead - 0.045, ahead + 0.045)
    body.part(
        [(throat[0], neck - 0.02), (throat[1], neck - 0.02), (throat[1], head), (throat[0], head)], shade(skin, 0.9)
    )
    body.blob(ahead, head, 0.1, 0.125, hair if side == "back" else skin)
    if side == "front":
        body.part([(ahead + 0.1 * np.cos(a), head + 0.02 + 0.12 * np.sin(a)) for a in np.linspace(0.25, 2.9, 9)], hair)
        for x in (-0.036, 0.036):
            body.blob(x, head + 0.005, 0.014, 0.014, (40, 34, 34, 255))
        body.blob(0, head - 0.06, 0.03, 0.01, shade(skin, 0.7))
    elif profile:
        body.part([(ahead - 0.1, head - 0.07), (ahead - 0.02, head - 0.02), (ahead + 0.06, head + 0.06),
                   (ahead + 0.07, head + 0.1), (ahead, head + 0.13), (ahead - 0.09, head + 0.09)], hair)  # fmt: skip
        body.blob(ahead + 0.1, head - 0.01, 0.02, 0.02, skin)
    if hat or (cold and pick[5] % 3 == 0):
        colour = shade((*_TOPS[pick[7] % 12], 255), 0.85)
        body.part([(ahead - 0.105, head + 0.03), (ahead + 0.105, head + 0.03), (ahead + 0.085, head + 0.14),
                   (ahead - 0.085, head + 0.14)], colour)  # fmt: skip
        if not cold:
            body.part([(ahead - 0.15, head + 0.02), (ahead + 0.15, head + 0.02), (ahead + 0.15, head + 0.05),
                       (ahead - 0.15, head + 0.05)], colour)  # fmt: skip
    return pen


def _draw_legs(body: _Body, pose: str, profile: bool, legs: Colour, shoes: Colour) -> tuple[float, float]:
    """Returns the heights of hip and neck."""
    dark = shade(legs, 0.8)
    if pose == "sit":
        hip = 0.52
        if profile:
            ways = [[(-0.12, hip), (0.26, hip), (0.24, 0.08)]]
        else:
            ways = [[(x * 0.8, hip), (x, 0.46), (x, 0.07)] for x in (-0.11, 0.11)]
    elif pose == "low":
        hip = 0.14
        ways = (
            [[(-0.14, hip), (0.1, 0.3), (0.3, 0.07)]]
            if profile
            else [[(0, hip), (x, 0.3), (x, 0.07)] for x in (-0.16, 0.16)]
        )
    elif pose == "ride":
        hip = 0.66
        if profile:
            ways = [[(-0.08, hip), (0.2, 0.46), (0.06, 0.12)], [(-0.08, hip), (0.22, 0.56), (0.14, 0.26)]]
        else:
            ways = [[(x * 0.8, hip), (x * 1.25, 0.4), (x, 0.08)] for x in (-0.12, 0.12)]
    elif pose in ("walk", "run") and profile:
        hip, stride = 0.86, 0.24 if pose == "walk" else 0.3
        knee = 0.44 if pose == "walk" else 0.5
        ways = [
            [(0, hip), (-0.02, knee), (-stride, 0.09 if pose == "walk" else 0.3)],
            [(0, hip), (0.12, knee), (stride * 0.9, 0.06)],
        ]
    elif pose in ("walk", "run"):
        hip, ways = 0.86, [[(-0.07, 0.86), (-0.08, 0.05)], [(0.07, 0.86), (0.07, 0.14)]]
    else:
        hip, ways = 0.86, [[(x * 0.8, 0.86), (x, 0.05)] for x in ((-0.05, 0.04) if profile else (-0.095, 0.095))]
    for k, way in enumerate(ways):
        body.limb(way, dark if k == 0 and profile else legs, 0.13)
        x, y = way[-1]
        body.blob(x + (0.05 if profile else 0), max(y - 0.02, 0.035), 0.085 if profile else 0.06, 0.035, shoes)
    return hip, hip + (0.56 if pose != "ride" else 0.52)


def _draw_arms(
    body: _Body,
    pose: str,
    profile: bool,
    neck: float,
    hip: float,
    lean: float,
    half: float,
    sleeve: Colour,
    skin: Colour,
) -> None:
    shoulder = neck - 0.06
    if profile:
        ends = {
            "walk": [[(0.0, -0.2), (0.16, -0.5)], [(-0.04, -0.2), (-0.2, -0.48)]],
            "run": [[(0.06, -0.26), (0.28, -0.14)], [(-0.14, -0.22), (-0.2, -0.42)]],
            "ride": [[(0.14, -0.24), (0.36, -0.32)]],
            "sit": [[(0.02, -0.26), (0.2, -0.4)]],
            "low": [[(0.04, -0.22), (0.2, -0.26)]],
            "raise": [[(0.14, -0.1), (0.24, 0.08)]],
        }.get(pose, [[(0.0, -0.26), (0.03, -0.52)]])
        for elbow, hand in ends:
            way = [(lean, shoulder), (lean + elbow[0], shoulder + elbow[1]), (lean + hand[0], shoulder + hand[1])]
            body.limb(way, sleeve, 0.085)
            body.blob(*way[-1], 0.04, 0.045, skin)
        return
    for side in (-1, 1):
        elbow, hand = (0.05, -0.27), (0.045, -0.53)
        if pose == "raise":
            elbow, hand = (0.09, -0.06), (-0.06, 0.12)
        elif pose in ("ride", "sit", "low"):
            elbow, hand = (0.07, -0.24), (-0.04, -0.4)
        elif pose == "run":
            elbow, hand = (0.09, -0.22), (0.04, -0.12 if side > 0 else -0.36)
        way = [(side * (half - 0.02), shoulder), (side * (half + elbow[0]), shoulder + elbow[1]),
               (side * (half + hand[0]), shoulder + hand[1])]  # fmt: skip
        body.limb(way, sleeve, 0.085)
        body.blob(*way[-1], 0.042, 0.045, skin)


def _draw_lying(number: int, side: str) -> Pen:
    """Lying on the back; seen from the feet or the head it is shorter."""
    rng = rng_for("person", number)
    pick = [int(value) for value in rng.integers(0, 1 << 30, 8)]
    skin, hair, top, legs = _colours_of(pick)
    pen = Pen(128, 32)
    pen.shape([(0.0, 0.05), (0.42, 0.05), (0.42, 0.62), (0.05, 0.5)], legs)
    pen.disc(0.03, 0.35, 0.03, 0.32, (60, 50, 46, 255))
    pen.shape([(0.4, 0.05), (0.8, 0.05), (0.8, 0.7), (0.42, 0.78)], top)
    pen.line([(0.76, 0.5), (0.52, 0.4)], shade(top, 0.8), 0.05)
    pen.disc(0.9, 0.45, 0.07, 0.4, skin)
    pen.disc(0.94, 0.42, 0.06, 0.36, hair)
    return pen


# ---- Animals

_FUR = {
    "dog": ((150, 104, 62), (60, 48, 42), (214, 190, 150), (240, 236, 228), (176, 128, 84), (96, 92, 92)),
    "cat": ((60, 58, 60), (206, 140, 70), (150, 146, 142), (238, 232, 224), (120, 92, 64)),
    "horse": ((120, 74, 46), (74, 48, 36), (166, 110, 66), (226, 220, 212), (48, 42, 42)),
    "bird": ((132, 138, 150), (90, 96, 110), (186, 180, 176), (74, 62, 56)),
    "duck": ((150, 128, 100), (236, 232, 224), (120, 104, 88), (196, 180, 150)),
}
FURS = 6


def animal(kind: str, look: int, doing: str, side: str) -> Shape:
    """An animal as seen from one side."""
    number = look % FURS
    resting = doing in ("sitting on", "lying on")
    state = {"sitting on": "sit", "lying on": "lie", "flying over": "fly", "running on": "run", "chasing": "run"}.get(
        doing, ""
    )
    if kind in ("bird", "duck", "horse") and (resting or state == "run"):
        state = ""
    if state == "fly" and kind != "bird":
        state = ""
    front = side in ("front", "back") and state != "fly"
    key = (kind, number, state, side if front else ("left" if side == "left" else "right"))
    solid = Solid()
    wide, tall = (1.8, 1.25) if state == "fly" else (1.35, 1.0) if front else (1.1, 1.0)
    tall *= {"lie": 0.6, "sit": 1.1}.get(state, 1.0)
    solid.card(0, 0, 0, wide, tall, sprite=ATLAS.entry(key, lambda: _draw_animal(kind, number, state, side, front)))
    return solid.shape()


def _draw_animal(kind: str, number: int, state: str, side: str, front: bool) -> Pen:
    furs = _FUR[kind]
    fur: Colour = (*furs[number % len(furs)], 255)
    pen = Pen(48 if front else 64, 64 if front else 48)
    if state == "fly":
        _draw_flying(pen, fur)
    elif kind in ("bird", "duck"):
        _draw_bird(pen, kind, fur, number, 0.0 if front else (-1.0 if side == "left" else 1.0))
    elif front:
        _draw_animal_front(pen, kind, fur, side == "back")
    else:
        _draw_animal_side(pen, kind, fur, state, -1 if side == "left" else 1)
    return pen


def _draw_flying(pen: Pen, fur: Colour) -> None:
    dark = shade(fur, 0.75)
    pen.shape([(0.5, 0.5), (0.3, 0.72), (0.02, 0.6), (0.22, 0.5), (0.46, 0.36)], dark)
    pen.shape([(0.5, 0.5), (0.7, 0.78), (0.98, 0.7), (0.78, 0.54), (0.54, 0.36)], fur)
    pen.disc(0.5, 0.42, 0.1, 0.13, fur)
    pen.disc(0.6, 0.5, 0.055, 0.075, shade(fur, 0.85))
    pen.shape([(0.64, 0.5), (0.7, 0.47), (0.64, 0.45)], (222, 160, 60, 255))
    pen.shape([(0.42, 0.42), (0.28, 0.36), (0.42, 0.34)], dark)


def _draw_bird(pen: Pen, kind: str, fur: Colour, number: int, way: float) -> None:
    """A pigeon or a duck; way is 1 to the right, -1 to the left, 0 towards or away."""

    def at(x: float) -> float:
        return 0.5 + x * (way if way else 0.35)

    dark, bill = shade(fur, 0.7), (228, 158, 52, 255)
    head: Colour = (
        (40, 104, 74, 255) if kind == "duck" and number % 2 == 0 else shade(fur, 0.62 if kind == "bird" else 0.8)
    )
    if kind == "bird":
        for x in (-0.02, 0.08):
            pen.line([(at(x), 0.0), (at(x), 0.25)], (214, 110, 90, 255), 0.03)
    base = 0.16 if kind == "bird" else -0.02
    pen.disc(at(-0.02), base + 0.3, 0.3 if way else 0.26, 0.28, fur)
    pen.shape([(at(-0.2), base + 0.45), (at(-0.5), base + 0.36), (at(-0.24), base + 0.14)], dark)
    pen.disc(at(-0.06), base + 0.34, 0.2 if way else 0.16, 0.18, dark)
    pen.line([(at(0.2), base + 0.42), (at(0.26), base + 0.66)], head, 0.12)
    pen.disc(at(0.28), base + 0.68, 0.1, 0.13, head)
    long = 0.16 if kind == "duck" else 0.09
    pen.shape([(at(0.36), base + 0.72), (at(0.36 + long), base + 0.65), (at(0.36), base + 0.6)], bill)
    pen.disc(at(0.31), base + 0.71, 0.018, 0.024, (24, 22, 22, 255))


_BUILD = {  # back height, belly height, leg thickness, head size, neck
    "dog": (0.68, 0.36, 0.07, 0.15, 0.1),
    "cat": (0.62, 0.34, 0.06, 0.15, 0.08),
    "horse": (0.64, 0.4, 0.05, 0.11, 0.2),
}


def _draw_animal_side(pen: Pen, kind: str, fur: Colour, state: str, way: int) -> None:
    back, belly, leg, head, neck = _BUILD[kind]
    dark = shade(fur, 0.78)

    def at(x: float) -> float:
        return 0.5 + way * x

    if state == "lie":
        pen.disc(at(-0.05), 0.28, 0.36, 0.28, fur)
        pen.line([(at(-0.38), 0.16), (at(-0.48), 0.3)], dark, 0.06)
        pen.line([(at(0.1), 0.08), (at(0.4), 0.08)], dark, 0.09)
        chest, top = 0.26, 0.42
    elif state == "sit":
        pen.shape([(at(-0.3), 0.0), (at(-0.34), 0.22), (at(-0.06), 0.6), (at(0.16), 0.62), (at(0.2), 0.0)], fur)
        pen.disc(at(-0.16), 0.2, 0.2, 0.2, fur)
        pen.line([(at(0.14), 0.5), (at(0.18), 0.02)], dark, 0.08)
        pen.line([(at(-0.3), 0.06), (at(-0.46), 0.14)], fur, 0.06)
        chest, top = 0.14, 0.7
    else:
        spread = 0.13 if state == "run" else 0.03
        for x, reach in ((-0.26, -spread), (-0.16, spread), (0.18, -spread), (0.27, spread)):
            pen.line([(at(x), belly + 0.1), (at(x + reach), 0.02)], dark if reach < 0 else shade(fur, 0.9), leg)
        pen.disc(at(-0.2), (back + belly) / 2, 0.17, (back - belly) / 2 + 0.03, fur)
        pen.disc(at(0.18), (back + belly) / 2, 0.17, (back - belly) / 2 + 0.05, fur)
        pen.box(min(at(-0.2), at(0.2)), belly, max(at(-0.2), at(0.2)), back, fur)
        tail = [(at(-0.33), back - 0.04), (at(-0.46), back + 0.16)]
        if kind == "horse":
            tail = [(at(-0.34), back - 0.03), (at(-0.44), back - 0.14), (at(-0.43), 0.2)]
        pen.line(tail, shade(fur, 0.55) if kind == "horse" else fur, 0.06)
        chest, top = 0.27, back
    hx, hy = chest + neck * 0.8, min(top + neck + 0.06, 0.97 - head)
    pen.line([(at(chest - 0.02), top - 0.1), (at(hx), hy)], fur, 0.16 if kind != "horse" else 0.13)
    if kind == "horse":
        pen.line([(at(chest - 0.04), top + 0.02), (at(hx - 0.05), hy + 0.05)], shade(fur, 0.5), 0.05)
        pen.shape(
            [
                (at(hx - 0.07), hy + 0.1),
                (at(hx + 0.17), hy - 0.06),
                (at(hx + 0.15), hy - 0.14),
                (at(hx - 0.04), hy - 0.05),
            ],
            fur,
        )
        pen.shape([(at(hx - 0.06), hy + 0.08), (at(hx - 0.04), hy + 0.19), (at(hx), hy + 0.07)], dark)
        return
    pen.disc(at(hx), hy, head * 0.72, head, fur)
    snout = 0.14 if kind == "dog" else 0.07
    pen.shape(
        [
            (at(hx + 0.04), hy + 0.05),
            (at(hx + snout), hy - 0.01),
            (at(hx + snout), hy - 0.07),
            (at(hx + 0.02), hy - 0.1),
        ],
        fur,
    )
    pen.disc(at(hx + snout), hy - 0.01, 0.022, 0.03, (30, 26, 26, 255))
    if kind == "dog":
        pen.shape([(at(hx - 0.08), hy + 0.12), (at(hx - 0.12), hy - 0.1), (at(hx - 0.02), hy + 0.02)], shade(fur, 0.6))
    else:
        for x in (-0.07, 0.03):
            pen.shape([(at(hx + x), hy + 0.08), (at(hx + x + 0.03), hy + 0.23), (at(hx + x + 0.07), hy + 0.08)], dark)


def _draw_animal_front(pen: Pen, kind: str, fur: Colour, behind: bool) -> None:
    leg = _BUILD[kind][2]
    dark = shade(fur, 0.78)
    for x in (0.34, 0.66):
        pen.line([(x, 0.5), (x, 0.02)], dark, leg * 2.2)
    pen.disc(0.5, 0.5, 0.27, 0.22, fur)
    y = 0.74 if kind != "horse" else 0.82
    if behind:
        pen.line([(0.5, 0.6), (0.52, 0.3 if kind == "horse" else 0.85)], dark, 0.1)
        return
    tall = 0.2 if kind == "horse" else 0.16
    pen.disc(0.5, y, 0.16 if kind == "horse" else 0.24, tall, fur)
    for x in (0.36, 0.64):
        ear = shade(fur, 0.6)
        if kind == "dog":
            pen.disc(x, y + 0.02, 0.07, 0.13, ear)
        else:
            pen.shape([(x - 0.08, y + 0.08), (x, y + 0.24), (x + 0.08, y + 0.08)], ear)
    for x in (0.43, 0.57):
        pen.disc(x, y + 0.03, 0.025, 0.02, (28, 24, 24, 255))
    pen.disc(0.5, y - 0.08, 0.06, 0.035, (46, 38, 36, 255))
