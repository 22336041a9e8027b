"""Cities that do not exist: streets, buildings, surfaces, sights, and everything that stands there all day.

streets.py   the plan: streets, blocks, the network of ways
site.py      sizes of things, and what is placed so far
houses.py    blocks with buildings
squares.py   squares with sights, parks, quays
map.py       puts them together, furnishes the streets, and says where on Earth the city lies
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wayfare.core.errors import DataError
from wayfare.core.seeds import rng_for, seed_for
from wayfare.io import earth
from wayfare.town import houses, plane, squares, streets, words
from wayfare.town.model import City, District
from wayfare.town.site import SIZES, Site
from wayfare.town.streets import CODE, CityBlock, Street, StreetPlan

CELL = 0.5  # metres


class CitySite(NamedTuple):
    """Where an invented city lies: its south-west corner is on land, well inside one UTM zone."""

    name: str
    continent: str
    latitude: float
    longitude: float


CITIES = (
    CitySite("quellmar", "Europe", 50.9312, 10.4821),
    CitySite("wirrabeck", "Oceania", -33.2874, 148.5513),
    CitySite("puntasera", "South America", -33.6148, -63.8725),
    CitySite("kirinaka", "Asia", 36.0417, 139.2304),
    CitySite("fairhollow", "North America", 40.1836, -93.2719),
    CitySite("mbelenga", "Africa", -1.2463, 35.3528),
    CitySite("ostravelle", "Europe", 46.8729, 2.6417),
    CitySite("sundarpal", "Asia", 22.8645, 79.3182),
)


# ---- Position on Earth


def to_xy(city: City | CitySite, latitude: np.ndarray | float, longitude: np.ndarray | float) -> tuple[Any, Any]:
    """Metres east and north of the city's corner, in the plane that touches the Earth there."""
    metres = earth.to_metres(np.stack([latitude, longitude], -1), (city.latitude, city.longitude))
    return metres[..., 0], metres[..., 1]


def to_latlon(city: City | CitySite, x: np.ndarray | float, y: np.ndarray | float) -> tuple[Any, Any]:
    """Latitude and longitude, in degrees, of a point of the city; the inverse of to_xy to less than a millimetre."""
    places = earth.to_degrees(np.stack([x, y], -1), (city.latitude, city.longitude))
    return places[..., 0], places[..., 1]


# ---- The city


def build(name: str, seed: int, blocks: int = 6) -> City:
    """One city of `blocks` x `blocks` street blocks, with a row of shallow ones around; the same for the same seed."""
    place = next((place for place in CITIES if place.name == name), None)
    if place is None:
        raise DataError(f"no city is called {name!r}: choose one of {', '.join(place.name for place in CITIES)}")
    if blocks < 2:
        raise DataError(f"a city of {blocks} x {blocks} blocks is too small: at least 2 x 2")
    rng = rng_for("town", name, seed, "map")
    plan = streets.draw(rng, blocks)
    network, crossings = streets.connect(plan)
    ground = streets.surface(plan, crossings, CELL)
    districts = _districts(rng, plan, name, seed)
    site = Site(plan, network, ground, cell=CELL, districts=districts, rng=rng)
    _fill_blocks(site, place, seed)
    for block in plan.blocks:
        _furnish_pavement(site, block)
    for street in plan.streets:
        _park_cars(site, street)
    _regulate(site)
    walls, building, look, district = _walls(site)
    width, height = plan.size
    used, edges = np.unique(np.array(network.edges), return_inverse=True)  # at the city's corners no way passes
    nodes = np.array(network.nodes, np.float32)[used]
    return City(
        name,
        place.continent,
        place.latitude,
        place.longitude,
        seed=seed,
        width=width,
        height=height,
        districts=districts,
        squares=tuple(site.squares),
        walls=walls,
        wall_building=building,
        wall_look=look,
        wall_district=district,
        ground=ground,
        cell=CELL,
        nodes=nodes,
        edges=edges.reshape(-1, 2).astype(np.int32),
        edge_road=np.array(network.road, bool),
        things=tuple(site.things),
    )


