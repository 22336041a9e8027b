"""Walkers: where they may be, how fast, whom they meet, what they photograph; and their traces on disk."""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import ConvexHull, cKDTree

from wayfare.encounters import traces
from wayfare.town import map, photographing, walkers
from wayfare.town.model import GROUND, City, Shot, Thing
from wayfare.town.walkers import ROLES, Walkers, population
from wayfare.town.ways import Outing, Track, Ways
from wayfare.town.write import traces as writer

PLACES = (("quellmar", 0), ("wirrabeck", 1))  # one on each side of the equator


@pytest.fixture(scope="module")
def towns() -> list[tuple[City, Walkers]]:
    cities = [map.build(name, seed, 6) for name, seed in PLACES]
    return [
        (city, population(city, 40, tourists=20, vehicles=10, signage=4, shots=1000, seed=seed))
        for city, (_, seed) in zip(cities, PLACES)
    ]


@pytest.fixture(scope="module")
def village() -> City:
    return map.build("kirinaka", 2, 3)


def of_role(people: Walkers, *roles: str) -> np.ndarray:
    """Positions (slots, devices, 2) of those."""
    return people.positions[:, [role in roles for role in people.roles]].astype(float)


def seen(positions: np.ndarray) -> np.ndarray:
    return positions[~np.isnan(positions[..., 0])]


def sequences(people: Walkers) -> list[list[Shot]]:
    found: dict[str, list[Shot]] = defaultdict(list)
    for shot in people.shots:
        found[shot.sequence].append(shot)
    return list(found.values())


def in_a_building(city: City, points: np.ndarray) -> np.ndarray:
    """A building is the convex hull of its walls."""
    inside = np.zeros(len(points), bool)
    for number in np.unique(city.wall_building):
        walls = city.walls[city.wall_building == number].astype(float)
        ends = np.unique(np.concatenate((walls[:, :2], walls[:, 2:4])).round(3), axis=0)
        if len(ends) > 2:
            faces = ConvexHull(ends).equations
            inside |= (points @ faces[:, :2].T + faces[:, 2] < 0).all(axis=1)
    return inside


# ---- Ways and tracks by hand


def corner() -> City:
    """An L: 100 m to the east, then 50 m to the north."""
    nodes = np.array([[10, 10], [110, 10], [110, 60]], np.float32)
    edges = np.array([[0, 1], [1, 2]], np.int32)
    return City(
        "corner",
        "Europe",
        latitude=50.0,
        longitude=10.0,
        seed=0,
        width=120.0,
        height=70.0,
        districts=(),
        squares=(),
        walls=np.zeros((0, 5), np.float32),
        wall_building=np.zeros(0, np.int32),
        wall_look=np.zeros(0, np.int64),
        wall_district=np.zeros(0, np.int32),
        ground=np.full((140, 240), GROUND.index("pavement"), np.uint8),
        cell=0.5,
        nodes=nodes,
        edges=edges,
        edge_road=np.zeros(2, bool),
        things=(),
    )


def test_an_outing_by_hand() -> None:
    ways = Ways(corner(), road=False)
    assert len(ways.points) == 3 + 3 + 1  # no piece is longer than 30 m
    assert ways.distances(0)[:3] == pytest.approx((0, 100, 150)) and ways.leg(0, 2)[0] == pytest.approx(150)
    outing = Outing(ways, 0, time=1000.0, pace=2.0, aside=0.0)
    outing.go(1)
    outing.stay(20)
    outing.go(2)
    assert outing.time == pytest.approx(1000 + 50 + 20 + 25)
    track = outing.track()
    at = track.at(np.array([999.0, 1000, 1025, 1060, 1082.5, 1095, 1096]))
    assert at == pytest.approx(
        np.array([[np.nan] * 2, [10, 10], [60, 10], [110, 10], [110, 35], [110, 60], [np.nan] * 2]), nan_ok=True
    )
    times, points, headings = track.along(np.array([0.0, 40, 100, 130]))
    assert times == pytest.approx((1000, 1020, 1070, 1085))  # at 100 m it goes on when it has stayed
    assert points == pytest.approx(np.array([[10, 10], [50, 10], [110, 10], [110, 40]]))
    assert headings == pytest.approx((90, 90, 0, 0))


