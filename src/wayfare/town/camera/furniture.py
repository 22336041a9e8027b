"""How small things look: what stands in streets and on tables, and what people carry."""

from __future__ import annotations

import math
from collections.abc import Callable

from wayfare.core.seeds import rng_for
from wayfare.town.camera.atlas import Colour, Pen, shade
from wayfare.town.camera.solids import ATLAS, Shape, Solid

_IRON: Colour = (62, 66, 70, 255)


def _card(key: tuple[object, ...], width: int, height: int, draw: Callable[[Pen], None]) -> Shape:
    """A thing that is one sprite."""

    def drawn() -> Pen:
        pen = Pen(width, height)
        draw(pen)
        return pen

    solid = Solid()
    solid.card(0, 0, 0, 1, 1, sprite=ATLAS.entry(key, drawn))
    return solid.shape()


def traffic_light(look: int) -> Shape:
    """A post with three lights towards those who come; which one is lit is its look."""
    solid = Solid()
    state = look % 2 * 2
    face = ATLAS.entry(("signal", state), lambda: _signal(state))
    solid.box((-0.13, 0.13), (-0.13, 0.13), (0.0, 0.76), _IRON)
    solid.box((-0.5, 0.5), (-0.5, 0.4), (0.7, 1.0), (40, 42, 44), front=face)
    return solid.shape()


def _signal(state: int) -> Pen:
    pen = Pen(24, 56, (38, 40, 42, 255))
    for k, colour in enumerate(((226, 44, 38), (238, 180, 44), (60, 196, 96))):
        on = k == state
        pen.disc(
            0.5, 0.82 - k * 0.32, 0.34, 0.14, (*(colour if on else shade(colour, 0.32)[:3]), 255), glow=255 if on else 0
        )
    return pen


def fire_hydrant(look: int) -> Shape:
    paint: Colour = (*((200, 44, 40), (226, 178, 44), (60, 96, 160))[look % 3], 255)

    def draw(pen: Pen) -> None:
        pen.box(0.2, 0.0, 0.8, 0.1, shade(paint, 0.75))
        pen.box(0.28, 0.08, 0.72, 0.72, paint)
        pen.box(0.6, 0.08, 0.72, 0.72, shade(paint, 0.75))
        pen.disc(0.5, 0.74, 0.27, 0.16, paint)
        pen.box(0.2, 0.68, 0.8, 0.76, shade(paint, 1.15))
        pen.box(0.04, 0.44, 0.96, 0.6, shade(paint, 0.9))
        pen.disc(0.5, 0.5, 0.15, 0.11, shade(paint, 1.2))
        pen.box(0.43, 0.88, 0.57, 0.98, shade(paint, 0.8))

    return _card(("hydrant", look % 3), 32, 48, draw)


def stop_sign(look: int) -> Shape:
    solid = Solid()
    solid.box((-0.04, 0.04), (-0.3, 0.3), (0.0, 0.72), (150, 152, 156))
    front = ATLAS.entry("stop", lambda: _octagon((204, 34, 40, 255), letters=True))
    back = ATLAS.entry("stop back", lambda: _octagon((150, 152, 156, 255), letters=False))
    solid.quad((0.5, 0.35, 0.7), (-0.5, 0.35, 0.7), (-0.5, 0.35, 1.0), (0.5, 0.35, 1.0), texture=front)
    solid.quad((-0.5, 0.33, 0.7), (0.5, 0.33, 0.7), (0.5, 0.33, 1.0), (-0.5, 0.33, 1.0), texture=back)
    return solid.shape()


def _octagon(colour: Colour, letters: bool) -> Pen:
    pen = Pen(48, 48)

    def corners(r: float) -> list[tuple[float, float]]:
        return [
            (0.5 + r * math.cos(a), 0.5 + r * math.sin(a)) for a in (math.pi / 8 + k * math.pi / 4 for k in range(8))
        ]

    pen.shape(corners(0.52), (244, 244, 240, 255) if letters else colour)
    pen.shape(corners(0.46), colour)
    if letters:
        for k in range(4):  # four upright letters
            x = 0.17 + k * 0.175
            pen.box(x, 0.38, x + 0.13, 0.62, (246, 246, 242, 255))
            pen.box(x + 0.045, 0.43, x + 0.09, 0.57, colour)
    return pen


def banner(look: int) -> Shape:
    """Cloth with a device on it."""
    solid = Solid()
    number = look % 9
    solid.sheet((-0.5, 0.5), 0.0, (0.0, 0.97), ATLAS.entry(("banner", number), lambda: _cloth(number)))
    solid.box((-0.52, 0.52), (-0.2, 0.2), (0.97, 1.0), (110, 84, 60))
    return solid.shape()


