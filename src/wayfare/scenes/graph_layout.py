"""Where the nodes and words of a drawn graph stand: near where their objects are, and never over each other.

Objects and the words on the arrows are all rectangles. They begin where the objects are in the picture, and are moved
until each two of them are about as far apart as the number of steps between them in the graph (stress majorisation).
That is brought to the given width; what still overlaps is moved apart, and as much height is taken as it needs. The
same graph is always laid out in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_STEPS = 200
_GAP = np.array([10.0, 8.0])  # pixels between rectangles
_MARGIN = 8.0
_STEP = np.array([115.0, 60.0])  # pixels from a node to the word of its arrow, across and down, at most
_TALLEST = 1.15  # the height that is aimed at, in widths
_APART = 300  # rounds of moving apart, before the rest is done by hand


@dataclass(frozen=True)
class GraphLayout:
    """Centres of the nodes and of the words, in pixels of a sheet of (width, height)."""

    nodes: np.ndarray  # float64 (N, 2)
    words: np.ndarray  # float64 (E, 2)
    width: float
    height: float


def arrange(
    starts: np.ndarray, nodes: np.ndarray, edges: Sequence[tuple[int, int]], words: np.ndarray, width: float
) -> GraphLayout:
    """Place nodes, whose centres are at `starts` (N, 2) in the picture from 0 to 1, and a word for each edge.

    `nodes` (N, 2) and `words` (E, 2) are widths and heights of the rectangles, in pixels.
    """
    sizes = np.concatenate([nodes, words]).reshape(-1, 2)
    if not len(sizes):
        return GraphLayout(nodes.reshape(-1, 2), words.reshape(-1, 2), width, 0.0)
    width = max(width, sizes[:, 0].max() + 2 * _MARGIN)
    ends = np.array(edges, np.int64).reshape(-1, 2)
    steps = _steps(len(nodes), ends)
    points = _spread(starts.reshape(-1, 2) * steps.max(initial=1), 0.1)
    aside = (points[ends[:, 1]] - points[ends[:, 0]])[:, ::-1] * (0.12, -0.12)  # there and back are two words
    points = _relaxed(_spread(np.concatenate([points, points[ends].mean(1) + aside]), 0.05), steps)
    points = _apart(_fitted(points, sizes, width), sizes, width)
    points[:, 1] -= (points[:, 1] - sizes[:, 1] / 2).min() - _MARGIN
    height = float((points[:, 1] + sizes[:, 1] / 2).max()) + _MARGIN
    return GraphLayout(points[: len(nodes)], points[len(nodes) :], width, height)


def border(centre: np.ndarray, size: np.ndarray, towards: np.ndarray) -> np.ndarray:
    """Where the line from a rectangle's centre to another point leaves the rectangle."""
    step = towards - centre
    reach = np.abs(step) / np.maximum(size / 2, 1e-9)
    point: np.ndarray = centre + step / max(float(reach.max()), 1.0)
    return point


def _spread(points: np.ndarray, far: float) -> np.ndarray:
    """Points that are one and the same are moved by a little, each in another direction, so that they can part."""
    turn = np.arange(len(points)) * 2.4
    return points + far * np.stack([np.cos(turn), np.sin(turn)], 1)


def _steps(nodes: int, ends: np.ndarray) -> np.ndarray:
    """float64 (N + E, N + E): steps from each rectangle to each other; a node and the word of its arrow are 1 apart."""
    count = nodes + len(ends)
    far = np.full((count, count), np.inf)
    np.fill_diagonal(far, 0)
    for word, pair in enumerate(ends, start=nodes):
        far[pair, word] = far[word, pair] = 1
    for middle in range(count):
        far = np.minimum(far, far[:, middle, None] + far[middle])
    unconnected = max(far[np.isfinite(far)].max(initial=1), 2) + 1
    return np.where(np.isfinite(far), far, min(unconnected, 4))


def _relaxed(points: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Points whose distances are near the steps between them: each move makes the sum of squared errors smaller."""
    count = len(points)
    weights = 1 / np.where(np.eye(count, dtype=bool), np.inf, steps) ** 2
    pull = np.diag(weights.sum(1)) - weights
    inverse = np.linalg.pinv(pull)
    for _ in range(_STEPS if count > 1 else 0):
        away = points[:, None] - points[None]
        far = np.maximum(np.sqrt((away**2).sum(2)), 1e-6)
        points = inverse @ ((weights * steps / far)[..., None] * away).sum(1)
    return points


def _fitted(points: np.ndarray, sizes: np.ndarray, width: float) -> np.ndarray:
    """Steps as pixels, from edge to edge of the sheet at most."""
    low, high = points.min(0), points.max(0)
    room = np.array([width - sizes[:, 0].max() - 2 * _MARGIN, width * _TALLEST])
    scale = np.minimum(_STEP, room / np.maximum(high - low, 1e-6))
    points = (points - (low + high) / 2) * scale
    points[:, 0] += width / 2
    return points


def _apart(points: np.ndarray, sizes: np.ndarray, width: float) -> np.ndarray:
    least = (sizes[:, None] + sizes[None]) / 2 + _GAP
    half = sizes[:, 0] / 2 + _MARGIN
    for _ in range(_APART):
        away = points[:, None] - points[None]
        over = least - np.abs(away)
        both = (over > 1e-6).all(2) & ~np.eye(len(points), dtype=bool)
        if not both.any():
            return points
        down = over[..., 1] <= over[..., 0]
        side = np.where(away == 0, np.sign(np.arange(len(points))[:, None] - np.arange(len(points)))[..., None], away)
        move = np.sign(side) * over * 0.5 * np.stack([~down, down], 2) * both[..., None]
        points = points + move.sum(1) / np.maximum(both.sum(1), 1)[:, None] * 1.1
        points[:, 0] = np.clip(points[:, 0], half, width - half)
    # from the top down, each as low as it must be to be clear of those above it
    points = points.copy()
    placed: list[int] = []
    for one in np.argsort(points[:, 1], kind="stable").tolist():
        while hit := [
            other for other in placed if (np.abs(points[one] - points[other]) < least[one, other] - 1e-6).all()
        ]:
            points[one, 1] = max(points[other, 1] + least[one, other, 1] for other in hit)
        placed.append(one)
    return points
