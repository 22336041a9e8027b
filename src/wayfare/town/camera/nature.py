"""How trees, plants and flowers look, by season."""

from __future__ import annotations

import math

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.town.camera.atlas import Colour, Pen, shade
from wayfare.town.camera.solids import ATLAS, Shape, Solid

TREES = 14  # different trees
_SPECIES = ("round", "broad", "column", "fir", "birch", "blossom", "round")
_LEAVES = {
    "spring": ((128, 176, 74), (144, 186, 88), (112, 164, 80)),
    "summer": ((74, 126, 58), (90, 140, 62), (62, 112, 64)),
    "autumn": ((206, 120, 44), (188, 74, 44), (222, 172, 62), (160, 130, 60)),
}
_BARK = {"birch": (222, 220, 212), "fir": (92, 68, 52)}
_PETALS = ((244, 190, 206), (250, 224, 230), (238, 160, 186))


def tree(look: int, season: str, snow: bool) -> Shape:
    """A tree; its winter look depends on its kind."""
    number = look % TREES
    solid = Solid()
    key = ("tree", number, season, snow)
    solid.card(0, 0, 0, 1, 1, sprite=ATLAS.entry(key, lambda: _draw_tree(number, season, snow)))
    return solid.shape()


def _draw_tree(number: int, season: str, snow: bool) -> Pen:
    rng = rng_for("tree", number)
    species = _SPECIES[number % len(_SPECIES)]
    pen = Pen(160, 208)
    bark: Colour = (*_BARK.get(species, (104, 82, 64)), 255)
    if species == "fir":
        _draw_fir(pen, rng, bark, snow)
        return pen
    trunk = {"column": 0.1, "broad": 0.24}.get(species, 0.3)
    width = 0.045 if species in ("birch", "column") else 0.07
    middle, ry = {"column": (0.55, 0.45), "broad": (0.62, 0.36)}.get(species, (0.65, 0.34))
    rx = {"column": 0.3, "birch": 0.4}.get(species, 0.47)
    pen.shape([(0.5 - width, 0), (0.5 + width, 0), (0.5 + width * 0.5, middle), (0.5 - width * 0.5, middle)], bark)
    if species == "birch":
        for y in np.linspace(0.05, 0.5, 9):
            pen.box(0.5 - width * float(rng.uniform(0.2, 0.9)), y, 0.5, y + 0.012, (70, 66, 62, 255))
    branches = 4 if season != "winter" else 9
    for k in range(branches):
        start, lean = trunk + k * (middle - trunk) / branches, (k % 2 * 2 - 1) * float(rng.uniform(0.35, 0.95))
        long, more = (0.6, 4) if season == "winter" else (0.34, 1)
        long *= (middle + ry - trunk) * (1 - 0.5 * k / branches)
        _branch(pen, rng, x=0.5, y=start, lean=lean, length=long, width=width * 0.55, bark=shade(bark, 0.9), more=more)
    if season == "winter":
        return pen
    colours = _LEAVES[season]
    if species == "blossom" and season == "spring":
        colours = _PETALS
    base = colours[int(rng.integers(len(colours)))]
    _draw_crown(pen, rng, base, middle=middle, rx=rx, ry=ry)
    return pen


def _branch(
    pen: Pen, rng: np.random.Generator, x: float, y: float, lean: float, length: float, width: float, bark: Colour,
    more: int,
) -> None:  # fmt: skip
    """A branch that leans to one side of upright, and its own branches."""
    end_x, end_y = x + math.sin(lean) * length * 0.75, y + math.cos(lean) * length
    pen.line([(x, y), (end_x, end_y)], bark, max(width, 0.006))
    if more:
        for side in (-0.5, 0.45):
            turn = lean + side * float(rng.uniform(0.6, 1.4))
            _branch(
                pen,
                rng,
                x=end_x,
                y=end_y,
                lean=turn,
                length=length * float(rng.uniform(0.5, 0.7)),
                width=width * 0.6,
                bark=bark,
                more=more - 1,
            )


def _draw_crown(pen: Pen, rng: np.random.Generator, base: Colour, middle: float, rx: float, ry: float) -> None:
    """Leaves in clumps: darker below and inside, lighter above."""
    for layer, (factor, count, size) in enumerate(
        ((0.62, 46, 0.30), (0.84, 54, 0.24), (1.0, 54, 0.18), (1.2, 30, 0.13))
    ):
        for _ in range(count):
            angle, away = float(rng.uniform(0, 2 * math.pi)), math.sqrt(float(rng.uniform(0, 1)))
            r = size * float(rng.uniform(0.6, 1.15))
            x = math.cos(angle) * away * (rx - r * rx)
            y = math.sin(angle) * away * (ry - r * ry) + (layer - 1.2) * 0.035
            y = min(max(y, -ry + r * ry), ry - r * ry)
            tone = factor * float(rng.uniform(0.9, 1.1)) * (1 + 0.3 * y / ry)
            pen.disc(0.5 + x, middle + y, r * rx, r * ry, (*shade(base, tone)[:3], 255))


