"""Blocks without buildings: squares with a sight, parks, ponds, the quays at the water."""

from __future__ import annotations

import numpy as np

from wayfare.town import plane
from wayfare.town.model import Square
from wayfare.town.site import RADII, SIZES, Clearing, Site
from wayfare.town.streets import CityBlock

GREEN = ("pavilion", "windmill", "bridge")  # sights that stand on grass


def lay_square(site: Site, block: CityBlock, sight: str, name: str) -> None:
    """An open place with a sight in its middle, a path around it, and what belongs to such a place."""
    rng, centre = site.rng, block.centre
    surface = "grass" if sight in GREEN else "square"
    site.paint(block.lot, surface)
    clearing = Clearing(site, block.lot, surface)
    facing = float(rng.integers(4) * 90 + rng.uniform(-8, 8))
    if sight == "bridge":
        radius = _bridge(site, block, facing)
    else:
        radius = RADII[sight] + 1.0
        site.put(sight, centre, facing)
    clearing.take(centre, radius)
    _ring(site, block, radius + 2.2, clearing, paved=surface == "grass")
    site.squares.append(Square(name, sight, float(centre[0]), float(centre[1]), block.room))
    if sight == "market":
        _stalls(site, clearing, centre)
    trees = 14 if surface == "grass" else 5
    for kind, count in (("bench", 6), ("potted plant", 5), ("street lamp", 4), ("tree", trees)):
        for _ in range(count):
            clearing.put(kind, face=centre)
    _flowers(site, clearing, 4)


def lay_park(site: Site, block: CityBlock) -> None:
    """Trees, benches, flowers, paths from the corners to the middle, a fence on some sides, and often a pond."""
    rng = site.rng
    clearing = Clearing(site, block.lot, "grass")
    radius = 1.2
    if block.room > 14 and rng.random() < 0.7:
        radius = min(block.room - 5.0, 17.0)
        _pond(site, block.centre, radius, float(rng.uniform(0.6, 0.9)), float(rng.uniform(0, 360)))
    clearing.take(block.centre, radius)
    _ring(site, block, radius + 2.0, clearing, paved=True)
    for kind, count in (("bench", 5), ("tree", 24), ("street lamp", 3)):
        for _ in range(count):
            clearing.put(kind, face=block.centre)
    _flowers(site, clearing, 6)
    for i in range(len(block.lot)):
        if rng.random() < 0.5:
            _fence(site, block.lot[i], block.lot[(i + 1) % len(block.lot)])


def lay_quay(site: Site, block: CityBlock) -> None:
    """Water with moored boats, behind a strip of pavement."""
    site.paint(block.lot, "pavement")
    basin = plane.inset(block.lot, [0.0 if side.kind == "none" else 2.5 for side in block.sides])
    if basin is None:
        return
    site.paint(basin, "water")
    clearing = Clearing(site, basin, "water")
    for _ in range(2):
        spot = clearing.find(3.0)
        if spot is not None:
            site.put("boat", spot, float(site.rng.uniform(0, 360)))


def _ring(site: Site, block: CityBlock, radius: float, clearing: Clearing, paved: bool) -> None:
    """A path around the middle, and ways to it from the corners."""
    network = site.network
    nodes = [network.node(point) for point in plane.disc(block.centre, radius, corners=8)]
    network.join(*nodes, nodes[0])
    ways = [(network.nodes[a], network.nodes[b]) for a, b in zip(nodes, nodes[1:] + nodes[:1])]
    for corner in block.walk_nodes:
        start = network.nodes[corner]
        near = min(nodes, key=lambda node: float(np.hypot(*(network.nodes[node] - start))))
        network.join(corner, near)
        ways.append((start, network.nodes[near]))
    for a, b in ways:
        clearing.take_way(a, b)
        if paved:
            site.paint(plane.strip(a, b, 0.9), "pavement")


def _pond(site: Site, centre: np.ndarray, radius: float, squash: float, facing: float) -> None:
    """A pond whose short axis points to `facing`."""
    site.paint(plane.disc(centre, radius, squash, np.radians(-facing), corners=28), "water")


def _bridge(site: Site, block: CityBlock, facing: float) -> float:
    """A pond with a bridge over it; the pond's radius."""
    radius, squash = min(block.room - 4.0, 17.0), 0.62
    _pond(site, block.centre, radius, squash, facing)
    way = np.array([np.sin(np.radians(facing)), np.cos(np.radians(facing))])
    half = radius * squash + 1.0
    site.paint(plane.strip(block.centre - way * half, block.centre + way * half, 1.8), "bridge")
    width, _, height = SIZES["bridge"]
    site.put("bridge", block.centre, facing, ("over", -1), size=(width, 2 * half, height))
    return radius


def _stalls(site: Site, clearing: Clearing, centre: np.ndarray) -> None:
    """Tables with fruit and cake under umbrellas, and chairs."""
    for k in range(10):
        spot = clearing.find(1.4)
        if spot is None:
            continue
        facing = plane.heading(centre - spot)
        table = site.put("dining table", spot, facing)
        top = SIZES["dining table"][2]
        if k % 3 == 0:
            site.put("cake", spot, facing, ("on", table), z=top)
        else:
            site.put("fruit", spot, facing, ("on", table), z=top, size=(0.9, 0.6, 0.3))  # a crate of it
        if k % 3 == 1:
            site.put("umbrella", spot, facing, ("over", table), z=1.6, size=(2.2, 2.2, 0.9))
        if k % 2 == 0:
            side = np.radians(facing + 90)
            beside = spot + np.array([np.sin(side), np.cos(side)]) * 0.95
            site.put("chair", beside, facing + 270, ("beside", table))


def _flowers(site: Site, clearing: Clearing, count: int) -> None:
    for _ in range(count):
        spot = clearing.find(1.9)
        if spot is not None:
            radius, turn = site.rng.uniform((1.3, 0.0), (1.9, 3.0))
            site.paint(plane.disc(spot, float(radius), 0.7, float(turn)), "flower")


def _fence(site: Site, a: np.ndarray, b: np.ndarray) -> None:
    """Along a side of a park, open near the corners."""
    length = float(np.hypot(*(b - a)))
    along = (b - a) / length
    inward = plane.left(along)
    for s in np.arange(6.0, length - 6.0, SIZES["fence"][0]):
        site.put("fence", a + along * s + inward * 0.3, plane.heading(-inward))
