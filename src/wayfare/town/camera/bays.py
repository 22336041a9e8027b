"""The tiles of which facades are made: one bay of one storey each, drawn in the style of a family of houses.

A tile's texels are colours; the fourth channel is the share of the building's own paint.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.town.camera.atlas import Colour, Pen, shade

SIDE = 128  # texels along a tile
PER_STYLE = 14  # tiles: UPPER windows, then DOOR, SHOPS, LOW windows, ROOF
UPPER, DOOR, SHOP, LOW, ROOF = 0, 6, 7, 10, 12
PAINT: Colour = (255, 255, 255, 255)  # the building's own colour


class Family(NamedTuple):
    """A family of houses."""

    name: str
    paints: tuple[Colour, ...]
    texture: str
    storey: float  # metres
    bay: float
    ground: float
    roof: float
    top: str  # the shape of the upper edge
    trim: Colour
    shops: float  # how many buildings have some


FAMILIES = (
    Family("brick", ((176, 92, 72), (160, 80, 62), (188, 112, 86), (146, 86, 74), (196, 128, 98)),
           texture="brick", storey=3.3, bay=2.8, ground=3.9, roof=0.9,
           top="chimneys", trim=(226, 218, 200), shops=0.4),
    Family("plaster", ((238, 200, 140), (232, 168, 122), (240, 216, 178), (224, 150, 118), (246, 228, 190)),
           texture="plaster", storey=3.2, bay=3.0, ground=3.8, roof=1.6,
           top="flat", trim=(248, 240, 224), shops=0.45),
    Family("timber", ((238, 230, 212), (226, 210, 180), (222, 226, 214), (236, 214, 170), (210, 190, 160)),
           texture="plaster", storey=2.8, bay=2.6, ground=3.0, roof=4.2,
           top="gables", trim=(84, 58, 42), shops=0.3),
    Family("stone", ((220, 206, 178), (208, 196, 172), (228, 218, 196), (200, 190, 174), (216, 196, 160)),
           texture="blocks", storey=3.9, bay=3.2, ground=4.8, roof=1.4,
           top="balusters", trim=(240, 232, 214), shops=0.35),
    Family("glass", ((120, 150, 170), (96, 130, 150), (140, 160, 168), (110, 140, 136), (150, 164, 180)),
           texture="metal", storey=3.5, bay=2.4, ground=4.6, roof=0.7,
           top="flat", trim=(198, 206, 212), shops=0.5),
    Family("panel", ((206, 206, 200), (196, 204, 210), (214, 200, 180), (190, 196, 186), (210, 190, 190)),
           texture="panel", storey=2.8, bay=3.4, ground=3.2, roof=0.8,
           top="lifts", trim=(236, 236, 232), shops=0.15),
    Family("canal", ((110, 66, 56), (84, 62, 58), (138, 78, 62), (72, 78, 84), (160, 112, 82)),
           texture="brick", storey=3.1, bay=2.3, ground=3.6, roof=3.6,
           top="steps", trim=(240, 238, 230), shops=0.3),
    Family("clay", ((212, 160, 110), (200, 142, 96), (222, 176, 130), (190, 134, 92), (228, 188, 148)),
           texture="plaster", storey=3.3, bay=3.6, ground=3.8, roof=1.2,
           top="teeth", trim=(240, 216, 176), shops=0.3),
    Family("arcade", ((120, 184, 178), (238, 190, 176), (242, 214, 128), (168, 196, 226), (206, 220, 158)),
           texture="plaster", storey=3.5, bay=2.7, ground=4.2, roof=1.3,
           top="crests", trim=(250, 248, 240), shops=0.8),
    Family("boards", ((176, 206, 216), (230, 212, 156), (214, 226, 206), (226, 188, 176), (196, 190, 216)),
           texture="boards", storey=3.2, bay=2.9, ground=3.6, roof=1.5,
           top="gables", trim=(252, 250, 244), shops=0.3),
)  # fmt: skip


def tiles(family: Family, rng: np.random.Generator) -> list[np.ndarray]:
    """The tiles of one style: what a family has in common, with colours and windows that the district chooses."""
    look = _Look(family, rng)
    drawings: list[Callable[[Pen], None]] = [look.door] * PER_STYLE
    for first, end, draw in (
        (UPPER, DOOR, look.upper),
        (SHOP, LOW, look.shop),
        (LOW, ROOF, look.low),
        (ROOF, PER_STYLE, look.roof),
    ):
        for number in range(first, end):
            drawings[number] = partial(draw, variant=number - first)
    result = []
    for drawing in drawings:
        pen = Pen(SIDE, SIDE, PAINT)
        drawing(pen)
        result.append(_weathered(pen.tile(), family.texture, rng))
    return result


class _Look:
    """One district's windows, doors and roofs."""

    def __init__(self, family: Family, rng: np.random.Generator) -> None:
        self.family = family
        self.name = family.name
        self.trim = (*family.trim, 0)
        self.glass = _vary(rng, (62, 78, 96), 14)
        self.sheen: Colour = (*(min(255, value + 46) for value in self.glass[:3]), 0)
        self.frame = _vary(rng, (236, 232, 222) if rng.random() < 0.7 else (92, 74, 60), 10)
        shutters = ((62, 104, 92), (120, 62, 52), (70, 92, 132), (132, 118, 84), (88, 118, 70))
        self.shutter = _vary(rng, shutters[int(rng.integers(5))], 12)
        doors = ((112, 66, 44), (52, 84, 72), (46, 62, 98), (134, 48, 44), (74, 72, 70))
        self.leaf = _vary(rng, doors[int(rng.integers(5))], 12)
        tiles = {"plaster": (186, 98, 66), "timber": (142, 74, 54), "boards": (98, 100, 110), "arcade": (164, 84, 60)}
        self.tile = _vary(rng, tiles.get(family.name, (104, 98, 96)), 14)
        self.awnings = [_vary(rng, colour, 16) for colour in ((192, 60, 52), (58, 116, 92), (226, 168, 58))]
        self.wide = float(rng.uniform(0.3, 0.44))
        self.arched = family.name in ("stone", "clay", "arcade") and rng.random() < 0.7
        self.panes = int(rng.integers(1, 4))

    def window(self, pen: Pen, x0: float, y0: float, x1: float, y1: float, blind: float = 0.0) -> None:
        """A framed window; the blind covers a part of it from above."""
        edge = 0.025
        if self.arched:
            pen.disc((x0 + x1) / 2, y1, (x1 - x0) / 2 + edge, 0.1 + edge, self.frame)
        pen.box(x0 - edge, y0 - edge, x1 + edge, y1 + edge, self.frame)
        if self.arched:
            pen.disc((x0 + x1) / 2, y1, (x1 - x0) / 2, 0.1, self.glass, glow=255)
        pen.box(x0, y0, x1, y1, self.glass, glow=255)
        slant = (x1 - x0) * 0.5
        pen.shape([(x0, y1), (x0 + slant, y1), (x0, y0 + (y1 - y0) * 0.35)], self.sheen, 255)
        if blind:
            pen.box(x0, y1 - (y1 - y0) * blind, x1, y1, (216, 206, 186, 0), glow=170)
        for pane in range(1, self.panes):
            x = x0 + (x1 - x0) * pane / self.panes
            pen.box(x - 0.008, y0, x + 0.008, y1, self.frame)
        pen.box(x0, (y0 + y1 * 2) / 3 - 0.008, x1, (y0 + y1 * 2) / 3 + 0.008, self.frame)

    def upper(self, pen: Pen, variant: int) -> None:
        """A storey's bay: one window with or without shutters, balcony, flowers."""
        blind = (0.0, 0.35, 0.0, 0.6, 0.0, 0.15)[variant]
        if self.name == "glass":
            pen.box(0.04, 0.12, 0.96, 0.97, self.glass, glow=255)
            pen.shape([(0.04, 0.97), (0.3 + 0.1 * variant, 0.97), (0.04, 0.3)], self.sheen, 255)
            if blind:
                pen.box(0.04, 0.97 - 0.85 * blind, 0.96, 0.97, (188, 196, 200, 0), glow=200)
            pen.box(0.485, 0.12, 0.515, 0.97, self.trim)
            return
        if self.name == "panel":
            pen.box(0, 0, 1, 0.018, (120, 120, 116, 255))
            pen.box(0, 0, 0.018, 1, (150, 150, 146, 255))
            self.window(pen, 0.14, 0.32, 0.6, 0.84, blind=blind)
            if variant % 2:
                pen.box(0.66, 0.06, 0.95, 0.9, (96, 100, 106, 0))
                pen.box(0.7, 0.12, 0.9, 0.86, self.glass, glow=200)
                pen.box(0.62, 0.06, 0.99, 0.44, self.shutter)
            return
        if self.name == "timber":
            self._beams(pen, variant)
        if self.name == "stone":
            pen.box(0, 0, 0.07, 1, (236, 236, 236, 255))
            pen.box(0.93, 0, 1, 1, (236, 236, 236, 255))
            pen.box(0, 0, 1, 0.05, self.trim)
            pen.box(0, 0, 1, 0.012, (150, 142, 128, 0))
        narrow = 0.62 if self.name in ("canal", "clay") else 1.0
        half = self.wide / 2 * narrow * 1.15
        low, high = (0.3, 0.76) if self.name == "clay" else (0.24, 0.84)
        if self.arched:
            high -= 0.06
        if self.name not in ("timber", "clay"):
            pen.box(0.5 - half - 0.06, high + 0.03, 0.5 + half + 0.06, high + (0.13 if self.arched else 0.1), self.trim)
        self.window(pen, 0.5 - half, low, 0.5 + half, high, blind=blind)
        pen.box(0.5 - half - 0.06, low - 0.06, 0.5 + half + 0.06, low - 0.02, self.trim)
        pen.box(0.5 - half - 0.06, low - 0.08, 0.5 + half + 0.06, low - 0.06, (120, 112, 104, 255))
        if self.name in ("plaster", "arcade") or (self.name == "boards" and variant % 3 == 0):
            self._shutters(pen, half, low, high, variant)
        if variant == 2 and self.name in ("plaster", "stone", "arcade", "clay"):
            pen.box(0.16, 0.1, 0.84, 0.16, (124, 118, 110, 0))
            for bar in range(12):
                pen.box(0.17 + bar * 0.058, 0.14, 0.185 + bar * 0.058, 0.42, (58, 56, 58, 0))
            pen.box(0.16, 0.4, 0.84, 0.43, (58, 56, 58, 0))
        if variant == 4 and self.name != "canal":
            pen.box(0.5 - half, low - 0.06, 0.5 + half, low + 0.02, (112, 74, 52, 0))
            for spot in range(9):
                colour = ((210, 62, 84, 0), (88, 130, 62, 0), (238, 150, 170, 0))[spot % 3]
                pen.disc(0.5 - half + (spot + 0.5) * half / 4.5, low + 0.04, 0.03, 0.035, colour)

    def _shutters(self, pen: Pen, half: float, low: float, high: float, variant: int) -> None:
        wide = half * 0.92
        sides = [(0.5 - half - 0.03 - wide, 0.5 - half - 0.03), (0.5 + half + 0.03, 0.5 + half + 0.03 + wide)]
        if variant == 3:  # closed
            sides = [(0.5 - half, 0.497), (0.503, 0.5 + half)]
        for x0, x1 in sides:
            pen.box(x0, low, x1, high, self.shutter)
            for slat in range(8):
                y = low + (high - low) * (slat + 0.6) / 8.4
                pen.box(x0 + 0.012, y, x1 - 0.012, y + 0.014, shade(self.shutter, 0.76))

    def _beams(self, pen: Pen, variant: int) -> None:
        beam = self.trim
        for x in (0.0, 0.955):
            pen.box(x, 0, x + 0.045, 1, beam)
        pen.box(0, 0, 1, 0.075, beam)
        pen.box(0, 0.93, 1, 1, beam)
        if variant in (0, 3):
            pen.line([(0.04, 0.06), (0.24, 0.95)], beam, 0.05)
            pen.line([(0.96, 0.06), (0.76, 0.95)], beam, 0.05)
        elif variant in (1, 5):
            pen.line([(0.04, 0.95), (0.26, 0.06)], beam, 0.05)
        pen.box(0, 0.2, 1, 0.245, beam)

    def door(self, pen: Pen) -> None:
        """The entrance, on the ground floor."""
        self._base(pen)
        pen.box(0.3, 0.0, 0.7, 0.74, self.trim)
        if self.arched or self.name in ("brick", "canal"):
            pen.disc(0.5, 0.72, 0.2, 0.14, self.trim)
            pen.disc(0.5, 0.72, 0.15, 0.1, self.glass, glow=200)
        pen.box(0.35, 0.0, 0.65, 0.66, self.leaf)
        dark = shade(self.leaf, 0.72)
        for x0, x1 in ((0.38, 0.485), (0.515, 0.62)):
            for y0, y1 in ((0.06, 0.3), (0.36, 0.6)):
                pen.box(x0, y0, x1, y1, dark)
        pen.box(0.35, 0.68, 0.65, 0.72, self.glass, glow=255)
        pen.disc(0.6, 0.33, 0.012, 0.014, (226, 196, 110, 0))
        pen.box(0.26, 0.0, 0.74, 0.03, (150, 146, 140, 0))

    def shop(self, pen: Pen, variant: int) -> None:
        """A shop's window under a sign and an awning."""
        self._base(pen)
        colour = self.awnings[variant]
        pen.box(0.05, 0.0, 0.95, 0.8, shade(colour, 0.6))
        pen.box(0.09, 0.13, 0.63, 0.72, (86, 96, 104, 0), glow=255)
        goods = ((196, 120, 70), (92, 140, 84), (208, 190, 120), (150, 86, 110), (226, 226, 220), (86, 110, 160))
        for item in range(7):
            ware = (*goods[(item + variant * 2) % 6], 0)
            pen.box(
                0.11 + item * 0.072,
                0.15,
                0.165 + item * 0.072,
                0.24 + 0.05 * ((item * 7 + variant) % 4),
                ware,
                glow=210,
            )
        pen.shape([(0.09, 0.72), (0.3, 0.72), (0.09, 0.42)], (126, 138, 148, 0), 255)
        pen.box(0.68, 0.0, 0.91, 0.72, self.leaf)
        pen.box(0.71, 0.1, 0.88, 0.68, (78, 88, 98, 0), glow=255)
        if variant < 2:
            for stripe in range(12):
                cloth: Colour = colour if stripe % 2 else (244, 240, 230, 0)
                pen.box(0.02 + stripe * 0.08, 0.6, 0.10 + stripe * 0.08, 0.78, cloth)
                pen.disc(0.06 + stripe * 0.08, 0.6, 0.04, 0.03, cloth)
        pen.box(0.04, 0.79, 0.96, 0.93, colour)
        rng = rng_for("sign", variant, self.name)
        x = 0.14
        while x < 0.84:  # letters that nobody can read
            step = float(rng.uniform(0.03, 0.06))
            pen.box(x, 0.825, x + step * 0.6, 0.825 + float(rng.uniform(0.045, 0.07)), (250, 244, 226, 0), glow=160)
            x += step

    def low(self, pen: Pen, variant: int) -> None:
        """A window of the ground floor."""
        self._base(pen)
        if self.name == "arcade" or (self.name == "stone" and variant):
            pen.box(0.1, 0.0, 0.9, 0.62, self.trim)
            pen.disc(0.5, 0.62, 0.4, 0.24, self.trim)
            pen.box(0.17, 0.0, 0.83, 0.62, (74, 66, 60, 0), glow=90)
            pen.disc(0.5, 0.62, 0.33, 0.18, (74, 66, 60, 0), glow=90)
            self.window(pen, 0.3, 0.22, 0.7, 0.58)
            return
        if self.name == "glass":
            pen.box(0.03, 0.04, 0.97, 0.9, self.glass, glow=255)
            pen.shape([(0.03, 0.9), (0.4, 0.9), (0.03, 0.2)], self.sheen, 255)
            pen.box(0.485, 0.04, 0.515, 0.9, self.trim)
            return
        half = 0.24 if variant == 0 else 0.32
        self.window(pen, 0.5 - half, 0.3, 0.5 + half, 0.76, blind=0.0 if variant else 0.4)
        pen.box(0.5 - half - 0.05, 0.23, 0.5 + half + 0.05, 0.27, self.trim)

    def _base(self, pen: Pen) -> None:
        if self.name == "timber":
            for x in (0.0, 0.955):
                pen.box(x, 0, x + 0.045, 1, self.trim)
            pen.box(0, 0.92, 1, 1, self.trim)
        elif self.name not in ("glass", "boards"):
            pen.box(0, 0.95, 1, 1, self.trim)
        if self.name in ("stone", "plaster", "clay", "arcade"):
            for course in range(9):
                pen.box(0, course * 0.105, 1, course * 0.105 + 0.01, (196, 196, 196, 255))
        pen.box(0, 0, 1, 0.1, (150, 146, 142, 255) if self.name != "glass" else (92, 98, 104, 0))

    def roof(self, pen: Pen, variant: int) -> None:
        """The band under the upper edge: a cornice, tiles or a gable. It is one period of the edge wide."""
        top = self.family.top
        if top in ("gables", "steps"):
            if self.name == "timber":
                for x in (0.0, 0.25, 0.5, 0.75):
                    pen.box(x + 0.1, 0, x + 0.13, 1, self.trim)
                pen.box(0, 0.3, 1, 0.36, self.trim)
            pen.box(0, 0, 1, 0.05, self.trim)
            self.window(pen, 0.44, 0.14, 0.56, 0.42)
            if top == "gables":
                edge = [(0, 0.18), (0.5, 1.02), (1, 0.18)]
                pen.line([(x, y - 0.03) for x, y in edge], self.tile, 0.06)
                pen.line([(x, y - 0.09) for x, y in edge], self.trim, 0.022)
            else:
                for step in range(6):
                    x = step / 10
                    y = 1 - (5 - step) / 5 * 0.83
                    for left in (x, 1 - x - 0.1):
                        pen.box(left, y - 0.05, left + 0.1, y, self.trim)
            return
        if top in ("flat", "crests") and self.name in ("plaster", "arcade"):
            pen.box(0, 0, 1, 1, self.tile)
            for row in range(6):
                pen.box(0, row / 6, 1, row / 6 + 0.035, shade(self.tile, 0.8 + 0.05 * (row % 3)))
            for column in range(48):
                pen.box(column / 48, 0.14, column / 48 + 0.01, 1, shade(self.tile, 0.86 if column % 2 else 1.06))
            pen.box(0, 0, 1, 0.14, self.trim)
            return
        pen.box(0, 0, 1, 0.2, (200, 196, 190, 255))
        pen.box(0, 0.2, 1, 0.72, self.trim)
        pen.box(0, 0.16, 1, 0.2, (110, 104, 98, 0))
        if top == "chimneys":
            pen.box(0, 0.72, 1, 1, (210, 196, 186, 255))
        elif top == "balusters":
            pen.box(0, 0.72, 1, 1, self.trim)
            for bar in range(8):
                pen.box(bar / 8, 0.55, bar / 8 + 0.05, 0.9, (150, 142, 130, 0))
        else:
            pen.box(0, 0.72, 1, 1, (236, 236, 236, 255))
        brackets = 24 if variant else 12
        for bracket in range(brackets):
            pen.box(bracket / brackets, 0.2, (bracket + 0.4) / brackets, 0.42, (150, 142, 130, 0))


