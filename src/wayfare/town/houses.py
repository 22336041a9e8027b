"""Blocks with buildings: rows of houses around a courtyard, villas in gardens, alleys that cut through."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.town import plane
from wayfare.town.site import SIZES, Clearing, House, Site
from wayfare.town.streets import CityBlock

LOOKS = 5  # facades of a district are mostly drawn from so many
_ALLEY = 1.7  # half the width of an alley between houses


class _Manner(NamedTuple):
    """How districts of a kind are built."""

    widths: tuple[float, float]  # of houses along the street
    depth: float
    heights: tuple[float, float]
    gaps: float  # share of lots that are left open
    villas: bool = False
    alleys: float = 0.0  # share of blocks that an alley cuts


_MANNERS = {
    "Old Town": _Manner((6, 10), 10, (8, 13), 0.06, alleys=0.7),
    "Harbour": _Manner((12, 22), 13, (7, 12), 0.10, alleys=0.3),
    "Market Quarter": _Manner((7, 12), 10, (9, 16), 0.07, alleys=0.5),
    "Villas": _Manner((14, 19), 16, (6, 9), 0.10, villas=True),
    "Offices": _Manner((16, 28), 16, (18, 38), 0.08),
    "Terraces": _Manner((5, 8), 9, (7, 10), 0.05, alleys=0.3),
    "Mills": _Manner((14, 24), 14, (9, 17), 0.12, alleys=0.4),
    "Gardens": _Manner((12, 16), 14, (8, 12), 0.15, villas=True),
}
DISTRICTS = tuple(_MANNERS)


class _Lot(NamedTuple):
    """A piece of land for one house. Its first wall is at the street; a corner house's second is too."""

    footprint: np.ndarray
    corner: bool
    after: bool  # whether the next lot around the block touches it


class _Row(NamedTuple):
    """Land with houses all around its edge, except where a side is closed."""

    polygon: np.ndarray
    closed: list[bool]


def build(site: Site, block: CityBlock, district: int) -> None:
    """Houses along the block's streets."""
    manner = _MANNERS[site.districts[district].name]
    for row in _divide(site, block, manner):
        _build_row(site, row, district, manner)


def _divide(site: Site, block: CityBlock, manner: _Manner) -> list[_Row]:
    """The block as one piece, or as two or three if an alley goes through it or into it."""
    closed = [side.kind == "none" for side in block.sides]
    whole = [_Row(block.lot, closed)]
    if len(closed) < 4 or any(closed) or block.room < 24 or site.rng.random() > manner.alleys:
        return whole
    first = int(site.rng.integers(4))
    ends = [
        block.lot[k % 4] + (block.lot[(k + 1) % 4] - block.lot[k % 4]) * site.rng.uniform(0.42, 0.58)
        for k in (first, first + 2)
    ]
    way = plane.unit(ends[1] - ends[0])
    dead_end = site.rng.random() < 0.5
    rows, land = [], whole[0]
    if dead_end:  # what lies beyond its end is cut off first
        ends[1] = ends[0] + (ends[1] - ends[0]) * 0.6
        land, beyond = _cut(land, ends[1], plane.left(way), 0.0, closed=True)
        rows.append(beyond)
    site.paint(plane.strip(ends[0] - way * 0.5, ends[1] + way * 0.5, _ALLEY), "pavement")
    rows += _cut(land, ends[0], way, _ALLEY, closed=False)
    _join_alley(site, block, first, ends, dead_end)
    return rows


def _cut(row: _Row, point: np.ndarray, way: np.ndarray, half: float, closed: bool) -> tuple[_Row, _Row]:
    """What lies on the left and on the right of a strip along a line."""
    parts = []
    for which, shift in ((0, half), (1, -half)):
        polygon, sides = plane.cut(row.polygon, point + plane.left(way) * shift, way)[which]
        parts.append(_Row(polygon, [closed if side < 0 else row.closed[side] for side in sides]))
    return parts[0], parts[1]


def _join_alley(site: Site, block: CityBlock, first: int, ends: list[np.ndarray], dead_end: bool) -> None:
    """Make the alley a way in the network."""
    nodes = []
    for k, end in ((first, ends[0]), (first + 2, ends[1])):
        if dead_end and k != first:
            nodes.append(site.network.node(end - plane.unit(ends[1] - ends[0]) * 1.0))
            continue
        a, b = block.walk_nodes[k % 4], block.walk_nodes[(k + 1) % 4]
        from_a, along = end - site.network.nodes[a], site.network.nodes[b] - site.network.nodes[a]
        foot = site.network.nodes[a] + along * float(from_a @ along / (along @ along))
        nodes.append(site.network.split(a, b, foot))
    site.network.join(*nodes)


def _build_row(site: Site, row: _Row, district: int, manner: _Manner) -> None:
    rng = site.rng
    back = _back(row, manner.depth)
    paved = rng.random() < (0.1 if manner.villas else 0.4)
    if paved:
        site.paint(back, "pavement")
    lots = _lots(rng, row, back, manner)
    gaps = rng.random(len(lots)) < manner.gaps
    looks = _looks(site, district, len(lots))
    tall = np.round(rng.uniform(*manner.heights, len(lots)), 2).tolist()
    for i, lot in enumerate(lots):
        if manner.villas:
            _garden(site, lot, looks[i])
            if not gaps[i] and not lot.corner:
                _villa(site, lot, tall[i], looks[i], district)
        elif gaps[i]:
            _passage(site, lot)
        else:
            after = (i + 1) % len(lots)
            shown = [True] * 4
            shown[2 if lot.corner else 1] = not (lot.after and not gaps[after] and tall[after] >= tall[i])
            shown[3] = not (lots[i - 1].after and not gaps[i - 1] and tall[i - 1] >= tall[i])
            shown[3] |= lot.corner and not shown[2]  # so that a building's walls have all its corners among their ends
            site.houses.append(House(lot.footprint, tuple(shown), tall[i], looks[i], district))
    _courtyard(site, back, "pavement" if paved else "grass")