def _cloth(number: int) -> Pen:
    colours = ((190, 44, 48), (40, 84, 150), (236, 190, 60), (56, 128, 88), (116, 66, 136))
    one: Colour = (*colours[number % 5], 255)
    two: Colour = (*colours[(number + 2) % 5], 255) if number % 2 else (244, 240, 228, 255)
    pen = Pen(40, 72)
    pen.shape([(0.0, 1.0), (1.0, 1.0), (1.0, 0.1), (0.75, 0.0), (0.5, 0.1), (0.25, 0.0), (0.0, 0.1)], one)
    if number % 3 == 0:
        pen.box(0.36, 0.1, 0.64, 1.0, two)
        pen.disc(0.5, 0.6, 0.3, 0.17, two)
        pen.disc(0.5, 0.6, 0.18, 0.1, one)
    elif number % 3 == 1:
        for y in (0.25, 0.55, 0.85):
            pen.shape(
                [(0, y - 0.05), (0.5, y - 0.14), (1, y - 0.05), (1, y + 0.07), (0.5, y - 0.02), (0, y + 0.07)], two
            )
    else:
        star = [
            (
                0.5 + (0.38 if k % 2 else 0.16) * math.sin(k * math.pi / 5),
                0.58 + (0.21 if k % 2 else 0.09) * math.cos(k * math.pi / 5),
            )
            for k in range(10)
        ]
        pen.shape(star, two)
        pen.box(0.0, 0.9, 1.0, 1.0, two)
    return pen


def street_lamp(look: int) -> Shape:
    number = look % 3

    def draw(pen: Pen) -> None:
        iron = _IRON if number != 1 else (52, 74, 66, 255)
        glass: Colour = (250, 240, 206, 255)
        pen.box(0.46, 0.0, 0.54, 0.9, iron)
        pen.box(0.4, 0.0, 0.6, 0.1, iron)
        pen.box(0.43, 0.1, 0.57, 0.13, iron)
        if number == 0:
            pen.shape([(0.3, 0.95), (0.7, 0.95), (0.62, 0.82), (0.38, 0.82)], glass, 255)
            pen.shape([(0.24, 0.95), (0.76, 0.95), (0.5, 1.0)], iron)
            pen.box(0.36, 0.81, 0.64, 0.83, iron)
        elif number == 1:
            pen.disc(0.5, 0.93, 0.3, 0.062, glass, glow=255)
            pen.box(0.38, 0.85, 0.62, 0.875, iron)
        else:
            pen.line([(0.5, 0.88), (0.62, 0.96), (0.86, 0.96)], iron, 0.06)
            pen.box(0.6, 0.945, 0.98, 0.985, iron)
            pen.box(0.64, 0.928, 0.95, 0.946, glass, glow=255)

    return _card(("lamp", number), 32, 160, draw)


def bench(look: int) -> Shape:
    wood: Colour = (*((150, 104, 62), (96, 124, 92), (120, 84, 60), (178, 140, 96))[look % 4], 255)
    solid = Solid()
    for x in (-0.42, 0.36):
        solid.box((x, x + 0.06), (-0.4, 0.4), (0.0, 0.5), _IRON)
        solid.box((x, x + 0.06), (-0.48, -0.38), (0.5, 0.98), _IRON)
    for y in (-0.36, -0.1, 0.16):
        solid.box((-0.5, 0.5), (y, y + 0.2), (0.5, 0.55), wood, top=shade(wood, 1.1), under=True)
    slats = ATLAS.entry(("slats", look % 4), lambda: _slats(wood))
    solid.sheet((-0.5, 0.5), -0.42, (0.6, 1.0), slats)
    return solid.shape()


def _slats(wood: Colour) -> Pen:
    pen = Pen(48, 16)
    for y in (0.02, 0.38, 0.74):
        pen.box(0, y, 1, y + 0.24, wood)
        pen.box(0, y, 1, y + 0.05, shade(wood, 0.7))
    return pen


def chair(look: int) -> Shape:
    wood: Colour = ((176, 128, 80), (60, 62, 66), (206, 60, 54), (230, 226, 216), (70, 120, 150))[look % 5]
    solid = Solid()
    for x in (-0.45, 0.33):
        for y in (-0.45, 0.33):
            solid.box((x, x + 0.12), (y, y + 0.12), (0.0, 0.48), shade(wood, 0.75), lid=False)
    solid.box((-0.48, 0.48), (-0.48, 0.48), (0.46, 0.53), wood, top=shade(wood, 1.1), under=True)
    for x in (-0.45, 0.33):
        solid.box((x, x + 0.12), (-0.48, -0.38), (0.5, 1.0), shade(wood, 0.85))
    solid.box((-0.4, 0.4), (-0.47, -0.4), (0.68, 0.96), wood)
    return solid.shape()


