"""How the ten sights look, four of them in monuments.py. Each is unmistakable, and each has several variants."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.town.camera import monuments
from wayfare.town.camera.atlas import Colour, Pen, shade
from wayfare.town.camera.masonry import GOLD, ROOF_TILE, STONE, WOOD, opaque, pick, texture
from wayfare.town.camera.solids import Shape, Solid

VARIANTS = 12  # of each sight


def sight(kind: str, look: int) -> Shape:
    """A sight; `look` chooses one of its variants."""
    number = look % VARIANTS
    rng = rng_for("sight", kind, number)
    solid = Solid()
    _SIGHTS[kind](solid, number, rng)
    return solid.shape()


# ---- Market: awnings over tables full of fruit


def _market(solid: Solid, number: int, rng: np.random.Generator) -> None:
    palette: tuple[Colour, ...] = ((198, 54, 50), (56, 120, 170), (70, 146, 96), (236, 178, 56), (214, 110, 60))
    goods_rng = rng_for("goods", number)

    def goods(pen: Pen) -> None:
        pen.box(0, 0, 1, 0.45, (150, 112, 74, 255))
        for k in range(4):
            pen.box(k / 4, 0, k / 4 + 0.012, 0.45, (96, 70, 46, 255))
        fruit = ((206, 52, 46), (238, 156, 44), (240, 212, 80), (110, 158, 62), (120, 56, 116), (226, 120, 130))
        for k in range(48):
            colour = fruit[(k // 4 + number) % 6]
            x, y = (k % 24 + 0.5) / 24, 0.56 + 0.16 * (k // 24) + float(goods_rng.uniform(-0.03, 0.03))
            pen.disc(x, y, 0.026, 0.13, opaque(shade(colour, float(goods_rng.uniform(0.85, 1.12)))))

    table = texture(("goods", number), 96, 32, goods)
    stalls = 3 if number % 2 else 2
    for k in range(stalls):
        x0, x1 = -0.5 + k / stalls + 0.015, -0.5 + (k + 1) / stalls - 0.015
        colour = palette[(number + k * 2) % 5]

        def stripes(pen: Pen, colour: Colour = colour) -> None:
            for stripe in range(10):
                pen.box(stripe / 10, 0, stripe / 10 + 0.1, 1, opaque(colour) if stripe % 2 else (246, 242, 232, 255))

        def valance(pen: Pen, colour: Colour = colour) -> None:
            for stripe in range(10):
                shown = opaque(colour) if stripe % 2 else (246, 242, 232, 255)
                pen.box(stripe / 10, 0.4, stripe / 10 + 0.1, 1, shown)
                pen.disc(stripe / 10 + 0.05, 0.4, 0.05, 0.36, shown)

        cloth = texture(("awning", colour), 64, 32, stripes)
        edge = texture(("valance", colour), 64, 12, valance)
        for x in (x0, x1 - 0.012):
            for y in (-0.44, 0.42):
                solid.box((x, x + 0.012), (y, y + 0.02), (0.0, 0.66), WOOD, lid=False)
        ridge, eave = 1.0 - 0.1 * ((number + k) % 2), 0.64
        middle = 0.0
        for y, left, right in ((0.5, x1, x0), (-0.5, x0, x1)):
            solid.quad(
                (left, y, eave),
                (right, y, eave),
                (right, middle, ridge),
                (left, middle, ridge),
                texture=cloth,
                both=True,
            )
            solid.quad(
                (left, y, eave - 0.09),
                (right, y, eave - 0.09),
                (right, y, eave),
                (left, y, eave),
                texture=edge,
                both=True,
            )
        for x in (x0, x1):
            solid.quad(
                (x, -0.5, eave), (x, 0.5, eave), (x, 0.006, ridge), (x, -0.006, ridge), shade(colour, 0.9), both=True
            )
        for y in (-0.36, 0.24):
            solid.box((x0 + 0.02, x1 - 0.02), (y, y + 0.12), (0.0, 0.2), WOOD, top=palette[(number + k) % 5])
            solid.sheet((x0 + 0.02, x1 - 0.02), y + 0.06, (0.0, 0.34), table)
        solid.sheet((x0 + 0.02, x1 - 0.02), 0.37, (0.0, 0.3), table)
        solid.sheet((x0 + 0.02, x1 - 0.02), -0.37, (0.0, 0.3), table)


# ---- Tower: of stone with teeth, of iron, a lighthouse, or with a bell


def _tower(solid: Solid, number: int, rng: np.random.Generator) -> None:
    form = number % 4
    if form == 1:
        _iron_tower(solid, number)
        return
    stone = pick(rng, STONE) if form != 3 else pick(rng, ((176, 104, 80), (206, 186, 150)))

    def face(pen: Pen) -> None:
        stones = rng_for("courses", number)
        for row in range(40):
            tone = float(stones.uniform(0.92, 1.05))
            pen.box(0, row / 40, 1, row / 40 + 0.02, opaque(shade(stone, tone)))
        for y in (0.14, 0.34, 0.54, 0.74):
            pen.box(0.43, y, 0.57, y + 0.07, (58, 60, 66, 255), glow=150)
            pen.disc(0.5, y + 0.07, 0.07, 0.014, (58, 60, 66, 255), glow=150)
        pen.box(0.38, 0, 0.62, 0.06, (84, 60, 42, 255))

    wall = texture(("tower", number), 48, 160, face, opaque(stone))
    if form == 2:  # a lighthouse
        bands = ((206, 56, 48), (40, 84, 140), (60, 62, 66))[number // 4 % 3]
        for k in range(6):
            r0, r1 = 0.46 - 0.036 * k, 0.46 - 0.036 * (k + 1)
            solid.prism(12, (r0, r1), (0.138 * k, 0.138 * (k + 1)), bands if k % 2 else (240, 238, 230))
        solid.prism(12, (0.36, 0.36), (0.828, 0.85), (70, 72, 76), lid=(96, 98, 102))
        glass = texture(
            ("lantern",), 16, 16, lambda pen: pen.box(0.1, 0, 0.9, 1, (250, 240, 190, 255), glow=255), (60, 62, 66, 255)
        )
        solid.prism(8, (0.2, 0.2), (0.85, 0.93), texture=glass)
        solid.prism(8, (0.24, 0.0), (0.93, 1.0), bands)
        return
    solid.box((-0.44, 0.44), (-0.44, 0.44), (0.0, 0.82), front=wall, back=wall, sides=wall, taper=(0.9, 0.9))
    if form == 0:
        solid.box((-0.48, 0.48), (-0.48, 0.48), (0.82, 0.93), shade(stone, 1.03), under=True)
        for x in (-0.48, -0.1, 0.28):
            for y in (-0.48, -0.1, 0.28):
                if (x, y) != (-0.1, -0.1):
                    solid.box((x, x + 0.2), (y, y + 0.2), (0.93, 0.97), shade(stone, 0.97))
        solid.prism(4, (0.012, 0.012), (0.93, 1.0), WOOD)
        return
    bell = texture(("belfry", number), 32, 32, _belfry, opaque(shade(stone, 1.04)))
    solid.box((-0.45, 0.45), (-0.45, 0.45), (0.8, 0.82), shade(stone, 1.1), under=True)
    solid.box((-0.4, 0.4), (-0.4, 0.4), (0.82, 0.9), front=bell, back=bell, sides=bell)
    solid.box((-0.46, 0.46), (-0.46, 0.46), (0.9, 1.0), ROOF_TILE[number // 4 % 4], taper=(0.0, 0.0), under=True)


def _belfry(pen: Pen) -> None:
    for x in (0.3, 0.7):
        pen.box(x - 0.13, 0.0, x + 0.13, 0.6, (56, 52, 52, 255))
        pen.disc(x, 0.6, 0.13, 0.2, (56, 52, 52, 255))
        pen.disc(x, 0.32, 0.07, 0.16, (190, 150, 70, 255))


def _iron_tower(solid: Solid, number: int) -> None:
    iron: Colour = ((120, 96, 76), (150, 70, 58), (110, 118, 126))[number // 4 % 3]

    def lattice(pen: Pen) -> None:
        for x in (0.0, 0.92):
            pen.box(x, 0, x + 0.08, 1, opaque(iron))
        for k in range(5):
            y = k / 5
            pen.line([(0.04, y), (0.96, y + 0.2)], opaque(shade(iron, 0.85)), 0.05)
            pen.line([(0.96, y), (0.04, y + 0.2)], opaque(iron), 0.05)
            pen.box(0, y, 1, y + 0.02, opaque(iron))

    net = texture(("lattice", number), 48, 96, lattice)
    profile = ((0.5, 0.0), (0.34, 0.16), (0.22, 0.34), (0.13, 0.56), (0.07, 0.8), (0.035, 0.93))
    for (h0, z0), (h1, z1) in pairwise(profile):
        if z0 == 0:  # four feet
            for x in (-1, 1):
                for y in (-1, 1):
                    at = [(x * h0, y * h0), (x * (h0 - 0.2), y * (h0 - 0.2))]
                    up = [(x * h1, y * h1), (x * (h1 - 0.12), y * (h1 - 0.12))]
                    (ax, ay), (bx, by) = at
                    (cx, cy), (dx, dy) = up
                    solid.quad((ax, ay, 0), (bx, ay, 0), (dx, cy, z1), (cx, cy, z1), texture=net, both=True)
                    solid.quad((ax, ay, 0), (ax, by, 0), (cx, dy, z1), (cx, cy, z1), texture=net, both=True)
            continue
        low, high = ([(-h, -h), (h, -h), (h, h), (-h, h)] for h in (h0, h1))
        for k in range(4):
            after = (k + 1) % 4
            solid.quad((*low[k], z0), (*low[after], z0), (*high[after], z1), (*high[k], z1), texture=net, both=True)
    for h, z in ((0.37, 0.15), (0.16, 0.53), (0.08, 0.91)):
        solid.box((-h, h), (-h, h), (z, z + 0.02), shade(iron, 1.1), under=True)
    solid.box((-0.02, 0.02), (-0.02, 0.02), (0.93, 1.0), iron)


# ---- Pavilion: posts around, a roof above


def _pavilion(solid: Solid, number: int, rng: np.random.Generator) -> None:
    sides = (6, 8, 4)[number % 3]
    post: Colour = ((238, 236, 228), (170, 56, 46), (150, 110, 72), (96, 130, 112))[number % 4]
    roof = pick(rng, ROOF_TILE)
    solid.prism(sides, (0.46, 0.46), (0.0, 0.07), (206, 198, 184), lid=(214, 206, 190))

    def rail(pen: Pen) -> None:
        for k in range(9):
            pen.box(k / 9 + 0.03, 0, k / 9 + 0.08, 1, opaque(post))
        pen.box(0, 0.86, 1, 1, opaque(shade(post, 0.85)))

    railing = texture(("railing", number % 4), 48, 16, rail)
    angles = [2 * math.pi * (k + 0.5) / sides for k in range(sides)]
    for k, angle in enumerate(angles):
        x, y = 0.41 * math.cos(angle), 0.41 * math.sin(angle)
        solid.box((x - 0.018, x + 0.018), (y - 0.018, y + 0.018), (0.07, 0.6), post, lid=False)
        after = angles[(k + 1) % sides]
        if k % (sides // 2) and sides > 4:
            bx, by = 0.41 * math.cos(after), 0.41 * math.sin(after)
            solid.quad((x, y, 0.08), (bx, by, 0.08), (bx, by, 0.22), (x, y, 0.22), texture=railing, both=True)
    solid.prism(sides, (0.43, 0.43), (0.58, 0.63), shade(post, 0.9))
    curved = number % 2
    solid.prism(sides, (0.53, 0.3), (0.61, 0.74 if curved else 0.78), roof)
    solid.prism(sides, (0.53, 0.2), (0.61, 0.6), shade(roof, 0.4))
    solid.prism(sides, (0.3, 0.03), (0.74 if curved else 0.78, 0.95), shade(roof, 1.1))
    solid.prism(6, (0.03, 0.01), (0.94, 1.0), GOLD)


# ---- Bridge: a deck between arches or rails


def _bridge(solid: Solid, number: int, rng: np.random.Generator) -> None:
    form = number % 3
    colours: tuple[tuple[Colour, ...], ...] = (
        ((186, 60, 48), (150, 112, 74), (120, 140, 150)),  # wood
        ((206, 196, 176), (186, 180, 170), (200, 170, 130)),  # stone
        ((96, 116, 128), (150, 70, 58), (84, 110, 96)),  # iron
    )
    colour = colours[form][number // 3 % 3]

    def arched(pen: Pen) -> None:
        bow = [(t, 0.42 + 0.56 * math.sin(math.pi * t)) for t in np.linspace(0, 1, 25)]
        if form == 1:  # stone: a parapet that rises
            rise = [(0.0, 0.0), *((t, 0.36 + 0.5 * math.sin(math.pi * t)) for t in np.linspace(0, 1, 17)), (1.0, 0.0)]
            pen.shape(rise, opaque(colour))
            pen.line(
                [(t, 0.36 + 0.5 * math.sin(math.pi * t)) for t in np.linspace(0, 1, 17)],
                opaque(shade(colour, 1.15)),
                0.012,
            )
            for k in range(1, 5):
                t = k / 5
                pen.disc(t, 0.16 + 0.2 * math.sin(math.pi * t), 0.035, 0.12, opaque(shade(colour, 0.62)))
            return
        pen.line(bow, opaque(colour), 0.022)
        for k in range(1, 18):
            t = k / 18
            pen.box(t - 0.004, 0.0, t + 0.004, 0.42 + 0.56 * math.sin(math.pi * t), opaque(shade(colour, 0.9)))
            if form == 2 and k < 17:
                pen.line([(t, 0.08), (t + 1 / 18, 0.42)], opaque(shade(colour, 0.8)), 0.006)
        pen.box(0, 0.36, 1, 0.44, opaque(colour))
        pen.box(0, 0.0, 1, 0.08, opaque(shade(colour, 0.8)))

    side = texture(("bridge", number), 192, 48, arched)
    for x in (-0.48, 0.48):
        solid.side_sheet(x, (-0.5, 0.5), (0.0, 1.0), side)
        for y in (-0.5, 0.48):
            solid.box((x - 0.05, x + 0.05), (y, y + 0.02), (0.0, 0.6), shade(colour, 1.05), top=shade(colour, 1.2))
            solid.prism(6, (0.05, 0.01), (0.6, 0.7), shade(colour, 1.2), at=(x, y + 0.01))


# ---- Clock: a post with four faces


def _clock(solid: Solid, number: int, rng: np.random.Generator) -> None:
    iron: Colour = ((48, 62, 58), (60, 60, 66), (130, 48, 44), (52, 74, 104))[number % 4]
    face = texture(("clock", number), 48, 48, lambda pen: _dial(pen, number), opaque(shade(iron, 1.1)))
    solid.box((-0.4, 0.4), (-0.4, 0.4), (0.0, 0.07), (176, 170, 160))
    solid.box((-0.26, 0.26), (-0.26, 0.26), (0.07, 0.22), iron, taper=(0.8, 0.8))
    solid.prism(8, (0.13, 0.1), (0.22, 0.64), shade(iron, 1.15))
    solid.box((-0.3, 0.3), (-0.3, 0.3), (0.62, 0.66), shade(iron, 1.2), under=True)
    solid.box((-0.46, 0.46), (-0.46, 0.46), (0.66, 0.9), front=face, back=face, sides=face, top=iron, under=True)
    if number % 2:
        solid.box((-0.52, 0.52), (-0.52, 0.52), (0.9, 0.985), shade(iron, 0.85), taper=(0.1, 0.1), under=True)
    else:
        for a, b in (((0.5, 0.9), (0.4, 0.94)), ((0.4, 0.94), (0.2, 0.97)), ((0.2, 0.97), (0.03, 0.985))):
            solid.prism(8, (a[0], b[0]), (a[1], b[1]), shade(iron, 0.9))
    solid.prism(4, (0.05, 0.01), (0.97, 1.0), GOLD)


def _dial(pen: Pen, number: int) -> None:
    pen.disc(0.5, 0.5, 0.47, 0.47, opaque(GOLD))
    pen.disc(0.5, 0.5, 0.43, 0.43, (250, 246, 234, 255), glow=255)
    for k in range(12):
        x, y = math.sin(k * math.pi / 6), math.cos(k * math.pi / 6)
        pen.line(
            [(0.5 + x * 0.33, 0.5 + y * 0.33), (0.5 + x * 0.4, 0.5 + y * 0.4)],
            (40, 38, 38, 255),
            0.04 if k % 3 == 0 else 0.02,
            200,
        )
    hour, minute = 0.5 * number + 0.7, 1.3 * number
    pen.line([(0.5, 0.5), (0.5 + 0.22 * math.sin(hour), 0.5 + 0.22 * math.cos(hour))], (30, 30, 34, 255), 0.055, 90)
    pen.line([(0.5, 0.5), (0.5 + 0.34 * math.sin(minute), 0.5 + 0.34 * math.cos(minute))], (30, 30, 34, 255), 0.035, 90)


# ---- Windmill: a body, a cap, four sails


def _windmill(solid: Solid, number: int, rng: np.random.Generator) -> None:
    wood = pick(rng, ((236, 232, 222), (120, 88, 62), (176, 92, 70), (206, 196, 178)))
    cap = pick(rng, ((90, 70, 56), (130, 60, 48), (66, 72, 80), (84, 104, 84)))

    def window(pen: Pen) -> None:
        pen.box(0.35, 0.55, 0.65, 0.72, (64, 74, 86, 255), glow=200)
        pen.box(0.35, 0.24, 0.65, 0.4, (64, 74, 86, 255), glow=200)
        for y in np.linspace(0.05, 0.95, 12):
            pen.box(0, float(y), 1, float(y) + 0.012, opaque(shade(wood, 0.88)))

    body = texture(("mill", number), 32, 64, window, opaque(wood))
    solid.prism(8, (0.46, 0.3), (0.0, 0.68), texture=body)
    solid.prism(8, (0.5, 0.5), (0.26, 0.28), shade(cap, 1.1), lid=shade(cap, 1.3))
    solid.prism(8, (0.33, 0.26), (0.68, 0.76), cap)
    solid.prism(8, (0.26, 0.03), (0.76, 0.86), shade(cap, 1.12))
    spin = float(rng.uniform(0.1, 1.4))

    def sails(pen: Pen) -> None:
        for k in range(4):
            angle = spin + k * math.pi / 2
            dx, dy = math.sin(angle), math.cos(angle)
            nx, ny = -dy, dx
            pen.line([(0.5, 0.5), (0.5 + dx * 0.49, 0.5 + dy * 0.49)], (84, 62, 46, 255), 0.026)
            edge = [
                (0.5 + dx * a + nx * b, 0.5 + dy * a + ny * b)
                for a, b in ((0.1, 0), (0.1, 0.1), (0.48, 0.12), (0.48, 0))
            ]
            pen.shape(edge, (240, 234, 218, 255))
            for a in np.linspace(0.12, 0.48, 8):
                pen.line(
                    [(0.5 + dx * a, 0.5 + dy * a), (0.5 + dx * a + nx * 0.11, 0.5 + dy * a + ny * 0.11)],
                    (124, 98, 72, 255),
                    0.008,
                )
            pen.line(edge[1:3], (124, 98, 72, 255), 0.01)
        pen.disc(0.5, 0.5, 0.035, 0.035, (84, 62, 46, 255))

    wheel = texture(("sails", number), 128, 128, sails)
    solid.box((-0.03, 0.03), (0.2, 0.5), (0.71, 0.74), (84, 62, 46))
    solid.sheet((-0.62, 0.62), 0.5, (0.44, 1.0), wheel)


_SIGHTS = {
    "temple": monuments.temple, "gate": monuments.gate, "statue": monuments.statue, "fountain": monuments.fountain,
    "market": _market, "tower": _tower, "pavilion": _pavilion, "bridge": _bridge, "clock": _clock,
    "windmill": _windmill,
}  # fmt: skip
