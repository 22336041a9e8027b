"""How vehicles look: boxes with drawn sides, and for two wheels flat drawings that cross each other."""

from __future__ import annotations

from functools import partial

from wayfare.town.camera.atlas import Colour, Pen, shade
from wayfare.town.camera.solids import ATLAS, Shape, Solid

_CARS: tuple[Colour, ...] = ((232, 232, 230), (164, 170, 176), (40, 42, 48), (96, 100, 106), (176, 40, 42),
                             (44, 86, 152), (30, 48, 84), (58, 98, 78), (206, 190, 158), (236, 186, 48))  # fmt: skip
_GLASS: Colour = (66, 82, 98, 255)
_TYRE: Colour = (36, 36, 38, 255)
_LAMP: Colour = (250, 246, 226, 255)
_TAIL: Colour = (196, 36, 34, 255)


def _wheel(pen: Pen, x: float, rx: float, ry: float) -> None:
    pen.disc(x, ry, rx, ry, _TYRE)
    pen.disc(x, ry, rx * 0.58, ry * 0.58, (176, 178, 182, 255))
    pen.disc(x, ry, rx * 0.2, ry * 0.2, (90, 92, 96, 255))


def car(look: int) -> Shape:
    """A saloon, a hatchback or a van in one of ten colours."""
    form, number = look % 3, look // 3 % len(_CARS)
    paint = (*_CARS[number], 255)
    solid = Solid()
    rear, front, back_top, front_top = ((-0.36, 0.22, 0.2, 0.26), (-0.49, 0.22, 0.1, 0.28), (-0.495, 0.34, 0.04, 0.2))[
        form
    ]
    belt = 0.6 if form < 2 else 0.56
    side = ATLAS.entry(("car side", number), lambda: _car_side(paint))
    front_face = ATLAS.entry(("car front", number), lambda: _car_end(paint, front=True))
    back_face = ATLAS.entry(("car back", number), lambda: _car_end(paint, front=False))
    window = ATLAS.entry(("car window", number), lambda: _car_window(paint))
    screen = ATLAS.entry(("car screen", number), lambda: _car_screen(paint))
    solid.box((-0.5, 0.5), (-0.5, 0.5), (0.0, belt), top=paint, front=front_face, back=back_face, sides=side)
    low = (rear, front)
    long = front - rear
    top = (rear + long * back_top, front - long * front_top)
    taper = (0.8, (top[1] - top[0]) / long)
    shift = (top[0] + top[1]) / 2 - (rear + front) / 2
    solid.box((-0.47, 0.47), low, (belt, 1.0), top=shade(paint, 1.05), taper=taper, shift=(0, shift),
              front=screen, back=screen, sides=window)  # fmt: skip
    return solid.shape()


def _car_side(paint: Colour) -> Pen:
    pen = Pen(96, 24)
    pen.box(0.0, 0.22, 1.0, 1.0, paint)
    pen.box(0.03, 0.2, 0.97, 0.34, shade(paint, 0.6))
    pen.box(0.0, 0.86, 1.0, 0.93, shade(paint, 1.15))
    for x in (0.38, 0.62):
        pen.box(x, 0.3, x + 0.006, 1.0, shade(paint, 0.6))
    pen.box(0.0, 0.66, 0.04, 0.84, _TAIL, glow=120)
    pen.box(0.96, 0.62, 1.0, 0.82, _LAMP, glow=255)
    for x in (0.19, 0.81):
        pen.disc(x, 0.36, 0.1, 0.4, shade(paint, 0.45))
        _wheel(pen, x, 0.085, 0.34)
    return pen


def _car_end(paint: Colour, front: bool) -> Pen:
    pen = Pen(48, 24)
    pen.box(0.06, 0.0, 0.24, 0.3, _TYRE)
    pen.box(0.76, 0.0, 0.94, 0.3, _TYRE)
    pen.box(0.0, 0.22, 1.0, 1.0, paint)
    pen.box(0.0, 0.2, 1.0, 0.36, shade(paint, 0.55))
    if front:
        pen.box(0.28, 0.46, 0.72, 0.7, (40, 42, 46, 255))
    else:
        pen.box(0.0, 0.92, 1.0, 1.0, shade(paint, 0.8))
    for x in (0.03, 0.75):
        pen.box(x, 0.56, x + 0.22, 0.8, _LAMP if front else _TAIL, glow=255 if front else 160)
    pen.box(0.36, 0.3, 0.64, 0.44, (240, 240, 232, 255))
    return pen


