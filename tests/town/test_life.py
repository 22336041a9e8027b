"""Street life: the same for every camera, going on smoothly, and of all kinds."""

from __future__ import annotations

from collections import Counter
from functools import partial
from math import hypot

import numpy as np
import pytest

from wayfare.town import life, map, words
from wayfare.town.acts import PLAYS, SPREAD, Cast
from wayfare.town.camera.eye import eye_for, in_sight
from wayfare.town.camera.figures import in_view
from wayfare.town.camera.scene import thing_rows
from wayfare.town.model import GROUND, Camera, City, Shot, Thing

DAY = "2024-06-21"
NOON = 12.5 * 3600


@pytest.fixture(scope="module")
def city() -> City:
    return map.build("kirinaka", 0)


@pytest.fixture(scope="module")
def day(city: City) -> list[tuple[Thing, ...]]:
    """All that happens in the whole city at many moments."""
    middle, all_of_it = (city.width / 2, city.height / 2), max(city.width, city.height)
    return [life.crowd(city, *middle, time, DAY, all_of_it) for time in np.linspace(7 * 3600, 18 * 3600, 40)]


def by_id(things: tuple[Thing, ...]) -> dict[int, Thing]:
    return {thing.id: thing for thing in things}


def ground_at(city: City, x: float, y: float) -> str:
    rows, columns = city.ground.shape
    return GROUND[city.ground[min(int(y / city.cell), rows - 1), min(int(x / city.cell), columns - 1)]]


def test_the_same_moment_twice_even_in_another_copy_of_the_city(city: City) -> None:
    again = map.build("kirinaka", 0)
    assert life.crowd(city, 200, 200, NOON, DAY) == life.crowd(again, 200, 200, NOON, DAY) != ()


def test_other_days_and_other_seeds_have_other_people(city: City) -> None:
    here = life.crowd(city, 200, 200, NOON, DAY)
    assert life.crowd(city, 200, 200, NOON, "2024-06-22") != here
    assert life.crowd(map.build("kirinaka", 1), 200, 200, NOON, DAY) != here


def test_several_moments_at_once_are_those_one_by_one(city: City) -> None:
    moments = [life.Moment(150 + 60 * k, 260 - 30 * k, NOON + 977 * k, f"2024-06-2{k % 2}") for k in range(5)]
    assert life.crowds(city, moments) == [life.crowd(city, *moment) for moment in moments]
    assert life.crowds(city, moments, 15) == [life.crowd(city, *moment, 15) for moment in moments]
    assert len({len(crowd) for crowd in life.crowds(city, moments)}) > 1


@pytest.mark.parametrize("pano", [False, True])
def test_a_camera_misses_nobody_whom_it_can_see(city: City, pano: bool) -> None:
    camera = Camera("plain", 70, height=1.5, gain=(1.0, 1.0, 1.0), gamma=1.0, noise=0.0, vignette=0.0)
    shots = [
        Shot(
            "k",
            "kirinaka",
            walker="w",
            sequence="s",
            frame=0,
            x=150.0 + 25 * k,
            y=250.0 - 10 * k,
            heading=80.0 * k,
            time=NOON + 60 * k,
            date=DAY,
            camera=camera,
            weather="clear",
            season="summer",
            night=False,
            direction="Forward",
            pano=pano,
            role="resident",
        )
        for k in range(12)
    ]
    eyes = [eye_for(shot, 96, 128) for shot in shots]
    moments = [life.Moment(shot.x, shot.y, shot.time, shot.date) for shot in shots]
    before, after = life.crowds(city, moments), life.crowds(city, moments, sight=partial(in_sight, eyes))
    for eye, every, some in zip(eyes, before, after, strict=True):
        rows = thing_rows(every)
        eye.place(rows)
        seen = [every[k] for k in in_view(rows, eye).tolist()]
        assert set(seen) <= set(some) <= set(every)
        assert pano or len(some) < len(every)


