"""The city being built: sizes of things, what has been placed so far, and where there is room."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from wayfare.town import plane
from wayfare.town.model import District, Square, Thing
from wayfare.town.streets import CODE, Network, StreetPlan

# width across its heading, depth along it, height; metres
SIZES: dict[str, tuple[float, float, float]] = {
    "person": (0.5, 0.35, 1.72),
    "bicycle": (0.55, 1.75, 1.05),
    "car": (1.8, 4.2, 1.5),
    "motorcycle": (0.8, 2.1, 1.2),
    "bus": (2.5, 10.0, 3.0),
    "truck": (2.3, 6.0, 2.9),
    "boat": (1.8, 5.0, 1.9),
    "traffic light": (0.45, 0.4, 3.4),
    "fire hydrant": (0.4, 0.4, 0.8),
    "stop sign": (0.75, 0.1, 2.5),
    "banner": (1.0, 0.15, 1.9),
    "street lamp": (0.6, 0.6, 5.2),
    "bench": (1.8, 0.6, 0.85),
    "chair": (0.5, 0.5, 0.9),
    "potted plant": (0.7, 0.7, 1.1),
    "dining table": (1.1, 1.1, 0.75),
    "bird": (0.3, 0.3, 0.25),
    "cat": (0.22, 0.5, 0.32),
    "dog": (0.3, 0.85, 0.6),
    "horse": (0.65, 2.3, 1.65),
    "duck": (0.25, 0.4, 0.3),
    "backpack": (0.34, 0.22, 0.5),
    "umbrella": (1.05, 1.05, 0.75),
    "handbag": (0.36, 0.16, 0.32),
    "suitcase": (0.45, 0.3, 0.65),
    "sports ball": (0.34, 0.34, 0.34),
    "kite": (1.1, 0.1, 1.1),
    "skateboard": (0.22, 0.8, 0.13),
    "fruit": (0.22, 0.22, 0.2),
    "cake": (0.28, 0.28, 0.18),
    "temple": (12.0, 13.0, 9.5),
    "gate": (10.0, 3.0, 8.5),
    "statue": (2.6, 2.6, 5.8),
    "fountain": (7.0, 7.0, 3.6),
    "market": (11.0, 7.0, 4.6),
    "tower": (6.0, 6.0, 26.0),
    "pavilion": (7.0, 7.0, 5.6),
    "bridge": (3.6, 18.0, 2.6),
    "clock": (1.8, 1.8, 6.5),
    "windmill": (6.5, 6.5, 14.0),
    "tree": (4.4, 4.4, 6.5),
    "fence": (3.0, 0.12, 1.2),
    "wall": (3.0, 0.35, 1.7),
}
RADII = {kind: max(width, depth) / 2 for kind, (width, depth, _) in SIZES.items()}
_VARIES = {"tree": 0.25, "boat": 0.2, "potted plant": 0.3, "truck": 0.1, "car": 0.06}  # by so much up or down
_DOES = {"tree": "growing on", "car": "parked on", "truck": "parked on", "motorcycle": "parked on",
         "bicycle": "parked on", "fence": "enclosing", "wall": "enclosing", "boat": "in"}  # fmt: skip


class House(NamedTuple):
    """A building: a convex footprint, and which of its walls can be seen."""

    footprint: np.ndarray  # (4, 2), anticlockwise
    shown: tuple[bool, ...]
    height: float
    look: int
    district: int


@dataclass
class Site:
    """What has been placed so far."""

    plan: StreetPlan
    network: Network
    ground: np.ndarray
    cell: float
    districts: tuple[District, ...]
    rng: np.random.Generator
    houses: list[House] = field(default_factory=list)
    squares: list[Square] = field(default_factory=list)
    things: list[Thing] = field(default_factory=list)  # a thing's id is its place here

    def paint(self, polygon: np.ndarray, surface: str) -> None:
        """Cover the ground."""
        plane.paint(self.ground, self.cell, polygon, CODE[surface])

    def surface(self, x: float, y: float) -> int:
        """The surface at these points."""
        rows, columns = self.ground.shape
        row, column = min(int(y / self.cell), rows - 1), min(int(x / self.cell), columns - 1)
        return int(self.ground[row, column])

    def put(
        self,
        kind: str,
        at: np.ndarray,
        heading: float = 0.0,
        doing: tuple[str, int] | None = None,
        z: float = 0.0,
        size: tuple[float, float, float] | None = None,
    ) -> int:
        """Place a thing, with its usual activity by default; returns its id."""
        scale = 1 + _VARIES.get(kind, 0.0) * float(self.rng.uniform(-1, 1))
        width, depth, height = (round(side * scale, 3) for side in size or SIZES[kind])
        x, y, turned = round(float(at[0]), 3), round(float(at[1]), 3), round(float(heading) % 360, 2)
        doing = doing or (_DOES.get(kind, "standing on"), -1)
        look = int(self.rng.integers(1 << 31))
        number = len(self.things)
        self.things.append(
            Thing(
                number,
                kind,
                x,
                y,
                z=round(z, 3),
                width=width,
                depth=depth,
                height=height,
                heading=turned,
                look=look,
                doing=doing,
            )
        )
        return number


class Clearing:
    """Open ground on which things are put where there is room."""

    def __init__(self, site: Site, polygon: np.ndarray, surface: str) -> None:
        self.site, self.code = site, CODE[surface]
        self._low, self._high = polygon.min(0), polygon.max(0)
        self._lines = plane.lines(polygon)
        self._taken: list[tuple[float, float, float]] = []

    def take(self, at: np.ndarray, radius: float) -> None:
        """Keep a disc free of other things."""
        self._taken.append((float(at[0]), float(at[1]), radius))

    def take_way(self, a: np.ndarray, b: np.ndarray) -> None:
        """Keep a path free."""
        for t in np.linspace(0, 1, 2 + int(np.hypot(*(b - a)) / 1.5)):
            self.take(a + (b - a) * t, 0.9)

    def find(self, radius: float) -> np.ndarray | None:
        """Take a free spot for something of this radius; None if none was found."""
        for x, y in self.site.rng.uniform(self._low, self._high, (14, 2)).tolist():
            if any(p * x + q * y - r < radius for p, q, r in self._lines):
                continue
            if any((x - u) ** 2 + (y - v) ** 2 < (radius + r + 0.3) ** 2 for u, v, r in self._taken):
                continue
            if self.site.surface(x, y) == self.code:
                self._taken.append((x, y, radius))
                return np.array((x, y))
        return None

    def put(self, kind: str, face: np.ndarray | None = None) -> int | None:
        """Put a thing on a free spot, facing a point if one is given; trees may touch each other's crowns."""
        spot = self.find(min(RADII[kind], 1.2))
        if spot is None:
            return None
        turned = plane.heading(face - spot) if face is not None else float(self.site.rng.uniform(0, 360))
        return self.site.put(kind, spot, turned)