def _car_window(paint: Colour) -> Pen:
    pen = Pen(64, 24)
    pen.box(0, 0, 1, 1, paint)
    for x0, x1 in ((0.05, 0.49), (0.53, 0.95)):
        pen.box(x0, 0.06, x1, 0.86, _GLASS)
        pen.shape([(x0, 0.86), (x0 + 0.2, 0.86), (x0, 0.3)], shade(_GLASS, 1.5))
    return pen


def _car_screen(paint: Colour) -> Pen:
    pen = Pen(48, 24)
    pen.box(0, 0, 1, 1, paint)
    pen.box(0.06, 0.05, 0.94, 0.9, _GLASS)
    pen.shape([(0.06, 0.9), (0.5, 0.9), (0.06, 0.2)], shade(_GLASS, 1.5))
    return pen


def bus(look: int) -> Shape:
    """A city bus."""
    paint: Colour = (*((198, 48, 44), (46, 108, 172), (58, 140, 92), (236, 186, 52), (232, 232, 228))[look % 5], 255)
    solid = Solid()
    names = ("side", "front", "back")
    side, front, back = (ATLAS.entry(("bus", name, look % 5), partial(_bus_face, paint, name)) for name in names)
    solid.box((-0.5, 0.5), (-0.5, 0.5), (0.0, 0.97), top=(226, 226, 222), front=front, back=back, sides=side)
    solid.box((-0.3, 0.3), (-0.3, 0.1), (0.97, 1.0), (150, 152, 154))
    return solid.shape()


def _bus_face(paint: Colour, name: str) -> Pen:
    light = (240, 240, 236, 255)
    if name == "side":
        pen = Pen(128, 48)
        pen.box(0, 0.12, 1, 1, paint)
        pen.box(0, 0.84, 1, 1, light)
        for k in range(9):
            pen.box(0.02 + k * 0.108, 0.44, 0.115 + k * 0.108, 0.82, _GLASS, glow=200)
            pen.shape(
                [(0.02 + k * 0.108, 0.82), (0.07 + k * 0.108, 0.82), (0.02 + k * 0.108, 0.5)], shade(_GLASS, 1.4), 200
            )
        for x in (0.3, 0.82):
            pen.box(x, 0.14, x + 0.09, 0.82, shade(_GLASS, 0.9), glow=200)
            pen.box(x + 0.042, 0.14, x + 0.048, 0.82, light)
        pen.box(0, 0.34, 1, 0.39, light)
        for x in (0.2, 0.74):
            pen.disc(x, 0.16, 0.06, 0.2, shade(paint, 0.4))
            _wheel(pen, x, 0.05, 0.155)
        return pen
    pen = Pen(48, 56)
    pen.box(0.08, 0, 0.25, 0.2, _TYRE)
    pen.box(0.75, 0, 0.92, 0.2, _TYRE)
    pen.box(0, 0.1, 1, 1, paint)
    pen.box(0.05, 0.4 if name == "front" else 0.6, 0.95, 0.82, _GLASS, glow=160)
    pen.shape([(0.05, 0.82), (0.5, 0.82), (0.05, 0.5 if name == "front" else 0.64)], shade(_GLASS, 1.5), 160)
    pen.box(0.2, 0.86, 0.8, 0.96, (30, 30, 32, 255))
    pen.box(0.26, 0.88, 0.74, 0.94, (250, 190, 60, 255), glow=255)
    for x in (0.05, 0.75):
        pen.box(x, 0.18, x + 0.2, 0.28, _LAMP if name == "front" else _TAIL, glow=255 if name == "front" else 170)
    return pen