def test_no_scene_reaches_farther_than_its_play_says() -> None:
    rng = np.random.default_rng(0)
    for play, (scenes, _) in PLAYS.items():
        for scene in scenes:
            for age in rng.uniform(0, 300, 20).tolist():
                cast = Cast(0, 0.0, y=0.0, heading=0.0, age=age, partner=9, room=6.0, dice=rng.random(32).tolist())
                scene(cast)
                room = 6.0 if play == "crossing" else 0.0
                for thing in cast.things:
                    assert hypot(thing.x, thing.y) + hypot(thing.width, thing.depth) / 2 <= SPREAD[play] + room


def test_two_cameras_see_the_same_people(city: City) -> None:
    one, two = (by_id(life.crowd(city, x, 250, NOON, DAY)) for x in (250, 265))
    shared = one.keys() & two.keys()
    assert all(one[key] == two[key] for key in shared)
    for key, thing in one.items():
        if hypot(thing.x - 265, thing.y - 250) < 40:  # well inside of what both see
            assert key in two


def test_a_smaller_circle_shows_a_part_of_a_larger_one(city: City) -> None:
    near, far = (by_id(life.crowd(city, 250, 250, time=NOON, date=DAY, radius=radius)) for radius in (30, 90))
    assert near.items() <= far.items()
    assert len(near) < len(far)


def test_who_walks_goes_on_and_no_one_leaps(city: City) -> None:
    """Feet: less than 2 m in a second, or 3.5 m for those who run or skate; most are still there after it."""
    size = max(city.width, city.height)
    moved, kept, total = [], 0, 0
    for time in np.arange(NOON, NOON + 300, 20.0):
        before, after = (
            by_id(life.crowd(city, size / 2, size / 2, time=t, date=DAY, radius=size)) for t in (time, time + 1)
        )
        people = {key: thing for key, thing in before.items() if thing.kind == "person"}
        total += len(people)
        kept += len(people.keys() & after.keys())
        for key in people.keys() & after.keys():
            thing = people[key]
            step = hypot(after[key].x - thing.x, after[key].y - thing.y)
            assert after[key]._replace(x=0, y=0, heading=0) == thing._replace(x=0, y=0, heading=0)
            if thing.doing and thing.doing[0] == "walking on":
                moved.append(step)
                assert step < 2
            elif not (thing.doing and thing.doing[0] == "riding"):
                assert step < 3.5
    assert kept > 0.97 * total
    assert 0.9 < float(np.median(moved)) < 1.6


def test_vehicles_go_on_at_their_speed_and_keep_to_the_right_half_of_the_road(city: City) -> None:
    before, after = (by_id(life.crowd(city, 250, 250, time=t, date=DAY, radius=200)) for t in (NOON, NOON + 0.5))
    cars = [key for key in before.keys() & after.keys() if before[key].kind in ("car", "bus", "truck")]
    assert len(cars) > 5
    for key in cars:
        step = hypot(after[key].x - before[key].x, after[key].y - before[key].y)
        assert 3 < step < 5  # 8 m/s
        heading = np.degrees(np.arctan2(after[key].x - before[key].x, after[key].y - before[key].y))
        assert abs((heading - before[key].heading + 180) % 360 - 180) < 30


def test_everyone_is_where_they_belong(city: City, day: list[tuple[Thing, ...]]) -> None:
    where: dict[str, Counter[str]] = {}
    for things in day:
        for thing in things:
            group = thing.doing[0] if thing.kind == "person" and thing.doing else thing.kind
            where.setdefault(group, Counter())[ground_at(city, thing.x, thing.y)] += 1
    for kind in ("car", "bus", "truck"):
        assert set(where[kind]) <= {"road", "crossing"}, where[kind]
    assert set(where["duck"]) == {"water"}
    assert set(where["boat"]) == {"water"}
    assert where["walking on"]["road"] < 0.02 * where["walking on"].total()
    assert where["walking on"]["water"] == 0