def test_one_keeps_to_ones_side_and_a_wall_is_no_way() -> None:
    outing = Outing(Ways(corner(), road=False), 0, 0.0, 1.0, aside=2.0)
    outing.go(2)
    first, *_, last = outing.track().points
    assert first == pytest.approx((10, 8)) and last == pytest.approx((112, 60))  # to the right: south, then east
    wall = np.array([[60, 0, 60, 20, 5]], np.float32)
    blocked = Ways(replace(corner(), walls=wall), road=False)
    assert blocked.points[:, 0].min() == 110  # only the way to the north is left


def test_stays_are_heavy_tailed_between_their_limits() -> None:
    rng = np.random.default_rng(0)
    stays = np.array([walkers._stay(rng, 60, 3600) for _ in range(4000)])
    assert stays.min() >= 60 and stays.max() <= 3600
    assert np.median(stays) == pytest.approx(60 * (1 - 0.5 * (1 - (60 / 3600) ** 0.9)) ** (-1 / 0.9), rel=0.05)
    assert np.quantile(stays, 0.99) > 10 * np.median(stays)


# ---- Who is where


def test_the_shape_of_a_population(towns: list[tuple[City, Walkers]]) -> None:
    for city, people in towns:
        assert people.positions.shape == (1441, 74, 2) and people.positions.dtype == np.float32
        assert people.names[0] == f"{city.name}-resident-000" and len(set(people.names)) == 74
        assert [people.roles.count(role) for role in ROLES] == [40, 20, 10, 4]
        assert people.stationary.tolist() == [False] * 70 + [True] * 4
        assert len(people.shots) == 1000 and not any(shot.role == "signage" for shot in people.shots)


def test_the_same_seed_gives_the_same_people_and_others_do_not_change_them(village: City) -> None:
    one, again = (population(village, 6, tourists=4, vehicles=2, signage=1, shots=60, seed=5) for _ in range(2))
    assert one.positions.tobytes() == again.positions.tobytes() and one.shots == again.shots
    assert population(village, 6, tourists=4, vehicles=2, signage=1, shots=60, seed=6).shots != one.shots
    more = population(village, 9, tourists=4, vehicles=2, signage=1, shots=60, seed=5)
    kept = [more.names.index(name) for name in one.names]
    assert more.positions[:, kept].tobytes() == one.positions.tobytes()


def test_any_mix_of_walkers_will_do(village: City) -> None:
    counts = {(0, 0, 0, 0): 0, (1, 0, 0, 0): 25, (0, 1, 0, 0): 25, (0, 0, 1, 0): 25, (0, 0, 0, 1): 0}
    for mix, expected in counts.items():
        assert len(population(village, *mix, 25, 0).shots) == expected  # signage has no camera
    assert population(village, 1, tourists=1, vehicles=1, signage=1, shots=0, seed=0).shots == ()
    assert (
        len(population(map.build("mbelenga", 3, 2), 2, tourists=2, vehicles=1, signage=1, shots=20, seed=3).shots) == 20
    )


def test_everyone_is_in_the_city_on_their_ground_and_in_no_building(towns: list[tuple[City, Walkers]]) -> None:
    for city, people in towns:
        shots = np.array([(shot.x, shot.y) for shot in people.shots])
        points = np.concatenate((seen(people.positions).astype(float), shots))
        assert (points >= 0).all() and (points <= (city.width, city.height)).all()
        assert not in_a_building(city, points).any()
        surfaces = {}
        for role in ROLES:
            column, row = (seen(of_role(people, role)) / city.cell).astype(int).T
            kinds, counts = np.unique(city.ground[row, column], return_counts=True)
            surfaces[role] = {GROUND[kind]: count / counts.sum() for kind, count in zip(kinds, counts)}
        assert surfaces["vehicle"].keys() <= {"road", "crossing"}
        assert surfaces["signage"].keys() <= {"pavement", "square", "grass"}
        for role in ("resident", "tourist"):
            assert surfaces[role].get("road", 0) + surfaces[role].get("crossing", 0) < 0.1
            assert surfaces[role].get("water", 0) == 0