def dining_table(look: int) -> Shape:
    solid = Solid()
    number = look % 5
    cloth: Colour = ((238, 234, 224), (196, 60, 54), (92, 140, 170), (170, 122, 78), (120, 84, 56))[number]
    if number < 3:
        check = ATLAS.entry(("table cloth", number), lambda: _check((*cloth, 255)))
        solid.box((-0.5, 0.5), (-0.5, 0.5), (0.6, 1.0), front=check, back=check, sides=check, top=cloth)
        solid.box((-0.1, 0.1), (-0.1, 0.1), (0.0, 0.6), (90, 66, 48))
    else:
        solid.box((-0.5, 0.5), (-0.5, 0.5), (0.9, 1.0), cloth, top=shade(cloth, 1.15), under=True)
        for x in (-0.46, 0.36):
            for y in (-0.46, 0.36):
                solid.box((x, x + 0.1), (y, y + 0.1), (0.0, 0.9), shade(cloth, 0.75), lid=False)
    return solid.shape()


def _check(cloth: Colour) -> Pen:
    pen = Pen(32, 16, cloth)
    for k in range(8):
        pen.box(k / 8, 0.0, k / 8 + 0.06, 1.0, shade(cloth, 0.85))
    pen.box(0, 0, 1, 0.12, shade(cloth, 0.75))
    return pen


def backpack(look: int) -> Shape:
    paint: Colour = ((200, 60, 52), (46, 88, 140), (60, 62, 66), (84, 120, 76), (228, 160, 56), (120, 76, 130))[
        look % 6
    ]
    solid = Solid()
    face = ATLAS.entry(("backpack", look % 6), lambda: _backpack_face((*paint, 255)))
    solid.box((-0.5, 0.5), (-0.5, 0.5), (0.0, 1.0), top=shade(paint, 1.1), taper=(0.8, 0.7), shift=(0, 0.1),
              back=face, front=face, sides=face)  # fmt: skip
    return solid.shape()


def _backpack_face(paint: Colour) -> Pen:
    pen = Pen(24, 32, paint)
    pen.box(0.15, 0.08, 0.85, 0.45, shade(paint, 0.75))
    pen.box(0.15, 0.42, 0.85, 0.46, shade(paint, 1.3))
    pen.box(0.0, 0.74, 1.0, 0.79, shade(paint, 0.6))
    return pen


def handbag(look: int) -> Shape:
    paint: Colour = (*((150, 66, 50), (40, 38, 40), (214, 176, 120), (180, 44, 70), (90, 110, 90))[look % 5], 255)

    def draw(pen: Pen) -> None:
        pen.disc(0.5, 0.58, 0.3, 0.4, shade(paint, 0.7))
        pen.disc(0.5, 0.58, 0.2, 0.3, (0, 0, 0, 0))
        pen.shape([(0.02, 0.0), (0.98, 0.0), (0.88, 0.62), (0.12, 0.62)], paint)
        pen.shape([(0.12, 0.62), (0.88, 0.62), (0.8, 0.36), (0.2, 0.36)], shade(paint, 0.82))
        pen.disc(0.5, 0.37, 0.06, 0.06, (230, 200, 110, 255))

    return _card(("handbag", look % 5), 32, 32, draw)


def suitcase(look: int) -> Shape:
    paint: Colour = ((176, 52, 48), (44, 76, 128), (50, 52, 56), (206, 178, 120), (70, 124, 116))[look % 5]
    solid = Solid()
    face = ATLAS.entry(("suitcase", look % 5), lambda: _suitcase_face((*paint, 255)))
    solid.box((-0.5, 0.5), (-0.5, 0.5), (0.06, 0.82), top=shade(paint, 1.1), front=face, back=face, sides=face)
    for x in (-0.28, 0.22):
        solid.box((x, x + 0.06), (-0.05, 0.05), (0.82, 0.97), _IRON)
    solid.box((-0.28, 0.28), (-0.05, 0.05), (0.95, 1.0), _IRON)
    return solid.shape()