def _draw_fir(pen: Pen, rng: np.random.Generator, bark: Colour, snow: bool) -> None:
    pen.box(0.46, 0, 0.54, 0.4, bark)
    green: Colour = (46, 84, 62, 255) if rng.random() < 0.6 else (62, 98, 80, 255)
    for tier in range(7):
        low = 0.26 + tier * 0.096
        half = 0.46 * (1 - tier / 7.6)
        points = [(0.5, min(low + 0.25, 1.0))]
        for k in range(9):
            points.append((0.5 + half - k * half / 4, low + (0.0 if k % 2 else 0.035)))
        pen.shape(points, shade(green, 0.78 + 0.07 * tier))
        if snow:
            white = [(0.5 - half * 0.8, low + 0.06), (0.5 + half * 0.8, low + 0.06), (0.5, min(low + 0.2, 1.0))]
            pen.shape(white, (236, 240, 246, 255))


def flower(look: int, season: str) -> Shape:
    """A clump of flowers."""
    number = look % 6
    solid = Solid()
    solid.card(0, 0, 0, 1, 1, sprite=ATLAS.entry(("flower", number, season), lambda: _draw_flowers(number, season)))
    return solid.shape()


def _draw_flowers(number: int, season: str) -> Pen:
    rng = rng_for("flower", number)
    pen = Pen(64, 64)
    leaf: Colour = (92, 132, 66, 255) if season != "winter" else (126, 120, 88, 255)
    petal = ((226, 62, 92), (248, 196, 60), (176, 92, 196), (250, 246, 240), (240, 120, 60), (96, 110, 214))[number]
    stems = [(float(x), float(y)) for x, y in zip(rng.uniform(0.1, 0.9, 13), rng.uniform(0.45, 0.9, 13))]
    for x, y in stems:
        pen.line([(0.5 + (x - 0.5) * 0.6, 0), (x, y)], leaf, 0.035)
        pen.disc(0.5 + (x - 0.5) * 0.8, y * 0.4, 0.1, 0.06, shade(leaf, 0.9))
    if season != "winter":
        for x, y in stems:
            pen.disc(x, y, 0.085, 0.085, (*shade(petal, float(rng.uniform(0.85, 1.1)))[:3], 255))
            pen.disc(x, y, 0.03, 0.03, (250, 222, 110, 255))
    return pen


def potted_plant(look: int, season: str) -> Shape:
    """A plant in a pot."""
    number = look % 8
    solid = Solid()
    key = ("potted plant", number, season == "winter")
    solid.card(0, 0, 0, 1, 1, sprite=ATLAS.entry(key, lambda: _draw_pot(number, season == "winter")))
    return solid.shape()


def _draw_pot(number: int, winter: bool) -> Pen:
    rng = rng_for("pot", number)
    pen = Pen(64, 96)
    pot = (*((186, 98, 62), (120, 118, 116), (214, 206, 192), (62, 92, 128))[number % 4], 255)
    green: Colour = (*((78, 134, 62), (58, 112, 74), (112, 146, 70))[number % 3], 255)
    if winter:
        green = shade(green, 0.8)
    if number % 3 == 0:  # a little ball of a tree
        pen.box(0.46, 0.3, 0.54, 0.6, (110, 84, 62, 255))
        for _ in range(40):
            angle, away = float(rng.uniform(0, 6.28)), math.sqrt(float(rng.uniform(0, 1))) * 0.3
            tone = float(rng.uniform(0.75, 1.15))
            pen.disc(0.5 + math.cos(angle) * away, 0.72 + math.sin(angle) * away * 0.62, 0.11, 0.08, shade(green, tone))
    else:
        for k in range(17):
            angle = -1.3 + 2.6 * k / 16 + float(rng.uniform(-0.1, 0.1))
            long = float(rng.uniform(0.4, 0.62))
            tip = (0.5 + math.sin(angle) * long * 0.75, 0.32 + math.cos(angle) * long)
            bend = (0.5 + math.sin(angle) * long * 0.3, 0.34 + long * 0.6)
            pen.line([(0.5, 0.3), bend, tip], shade(green, float(rng.uniform(0.75, 1.15))), 0.06)
            if number % 3 == 2 and not winter:
                pen.disc(*tip, 0.06, 0.045, ((226, 70, 100, 255), (246, 190, 70, 255))[number % 2])
    pen.shape([(0.27, 0.0), (0.73, 0.0), (0.82, 0.34), (0.18, 0.34)], pot)
    pen.shape([(0.6, 0.0), (0.73, 0.0), (0.82, 0.34), (0.64, 0.34)], shade(pot, 0.8))
    pen.box(0.14, 0.31, 0.86, 0.37, shade(pot, 1.1))
    return pen