def _districts(rng: np.random.Generator, plan: StreetPlan, name: str, seed: int) -> tuple[District, ...]:
    """The city cut into three to six rectangles along street lines."""
    count = min(int(rng.integers(3, 7)), 2 + plan.inner // 2)
    end = plan.inner + 2
    parts = [(0, 0, end, end)]
    while len(parts) < count:
        x0, y0, x1, y1 = max(parts, key=lambda part: (part[2] - part[0]) * (part[3] - part[1]))
        parts.remove((x0, y0, x1, y1))
        if x1 - x0 >= y1 - y0:
            cut = (x0 + x1) // 2 + int(rng.integers(2)) * ((x1 - x0) > 3)
            parts += [(x0, y0, cut, y1), (cut, y0, x1, y1)]
        else:
            cut = (y0 + y1) // 2 + int(rng.integers(2)) * ((y1 - y0) > 3)
            parts += [(x0, y0, x1, cut), (x0, cut, x1, y1)]
    names = rng.permutation(np.array(houses.DISTRICTS))[:count]
    xs, ys = plan.lines
    return tuple(
        District(
            str(kind),
            float(xs[x0]),
            float(ys[y0]),
            x1=float(xs[x1]),
            y1=float(ys[y1]),
            style=seed_for("style", name, seed, k),
        )
        for k, (kind, (x0, y0, x1, y1)) in enumerate(zip(names, parts, strict=True))
    )


def _district_of(site: Site, block: CityBlock) -> int:
    xs, ys = site.plan.lines
    x, y = xs[block.column] + 1, ys[block.row] + 1
    return next(k for k, d in enumerate(site.districts) if d.x0 <= x < d.x1 and d.y0 <= y < d.y1)


def _fill_blocks(site: Site, place: CitySite, seed: int) -> None:
    """Decide what each block is, and build it."""
    rng, plan = site.rng, site.plan
    inner = [i for i, block in enumerate(plan.blocks) if plan.is_inner(block) and len(block.sides) == 4]
    wanted = min(10, max(2, -(-len(inner) // 3))) + max(0, (plan.inner**2 - 36) // 14)
    chosen = _spread(rng, plan, inner, wanted)
    sights = _sights(rng, place, seed, wanted)
    left = [i for i in inner if i not in chosen]
    parks = set(rng.permutation(np.array(left))[: max(1, len(left) // 9)].tolist()) if left else set()
    quay = int(rng.integers(4))  # the side of the city that lies at the water
    for i, block in enumerate(plan.blocks):
        if i in chosen:
            number = chosen.index(i)
            squares.lay_square(site, block, sights[number], _square_name(sights[number], number))
        elif i in parks:
            squares.lay_park(site, block)
        elif (block.row == 0, block.column == 0, block.row > plan.inner, block.column > plan.inner)[quay]:
            squares.lay_quay(site, block)
        else:
            houses.build(site, block, _district_of(site, block))


def _sights(rng: np.random.Generator, place: CitySite, seed: int, count: int) -> list[str]:
    """The sights on the squares: each once before any is repeated. Two cities that are too small for all of them have
    those that the other one lacks, if they have five squares each."""
    if count >= len(words.SIGHTS):
        return [str(kind) for _ in range(count // 10 + 1) for kind in rng.permutation(np.array(words.SIGHTS))]
    order = rng_for("town", seed, "sights").permutation(np.array(words.SIGHTS))
    return [str(kind) for kind in np.roll(order, -5 * CITIES.index(place))[:count]]


def _spread(rng: np.random.Generator, plan: StreetPlan, candidates: list[int], count: int) -> list[int]:
    """Some of the blocks, far from each other; large ones first."""
    order = [i for i in rng.permutation(np.array(candidates)).tolist() if plan.blocks[i].room > 17]
    chosen = order[:1]
    while order and len(chosen) < min(count, len(order)):
        here = np.stack([plan.blocks[i].centre for i in chosen])
        rest = [i for i in order if i not in chosen]
        gaps = [np.hypot(*(here - plan.blocks[i].centre).T).min() for i in rest]
        good = [i for i, gap in zip(rest, gaps, strict=True) if gap > 0.6 * max(gaps)]
        chosen.append(good[int(rng.integers(len(good)))])
    return chosen


def _square_name(sight: str, number: int) -> str:
    which = ("", "Old ", "New ", "Upper ", "Lower ")[number // 10 % 5]
    return f"{which}{sight.capitalize()} {('Square', 'Place', 'Green', 'Court')[number % 4]}"


# ---- What stands in the streets


def _furnish_pavement(site: Site, block: CityBlock) -> None:
    """At the kerb lamps, trees, banners, hydrants, bicycles; on wide pavements tables and chairs before the houses."""
    rng = site.rng
    for i, side in enumerate(block.sides):
        a, b = block.kerb[i], block.kerb[(i + 1) % len(block.kerb)]
        length = float(np.hypot(*(b - a)))
        if not side.drivable or length < 20:
            continue
        along = (b - a) / length
        inward = plane.left(along)
        facing, with_kerb = plane.heading(-inward), plane.heading(along)
        trees = side.kind == "avenue" or rng.random() < 0.25
        for k, s in enumerate(np.arange(8.0, length - 6.0, 8.0 + float(rng.uniform(0, 3)))):
            at = a + along * s + inward * 0.45
            if k % 3 == 0:
                lamp = site.put("street lamp", at, facing)
                if rng.random() < 0.25:
                    site.put("banner", at + along * 0.6, with_kerb, ("hanging from", lamp), z=2.7)
                if rng.random() < 0.1:
                    site.put("bicycle", at - along * 0.5, with_kerb, ("leaning on", lamp))
            elif trees:
                site.put("tree", at + inward * 0.2, size=(3.2, 3.2, 5.6))
            elif rng.random() < 0.3:
                kind = str(rng.choice(["fire hydrant", "potted plant", "bicycle", "bench"], p=[0.25, 0.3, 0.3, 0.15]))
                site.put(kind, at, with_kerb if kind == "bicycle" else facing)
            if side.pavement > 3.5 and rng.random() < 0.15:
                _cafe(site, a + along * (s + 3) + inward * (side.pavement - 0.8), along)


def _cafe(site: Site, at: np.ndarray, along: np.ndarray) -> None:
    """A table with two chairs, and perhaps a plant beside."""
    facing = plane.heading(along)
    table = site.put("dining table", at, facing, size=(0.8, 0.8, 0.75))
    site.put("chair", at + along * 0.8, facing + 180, ("beside", table))
    site.put("chair", at - along * 0.8, facing, ("beside", table))
    if site.rng.random() < 0.5:
        site.put("potted plant", at + along * 1.7, facing)


def _park_cars(site: Site, street: Street) -> None:
    """Vehicles at the kerbs of wide streets, in the direction of traffic, which keeps to the right."""
    rng = site.rng
    if street.half < 5:
        return
    a, b = site.plan.corners[street.a], site.plan.corners[street.b]
    length = float(np.hypot(*(b - a)))
    along = (b - a) / length
    busy = float(rng.uniform(0.2, 0.6))
    for side in (1, -1):
        right = -plane.left(along) * side
        for s in np.arange(19.0, length - 17.0, 6.4):
            kind = str(rng.choice(["car", "motorcycle", "truck"], p=[0.86, 0.08, 0.06]))
            width, depth, _ = SIZES[kind]
            at = a + along * (s + float(rng.uniform(-0.4, 0.4))) + right * (street.half - 0.25 - width / 2)
            ends = [at + along * depth / 2 * end for end in (-1, 0, 1)]
            if rng.random() < busy and all(site.surface(*end) == CODE["road"] for end in ends):
                site.put(kind, at, plane.heading(along * side))


def _regulate(site: Site) -> None:
    """Traffic lights where avenues meet, stop signs where lanes end: at the right-hand kerb, before the crossing."""
    arms: dict[int, list[tuple[Street, int]]] = {}
    for street in site.plan.streets:
        if street.drivable:
            arms.setdefault(street.a, []).append((street, street.b))
            arms.setdefault(street.b, []).append((street, street.a))
    beside: dict[tuple[int, int], list[CityBlock]] = {}
    for block in site.plan.blocks:
        for side in block.sides:
            beside.setdefault((side.a, side.b), []).append(block)
    for corner, here in sorted(arms.items()):
        kinds = {street.kind for street, _ in here}
        for street, far in here if len(here) > 2 else []:
            if "avenue" in kinds:
                sign = "traffic light"
            elif street.kind == "lane" and len(kinds) > 1:
                sign = "stop sign"
            else:
                continue
            start = site.plan.corners[corner]
            out = plane.unit(site.plan.corners[far] - start)
            crossing = max(float((b.walk[b.corners.index(corner)] - start) @ out) for b in beside[street.a, street.b])
            at = start + out * (crossing + 3.0) + plane.left(out) * (street.half + 0.35)
            site.put(sign, at, plane.heading(out))


def _walls(site: Site) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The houses' visible walls, as City has them."""
    rows, building, look, district = [], [], [], []
    for number, house in enumerate(site.houses):
        for i, shown in enumerate(house.shown):
            if shown:
                rows.append((*house.footprint[i], *house.footprint[(i + 1) % 4], house.height))
                building.append(number)
                look.append(house.look)
                district.append(house.district)
    walls = np.array(rows, np.float32).reshape(-1, 5)
    return walls, np.array(building, np.int32), np.array(look, np.int64), np.array(district, np.int32)