def _suitcase_face(paint: Colour) -> Pen:
    pen = Pen(24, 32, paint)
    for x in (0.15, 0.38, 0.6, 0.82):
        pen.box(x, 0.05, x + 0.05, 0.95, shade(paint, 0.72))
    pen.box(0, 0.48, 1, 0.53, shade(paint, 0.5))
    return pen


def umbrella(look: int) -> Shape:
    """An open umbrella: a cone of segments in one or two colours, on a stick."""
    number = look % 8
    colours = ((198, 44, 48), (40, 70, 130), (236, 190, 60), (40, 42, 46),
               (66, 132, 100), (226, 120, 150), (240, 238, 230), (120, 80, 150))  # fmt: skip
    one = colours[number]
    two = colours[(number + 3) % 8] if look // 8 % 2 else shade(one, 0.86)
    solid = Solid()
    solid.box((-0.018, 0.018), (-0.018, 0.018), (0.0, 0.9), _IRON)
    for k in range(8):
        a, b = (2 * math.pi * (k + j) / 8 for j in (0, 1))
        (ax, ay), (bx, by) = ((math.cos(t) / 2, math.sin(t) / 2) for t in (a, b))
        z, mid = 0.56, 0.82
        solid.quad(
            (ax, ay, z), (bx, by, z), (bx * 0.6, by * 0.6, mid), (ax * 0.6, ay * 0.6, mid), (one, two)[k % 2], both=True
        )
        solid.quad(
            (ax * 0.6, ay * 0.6, mid),
            (bx * 0.6, by * 0.6, mid),
            (bx * 0.02, by * 0.02, 0.96),
            (ax * 0.02, ay * 0.02, 0.96),
            (one, two)[k % 2],
            both=True,
        )
    solid.box((-0.012, 0.012), (-0.012, 0.012), (0.94, 1.0), _IRON)
    return solid.shape()


def sports_ball(look: int) -> Shape:
    number = look % 4

    def draw(pen: Pen) -> None:
        base: Colour = ((240, 240, 236, 255), (226, 120, 50, 255), (240, 210, 70, 255), (206, 50, 50, 255))[number]
        pen.disc(0.5, 0.5, 0.5, 0.5, shade(base, 0.72))
        pen.disc(0.47, 0.54, 0.45, 0.45, base)
        if number == 0:
            for x, y in ((0.5, 0.55), (0.2, 0.75), (0.8, 0.72), (0.26, 0.26), (0.74, 0.24)):
                pen.disc(x, y, 0.11, 0.11, (44, 44, 48, 255))
        else:
            pen.line([(0.5, 0.02), (0.5, 0.98)], shade(base, 0.5), 0.05)
            pen.line([(0.04, 0.5), (0.96, 0.5)], shade(base, 0.5), 0.05)

    return _card(("ball", number), 24, 24, draw)


def kite(look: int) -> Shape:
    number = look % 6
    colours: list[Colour] = [
        (206, 44, 48, 255),
        (240, 190, 50, 255),
        (50, 110, 180, 255),
        (70, 150, 90, 255),
        (230, 110, 60, 255),
        (140, 70, 160, 255),
    ]

    def draw(pen: Pen) -> None:
        one, two = colours[number], colours[(number + 1) % 6]
        pen.line([(0.5, 0.3), (0.62, 0.16), (0.42, 0.06), (0.55, 0.0)], (230, 226, 216, 255), 0.03)
        for x, y, colour in ((0.04, 1.0, one), (0.96, 1.0, two), (0.04, 0.2, two), (0.96, 0.2, one)):
            pen.shape([(0.5, y), (0.5, 0.66), (x, 0.66)], colour)
        pen.line([(0.04, 0.66), (0.96, 0.66)], (70, 60, 50, 255), 0.02)

    return _card(("kite", number), 56, 56, draw)


def skateboard(look: int) -> Shape:
    solid = Solid()
    deck: Colour = ((60, 62, 66), (196, 60, 54), (60, 120, 160), (226, 180, 70))[look % 4]
    solid.box((-0.5, 0.5), (-0.42, 0.42), (0.6, 1.0), deck)
    for y in (-0.32, 0.24):
        solid.box((-0.42, 0.42), (y, y + 0.09), (0.0, 0.6), (230, 226, 210), lid=False)
    return solid.shape()