def test_nobody_is_faster_than_legs_or_wheels_allow(towns: list[tuple[City, Walkers]]) -> None:
    for _, people in towns:
        for roles, limit in ((("resident", "tourist"), 3.0), (("vehicle",), 20.0), (("signage",), 1e-9)):
            step = np.diff(of_role(people, *roles), axis=0) / people.slot
            assert np.nanmax(np.hypot(step[..., 0], step[..., 1])) <= limit
        vehicles = np.diff(of_role(people, "vehicle"), axis=0) / people.slot
        assert np.nanmax(np.hypot(vehicles[..., 0], vehicles[..., 1])) > 5


def test_residents_stay_near_tourists_go_far_and_see_several_sights(towns: list[tuple[City, Walkers]]) -> None:
    for city, people in towns:
        spread = {}
        for role in ("resident", "tourist"):
            tracks = np.moveaxis(of_role(people, role), 1, 0)
            spread[role] = np.median([np.sqrt(np.nanvar(track, axis=0).sum()) for track in tracks])
        assert spread["resident"] < 0.6 * spread["tourist"]
        squares = np.array([(square.x, square.y) for square in city.squares])
        for track in np.moveaxis(of_role(people, "tourist"), 1, 0):
            near = np.hypot(*np.moveaxis(track[:, None] - squares, -1, 0)) < 50
            assert (near.sum(axis=0) * people.slot > 240).sum() >= 3
        still = of_role(people, "signage")
        assert (still == still[0]).all()


def test_contacts_are_of_the_order_of_those_on_a_campus(towns: list[tuple[City, Walkers]]) -> None:
    campus = {  # 92 walks at KAIST, all starting at 0, 50 m: see test_traces
        "contacts_per_device_hour": 42.2,
        "duration_median": 60.0,
        "duration_p90": 450.0,
        "pause_median": 120.0,
        "pause_p90": 2430.0,
        "pairs_that_meet": 0.608,
    }
    for _, people in towns:
        found = traces.contact_statistics(as_traces(people), 50.0)
        for name, value in campus.items():
            assert value / 3 <= found[name] <= value * 3, name


def as_traces(people: Walkers) -> traces.Traces:
    return traces.Traces(
        people.names,
        people.slot,
        start=people.start,
        date=people.date,
        positions=people.positions,
        stationary=people.stationary,
        origin=(0.0, 0.0),
        geographic=False,
    )


# ---- What they photograph


def test_sequences_are_consistent(towns: list[tuple[City, Walkers]]) -> None:
    for city, people in towns:
        assert len({shot.key for shot in people.shots}) == len(people.shots)
        found = sequences(people)
        assert np.mean([len(frames) >= 3 for frames in found]) > 0.95
        for frames in found:
            assert all(re.fullmatch(r"[A-Za-z0-9_-]{22}", key) for key in (frames[0].sequence, frames[0].key))
            assert [shot.frame for shot in frames] == list(range(len(frames)))
            for name in ("walker", "camera", "date", "weather", "season", "night", "direction", "pano", "role", "city"):
                assert len({getattr(shot, name) for shot in frames}) == 1, name
            for one, other in pairwise(frames):
                assert 0 < other.time - one.time <= 60
                assert math.hypot(other.x - one.x, other.y - one.y) < 7
            first = frames[0]
            assert first.city == city.name and first.walker in people.names and 0 <= first.time < 86400
            assert first.season == photographing.season_of(first.date, city.latitude)
            assert first.night == photographing.is_night(first.season, first.time)


def test_the_camera_points_where_its_direction_says(towns: list[tuple[City, Walkers]]) -> None:
    usual = {"Forward": (0,), "Backward": (180,), "Sideways": (90, -90)}
    for city, people in towns:
        squares = np.array([(square.x, square.y) for square in city.squares])
        off, aims = [], []
        for frames in sequences(people):
            for one, other in pairwise(frames):
                way = math.degrees(math.atan2(other.x - one.x, other.y - one.y))
                turns = [(one.heading - way - turn + 180) % 360 - 180 for turn in usual[one.direction]]
                off.append(min(abs(turn) for turn in turns))
            for shot in frames if frames[0].role == "tourist" else ():
                gap = squares[np.hypot(*(squares - (shot.x, shot.y)).T).argmin()] - (shot.x, shot.y)
                aims.append(abs((shot.heading - math.degrees(math.atan2(*gap)) + 180) % 360 - 180))
        assert np.mean(np.array(off) < 65) > 0.9  # at a bend the next frame is not straight ahead
        assert np.median(aims) < 12  # tourists aim at the sight, unless someone is near
        assert np.quantile(aims, 0.95) < 62
        assert {shot.direction for shot in people.shots} == set(usual)