def _vary(rng: np.random.Generator, colour: Colour, by: int) -> Colour:
    varied = np.clip(np.array(colour[:3]) + rng.integers(-by, by + 1, 3), 0, 255)
    return (*varied.tolist(), 0)


def _weathered(tile: np.ndarray, texture: str, rng: np.random.Generator) -> np.ndarray:
    """The tile with its material's texture on painted parts, and a little dirt everywhere."""
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    grain = rng.normal(0, 1, (SIDE, SIDE))
    coarse = np.kron(rng.normal(0, 1, (16, 16)), np.ones((8, 8)))
    pattern = 1 + 0.02 * grain + 0.012 * coarse
    if texture in ("brick", "blocks"):
        course, brick = (4, 12) if texture == "brick" else (16, 32)
        row = y // course
        column = (x + (row % 2) * brick // 2) // brick
        tone = rng.normal(0, 0.055 if texture == "brick" else 0.028, (SIDE, SIDE))[row, column % (SIDE // brick)]
        joint = (y % course == 0) | ((x + (row % 2) * brick // 2) % brick == 0)
        pattern = pattern + tone - np.where(joint, 0.12 if texture == "brick" else 0.1, 0)
    elif texture == "boards":
        pattern = pattern - 0.16 * (y % 8 == 7) - 0.05 * (y % 8 == 6)
    elif texture == "metal":
        pattern = pattern - 0.1 * (x % 64 == 0)
    painted = tile[..., 3] > 127
    factor = np.where(painted, pattern, 1 + 0.015 * grain)
    tile[..., :3] = np.clip(tile[..., :3] * factor[..., None], 0, 255)
    return tile
