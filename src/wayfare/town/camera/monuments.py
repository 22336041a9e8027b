"""How four of the sights look: temple, gate, statue, fountain."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.town.camera.atlas import Colour, Pen, shade
from wayfare.town.camera.masonry import GOLD, ROOF_TILE, STONE, opaque, pick, texture
from wayfare.town.camera.solids import Point, Solid

# ---- Temple: steps, columns and a gable; or tiers of curved roofs; or a dome


def temple(solid: Solid, number: int, rng: np.random.Generator) -> None:
    stone = pick(rng, STONE)
    form = number % 3
    if form == 0:
        _columned(
            solid, stone, int(rng.integers(5, 8)), number, pick(rng, ROOF_TILE) if number % 2 else shade(stone, 0.86)
        )
    elif form == 1:
        _pagoda(solid, stone, number, rng)
    else:
        _domed(solid, stone, number, rng)


def _columned(solid: Solid, stone: Colour, columns: int, number: int, roof: Colour) -> None:
    for k in range(3):
        edge = 0.5 - 0.025 * k
        solid.box((-edge, edge), (-edge, edge), (0.05 * k, 0.05 * (k + 1)), shade(stone, 0.88 + 0.05 * k))

    def draw(pen: Pen) -> None:
        for k in range(columns):
            x, wide = (k + 0.5) / columns, 0.26 / columns
            pen.box(x - wide, 0.05, x + wide, 0.93, opaque(stone))
            pen.box(x + wide * 0.4, 0.05, x + wide, 0.93, opaque(shade(stone, 0.8)))
            pen.box(x - wide * 0.5, 0.05, x - wide * 0.25, 0.93, opaque(shade(stone, 0.9)))
            pen.box(x - wide * 1.5, 0.92, x + wide * 1.5, 1.0, opaque(shade(stone, 1.05)))
            pen.box(x - wide * 1.4, 0.0, x + wide * 1.4, 0.05, opaque(shade(stone, 0.95)))

    front = texture(("columns", number), 96, 64, draw)
    for y in (-0.44, 0.44):
        solid.sheet((-0.45, 0.45), y, (0.15, 0.62), front)
    for x in (-0.44, 0.44):
        solid.side_sheet(x, (-0.45, 0.45), (0.15, 0.62), front)

    def door(pen: Pen) -> None:
        pen.box(0.34, 0.0, 0.66, 0.8, opaque(shade(stone, 0.62)))
        pen.box(0.38, 0.0, 0.62, 0.75, (70, 52, 40, 255))

    cella = texture(("cella", number), 32, 32, door, opaque(shade(stone, 0.8)))
    solid.box(
        (-0.34, 0.34),
        (-0.34, 0.34),
        (0.15, 0.62),
        front=cella,
        back=cella,
        sides=texture(("cella wall", number), 8, 8, lambda pen: None, opaque(shade(stone, 0.76))),
    )
    solid.box((-0.47, 0.47), (-0.47, 0.47), (0.62, 0.72), shade(stone, 1.02), under=True)

    def pediment(pen: Pen) -> None:
        pen.shape([(0.12, 0.1), (0.88, 0.1), (0.5, 0.82)], opaque(shade(stone, 0.78)))
        for x, y in ((0.5, 0.3), (0.38, 0.22), (0.62, 0.22)):
            pen.disc(x, y, 0.05, 0.14, opaque(shade(stone, 1.06)))

    gable = texture(("pediment", number), 64, 32, pediment, opaque(stone))
    solid.roof((-0.5, 0.5), (-0.49, 0.49), (0.72, 1.0), roof, gable)


def _pagoda(solid: Solid, stone: Colour, number: int, rng: np.random.Generator) -> None:
    red: Colour = ((170, 52, 42), (150, 70, 50), (186, 64, 40))[number % 3]
    tile = pick(rng, ((70, 92, 84), (84, 84, 92), (150, 100, 52)))
    tiers = 2 + number % 2
    solid.box((-0.46, 0.46), (-0.46, 0.46), (0.0, 0.09), stone)

    def wall(pen: Pen) -> None:
        for k in range(6):
            pen.box(k / 5 - 0.03, 0, k / 5 + 0.03, 1, opaque(shade(red, 1.1)))
        for k in range(5):
            pen.box(k / 5 + 0.06, 0.15, k / 5 + 0.14, 0.78, (236, 220, 180, 255), glow=140)
        pen.box(0.41, 0.0, 0.59, 0.8, (78, 44, 32, 255))
        pen.box(0, 0.86, 1, 1, opaque(shade(red, 0.6)))

    face = texture(("pagoda", number), 64, 32, wall, opaque(shade(red, 0.78)))
    z = 0.09
    for tier in range(tiers):
        half = 0.36 * (1 - 0.24 * tier)
        tall = (0.9 - 0.09) / tiers
        low, high = z, z + tall * 0.52
        solid.box((-half, half), (-half, half), (low, high), front=face, back=face, sides=face)
        eave = half * 1.38
        solid.box(
            (-eave, eave), (-eave, eave), (high - 0.015, high + tall * 0.16), tile, taper=(0.82, 0.82), under=True
        )
        solid.box(
            (-eave * 0.82, eave * 0.82),
            (-eave * 0.82, eave * 0.82),
            (high + tall * 0.16, z + tall),
            shade(tile, 1.12),
            taper=(0.5, 0.5),
        )
        for x in (-1, 1):
            for y in (-1, 1):  # corners that point up
                tip: Point = (x * eave * 1.08, y * eave * 1.08, high + tall * 0.12)
                base: Point = (x * eave * 0.86, y * eave * 0.86, high + tall * 0.1)
                solid.quad(
                    base,
                    (x * eave, y * eave * 0.86, high),
                    tip,
                    (x * eave * 0.86, y * eave, high),
                    shade(tile, 0.9),
                    both=True,
                )
        z += tall
    solid.prism(6, (0.03, 0.01), (z, 1.0), GOLD)


def _domed(solid: Solid, stone: Colour, number: int, rng: np.random.Generator) -> None:
    dome = ((92, 150, 140), (226, 186, 92), (214, 222, 226), (150, 92, 70))[number // 3 % 4]

    def wall(pen: Pen) -> None:
        for x in (0.2, 0.5, 0.8):
            pen.disc(x, 0.6, 0.09, 0.16, opaque(shade(stone, 0.6)))
            pen.box(x - 0.09, 0.1 if x != 0.5 else 0.0, x + 0.09, 0.6, opaque(shade(stone, 0.6)), glow=90)
        pen.box(0, 0.88, 1, 0.95, opaque(shade(stone, 1.1)))
        pen.box(0, 0, 1, 0.06, opaque(shade(stone, 0.8)))

    face = texture(("domed", number), 64, 48, wall, opaque(stone))
    solid.box((-0.42, 0.42), (-0.42, 0.42), (0.0, 0.48), front=face, back=face, sides=face, top=shade(stone, 0.95))
    solid.prism(10, (0.3, 0.3), (0.48, 0.56), shade(stone, 0.95))
    z0, profile = 0.56, ((0.31, 0.0), (0.325, 0.08), (0.29, 0.18), (0.2, 0.27), (0.08, 0.33), (0.0, 0.36))
    for (r0, a), (r1, b) in pairwise(profile):
        solid.prism(10, (r0, r1), (z0 + a, z0 + b), shade(dome, 0.9 + a))
    solid.prism(4, (0.012, 0.012), (0.9, 1.0), GOLD)
    for x in (-0.42, 0.42):
        for y in (-0.42, 0.42):
            solid.prism(6, (0.06, 0.055), (0.0, 0.66), shade(stone, 1.04), at=(x, y))
            solid.prism(6, (0.07, 0.0), (0.66, 0.78), dome, at=(x, y))


# ---- Gate: one great arch; or posts with a beam; or two towers


def gate(solid: Solid, number: int, rng: np.random.Generator) -> None:
    form = number % 3
    if form == 1:
        _beam_gate(solid, number)
        return
    stone = pick(rng, STONE)
    wide = 0.17 if form == 0 else 0.2

    def draw(pen: Pen) -> None:
        stones = rng_for("stones", number)
        for row in range(14):
            shift = 0.03 * (row % 2)
            for k in range(12):
                tone = float(stones.uniform(0.93, 1.05))
                pen.box(k / 12 + shift, row / 14, k / 12 + shift + 0.078, row / 14 + 0.066, opaque(shade(stone, tone)))
        pen.disc(0.5, 0.42, wide + 0.05, 0.26, opaque(shade(stone, 1.1)))
        pen.box(0.5 - wide - 0.05, 0, 0.5 + wide + 0.05, 0.42, opaque(shade(stone, 1.1)))
        pen.disc(0.5, 0.42, wide, 0.21, (0, 0, 0, 0))
        pen.box(0.5 - wide, 0, 0.5 + wide, 0.42, (0, 0, 0, 0))
        if form == 0:
            pen.box(0, 0.72, 1, 0.76, opaque(shade(stone, 1.12)))
            pen.box(0.2, 0.8, 0.8, 0.95, opaque(shade(stone, 0.82)))
            for x in (0.08, 0.24, 0.72, 0.88):
                pen.box(x, 0.0, x + 0.05, 0.72, opaque(shade(stone, 1.12)))

    face = texture(("gate", number), 112, 96, draw, opaque(shade(stone, 0.86)))
    half, top = (0.5, 0.86) if form == 0 else (0.3, 0.72)
    for y, left, right in ((0.4, half, -half), (-0.4, -half, half)):
        solid.quad((left, y, 0), (right, y, 0), (right, y, top), (left, y, top), texture=face)
    opening = wide * half * 2
    for x, y0, y1 in ((-half, 0.4, -0.4), (half, -0.4, 0.4)):
        solid.quad((x, y0, 0), (x, y1, 0), (x, y1, top), (x, y0, top), shade(stone, 0.9))
    for x, y0, y1 in ((-opening, -0.4, 0.4), (opening, 0.4, -0.4)):  # inside the opening
        solid.quad((x, y0, 0), (x, y1, 0), (x, y1, top * 0.45), (x, y0, top * 0.45), shade(stone, 0.55))
    arc = [(opening * math.cos(a), top * (0.42 + 0.21 * math.sin(a))) for a in np.linspace(0, math.pi, 7)]
    for (x0, z0), (x1, z1) in pairwise(arc):
        solid.quad((x0, -0.4, z0), (x0, 0.4, z0), (x1, 0.4, z1), (x1, -0.4, z1), shade(stone, 0.5), both=True)
    if form == 0:
        solid.box((-0.52, 0.52), (-0.46, 0.46), (top, top + 0.05), shade(stone, 1.1), under=True)
        solid.box((-0.46, 0.46), (-0.38, 0.38), (top + 0.05, 1.0), shade(stone, 0.96))
        return
    solid.box((-half, half), (-0.4, 0.4), (top, top + 0.01), stone)
    roof = ROOF_TILE[number // 3 % 4]
    for x in (-0.4, 0.4):
        solid.prism(8, (0.115, 0.11), (0.0, 0.78), shade(stone, 0.95), at=(x, 0))
        solid.prism(8, (0.14, 0.0), (0.78, 1.0), roof, at=(x, 0))


def _beam_gate(solid: Solid, number: int) -> None:
    red: Colour = ((200, 58, 44), (176, 50, 46), (150, 108, 66), (196, 70, 40))[number // 3 % 4]
    for x in (-0.33, 0.33):
        solid.prism(8, (0.045, 0.04), (0.0, 0.9), red, at=(x, 0.0))
        solid.box((x - 0.06, x + 0.06), (-0.25, 0.25), (0.0, 0.05), (60, 58, 58))
    solid.box((-0.42, 0.42), (-0.14, 0.14), (0.66, 0.73), red, under=True)
    solid.box((-0.05, 0.05), (-0.12, 0.12), (0.73, 0.88), shade(red, 0.85))
    solid.box((-0.46, 0.46), (-0.2, 0.2), (0.88, 0.93), red, taper=(1.06, 1), under=True)
    solid.box((-0.49, 0.49), (-0.26, 0.26), (0.93, 1.0), (52, 54, 60), taper=(1.04, 0.8), under=True)


# ---- Statue: a figure on a pedestal


def statue(solid: Solid, number: int, rng: np.random.Generator) -> None:
    stone = pick(rng, STONE)
    metal: Colour = ((104, 146, 128), (112, 88, 60), (214, 208, 196), (208, 168, 78))[number % 4]
    solid.box((-0.5, 0.5), (-0.5, 0.5), (0.0, 0.06), shade(stone, 0.85))
    if number % 2:
        solid.prism(8, (0.36, 0.3), (0.06, 0.42), stone)
        solid.prism(8, (0.38, 0.38), (0.42, 0.46), shade(stone, 1.08), lid=stone)
    else:

        def plate(pen: Pen) -> None:
            pen.box(0.2, 0.35, 0.8, 0.7, opaque(shade(metal, 0.8)))
            for y in (0.44, 0.54, 0.62):
                pen.box(0.28, y, 0.72, y + 0.03, opaque(shade(metal, 1.3)))

        face = texture(("pedestal", number), 32, 48, plate, opaque(stone))
        solid.box((-0.34, 0.34), (-0.34, 0.34), (0.06, 0.42), front=face, back=face, sides=face, taper=(0.9, 0.9))
        solid.box((-0.36, 0.36), (-0.36, 0.36), (0.42, 0.46), shade(stone, 1.08), under=True)
    rider = number // 2 % 3 == 2
    figure = texture(
        ("statue", number),
        72 if rider else 56,
        80,
        lambda pen: _rider(pen, metal) if rider else _figure(pen, metal, number),
    )
    solid.card(0, 0, 0.46, 1.0 if rider else 0.72, 0.54, sprite=figure)


def _figure(pen: Pen, metal: Colour, number: int) -> None:
    body, dark, light = (opaque(shade(metal, f)) for f in (1.0, 0.7, 1.22))
    pen.shape([(0.3, 0.0), (0.72, 0.0), (0.64, 0.5), (0.38, 0.5)], body)
    pen.shape([(0.52, 0.0), (0.72, 0.0), (0.64, 0.5), (0.54, 0.5)], dark)
    pen.shape([(0.33, 0.46), (0.67, 0.46), (0.71, 0.74), (0.29, 0.74)], body)
    pen.shape([(0.34, 0.5), (0.42, 0.5), (0.4, 0.74), (0.31, 0.74)], light)
    pen.box(0.46, 0.72, 0.54, 0.8, dark)
    pen.disc(0.5, 0.84, 0.085, 0.07, body)
    raised = [(0.68, 0.72), (0.84, 0.84), (0.9, 0.98)]
    if number // 2 % 3 == 0:
        pen.line(raised, body, 0.09)
        pen.line([(0.32, 0.72), (0.22, 0.56), (0.3, 0.44)], body, 0.09)
        pen.line([(0.9, 0.98), (0.9, 0.72)], light, 0.03)
    else:
        pen.line([(0.32, 0.72), (0.16, 0.6), (0.06, 0.62)], body, 0.09)
        pen.line([(0.68, 0.72), (0.8, 0.56), (0.74, 0.42)], dark, 0.09)
        pen.shape([(0.3, 0.74), (0.2, 0.1), (0.36, 0.3)], dark)


def _rider(pen: Pen, metal: Colour) -> None:
    body, dark = opaque(metal), opaque(shade(metal, 0.72))
    for x, foot in ((0.24, 0.2), (0.36, 0.36), (0.64, 0.58)):
        pen.line([(x, 0.34), (foot, 0.0)], dark, 0.06)
    pen.line([(0.72, 0.36), (0.88, 0.26), (0.82, 0.12)], body, 0.06)
    pen.disc(0.47, 0.4, 0.28, 0.13, body)
    pen.line([(0.68, 0.42), (0.82, 0.66)], body, 0.12)
    pen.shape([(0.78, 0.72), (0.98, 0.6), (0.95, 0.54), (0.78, 0.6)], body)
    pen.line([(0.2, 0.44), (0.08, 0.2)], dark, 0.06)
    pen.shape([(0.4, 0.46), (0.56, 0.46), (0.58, 0.76), (0.42, 0.76)], dark)
    pen.disc(0.5, 0.84, 0.06, 0.06, body)
    pen.line([(0.55, 0.72), (0.72, 0.84), (0.78, 0.98)], body, 0.06)
    pen.line([(0.5, 0.48), (0.56, 0.24)], dark, 0.07)


# ---- Fountain: a basin, bowls, and water


def fountain(solid: Solid, number: int, rng: np.random.Generator) -> None:
    stone = pick(rng, STONE)
    water: Colour = (104, 160, 186)
    sides = (12, 8, 6)[number % 3]
    solid.prism(sides, (0.5, 0.48), (0.0, 0.17), stone)
    solid.prism(sides, (0.44, 0.44), (0.12, 0.17), shade(stone, 0.75), inside=True)
    solid.prism(sides, (0.44, 0.44), (0.12, 0.125), water, lid=water)
    for k in range(sides):  # the rim
        a, b = (2 * math.pi * (k + j + 0.5) / sides for j in (0, 1))
        corners = [(r * math.cos(t), r * math.sin(t), 0.17) for r, t in ((0.48, a), (0.48, b), (0.44, b), (0.44, a))]
        solid.face(corners, shade(stone, 1.08))
    bowls = 1 + number // 3 % 2
    z = 0.12
    for bowl in range(bowls):
        r = 0.24 / (bowl + 1)
        solid.prism(8, (0.05, 0.04), (z, z + 0.26), shade(stone, 0.94))
        solid.prism(10, (0.06, r), (z + 0.22, z + 0.32), stone)
        solid.prism(10, (r * 0.9, r * 0.9), (z + 0.315, z + 0.32), water, lid=shade(water, 1.2))
        z += 0.3
    jets = 3 + number % 3

    def spray(pen: Pen) -> None:
        for k in range(-jets, jets + 1):
            reach = k / jets
            way = [
                (0.5 + reach * 0.46 * t, 0.55 + (1.0 - 0.3 * abs(reach)) * (t - t * t) * 1.7 - 0.5 * t * t)
                for t in np.linspace(0, 1, 9)
            ]
            pen.line([(x, max(0.0, y)) for x, y in way], (226, 240, 248, 200), 0.02 + 0.012 * (k == 0))
        pen.line([(0.5, 0.5), (0.5, 0.98)], (240, 248, 252, 225), 0.05)
        drops = rng_for("spray", number)
        for x, y in drops.uniform(0, 1, (60, 2)):
            if abs(x - 0.5) < 0.46 * (1 - 0.3 * y):
                pen.disc(float(x), float(y) * 0.9, 0.008, 0.012, (246, 250, 252, 235))

    solid.card(0, 0, 0.14, 0.8, 0.86, sprite=texture(("spray", number), 80, 72, spray))