def test_no_one_is_inside_a_building(city: City, day: list[tuple[Thing, ...]]) -> None:
    a, b = city.walls[:, :2].astype(float), city.walls[:, 2:4].astype(float)
    along = b - a
    people = [thing for things in day[::8] for thing in things if thing.kind == "person"]
    assert len(people) > 500
    for thing in people:
        off = np.array((thing.x, thing.y)) - a
        t = np.clip((off * along).sum(1) / (along**2).sum(1), 0, 1)
        gap = np.hypot(*(along * t[:, None] - off).T)
        nearest = gap < gap.min() + 1e-4
        behind = along[:, 0] * off[:, 1] - along[:, 1] * off[:, 0] > 0
        assert not behind[nearest].all(), thing


def test_what_they_do_refers_to_what_is_there(city: City, day: list[tuple[Thing, ...]]) -> None:
    static = by_id(city.things)
    for things in day:
        moving = by_id(things)
        assert len(moving) == len(things)
        assert not moving.keys() & static.keys()
        for thing in things:
            assert thing.kind in words.CLASSES
            if thing.doing is not None:
                predicate, other = thing.doing
                assert predicate in words.PREDICATE_CLASSES
                assert other == -1 or ((other in moving or other in static) and other != thing.id)


def test_who_rides_is_on_what_is_ridden_and_who_sits_is_on_the_bench(city: City, day: list[tuple[Thing, ...]]) -> None:
    seen = Counter()
    for things in day:
        moving = by_id(things) | by_id(city.things)
        for thing in things:
            if thing.doing is None or thing.doing[1] < 0:
                continue
            predicate, other = thing.doing[0], moving[thing.doing[1]]
            seen[predicate] += 1
            away = hypot(thing.x - other.x, thing.y - other.y)
            if predicate == "riding":
                assert away < 0.3 and 0 < thing.z <= other.height
            elif predicate == "sitting on":
                assert away < 1 and other.kind in ("bench", "chair")
            elif predicate in ("holding", "carrying", "eating", "on back of", "talking to", "pulling", "pushing"):
                assert away < 2
            elif predicate == "buying from":
                assert other.kind == "market" and away < 45
    assert seen["riding"] > 50 and seen["sitting on"] > 50


def test_people_have_human_height(day: list[tuple[Thing, ...]]) -> None:
    tall = [t.height for things in day for t in things if t.kind == "person" and t.doing == ("walking on", -1)]
    assert min(tall) > 1.5 and max(tall) < 1.9


def test_what_happens_is_long_tailed_and_of_all_kinds(day: list[tuple[Thing, ...]], city: City) -> None:
    done = Counter(thing.doing[0] for things in day for thing in things if thing.doing)
    done += Counter(thing.doing[0] for thing in city.things if thing.doing)
    wanted = set(words.PREDICATE_CLASSES) - {"in front of", "beside", "attached to", "in", "on", "over"}
    assert wanted <= done.keys(), wanted - done.keys()
    rarest = min(done[name] for name in ("kicking", "flying", "guiding", "chasing", "buying from"))
    assert done["walking on"] > 50 * rarest
    kinds = {thing.kind for things in day for thing in things}
    assert {"person", "dog", "cat", "bird", "horse", "duck", "boat", "bus", "kite", "skateboard", "umbrella"} <= kinds


def test_noon_is_busy_and_the_early_morning_is_not(city: City) -> None:
    size = max(city.width, city.height)
    early, noon = (
        len(life.crowd(city, size / 2, size / 2, time=hour * 3600, date=DAY, radius=size)) for hour in (5.5, 12.5)
    )
    assert 20 < early < 0.25 * noon


def test_squares_are_busier_than_streets(city: City) -> None:
    def people(x: float, y: float) -> int:
        return sum(
            t.kind == "person"
            for k in range(12)
            for t in life.crowd(city, x, y, time=NOON + 300 * k, date=DAY, radius=25)
        )

    squares = [people(square.x, square.y) for square in city.squares]
    rng = np.random.default_rng(0)
    anywhere = [people(*place) for place in rng.uniform((40, 40), (city.width - 40, city.height - 40), (20, 2))]
    assert np.mean(squares) > 1.3 * np.mean(anywhere)