def test_cameras_turn_to_people_who_do_something(monkeypatch: pytest.MonkeyPatch) -> None:
    def person(x: float, y: float, doing: str) -> Thing:
        return Thing(0, "person", x, y, z=0, width=0.5, depth=0.3, height=1.7, heading=0, look=0, doing=(doing, -1))

    crowd = [person(13, 14, "eating"), person(10, 14, "walking on"), person(10, 2, "kicking"), person(11, 10, "eating")]
    monkeypatch.setattr(photographing.life, "crowds", lambda _, moments, *__: [tuple(crowd)] * len(moments))
    album = photographing._ShotPlan(corner(), 0, lambda *_: (), "2024-06-21")
    points, times = np.array([[10.0, 10.0]]), np.array([0.0])
    scene = photographing._Scene(times, points, np.array([0.0]), "Forward")
    # 3 m east and 4 m north is atan(3/4) = 36.87 degrees; behind one's back, too near, or only walking do not count
    assert album._turned_to_people(scene, times, "2024-06-21")[0] == pytest.approx(36.87, abs=0.01)
    crowd.pop(0)
    assert album._turned_to_people(scene, times, "2024-06-21")[0] == pytest.approx(0)  # the one who walks ahead
    crowd.clear()
    assert album._turned_to_people(scene, times, "2024-06-21")[0] == 0


def test_no_sight_is_left_out_where_there_are_few(village: City) -> None:
    shots = [
        shot
        for shot in population(village, 0, tourists=6, vehicles=0, signage=0, shots=36, seed=0).shots
        if shot.role == "tourist"
    ]
    assert len(village.squares) == 3
    for square in village.squares:
        aims = [np.degrees(np.arctan2(square.x - shot.x, square.y - shot.y)) - shot.heading for shot in shots]
        gaps = [np.hypot(square.x - shot.x, square.y - shot.y) for shot in shots]
        assert any(abs((aim + 180) % 360 - 180) < 15 and gap < 60 for aim, gap in zip(aims, gaps))


def test_who_looks_sideways_looks_away_from_the_wall() -> None:
    walls = np.array([[0, 12, 120, 12, 5], [0, 40, 50, 40, 5]], np.float32)  # 2 m and, for a while, 30 m to the north
    street = replace(corner(), walls=walls)
    assert photographing._open_side(street, np.array([60.0, 10.0]), 90.0) == 90.0  # going east: south is to the right
    assert photographing._open_side(street, np.array([60.0, 10.0]), 270.0) == -90.0
    assert photographing._open_side(street, np.array([20.0, 20.0]), 90.0) == -90.0  # 20 m to one wall, 8 m to the other
    assert photographing._open_side(corner(), np.array([60.0, 10.0]), 0.0) == 90.0


