"""Routes through the town: the network for walkers and for drivers, and tracks through it in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial import cKDTree

from wayfare.town.model import GROUND, City

PIECE = 30.0  # metres: longer ways have points in between, at doors and kerbs, where one can stop
_STREET = [GROUND.index(name) for name in ("road", "crossing")]


class Ways:
    """The largest connected part of the network that one may use: pavements and paths, or roads."""

    def __init__(self, city: City, road: bool) -> None:
        edges = np.unique(np.sort(city.edges[city.edge_road == road], axis=1), axis=0)
        edges = edges if road else edges[_free(city, edges)]
        nodes, edges = _cut(city.nodes.astype(float), edges)
        whole = coo_matrix((np.ones(len(edges)), edges.T), (len(nodes), len(nodes)))
        part = connected_components(whole, directed=False)[1]
        kept = np.flatnonzero(part == np.bincount(part).argmax())
        number = np.full(len(nodes), -1)
        number[kept] = np.arange(len(kept))
        inside = number[edges[number[edges[:, 0]] >= 0]]
        self.points = nodes[kept]
        length = np.hypot(*(self.points[inside[:, 0]] - self.points[inside[:, 1]]).T)
        self._graph = coo_matrix((length, inside.T), (len(kept), len(kept))).tocsr()
        self._trees: dict[int, tuple[np.ndarray, list[int]]] = {}
        # where one may stop: pavements and squares; for vehicles, between corners
        row, column = (self.points[:, ::-1] / city.cell).astype(int).T
        surface = city.ground[row.clip(0, city.ground.shape[0] - 1), column.clip(0, city.ground.shape[1] - 1)]
        self.quiet = kept >= len(city.nodes) if road else ~np.isin(surface, _STREET)
        self.size = np.array([city.width, city.height])

    def _tree(self, root: int) -> tuple[np.ndarray, list[int]]:
        """Distances of all nodes from this one, and the next node towards it; cached."""
        if root not in self._trees:
            far, towards = dijkstra(self._graph, directed=False, indices=root, return_predecessors=True)
            self._trees[root] = far, towards.tolist()
        return self._trees[root]

    def distances(self, node: int) -> np.ndarray:
        """Distance to each node in metres."""
        return self._tree(node)[0]

    def leg(self, start: int, end: int) -> tuple[float, list[int]]:
        """The shortest way: metres, and the nodes without the first."""
        far, towards = self._tree(end)
        way = []
        here = start
        while here != end:
            here = towards[here]
            way.append(here)
        return float(far[start]), way

    def around(self, x: float, y: float, radius: float, least: int) -> np.ndarray:
        """The nodes within a radius at which one may stop, the nearest first; no fewer than `least`."""
        far = np.hypot(*(self.points - (x, y)).T)
        far[~self.quiet] += self.size.sum()
        return np.argsort(far, kind="stable")[: max(int((far <= radius).sum()), least)]


@dataclass(frozen=True)
class Track:
    """An uninterrupted track: positions at times, with straight lines and constant speed in between."""

    times: np.ndarray  # (K,), not descending
    points: np.ndarray  # (K, 2)

    def at(self, times: np.ndarray) -> np.ndarray:
        """Positions (n, 2); NaN before the start and after the end."""
        sides = [np.interp(times, self.times, side, left=np.nan, right=np.nan) for side in self.points.T]
        return np.stack(sides, -1)

    @cached_property
    def way(self) -> np.ndarray:
        """Distance covered at each vertex."""
        return np.concatenate(([0.0], np.cumsum(np.hypot(*np.diff(self.points, axis=0).T))))

    def along(self, metres: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """After so many metres: times, positions, headings in degrees. Where it stands, the time is that of arrival."""
        moves = np.flatnonzero(np.diff(self.way) > 1e-6)  # knots from which it moves on
        leg = moves[np.searchsorted(self.way[moves], metres, "right") - 1]
        share = (metres - self.way[leg]) / (self.way[leg + 1] - self.way[leg])
        step = self.points[leg + 1] - self.points[leg]
        times = self.times[leg] + share * (self.times[leg + 1] - self.times[leg])
        return times, self.points[leg] + share[:, None] * step, np.degrees(np.arctan2(step[:, 0], step[:, 1])) % 360


class Outing:
    """A track while it is built from walks and stays."""

    def __init__(self, ways: Ways, node: int, time: float, pace: float, aside: float) -> None:
        self.ways, self.start, self.pace = ways, time, pace
        self.aside = aside  # how far to the right of the middle of the way
        self.nodes, self.stays = [node], [0.0]
        self.spent = 0.0

    @property
    def here(self) -> int:
        return self.nodes[-1]

    @property
    def time(self) -> float:
        """About when it is: the track's length differs a little from that of the ways' middles."""
        return self.start + self.spent

    def go(self, node: int, pauses: Callable[[int], np.ndarray] | None = None) -> None:
        """To a node, by the shortest way; `pauses` gives the seconds to stay at each of so many nodes on it."""
        metres, way = self.ways.leg(self.here, node)
        self.follow(metres, way, None if pauses is None else (pauses(len(way)) * self.ways.quiet[way]).tolist())

    def follow(self, metres: float, way: list[int], stays: list[float] | None = None) -> None:
        """To the next nodes of a way that is known already."""
        self.spent += metres / self.pace + (0 if stays is None else sum(stays))
        self.nodes += way
        self.stays += [0.0] * len(way) if stays is None else stays

    def stay(self, seconds: float) -> None:
        self.stays[-1] += seconds
        self.spent += seconds

    def track(self) -> Track:
        """Its ways, each point moved aside, and the times that follow."""
        middle = self.ways.points[self.nodes]
        moved = np.clip(middle + self.aside * _right(middle), 0.5, self.ways.size - 0.5)
        going = np.hypot(*np.diff(moved, axis=0).T) / self.pace
        stays = np.array(self.stays)
        arrival = self.start + np.concatenate(([0.0], np.cumsum(going + stays[:-1])))
        times = np.stack([arrival, arrival + stays], -1)
        stands = np.stack([np.ones(len(stays), bool), stays > 0], -1)
        return Track(times[stands], np.repeat(moved, 2, axis=0)[stands.ravel()])


def _right(points: np.ndarray) -> np.ndarray:
    """Unit vectors to the right of the way at each point."""
    if len(points) == 1:
        return np.array([[1.0, 0.0]])
    step = np.diff(points, axis=0)
    step /= np.hypot(*step.T)[:, None]
    into, out = np.concatenate((step[:1], step)), np.concatenate((step, step[-1:]))
    mean = into + out
    size = np.hypot(*mean.T)[:, None]
    way = np.where(size > 0.3, mean / np.maximum(size, 0.3), into)  # who turns back stays on the side of the way in
    return np.stack([way[:, 1], -way[:, 0]], -1)


def _cut(nodes: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The network with points added so that no edge is long; the old nodes keep their numbers."""
    length = np.hypot(*(nodes[edges[:, 0]] - nodes[edges[:, 1]]).T)
    points, joined = [nodes], []
    count = len(nodes)
    for (a, b), pieces in zip(edges.tolist(), np.ceil(length / PIECE).astype(int).tolist()):
        between = list(range(count, count + pieces - 1))
        share = np.arange(1, pieces)[:, None] / max(pieces, 1)
        points.append(nodes[a] + share * (nodes[b] - nodes[a]))
        count += len(between)
        chain = [a, *between, b]
        joined += list(pairwise(chain))
    return np.concatenate(points), np.array(joined, np.int64).reshape(-1, 2)