def truck(look: int) -> Shape:
    """A lorry: a cab, and a box or an open bed behind it."""
    number = look % 6
    paint: Colour = (
        *((214, 214, 210), (58, 108, 168), (190, 60, 50), (66, 122, 92), (226, 168, 60), (96, 100, 108))[number],
        255,
    )
    solid = Solid()
    cab_side = ATLAS.entry(("cab side", number), lambda: _cab(paint, "side"))
    cab_front = ATLAS.entry(("cab front", number), lambda: _cab(paint, "front"))
    load = ATLAS.entry(("load", number), lambda: _load(number))
    chassis = ATLAS.entry("chassis", _chassis)
    tail = ATLAS.entry(("tail", number), lambda: _tail(number))
    solid.box((-0.46, 0.46), (-0.5, 0.18), (0.0, 0.3), (70, 70, 74), sides=chassis, back=chassis)
    if look // 6 % 4 == 3:
        solid.box((-0.5, 0.5), (-0.5, 0.16), (0.3, 0.52), shade(paint, 0.8), top=(120, 96, 70))
        solid.box((-0.36, 0.36), (-0.42, 0.08), (0.52, 0.72), (150, 128, 96), taper=(0.6, 0.7))
    else:
        solid.box((-0.5, 0.5), (-0.5, 0.16), (0.28, 1.0), back=tail, sides=load, top=(222, 222, 218))
    solid.box(
        (-0.48, 0.48),
        (0.2, 0.5),
        (0.0, 0.84),
        top=paint,
        front=cab_front,
        sides=cab_side,
        taper=(0.96, 0.9),
        shift=(0, -0.012),
    )
    return solid.shape()


def _cab(paint: Colour, name: str) -> Pen:
    pen = Pen(40, 48)
    pen.box(0.02 if name == "side" else 0.08, 0, 0.3, 0.24, _TYRE)
    if name == "front":
        pen.box(0.7, 0, 0.92, 0.24, _TYRE)
    pen.box(0, 0.14, 1, 1, paint)
    pen.box(0.1, 0.52, 0.9, 0.9, _GLASS)
    pen.shape([(0.1, 0.9), (0.5, 0.9), (0.1, 0.6)], shade(_GLASS, 1.5))
    if name == "front":
        pen.box(0.24, 0.26, 0.76, 0.46, (50, 50, 54, 255))
        for x in (0.04, 0.76):
            pen.box(x, 0.2, x + 0.2, 0.34, _LAMP, glow=255)
    else:
        pen.disc(0.5, 0.17, 0.3, 0.2, shade(paint, 0.4))
        _wheel(pen, 0.5, 0.26, 0.16)
    return pen


def _load(number: int) -> Pen:
    pen = Pen(96, 48)
    colour: Colour = (*((236, 236, 232), (232, 226, 208), (210, 216, 222))[number % 3], 255)
    mark: Colour = (*((206, 60, 54), (50, 110, 160), (70, 140, 90), (240, 170, 50))[number % 4], 255)
    pen.box(0, 0, 1, 1, colour)
    pen.shape([(0.08, 0.25), (0.62, 0.25), (0.92, 0.75), (0.38, 0.75)], mark)
    pen.disc(0.5, 0.5, 0.12, 0.2, colour)
    for x0, y0, x1, y1 in ((0, 0, 1, 0.04), (0, 0.96, 1, 1), (0, 0, 0.015, 1), (0.985, 0, 1, 1)):
        pen.box(x0, y0, x1, y1, shade(colour, 0.75))
    return pen


def _tail(number: int) -> Pen:
    pen = Pen(40, 48)
    colour: Colour = (*((236, 236, 232), (232, 226, 208), (210, 216, 222))[number % 3], 255)
    pen.box(0, 0, 1, 1, colour)
    pen.box(0.49, 0.06, 0.51, 1, shade(colour, 0.6))
    for x in (0.3, 0.7):
        pen.box(x - 0.02, 0.1, x + 0.02, 0.9, shade(colour, 0.75))
    for x in (0.0, 0.82):
        pen.box(x, 0.0, x + 0.18, 0.08, _TAIL, glow=170)
    return pen


def _chassis() -> Pen:
    pen = Pen(96, 24)
    pen.box(0, 0.5, 1, 1, (70, 70, 74, 255))
    for x in (0.18, 0.36):
        _wheel(pen, x, 0.08, 0.42)
    return pen