def fruit(look: int, width: float) -> Shape:
    """One piece of fruit, or a crate of it if it is large."""
    number = look % 5
    colours: list[Colour] = [
        (214, 50, 44, 255),
        (240, 150, 40, 255),
        (236, 206, 70, 255),
        (130, 170, 60, 255),
        (120, 50, 110, 255),
    ]

    def one(pen: Pen) -> None:
        pen.disc(0.5, 0.44, 0.48, 0.44, colours[number])
        pen.disc(0.36, 0.6, 0.14, 0.12, shade(colours[number], 1.3))
        pen.line([(0.5, 0.84), (0.56, 0.98)], (90, 64, 44, 255), 0.07)
        pen.disc(0.68, 0.92, 0.14, 0.06, (92, 140, 62, 255))

    def crate(pen: Pen) -> None:
        rng = rng_for("crate", number)
        for row, y in enumerate((0.62, 0.72, 0.82)):
            for k in range(9):
                colour = colours[(number + (k // 3)) % 5]
                pen.disc(
                    0.08 + k * 0.105 + row % 2 * 0.04, y, 0.075, 0.15, shade(colour, float(rng.uniform(0.85, 1.12)))
                )
        pen.box(0, 0, 1, 0.6, (186, 146, 92, 255))
        for y in (0.17, 0.38):
            pen.box(0, y, 1, y + 0.05, (112, 84, 54, 255))

    return _card(("crate", number), 64, 28, crate) if width > 0.5 else _card(("fruit", number), 24, 24, one)


def cake(look: int) -> Shape:
    number = look % 4

    def draw(pen: Pen) -> None:
        icing: Colour = ((246, 200, 210, 255), (250, 244, 232, 255), (110, 70, 50, 255), (250, 226, 150, 255))[number]
        pen.box(0.04, 0.04, 0.96, 0.5, (206, 160, 100, 255))
        pen.box(0.04, 0.24, 0.96, 0.3, icing)
        pen.box(0.02, 0.46, 0.98, 0.7, icing)
        for k in range(6):
            pen.disc(0.1 + k * 0.16, 0.46, 0.075, 0.1, icing)
        for k in range(3):
            pen.disc(0.26 + k * 0.24, 0.78, 0.08, 0.1, (204, 40, 56, 255))
        pen.box(0, 0, 1, 0.05, (226, 226, 222, 255))

    return _card(("cake", number), 40, 28, draw)


def fence(look: int) -> Shape:
    number = look % 4
    solid = Solid()
    solid.sheet((-0.5, 0.5), 0.0, (0.0, 1.0), ATLAS.entry(("fence", number), lambda: _fence(number)))
    return solid.shape()


def _fence(number: int) -> Pen:
    pen = Pen(96, 40)
    colour: Colour = ((238, 236, 228, 255), (48, 52, 54, 255), (140, 104, 70, 255), (70, 96, 82, 255))[number]
    iron = number in (1, 3)
    for y in (0.18, 0.72):
        pen.box(0, y, 1, y + (0.05 if iron else 0.1), shade(colour, 0.85))
    count = 22 if iron else 12
    for k in range(count):
        x, wide = (k + 0.15) / count, (0.3 if iron else 0.62) / count
        pen.box(x, 0.02, x + wide, 0.9, colour)
        pen.shape([(x, 0.9), (x + wide, 0.9), (x + wide / 2, 1.0)], colour)
    for x in (0.0, 0.965):
        pen.box(x, 0, x + 0.035, 0.98, shade(colour, 0.9))
    return pen


def wall(look: int) -> Shape:
    number = look % 4
    solid = Solid()
    face = ATLAS.entry(("garden wall", number), lambda: _wall_face(number))
    cap: Colour = ((196, 188, 172), (206, 198, 184), (180, 176, 168), (220, 212, 196))[number]
    solid.box((-0.5, 0.5), (-0.35, 0.35), (0.0, 0.93), front=face, back=face, sides=face)
    solid.box((-0.5, 0.5), (-0.5, 0.5), (0.93, 1.0), cap, top=shade(cap, 1.1), under=True)
    return solid.shape()


def _wall_face(number: int) -> Pen:
    base: Colour = ((170, 96, 74, 255), (214, 204, 182, 255), (150, 146, 138, 255), (232, 222, 200, 255))[number]
    rng = rng_for("garden wall", number)
    pen = Pen(96, 48, shade(base, 0.7))
    rows = (12, 6, 8, 1)[number]
    for row in range(rows):
        x = -0.08 * (row % 2)
        while x < 1:
            wide = (
                float(rng.uniform(0.06, 0.09)) if number == 0 else float(rng.uniform(0.1, 0.2)) if number < 3 else 2.0
            )
            pen.box(
                x, row / rows, x + wide - 0.008, (row + 1) / rows - 0.02, shade(base, float(rng.uniform(0.88, 1.08)))
            )
            x += wide
    pen.box(0, 0, 1, 0.05, shade(base, 0.6))
    return pen