def _free(city: City, edges: np.ndarray) -> np.ndarray:
    """Which edges do not run through a wall."""
    if not len(city.walls):
        return np.ones(len(edges), bool)
    first, last = city.walls[:, :2].astype(float), city.walls[:, 2:4].astype(float)
    longest = float(np.hypot(*(last - first).T).max())
    tree = cKDTree((first + last) / 2)
    start, end = city.nodes[edges[:, 0]].astype(float), city.nodes[edges[:, 1]].astype(float)
    reach = (np.hypot(*(end - start).T) + longest) / 2
    near = tree.query_ball_point((start + end) / 2, reach)
    return np.array([not _cross(a, b, first[walls], last[walls]) for a, b, walls in zip(start, end, near)], bool)


def _cross(a: np.ndarray, b: np.ndarray, first: np.ndarray, last: np.ndarray) -> bool:
    """Whether the line from a to b meets one of the others."""

    def side(p: np.ndarray, q: np.ndarray, r: np.ndarray) -> np.ndarray:
        found: np.ndarray = (q[..., 0] - p[..., 0]) * (r[..., 1] - p[..., 1]) - (q[..., 1] - p[..., 1]) * (
            r[..., 0] - p[..., 0]
        )
        return found

    between = side(a, b, first) * side(a, b, last) < 0
    return bool((between & (side(first, last, a) * side(first, last, b) < 0)).any())