def boat(look: int) -> Shape:
    """A small boat: with a sail, with a cabin, or to be rowed."""
    form, number = look % 3, look // 3 % 5
    hull: Colour = ((238, 238, 232), (46, 92, 140), (178, 62, 50), (120, 84, 54), (60, 110, 96))[number]
    solid = Solid()
    z = 0.3
    low, high = [(-0.24, -0.46), (0.24, -0.46), (0.3, 0.1), (0.0, 0.38), (-0.3, 0.1)], [
        (-0.42, -0.5), (0.42, -0.5), (0.48, 0.12), (0.0, 0.5), (-0.48, 0.12)]  # fmt: skip
    for k in range(5):
        after = (k + 1) % 5
        solid.quad((*low[k], 0), (*low[after], 0), (*high[after], z), (*high[k], z), hull)
    deck = (186, 150, 108) if form else (226, 214, 190)
    solid.quad((*high[0], z), (*high[1], z), (*high[2], z), (*high[4], z), deck)
    solid.quad((*high[4], z), (*high[2], z), (0.01, 0.5, z), (-0.01, 0.5, z), deck)
    solid.quad((*high[0], z), (*high[1], z), (*high[1], z + 0.03), (*high[0], z + 0.03), shade(hull, 0.7), both=True)
    if form == 0:
        sail = ATLAS.entry(("sail", number % 3), lambda: _sail(number % 3))
        solid.box((-0.02, 0.02), (0.08, 0.1), (z, 1.0), (120, 90, 60))
        solid.side_sheet(0.0, (-0.42, 0.4), (z + 0.08, 1.0), sail)
    elif form == 1:
        glass = ATLAS.entry("boat window", _boat_window)
        solid.box(
            (-0.3, 0.3),
            (-0.28, 0.12),
            (z, 0.82),
            top=(230, 230, 226),
            front=glass,
            back=glass,
            sides=glass,
            taper=(0.9, 0.9),
        )
    else:
        for y in (-0.25, 0.02):
            solid.box((-0.4, 0.4), (y, y + 0.08), (z - 0.02, z + 0.03), (150, 112, 72))
        solid.box((0.3, 0.36), (-0.1, 0.3), (z + 0.03, z + 0.07), (200, 170, 120))
    return solid.shape()


def _sail(number: int) -> Pen:
    pen = Pen(64, 64)
    colour: Colour = ((246, 244, 236, 255), (226, 120, 70, 255), (240, 226, 190, 255))[number]
    pen.shape([(0.02, 0.02), (0.58, 0.02), (0.6, 0.99)], colour)
    pen.shape([(0.64, 0.06), (0.98, 0.06), (0.63, 0.86)], shade(colour, 0.92))
    for y in (0.3, 0.55):
        pen.line([(0.02 + y * 0.55, y), (0.59, y)], shade(colour, 0.85), 0.012)
    return pen


def _boat_window() -> Pen:
    pen = Pen(48, 32, (240, 240, 236, 255))
    for x in (0.08, 0.38, 0.68):
        pen.box(x, 0.4, x + 0.24, 0.82, _GLASS, glow=160)
    pen.box(0, 0.0, 1, 0.16, (60, 104, 150, 255))
    return pen


def bicycle(look: int) -> Shape:
    """A bicycle: its side, crossed by what is seen from the front."""
    number = look % 8
    paint: Colour = (*((196, 44, 48), (40, 92, 150), (40, 42, 46), (70, 140, 100), (236, 190, 60), (226, 226, 222),
                       (110, 70, 140), (60, 150, 170))[number], 255)  # fmt: skip
    solid = Solid()
    solid.side_sheet(0.0, (-0.5, 0.5), (0.0, 1.0), ATLAS.entry(("bicycle", number), lambda: _bicycle_side(paint)))
    solid.sheet((-0.5, 0.5), 0.3, (0.0, 1.0), ATLAS.entry(("bicycle front", number), lambda: _bicycle_front(paint)))
    return solid.shape()


