"""What houses look like: each district has a style, and each building is a variation of it.

A facade is a grid of tiles, one storey high and one bay wide: doors and shops below, windows above, a cornice or gables
on top. The tiles are drawn in bays.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.town.camera.atlas import Tiles
from wayfare.town.camera.bays import DOOR, FAMILIES, LOW, ROOF, SHOP, SIDE, Family, tiles

_SUITED = {
    "Old Town": ("timber", "plaster", "canal", "clay"),
    "Harbour": ("canal", "brick", "boards", "clay"),
    "Market Quarter": ("arcade", "plaster", "timber", "stone"),
    "Villas": ("boards", "plaster", "stone"),
    "Offices": ("glass", "stone", "panel"),
    "Terraces": ("brick", "canal", "boards", "arcade"),
    "Mills": ("brick", "panel"),
    "Gardens": ("boards", "timber", "plaster", "arcade"),
}
TOPS = ("flat", "chimneys", "gables", "balusters", "lifts", "steps", "teeth", "crests")
STEPS = 64  # in which the shape of an upper edge is stored
_PERIOD = {"gables": 7.5, "steps": 6.0, "crests": 8.0, "balusters": 1.2, "teeth": 1.1, "chimneys": 9.0, "lifts": 24.0}


class Style(NamedTuple):
    """A district's variation of a family."""

    family: Family
    first: int  # of its tiles
    paints: np.ndarray  # (5, 3), 0 to 1
    storey: float
    bay: float
    ground: float
    shops: float


class Facades(NamedTuple):
    """What a city's walls look like, one entry per wall."""

    sizes: np.ndarray  # float32 (12, W): height of the ground floor, 1 / it, 1 / height of a storey, number of storeys
    # above the ground floor - 1, where the roof's band begins, 1 / its height, paint (3), how many bays there are
    # side by side, and the wall's normal (2)
    tile: np.ndarray  # int32: where the style's tiles begin in TILES,
    roof: np.ndarray  # and how much farther that of its roof does
    first_bay: np.ndarray  # where the wall's bays begin in
    bays: np.ndarray  # int32 (2, bays): how much farther the tile of its ground floor begins, and what varies windows
    top: np.ndarray  # the upper edge: row of `tops()`
    periods: np.ndarray  # float32: how often that shape is repeated along the wall


TILES = Tiles(SIDE)  # those of all styles that were asked for


@lru_cache(maxsize=256)
def style(seed: int, district: str = "") -> Style:
    """The style of a district, with its tiles drawn; some kinds of districts allow certain families only."""
    rng = rng_for(seed, "style")
    suited = [family for family in FAMILIES if family.name in _SUITED.get(district, ())] or FAMILIES
    family = suited[int(rng.integers(len(suited)))]
    tint = rng.uniform(0.9, 1.08, (1, 3)) * rng.uniform(0.94, 1.04)
    paints = np.clip(np.array([paint[:3] for paint in family.paints]) / 255 * tint, 0, 1).astype(np.float32)
    scale = rng.uniform(0.93, 1.08, 3)
    return Style(
        family,
        TILES.add(tiles(family, rng)),
        paints=paints,
        storey=family.storey * float(scale[0]),
        bay=family.bay * float(scale[1]),
        ground=family.ground * float(scale[2]),
        shops=family.shops,
    )


