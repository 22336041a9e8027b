"""The map: the same town for the same seed, all of it reachable, and everything where it belongs."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import numpy as np
import pytest

from wayfare.core.errors import DataError
from wayfare.town import houses, map, plane, words
from wayfare.town.model import GROUND, City

NAMES = [place.name for place in map.CITIES]


@pytest.fixture(scope="module")
def city() -> City:
    return map.build("quellmar", 0)


@pytest.fixture(scope="module")
def cities() -> list[City]:
    return [map.build(name, 5, blocks) for name, blocks in zip(NAMES, (2, 3, 4, 5, 6, 4, 3, 8), strict=True)]


def as_bytes(city: City) -> bytes:
    values = (getattr(city, field.name) for field in fields(city))
    return b"".join(v.tobytes() if isinstance(v, np.ndarray) else repr(v).encode() for v in values)


def ground_at(city: City, x: float, y: float) -> str:
    return GROUND[city.ground[int(y / city.cell), int(x / city.cell)]]


def inside_a_building(city: City, points: np.ndarray) -> np.ndarray:
    """Behind the nearest wall is inside; where two walls meet it has to be behind both."""
    a, b = city.walls[:, :2].astype(float), city.walls[:, 2:4].astype(float)
    along = b - a
    found = np.zeros(len(points), bool)
    for i, point in enumerate(points):
        t = np.clip(((point - a) * along).sum(1) / (along**2).sum(1), 0, 1)
        gap = np.hypot(*(a + along * t[:, None] - point).T)
        nearest = gap < gap.min() + 1e-4
        side = along[:, 0] * (point - a)[:, 1] - along[:, 1] * (point - a)[:, 0]  # positive: on the left, behind
        found[i] = (side[nearest] > 0).all()
    return found


def components(count: int, edges: np.ndarray) -> list[set[int]]:
    group = list(range(count))

    def top(node: int) -> int:
        while group[node] != node:
            node = group[node]
        return node

    for a, b in edges.tolist():
        group[top(a)] = top(b)
    found: dict[int, set[int]] = {}
    for node in range(count):
        found.setdefault(top(node), set()).add(node)
    return list(found.values())


# ---- The same for the same seed


def test_one_seed_gives_one_city_byte_for_byte(city: City) -> None:
    assert as_bytes(map.build("quellmar", 0)) == as_bytes(city)


def test_another_seed_or_name_gives_another_city(city: City) -> None:
    for other in (map.build("quellmar", 1), map.build("kirinaka", 0)):
        assert not np.array_equal(other.nodes, city.nodes)
        assert other.things != city.things
        assert {d.style for d in other.districts}.isdisjoint(d.style for d in city.districts)


def test_unknown_name_and_tiny_size_are_refused() -> None:
    with pytest.raises(DataError, match="quellmar"):
        map.build("atlantis", 0)
    with pytest.raises(DataError, match="at least 2"):
        map.build("quellmar", 0, blocks=1)


# ---- Ways


def test_all_ways_hang_together_and_so_do_the_roads(cities: list[City]) -> None:
    for city in cities:
        assert len(components(len(city.nodes), city.edges)) == 1
        roads = city.edges[city.edge_road]
        assert len([part for part in components(len(city.nodes), roads) if len(part) > 1]) == 1
        paths = components(len(city.nodes), city.edges[~city.edge_road])
        assert max(len(part) for part in paths) > 0.8 * len(city.nodes)  # one can go everywhere without using a road


def test_ways_lead_to_every_square(cities: list[City]) -> None:
    for city in cities:
        on_foot = np.unique(city.edges[~city.edge_road])
        for square in city.squares:
            gaps = np.hypot(*(city.nodes[on_foot] - (square.x, square.y)).T)
            assert (gaps < square.radius).sum() >= 8  # the ring around the sight


def test_roads_are_on_roads_and_paths_are_not(city: City) -> None:
    surfaces: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for (a, b), road in zip(city.edges, city.edge_road, strict=True):
        middle = (city.nodes[a] + city.nodes[b]) / 2
        surfaces[bool(road)][ground_at(city, *middle)] += 1
    assert set(surfaces[True]) <= {"road", "crossing"}
    assert set(surfaces[False]) <= {"pavement", "square", "crossing", "road", "grass"}
    assert surfaces[False]["road"] < 0.05 * surfaces[False].total()  # where a crossing is slanted


def test_ways_do_not_go_through_buildings(cities: list[City]) -> None:
    for city in cities[:4]:
        a, b = (city.nodes[city.edges[:, k]].astype(float) for k in (0, 1))
        points = np.concatenate([a + (b - a) * t for t in (0.0, 0.25, 0.5, 0.75)])
        assert not inside_a_building(city, points).any()


# ---- Buildings


def test_seen_from_outside_a_wall_begins_on_the_left() -> None:
    """A square house, anticlockwise: its south wall goes from west to east, and from the south west is on the left."""
    house = np.array([(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (0.0, 4.0)])
    viewer, wall = np.array((2.0, -5.0)), house[:2]
    look = wall.mean(0) - viewer
    right = -plane.left(look)
    assert (wall[0] - viewer) @ right < 0 < (wall[1] - viewer) @ right
    assert plane.area(house) == 16.0


def test_every_buildings_middle_lies_behind_all_its_walls(cities: list[City]) -> None:
    for city in cities:
        for building in range(int(city.wall_building.max()) + 1):
            walls = city.walls[city.wall_building == building].astype(float)
            a, b = walls[:, :2], walls[:, 2:4]
            corners = np.unique(np.concatenate((a, b)), axis=0)
            assert len(corners) == 4  # the walls that are left out, between houses, can be told from the others
            middle = corners.mean(0)
            side = (b - a)[:, 0] * (middle - a)[:, 1] - (b - a)[:, 1] * (middle - a)[:, 0]
            assert (side > 0).all()
            assert 5 < walls[0, 4] < 40
            assert len(set(walls[:, 4])) == 1


def test_a_buildings_walls_share_look_and_district(city: City) -> None:
    pairs = set(zip(city.wall_building.tolist(), city.wall_look.tolist(), city.wall_district.tolist(), strict=True))
    assert len(pairs) == city.wall_building.max() + 1


def test_facades_repeat_within_a_district(city: City) -> None:
    for district in range(len(city.districts)):
        mine = city.wall_district == district
        looks = Counter(dict(set(zip(city.wall_building[mine].tolist(), city.wall_look[mine].tolist()))).values())
        common = sum(count for _, count in looks.most_common(houses.LOOKS))
        assert common > 0.6 * looks.total()
        assert len(looks) > houses.LOOKS  # and some are like no other


# ---- What stands there


def test_ids_count_from_zero_and_what_things_do_refers_to_others(cities: list[City]) -> None:
    for city in cities:
        assert [thing.id for thing in city.things] == list(range(len(city.things)))
        for thing in city.things:
            assert thing.kind in words.CLASSES
            assert thing.doing is not None
            predicate, other = thing.doing
            assert predicate in words.PREDICATE_CLASSES
            assert -1 <= other < len(city.things) and other != thing.id


def test_nothing_stands_inside_a_building(cities: list[City]) -> None:
    for city in cities[:5]:
        inside = inside_a_building(city, np.array([(thing.x, thing.y) for thing in city.things]))
        assert not inside.any(), [thing for thing, bad in zip(city.things, inside, strict=True) if bad][:3]


def test_things_are_on_the_ground_they_belong_to(cities: list[City]) -> None:
    allowed = {
        "car": {"road"}, "truck": {"road"}, "motorcycle": {"road"}, "boat": {"water"}, "bridge": {"bridge"},
        "bench": {"pavement", "square", "grass"}, "traffic light": {"pavement"}, "stop sign": {"pavement"},
        "street lamp": {"pavement", "square", "grass"}, "tree": {"pavement", "square", "grass", "flower"},
    }  # fmt: skip
    for city in cities:
        wrong = Counter(
            (thing.kind, ground_at(city, thing.x, thing.y))
            for thing in city.things
            if ground_at(city, thing.x, thing.y) not in allowed.get(thing.kind, GROUND)
        )
        assert not wrong


def test_parked_cars_are_on_the_road_with_both_ends_and_do_not_overlap(city: City) -> None:
    parked = [thing for thing in city.things if thing.kind == "car"]
    for car in parked:
        way = np.array((np.sin(np.radians(car.heading)), np.cos(np.radians(car.heading)))) * car.depth / 2
        for end in (-way, way):
            assert ground_at(city, car.x + end[0], car.y + end[1]) in ("road", "crossing")
    places = np.array([(car.x, car.y) for car in parked])
    gaps = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)) + 99 * np.eye(len(places))
    assert gaps.min() > 3.0 and len(parked) > 100


def test_every_square_has_its_sight_and_most_kinds_are_in_a_city(cities: list[City], city: City) -> None:
    for one in [*cities, city]:
        for square in one.squares:
            near = [t for t in one.things if t.kind == square.sight and np.hypot(t.x - square.x, t.y - square.y) < 1]
            assert len(near) == 1
    assert len({square.sight for square in city.squares}) >= 8
    assert {square.sight for one in cities for square in one.squares} == set(words.SIGHTS)
    assert len({square.name for square in city.squares}) == len(city.squares)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_two_small_cities_have_all_sights_between_them(seed: int) -> None:
    one, two = ([square.sight for square in map.build(name, seed, 4).squares] for name in ("quellmar", "wirrabeck"))
    assert len(one) == len(two) == 5
    assert {*one, *two} == set(words.SIGHTS)


def test_a_city_has_all_surfaces_and_most_kinds_of_things(city: City) -> None:
    assert set(np.unique(city.ground)) == set(range(len(GROUND)))
    kinds = {thing.kind for thing in city.things}
    assert {"tree", "fence", "wall", "bench", "chair", "dining table", "potted plant", "street lamp", "banner", "fruit",
            "cake", "traffic light", "stop sign", "fire hydrant", "car", "truck", "motorcycle", "bicycle", "boat",
            "umbrella"} <= kinds  # fmt: skip


def test_sizes_are_those_of_the_real_things(city: City) -> None:
    by_kind = {thing.kind: thing for thing in city.things}
    assert 20 < by_kind["tower"].height < 35
    assert 10 <= by_kind["temple"].width <= 14
    assert 1.6 < by_kind["car"].width < 2 and 3.8 < by_kind["car"].depth < 4.6


def test_districts_cover_the_city_without_overlap(cities: list[City]) -> None:
    for city in cities:
        areas = [(d.x1 - d.x0) * (d.y1 - d.y0) for d in city.districts]
        assert sum(areas) == pytest.approx(city.width * city.height)
        assert 3 <= len(city.districts) <= 6


# ---- On Earth


def test_a_kilometre_north_is_nine_thousandths_of_a_degree() -> None:
    """At 45 degrees one degree of latitude is 111.13 km; on the equator 110.57 km, and of longitude 111.32 km."""
    place = map.CitySite("somewhere", "Europe", 45.0, 8.0)
    latitude, longitude = map.to_latlon(place, 0.0, 1000.0)
    assert latitude - 45 == pytest.approx(1 / 111.13, rel=2e-4)
    assert longitude == pytest.approx(8.0, abs=1e-9)
    equator = map.CitySite("elsewhere", "Africa", 0.0, 35.0)
    x, y = map.to_xy(equator, 0.01, 35.01)
    assert x == pytest.approx(1113.2, abs=0.1)
    assert y == pytest.approx(1105.7, abs=0.1)


def test_from_metres_to_degrees_and_back(city: City) -> None:
    x, y = np.meshgrid(np.linspace(-10, 2000, 7), np.linspace(-10, 2000, 7))
    for place in map.CITIES:
        back = map.to_xy(place, *map.to_latlon(place, x, y))
        assert np.abs(back[0] - x).max() < 1e-4 and np.abs(back[1] - y).max() < 1e-4
    assert map.to_latlon(city, 0.0, 0.0) == pytest.approx((city.latitude, city.longitude))


def test_the_way_between_two_points_is_as_long_on_earth_as_on_the_plan() -> None:
    """The great circle between them, on a sphere of about the Earth's radius there: right to a few in 1000."""
    place = map.CITIES[0]
    (lat0, lat1), (lon0, lon1) = map.to_latlon(place, np.array((0.0, 1200.0)), np.array((0.0, 1600.0)))
    p0, p1, l0, l1 = np.radians((lat0, lat1, lon0, lon1))
    h = np.sin((p1 - p0) / 2) ** 2 + np.cos(p0) * np.cos(p1) * np.sin((l1 - l0) / 2) ** 2
    assert 2 * 6378000 * np.arcsin(np.sqrt(h)) == pytest.approx(2000, rel=3e-3)


def test_cities_lie_on_both_hemispheres_within_one_utm_zone() -> None:
    assert len({place.continent for place in map.CITIES}) >= 4
    assert min(place.latitude for place in map.CITIES) < 0 < max(place.latitude for place in map.CITIES)
    assert min(place.longitude for place in map.CITIES) < 0 < max(place.longitude for place in map.CITIES)
    for place in map.CITIES:
        _, east = map.to_latlon(place, 2500.0, 0.0)
        assert place.longitude // 6 == east // 6