def _bicycle_side(paint: Colour) -> Pen:
    pen = Pen(96, 64)
    ry, rx = 0.31, 0.186
    for x in (0.2, 0.8):
        pen.disc(x, ry, rx, ry, _TYRE)
        pen.disc(x, ry, rx * 0.84, ry * 0.84, (0, 0, 0, 0))
        for dx, dy in ((1, 0), (0, 1), (0.7, 0.7), (0.7, -0.7)):
            pen.line(
                [(x - dx * rx * 0.84, ry - dy * ry * 0.84), (x + dx * rx * 0.84, ry + dy * ry * 0.84)],
                (150, 150, 154, 255),
                0.006,
            )
    frame = 0.03
    for way in (
        [(0.2, ry), (0.44, ry), (0.7, 0.74), (0.37, 0.74), (0.2, ry)],
        [(0.44, ry), (0.35, 0.84)],
        [(0.8, ry), (0.69, 0.9)],
    ):
        pen.line(way, paint, frame)
    pen.box(0.27, 0.83, 0.43, 0.89, (40, 34, 32, 255))
    pen.line([(0.69, 0.9), (0.64, 0.98), (0.58, 0.96)], (60, 60, 64, 255), 0.03)
    pen.disc(0.44, ry, 0.045, 0.07, (90, 90, 94, 255))
    return pen


def _bicycle_front(paint: Colour) -> Pen:
    pen = Pen(32, 64)
    pen.box(0.44, 0.0, 0.56, 0.62, _TYRE)
    pen.box(0.46, 0.5, 0.54, 0.95, paint)
    pen.box(0.08, 0.9, 0.92, 0.97, (60, 60, 64, 255))
    pen.disc(0.5, 0.8, 0.09, 0.05, _LAMP, glow=200)
    return pen


def motorcycle(look: int) -> Shape:
    """A motorcycle."""
    number = look % 6
    paint: Colour = (
        *((176, 36, 38), (34, 36, 42), (40, 84, 150), (230, 150, 40), (70, 110, 80), (200, 200, 204))[number],
        255,
    )
    solid = Solid()
    solid.side_sheet(
        0.06, (-0.5, 0.5), (0.0, 1.0), ATLAS.entry(("motorcycle", number), lambda: _motorcycle_side(paint))
    )
    solid.side_sheet(
        -0.06, (-0.5, 0.5), (0.0, 1.0), ATLAS.entry(("motorcycle", number), lambda: _motorcycle_side(paint))
    )
    solid.box((-0.16, 0.16), (-0.2, 0.18), (0.42, 0.72), paint, taper=(0.8, 0.8))
    solid.sheet(
        (-0.5, 0.5), 0.3, (0.0, 1.0), ATLAS.entry(("motorcycle front", number), lambda: _motorcycle_front(paint))
    )
    return solid.shape()


def _motorcycle_side(paint: Colour) -> Pen:
    pen = Pen(96, 56)
    for x in (0.17, 0.83):
        _wheel(pen, x, 0.16, 0.28)
    pen.shape([(0.22, 0.36), (0.7, 0.3), (0.66, 0.56), (0.3, 0.6)], (70, 70, 76, 255))
    pen.shape([(0.4, 0.58), (0.68, 0.62), (0.66, 0.82), (0.46, 0.78)], paint)
    pen.shape([(0.06, 0.7), (0.42, 0.6), (0.44, 0.74), (0.1, 0.78)], (36, 32, 32, 255))
    pen.line([(0.83, 0.28), (0.7, 0.88), (0.6, 0.96)], (120, 122, 128, 255), 0.03)
    pen.disc(0.76, 0.76, 0.04, 0.07, _LAMP, glow=255)
    pen.line([(0.1, 0.28), (0.5, 0.26)], (190, 192, 196, 255), 0.03)
    pen.box(0.04, 0.66, 0.09, 0.74, _TAIL, glow=160)
    return pen


def _motorcycle_front(paint: Colour) -> Pen:
    pen = Pen(40, 56)
    pen.box(0.4, 0, 0.6, 0.56, _TYRE)
    pen.shape([(0.32, 0.5), (0.68, 0.5), (0.62, 0.84), (0.38, 0.84)], paint)
    pen.box(0.06, 0.84, 0.94, 0.9, (70, 72, 78, 255))
    pen.disc(0.5, 0.7, 0.12, 0.09, _LAMP, glow=255)
    return pen