def _back(row: _Row, depth: float) -> np.ndarray:
    """The line behind the houses: at the requested depth, or as deep as the land allows."""
    while True:
        back = plane.inset(row.polygon, [0.0 if closed else depth for closed in row.closed])
        if back is not None:
            return back
        depth *= 0.8


def _lots(rng: np.random.Generator, row: _Row, back: np.ndarray, manner: _Manner) -> list[_Lot]:
    """In order around the land: one at each corner between two streets, and a row along each street."""
    lots = []
    polygon, count = row.polygon, len(row.polygon)
    along = plane.unit(np.roll(polygon, -1, 0) - polygon)
    for i in range(count):
        after = (i + 1) % count
        if row.closed[i]:
            continue
        start, end = (float((back[k] - polygon[i]) @ along[i]) for k in (i, after))
        if not row.closed[i - 1]:
            arrive = polygon[i - 1] + along[i - 1] * float((back[i] - polygon[i - 1]) @ along[i - 1])
            corner = np.stack((arrive, polygon[i], polygon[i] + along[i] * start, back[i]))
            lots.append(_Lot(corner, True, True))
        else:
            start = max(0.0, start)
        if row.closed[after]:
            end = min(end, float(np.hypot(*(polygon[after] - polygon[i]))))
        cuts = _cuts(rng, start, end, manner.widths)
        deep = plane.left(along[i]) * float((back[i] - polygon[i]) @ plane.left(along[i]))
        for s0, s1 in pairwise(cuts):
            a, b = polygon[i] + along[i] * s0, polygon[i] + along[i] * s1
            touches = s1 < cuts[-1] or not row.closed[after]
            lots.append(_Lot(np.stack((a, b, b + deep, a + deep)), False, touches))
    return lots


def _cuts(rng: np.random.Generator, start: float, end: float, widths: tuple[float, float]) -> np.ndarray:
    count = max(1, round((end - start) / float(rng.uniform(*widths))))
    parts = np.cumsum(rng.uniform(0.75, 1.25, count))
    return np.concatenate(([start], start + (end - start) * parts / parts[-1]))


def _looks(site: Site, district: int, count: int) -> list[int]:
    """Facades: most from the district's small pool, so that near places look alike."""
    pool = rng_for("town facades", site.districts[district].style).integers(1, 1 << 40, LOOKS)
    own = site.rng.integers(1, 1 << 40, count)
    shared = pool[site.rng.integers(LOOKS, size=count)]
    return [int(look) for look in np.where(site.rng.random(count) < 0.8, shared, own)]


def _inside(lot: _Lot, u: float, v: float) -> np.ndarray:
    """A point of a lot: u along the street, v from the street to the back, both from 0 to 1."""
    a, b, c, d = lot.footprint
    front, rear = a + (b - a) * u, d + (c - d) * u
    return np.asarray(front + (rear - front) * v)


def _villa(site: Site, lot: _Lot, height: float, look: int, district: int) -> None:
    corners = ((0.14, 0.34), (0.86, 0.34), (0.86, 0.96), (0.14, 0.96))
    footprint = np.stack([_inside(lot, *corner) for corner in corners])
    site.houses.append(House(footprint, (True,) * 4, height, look, district))


def _garden(site: Site, lot: _Lot, look: int) -> None:
    """A fence or a wall at the street, a tree, flowers."""
    kind = "wall" if look % 3 == 0 else "fence"
    corners = lot.footprint
    for a, b in ((0, 1), (1, 2)) if lot.corner else ((0, 1),):
        across = corners[b] - corners[a]
        width = float(np.hypot(*across))
        inward = plane.left(across / width)
        pieces = max(1, round(width / SIZES[kind][0]))
        for k in range(pieces):
            if lot.corner or pieces < 3 or k != pieces // 2:  # where the gate is
                at = corners[a] + across * (k + 0.5) / pieces + inward * 0.3
                site.put(kind, at, plane.heading(-inward), size=(width / pieces, *SIZES[kind][1:]))
    if lot.corner or site.rng.random() < 0.4:
        site.put("tree", _inside(lot, 0.5 if lot.corner else 0.2, 0.5 if lot.corner else 0.17), size=(3.0, 3.0, 4.6))
    if site.rng.random() < 0.6 and not lot.corner:
        site.paint(plane.disc(_inside(lot, 0.7, 0.18), 1.7, 0.6), "flower")


def _passage(site: Site, lot: _Lot) -> None:
    """A gap between houses."""
    site.paint(lot.footprint, "pavement" if site.rng.random() < 0.5 else "grass")
    facing = plane.heading(-plane.left(lot.footprint[1] - lot.footprint[0]))
    if site.rng.random() < 0.5:
        site.put("fence", _inside(lot, 0.5, 0.06), facing)
    else:
        site.put("potted plant", _inside(lot, 0.35, 0.12), facing)
    site.put("tree", _inside(lot, 0.5, 0.6))


def _courtyard(site: Site, court: np.ndarray, surface: str) -> None:
    clearing = Clearing(site, court, surface)
    for _ in range(min(6, int(plane.area(court) / 90))):
        clearing.put("tree")
