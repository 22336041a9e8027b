"""The plan of a city: a warped grid of streets, the blocks between them, and the network of ways.

Every street line goes on to the city's border. A block is a convex polygon between streets: four sides, or three where
an avenue cuts diagonally through. Around each block runs its pavement, crossings join the pavements over the roads, and
the middle of a crossing is a point of the road too, so that all ways hang together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wayfare.town import plane
from wayfare.town.model import GROUND

MARGIN = 34.0  # how deep the row of blocks is that lies around the city
CODE = {name: code for code, name in enumerate(GROUND)}
_WIDTHS = {"avenue": (6.5, 4.0), "street": (5.0, 2.8), "lane": (3.2, 2.2), "alley": (1.0, 2.4), "none": (0.0, 0.0)}


class Street(NamedTuple):
    """The piece of a street between two corners."""

    a: int
    b: int
    kind: str

    @property
    def half(self) -> float:
        """Half the width of the roadway."""
        return _WIDTHS[self.kind][0]

    @property
    def pavement(self) -> float:
        """The width of each pavement."""
        return _WIDTHS[self.kind][1]

    @property
    def drivable(self) -> bool:
        return self.kind not in ("alley", "none")


@dataclass
class CityBlock:
    """What lies between streets. Polygons are anticlockwise; side i goes from corner i to the next."""

    column: int
    row: int
    corners: list[int]
    sides: list[Street]
    kerb: np.ndarray  # up to the roadway
    walk: np.ndarray  # the middle of the pavement
    lot: np.ndarray  # behind the pavement
    walk_nodes: list[int] = field(default_factory=list)

    @property
    def centre(self) -> np.ndarray:
        found: np.ndarray = self.lot.mean(0)
        return found

    @property
    def room(self) -> float:
        """The distance from its centre to the nearest side of the lot."""
        a, along = self.lot, plane.unit(np.roll(self.lot, -1, 0) - self.lot)
        return float(((self.centre - a) * plane.left(along)).sum(1).min())


class Network:
    """Nodes and edges while they are built."""

    def __init__(self) -> None:
        self.nodes: list[np.ndarray] = []
        self.edges: list[tuple[int, int]] = []
        self.road: list[bool] = []

    def node(self, point: np.ndarray) -> int:
        self.nodes.append(np.asarray(point, float))
        return len(self.nodes) - 1

    def join(self, *nodes: int, road: bool = False) -> None:
        """A way through these nodes."""
        for a, b in pairwise(nodes):
            self.edges.append((a, b))
            self.road.append(road)

    def split(self, a: int, b: int, point: np.ndarray) -> int:
        """A new node in the way between two nodes, which must be joined."""
        at = next(i for i, edge in enumerate(self.edges) if edge in ((a, b), (b, a)))
        middle = self.node(point)
        self.edges[at] = (a, middle)
        self.join(middle, b, road=self.road[at])
        return middle


@dataclass
class StreetPlan:
    """Streets and blocks."""

    lines: tuple[np.ndarray, np.ndarray]  # where the street lines are before they are warped
    corners: np.ndarray  # (C, 2)
    streets: list[Street]
    blocks: list[CityBlock]
    inner: int  # blocks from west to east and from south to north, without the row around

    @property
    def size(self) -> tuple[float, float]:
        return float(self.lines[0][-1]), float(self.lines[1][-1])

    def is_inner(self, block: CityBlock) -> bool:
        return 1 <= block.column <= self.inner and 1 <= block.row <= self.inner


def draw(rng: np.random.Generator, inner: int) -> StreetPlan:
    """A plan with `inner` x `inner` blocks and a row of shallow ones around them."""
    count = inner + 3
    lines = _lines(rng, inner), _lines(rng, inner)
    corners = _warp(rng, *lines)
    kinds = [_line_kinds(rng, inner) for _ in "xy"]  # of the lines that go north, of those that go east
    cut = _diagonals(rng, inner)
    streets: dict[tuple[int, int], Street] = {}

    def number(column: int, row: int) -> int:
        return row * count + column

    def add(a: int, b: int, kind: str) -> None:
        streets[a, b] = Street(a, b, kind)

    for row in range(count):
        for column in range(count):
            if column + 1 < count:
                add(number(column, row), number(column + 1, row), kinds[1][row])
            if row + 1 < count:
                add(number(column, row), number(column, row + 1), kinds[0][column])
    _make_alleys(rng, streets, count)
    for (column, row), rising in cut.items():
        ends = (0, 0, 1, 1) if rising else (1, 0, 0, 1)
        add(number(column + ends[0], row + ends[1]), number(column + ends[2], row + ends[3]), "street")

    def block(column: int, row: int, around: list[int]) -> CityBlock:
        polygon = corners[around]
        sides = [streets.get((a, b)) or streets[b, a] for a, b in zip(around, around[1:] + around[:1])]
        half, pavement = np.array([side.half for side in sides]), np.array([side.pavement for side in sides])
        rings = [plane.inset(polygon, by) for by in (half, half + pavement / 2, half + pavement)]
        kerb, walk, lot = (ring if ring is not None else polygon for ring in rings)
        return CityBlock(column, row, corners=around, sides=sides, kerb=kerb, walk=walk, lot=lot)

    blocks = []
    for row in range(count - 1):
        for column in range(count - 1):
            sw, se = number(column, row), number(column + 1, row)
            nw, ne = number(column, row + 1), number(column + 1, row + 1)
            if (column, row) not in cut:
                around = [[sw, se, ne, nw]]
            else:
                around = [[sw, se, ne], [sw, ne, nw]] if cut[column, row] else [[sw, se, nw], [se, ne, nw]]
            blocks += [block(column, row, ring) for ring in around]
    return StreetPlan(lines, corners, list(streets.values()), blocks, inner)


def _lines(rng: np.random.Generator, inner: int) -> np.ndarray:
    steps = np.concatenate(([MARGIN], rng.uniform(68, 92, inner), [MARGIN]))
    return np.concatenate(([0.0], np.cumsum(steps)))


def _warp(rng: np.random.Generator, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """The crossings of the lines, moved so that streets bend; those on the border stay on it."""
    x, y = np.meshgrid(xs, ys)
    bend = rng.uniform(4, 9, 2)
    phase, wave = rng.uniform(0, 2 * np.pi, 2), rng.uniform(220, 420, 2)
    shift_x = bend[0] * np.sin(2 * np.pi * y / wave[0] + phase[0]) + rng.uniform(-4.5, 4.5, x.shape)
    shift_y = bend[1] * np.sin(2 * np.pi * x / wave[1] + phase[1]) + rng.uniform(-4.5, 4.5, x.shape)
    shift_x[:, [0, -1]] = shift_y[[0, -1], :] = 0
    shift_x[[0, -1]] = shift_x[[1, -2]]  # a street meets the border at a right angle
    shift_y[:, [0, -1]] = shift_y[:, [1, -2]]
    return np.stack((x + shift_x, y + shift_y), -1).reshape(-1, 2)


def _line_kinds(rng: np.random.Generator, inner: int) -> list[str]:
    kinds = rng.choice(["avenue", "street", "lane"], inner + 1, p=[0.25, 0.5, 0.25]).tolist()
    return ["none", *kinds, "none"]


def _diagonals(rng: np.random.Generator, inner: int) -> dict[tuple[int, int], bool]:
    """Blocks that an avenue cuts diagonally, and whether it rises to the north-east."""
    if inner < 4:
        return {}
    cut: dict[tuple[int, int], bool] = {}
    for _ in range(max(1, inner * inner // 48)):
        length = int(rng.integers(2, 4))
        column, row = (int(v) for v in rng.integers(1, inner + 2 - length, 2))
        rising = bool(rng.integers(2))
        chain = [(column + k, row + k if rising else row + length - 1 - k) for k in range(length)]
        taken = {(c + i, r + j) for c, r in cut for i in (-1, 0, 1) for j in (-1, 0, 1)}
        if not taken.intersection(chain):
            cut.update(dict.fromkeys(chain, rising))
    return cut


def _make_alleys(rng: np.random.Generator, streets: dict[tuple[int, int], Street], count: int) -> None:
    """Turn a few inner pieces of street into alleys, never two at one corner, so that the roads stay connected."""
    taken: set[int] = set()
    for (a, b), street in sorted(streets.items()):
        inside = all(1 < node % count < count - 2 and 1 < node // count < count - 2 for node in (a, b))
        if rng.random() < 0.13 and inside and street.kind != "avenue" and not taken & {a, b}:
            streets[a, b] = Street(a, b, "alley")
            taken |= {a, b}


def connect(plan: StreetPlan) -> tuple[Network, list[tuple[np.ndarray, np.ndarray, float]]]:
    """The network of roads and pavements, and the crossings: middle, direction of the road, half its width."""
    network = Network()
    crossings = []
    blocks_at: dict[tuple[int, int], list[CityBlock]] = {}
    for block in plan.blocks:
        block.walk_nodes = [network.node(point) for point in block.walk]
        for i, side in enumerate(block.sides):
            blocks_at.setdefault((side.a, side.b), []).append(block)
            if side.kind != "none":
                network.join(block.walk_nodes[i], block.walk_nodes[(i + 1) % len(block.sides)])
    junction: dict[int, int] = {}
    for street in plan.streets:
        if street.kind == "none":
            continue
        ends = [plan.corners[street.a], plan.corners[street.b]]
        along = plane.unit(ends[1] - ends[0])
        middles = []
        for corner, start, way in ((street.a, ends[0], along), (street.b, ends[1], -along)):
            if _on_border(plan, corner):
                continue
            beside = [block.walk_nodes[block.corners.index(corner)] for block in blocks_at[street.a, street.b]]
            if not street.drivable:
                network.join(*beside)
                continue
            far = max(float((network.nodes[node] - start) @ way) for node in beside) + 0.8
            middles.append(network.node(start + way * far))
            network.join(beside[0], middles[-1], beside[1])
            crossings.append((start + way * far, way, street.half))
        if street.drivable:
            for corner in (street.a, street.b):
                if corner not in junction:
                    junction[corner] = network.node(plan.corners[corner])
            if _on_border(plan, street.a) or _on_border(plan, street.b):
                network.join(junction[street.a], *middles, junction[street.b], road=True)
            else:
                network.join(junction[street.a], middles[0], middles[1], junction[street.b], road=True)
    return network, crossings


def _on_border(plan: StreetPlan, corner: int) -> bool:
    x, y = plan.corners[corner]
    return bool(min(x, y) < 0.01 or x > plan.size[0] - 0.01 or y > plan.size[1] - 0.01)


def surface(plan: StreetPlan, crossings: list[tuple[np.ndarray, np.ndarray, float]], cell: float) -> np.ndarray:
    """Roads, crossings and pavements; the lots are grass until something is put there."""
    columns, rows = (int(np.ceil(size / cell)) for size in plan.size)
    ground = np.full((rows, columns), CODE["road"], np.uint8)
    for middle, way, half in crossings:
        plane.paint(ground, cell, plane.strip(middle - way * 1.5, middle + way * 1.5, half + 0.5), CODE["crossing"])
    for street in plan.streets:
        if street.kind == "alley":
            a, b = plan.corners[street.a], plan.corners[street.b]
            way = plane.unit(b - a) * 6  # the junctions at its ends are road
            plane.paint(ground, cell, plane.strip(a + way, b - way, street.half + 0.5), CODE["pavement"])
    for block in plan.blocks:
        plane.paint(ground, cell, block.kerb, CODE["pavement"])
        plane.paint(ground, cell, block.lot, CODE["grass"])
    return ground