def test_nights_panoramas_dates_and_weather_have_their_share(towns: list[tuple[City, Walkers]]) -> None:
    for _, people in towns:
        shots = people.shots
        assert 0.1 <= np.mean([shot.night for shot in shots]) <= 0.15
        assert 0.01 <= np.mean([shot.pano for shot in shots]) <= 0.03
        assert {shot.season for shot in shots} == {"spring", "summer", "autumn", "winter"}
        assert len({shot.date for shot in shots}) == 9 and len({shot.weather for shot in shots}) >= 3
        assert 0.2 < np.mean([shot.date == people.date for shot in shots]) < 0.5
        assert all(shot.season == "winter" for shot in shots if shot.weather == "snow")
        skies = defaultdict(set)
        for frames in sequences(people):
            skies[frames[0].date, frames[0].time // 10800].add(frames[0].weather)
        assert all(len(kinds) == 1 for kinds in skies.values())
        cameras = defaultdict(set)
        for shot in shots:
            if not shot.pano:
                cameras[shot.walker].add(shot.camera)
        assert all(len(own) == 1 for own in cameras.values()) and len(set().union(*cameras.values())) >= 6


def test_photographs_of_the_traces_date_are_where_the_traces_are(towns: list[tuple[City, Walkers]]) -> None:
    for _, people in towns:
        today = [shot for shot in people.shots if shot.date == people.date]
        for shot in today:
            device = people.names.index(shot.walker)
            slot = (shot.time - people.start) / people.slot
            fastest = 12.0 if shot.role == "vehicle" else 1.9
            for near in (math.floor(slot), math.ceil(slot)):
                if 0 <= near < len(people.positions) and not np.isnan(people.positions[near, device, 0]):
                    x, y = people.positions[near, device]
                    assert math.hypot(x - shot.x, y - shot.y) <= fastest * abs(slot - near) * people.slot + 0.1
        inside = [people.start <= shot.time <= people.start + 1440 * people.slot for shot in today]
        assert np.mean(inside) > 0.9  # some are taken on the way home, after 18:00


def test_most_places_are_photographed_again_on_another_date(towns: list[tuple[City, Walkers]]) -> None:
    for _, people in towns:
        points = np.array([(shot.x, shot.y) for shot in people.shots])
        near = cKDTree(points).query_ball_point(points, 25.0)
        again = [
            any(people.shots[other].date != shot.date for other in others) for shot, others in zip(people.shots, near)
        ]
        assert np.mean(again) > 0.8


def test_seasons_and_nights_by_hand() -> None:
    assert [photographing.season_of(f"2023-{month:02}-10", 50) for month in (1, 2, 3, 6, 9, 12)] == [
        "winter", "winter", "spring", "summer", "autumn", "winter",
    ]  # fmt: skip
    assert (
        photographing.season_of("2023-01-10", -33) == "summer" and photographing.season_of("2023-07-10", -1) == "winter"
    )
    assert photographing.is_night("winter", 17 * 3600) and not photographing.is_night("summer", 17 * 3600)
    tropics = map.build("mbelenga", 0, 2)
    skies = [photographing.weather_of(tropics, 0, f"2023-07-{day:02}", 9 * 3600) for day in range(1, 29)]
    assert "snow" not in skies and len(set(skies)) >= 3


def test_cameras_differ_clearly() -> None:
    pool = (*photographing.PHONES, *photographing.DASHCAMS)
    assert len({camera.name for camera in pool}) == 8
    colours = np.array([(*camera.gain, camera.gamma) for camera in pool])
    gaps = np.abs(colours[:, None] - colours).max(axis=-1)[~np.eye(8, dtype=bool)]
    assert gaps.min() >= 0.05


def test_it_is_quick(village: City) -> None:
    city = map.build("fairhollow", 0, 6)
    population(village, 1, tourists=1, vehicles=1, signage=1, shots=10, seed=0)  # imports
    start = time.process_time()
    population(city, 34, tourists=18, vehicles=8, signage=4, shots=1000, seed=0)
    assert time.process_time() - start < 3  # about 0.7 s on a free machine


# ---- On disk


def test_traces_on_disk_are_read_back_to_two_centimetres(towns: list[tuple[City, Walkers]], tmp_path: Path) -> None:
    for city, people in towns:
        writer.write(tmp_path / "a", city, people)
        writer.write(tmp_path / "b", city, people)
        file = tmp_path / "a" / f"{city.name}.csv"
        assert file.read_bytes() == (tmp_path / "b" / f"{city.name}.csv").read_bytes()
        header, first, *_ = file.read_text().splitlines()
        assert header == "device,time,lat,lon,stationary"
        assert re.fullmatch(
            rf"{city.name}-resident-\d+,2024-06-21T\d\d:\d\d:[03]0,-?\d+\.\d{{7}},\d+\.\d{{7}},False", first
        )
        found = traces.load(file, strict=True)
        assert isinstance(found, traces.Traces) and found.devices == people.names
        assert (found.start, found.date, found.slot) == (people.start, people.date, people.slot)
        assert found.stationary.tolist() == people.stationary.tolist()
        places = found.in_file()
        back = np.stack(map.to_xy(city, places[..., 0], places[..., 1]), -1)
        assert (np.isnan(back) == np.isnan(people.positions)).all()
        assert np.nanmax(np.abs(back - people.positions)) < 0.02
    assert traces.recognises(tmp_path / "a") and traces.check(tmp_path / "a").problems.count == 0


def test_a_track_is_absent_before_and_after() -> None:
    track = Track(np.array([10.0, 20.0]), np.array([[0.0, 0.0], [10.0, 0.0]]))
    assert np.isnan(track.at(np.array([9.9, 20.1]))).all() and track.way.tolist() == [0, 10]