def facades(walls: np.ndarray, looks: np.ndarray, styles: list[Style], district: np.ndarray) -> Facades:
    """How each wall looks, from its size, its building's look and its district's style."""
    count = len(walls)
    length = np.hypot(walls[:, 2] - walls[:, 0], walls[:, 3] - walls[:, 1])
    height = walls[:, 4]
    mixed = _scramble(looks)

    def draw(shift: int) -> np.ndarray:  # numbers from 0 to 1, the same for all walls of a building
        return ((mixed >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.float64) / 65536

    def of_style(values: list[float]) -> np.ndarray:
        return np.array(values, np.float64)[district] if count else np.zeros(0)

    ground = np.minimum(of_style([s.ground for s in styles]) * (0.95 + 0.1 * draw(0)), height * 0.6)
    roof = np.minimum(of_style([s.family.roof for s in styles]), height * 0.3)
    storey = of_style([s.storey for s in styles]) * (0.94 + 0.12 * draw(8))
    middle = height - roof - ground
    storeys = np.maximum(np.rint(middle / storey), 1)
    bays = np.maximum(np.rint(length / (of_style([s.bay for s in styles]) * (0.9 + 0.25 * draw(16)))), 1)
    pick = (draw(24) * 5).astype(int)
    paint = np.zeros((count, 3), np.float32)
    if count:
        paint = np.stack([s.paints for s in styles])[district, pick]
        paint = paint * (0.9 + 0.16 * np.stack([draw(s) for s in (3, 13, 29)], -1) * 0.5 + 0.1 * draw(20)[:, None])
    names = [s.family.top for s in styles]
    period = of_style([_PERIOD.get(name, 8.0) for name in names])
    along = walls[:, 2:4] - walls[:, 0:2]
    sizes = (
        ground, 1 / ground, storeys / middle, storeys - 1, height - roof, 1 / roof, *paint.T, bays,
        along[:, 1] / length, -along[:, 0] / length,
    )  # fmt: skip
    return Facades(
        np.stack(sizes).astype(np.float32),
        of_style([s.first for s in styles]).astype(np.int32) * TILES.stride,
        ((ROOF + (mixed & np.uint64(1))) * TILES.stride).astype(np.int32),
        *_bays(bays.astype(int), mixed, draw(32) < of_style([s.shops for s in styles])),
        of_style([TOPS.index(name) for name in names]).astype(np.int32),
        np.maximum(np.rint(length / period), 1).astype(np.float32),
    )


def _bays(counts: np.ndarray, mixed: np.ndarray, shop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Facades.first_bay and .bays: in the middle of a wall is its door, beside it are shops or windows."""
    first = np.cumsum(counts) - counts
    which = np.arange(counts.sum()) - first.repeat(counts)
    hashed = (mixed & np.uint64(0xFFFFFFFF)).astype(np.int64).repeat(counts) + which * 0x9E3779B1
    spread = ((hashed & 0xFFFFFFFF) * 0x85EB >> 13) & 0xFFFF
    low = np.where(shop.repeat(counts), SHOP + spread % 3, LOW + spread % 2)
    count = counts.repeat(counts)
    low[(which == count // 2) & (count > 1)] = DOOR
    return first, np.stack((low * TILES.stride, hashed & 0x7FFFFFFF)).astype(np.int32)


def _scramble(looks: np.ndarray) -> np.ndarray:
    """Hashes: inputs that differ in one bit give unrelated numbers."""
    value = looks.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ (value >> np.uint64(shift))) * np.uint64(factor)
    return value ^ (value >> np.uint64(31))


@lru_cache(maxsize=1)
def tops() -> np.ndarray:
    """How far below its highest point the upper edge is, in metres, along one period: float32 (tops, steps)."""
    x = (np.arange(STEPS) + 0.5) / STEPS
    middle = np.abs(x - 0.5) * 2
    edges = {
        "flat": x * 0,
        "chimneys": np.where(np.abs(x - 0.3) < 0.045, 0, 0.9),
        "gables": middle * 3.4,
        "balusters": np.where((x * 4) % 1 < 0.55, 0, 0.12),
        "lifts": np.where(np.abs(x - 0.5) < 0.1, 0, 1.6),
        "steps": np.floor(middle * 5) / 5 * 3.0,
        "teeth": np.where(middle < 0.55, 0, 0.6),
        "crests": 0.9 * np.clip(middle * 1.6 - 0.3, 0, 1) ** 2,
    }
    return np.stack([edges[name] for name in TOPS]).astype(np.float32)
