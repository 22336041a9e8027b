"""Plane geometry for the town: convex polygons as (k, 2) arrays of corners, anticlockwise, in metres."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def unit(vector: np.ndarray) -> np.ndarray:
    """The same direction, one metre long."""
    found: np.ndarray = vector / np.hypot(vector[..., 0], vector[..., 1])[..., None]
    return found


def heading(vector: np.ndarray) -> float:
    """Degrees clockwise from north."""
    return float(np.degrees(np.arctan2(vector[0], vector[1])) % 360)


def left(vector: np.ndarray) -> np.ndarray:
    """Turned by 90 degrees to the left: for a side of an anticlockwise polygon, to its inside."""
    return np.stack((-vector[..., 1], vector[..., 0]), -1)


def area(polygon: np.ndarray) -> float:
    """In square metres; positive if anticlockwise."""
    x, y = polygon.T
    return float(np.dot(x, np.roll(y, -1)) - np.dot(np.roll(x, -1), y)) / 2


def inset(polygon: np.ndarray, by: Sequence[float] | np.ndarray) -> np.ndarray | None:
    """The polygon with each side moved inwards; None if a side vanishes. Corner i stays between sides i - 1 and i."""
    along = unit(np.roll(polygon, -1, 0) - polygon)
    start = polygon + left(along) * np.asarray(by, float)[:, None]
    before, before_along = np.roll(start, 1, 0), np.roll(along, 1, 0)
    turn = before_along[:, 0] * along[:, 1] - before_along[:, 1] * along[:, 0]
    gap = start - before
    step = (gap[:, 0] * along[:, 1] - gap[:, 1] * along[:, 0]) / turn
    result = before + before_along * step[:, None]
    sides = np.roll(result, -1, 0) - result
    return result if ((sides * along).sum(1) > 0.5).all() else None


def lines(polygon: np.ndarray) -> list[tuple[float, float, float]]:
    """For each side (p, q, r) so that p x + q y - r is a point's distance to the inside of it."""
    along = unit(np.roll(polygon, -1, 0) - polygon)
    return [(-v, u, u * y - v * x) for (u, v), (x, y) in zip(along.tolist(), polygon.tolist(), strict=True)]


def cut(polygon: np.ndarray, point: np.ndarray, way: np.ndarray) -> tuple[tuple[np.ndarray, list[int]], ...]:
    """The parts on the left and on the right of a line, each with the numbers of its sides; -1 is the cut."""
    parts = []
    for sign in (1, -1):
        distance = (polygon - point) @ left(way) * sign
        corners: list[np.ndarray] = []
        sides: list[int] = []
        for i, (here, there) in enumerate(zip(distance, np.roll(distance, -1), strict=True)):
            a, b = polygon[i], polygon[(i + 1) % len(polygon)]
            if here >= 0:
                corners.append(a)
                sides.append(i)
            if (here >= 0) != (there >= 0):
                corners.append(a + (b - a) * (here / (here - there)))
                sides.append(-1 if here >= 0 else i)
        parts.append((np.array(corners).reshape(-1, 2), sides))
    return tuple(parts)


def strip(a: np.ndarray, b: np.ndarray, half: float) -> np.ndarray:
    """The rectangle around the line from a to b."""
    side = left(unit(b - a)) * half
    return np.stack((a - side, b - side, b + side, a + side))


def disc(centre: np.ndarray, radius: float, squash: float = 1.0, turn: float = 0.0, corners: int = 20) -> np.ndarray:
    """A polygon in the shape of an ellipse."""
    angle = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    flat = np.stack((np.cos(angle) * radius, np.sin(angle) * radius * squash), -1)
    cos, sin = np.cos(turn), np.sin(turn)
    found: np.ndarray = flat @ np.array([[cos, sin], [-sin, cos]]) + centre
    return found


def paint(raster: np.ndarray, cell: float, polygon: np.ndarray, value: int) -> None:
    """Give all cells of the raster (rows north, columns east) whose centres are in the polygon this value."""
    low = np.maximum(np.floor(polygon.min(0) / cell).astype(int), 0)
    high = np.minimum(np.ceil(polygon.max(0) / cell).astype(int) + 1, raster.shape[::-1])
    if (low >= high).any():
        return
    x, y = ((np.arange(a, b) + 0.5) * cell for a, b in zip(low, high, strict=True))
    inside = np.ones((len(y), len(x)), bool)
    for p, q, r in lines(polygon):
        inside &= (y * q - r)[:, None] >= (x * -p)[None]
    raster[low[1] : high[1], low[0] : high[0]][inside] = value


def bounded(values: np.ndarray, low: float | np.ndarray, high: float | np.ndarray) -> np.ndarray:
    """Clip in place, and return the same array: np.clip is ten times slower on a picture's small arrays."""
    np.maximum(values, low, out=values)
    found: np.ndarray = np.minimum(values, high, out=values)
    return found
