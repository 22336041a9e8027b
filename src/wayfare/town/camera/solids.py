"""How a thing is put together from flat pieces: quads that stay where they are, and cards that turn to the camera.

Coordinates are parts of the thing's size: x from -0.5 to 0.5 to the right of its heading, y along it, z from 0 to 1 up.
A quad's corners are given as seen from outside: lower left, lower right, upper right, upper left.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from wayfare.town.camera.atlas import Atlas, Colour, Pen, shade

ATLAS = Atlas()  # all sprites and textures that were needed so far
TIP = 0.004  # how wide a tip is: an edge of no length would have no direction
Point = tuple[float, float, float]


def _white() -> Pen:
    return Pen(4, 4, (255, 255, 255, 255))


WHITE = ATLAS.entry("white", _white)  # the texture of plain pieces


def _blob() -> Pen:
    pen = Pen(64, 64)
    for step in range(24):
        size = 0.5 - 0.2 * step / 24
        pen.disc(0.5, 0.5, size, size, (0, 0, 0, round(255 * (step + 1) / 24)))
    return pen


BLOB = ATLAS.entry("blob", _blob)  # a soft round shadow


class Shape(NamedTuple):
    """A thing's pieces, as float32 arrays with one column for each piece."""

    quads: np.ndarray  # (17, n): x, y, z of the four corners (3 x 4), colour (3), texture, whether seen from both sides
    cards: np.ndarray  # (6, n): x, y, z of the middle of the lower edge, width, height, texture


class Solid:
    """A shape being built."""

    def __init__(self) -> None:
        self._corners: list[tuple[Point, Point, Point, Point]] = []
        self._colours: list[Colour] = []
        self._textures: list[int] = []
        self._both: list[bool] = []
        self._cards: list[tuple[float, float, float, float, float]] = []
        self._sprites: list[int] = []

    def shape(self) -> Shape:
        """The finished shape."""
        quads = np.zeros((17, len(self._corners)), np.float32)
        if self._corners:
            quads[:12] = np.array(self._corners).transpose(2, 1, 0).reshape(12, -1)
            quads[12:15] = np.array([colour[:3] for colour in self._colours]).T / 255
            quads[15:17] = self._textures, self._both
        cards = np.array(self._cards, np.float32).reshape(-1, 5).T
        return Shape(quads, np.concatenate((cards, np.array(self._sprites, np.float32)[None])))

    def quad(
        self, a: Point, b: Point, c: Point, d: Point, colour: Colour = (255, 255, 255), texture: int = WHITE,
        both: bool = False,
    ) -> None:  # fmt: skip
        self._corners.append((a, b, c, d))
        self._colours.append(colour)
        self._textures.append(texture)
        self._both.append(both)

    def face(self, corners: list[Point], colour: Colour, texture: int = WHITE) -> None:
        """A quad whose four corners are given as a list."""
        a, b, c, d = corners
        self.quad(a, b, c, d, colour, texture=texture)

    def card(self, x: float, y: float, z: float, width: float, height: float, sprite: int) -> None:
        """A sprite that always faces the camera, as wide as a part of the thing's width as seen from there."""
        self._cards.append((x, y, z, width, height))
        self._sprites.append(sprite)

    def box(
        self, x: tuple[float, float], y: tuple[float, float], z: tuple[float, float], colour: Colour = (255, 255, 255),
        *, top: Colour | None = None, taper: tuple[float, float] = (1.0, 1.0), shift: tuple[float, float] = (0.0, 0.0),
        front: int = WHITE, back: int = WHITE, sides: int = WHITE, under: bool = False, lid: bool = True,
    ) -> None:  # fmt: skip
        """A box whose upper face is `taper` times as large in x and y, and shifted. Textures are on white."""
        (x0, x1), (y0, y1), (z0, z1) = x, y, z
        mx, my = (x0 + x1) / 2 + shift[0], (y0 + y1) / 2 + shift[1]
        hx, hy = max((x1 - x0) / 2 * taper[0], TIP), max((y1 - y0) / 2 * taper[1], TIP)
        low = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
        high = [(mx - hx, my - hy), (mx + hx, my - hy), (mx + hx, my + hy), (mx - hx, my + hy)]
        for k, texture in enumerate((back, sides, front, sides)):
            after = (k + 1) % 4
            corners: list[Point] = [(*low[k], z0), (*low[after], z0), (*high[after], z1), (*high[k], z1)]
            self.face(corners, colour, texture)
        if lid and (hx > 0.01 and hy > 0.01):
            self.face([(*corner, z1) for corner in high], top or colour)
        if under:
            self.face([(*low[k], z0) for k in (3, 2, 1, 0)], shade(colour, 0.5))

    def prism(
        self, sides: int, radius: tuple[float, float], z: tuple[float, float], colour: Colour = (255, 255, 255), *,
        at: tuple[float, float] = (0.0, 0.0), texture: int = WHITE, lid: Colour | None = None, turn: float = 0.5,
        inside: bool = False,
    ) -> None:  # fmt: skip
        """A round piece, thicker or thinner at its upper end; `inside` shows its inner faces instead."""
        angles = [2 * math.pi * (k + turn) / sides for k in range(sides)]
        radius = max(radius[0], TIP), max(radius[1], TIP)
        low = [(at[0] + radius[0] * math.cos(a), at[1] + radius[0] * math.sin(a), z[0]) for a in angles]
        high = [(at[0] + radius[1] * math.cos(a), at[1] + radius[1] * math.sin(a), z[1]) for a in angles]
        for k in range(sides):
            left, right = (k, (k + 1) % sides) if not inside else ((k + 1) % sides, k)
            self.quad(low[left], low[right], high[right], high[left], colour, texture=texture)
        if lid is not None:
            middle = (at[0], at[1], z[1])
            for k in range(0, sides, 2):
                self.quad(high[k], high[(k + 1) % sides], high[(k + 2) % sides], middle, lid)

    def roof(
        self, x: tuple[float, float], y: tuple[float, float], z: tuple[float, float], colour: Colour,
        gable: int = WHITE, end: Colour = (255, 255, 255), texture: int = WHITE,
    ) -> None:  # fmt: skip
        """A gable roof whose ridge runs along y."""
        (x0, x1), (y0, y1), (z0, z1) = x, y, z
        left, right = (x0 + x1) / 2 - TIP, (x0 + x1) / 2 + TIP
        self.quad((x1, y0, z0), (x1, y1, z0), (right, y1, z1), (right, y0, z1), colour, texture=texture, both=True)
        self.quad((x0, y1, z0), (x0, y0, z0), (left, y0, z1), (left, y1, z1), colour, texture=texture, both=True)
        self.quad((x0, y0, z0), (x1, y0, z0), (right, y0, z1), (left, y0, z1), end, texture=gable)
        self.quad((x1, y1, z0), (x0, y1, z0), (left, y1, z1), (right, y1, z1), end, texture=gable)

    def sheet(self, x: tuple[float, float], y: float, z: tuple[float, float], texture: int) -> None:
        """A thin upright piece across the heading, seen from both sides, with a texture that may have holes."""
        self.quad((x[1], y, z[0]), (x[0], y, z[0]), (x[0], y, z[1]), (x[1], y, z[1]), texture=texture, both=True)

    def side_sheet(self, x: float, y: tuple[float, float], z: tuple[float, float], texture: int) -> None:
        """The same along the heading; the texture's right end is in front."""
        self.quad((x, y[0], z[0]), (x, y[1], z[0]), (x, y[1], z[1]), (x, y[0], z[1]), texture=texture, both=True)
