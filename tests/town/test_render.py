"""The camera, in a town so small that what it must see can be worked out by hand.

All cameras here look with 90 degrees across 128 columns, so a slope of 1 is 64 pixels, from 1.5 m above the ground.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from wayfare.town import life, render
from wayfare.town import map as town_map
from wayfare.town.camera.facades import style
from wayfare.town.model import GROUND, Camera, City, District, Shot, Thing, View
from wayfare.town.site import SIZES
from wayfare.town.words import SIGHTS, THING_CLASSES

MIDDLE = 100.0  # where the toy town's camera stands, both ways
CAMERA = Camera("plain", 90, height=1.5, gain=(1.0, 1.0, 1.0), gamma=1.0, noise=0.0, vignette=0.0)
FLAT = 2  # the seed of a style whose walls end in a straight line


def toy(
    walls: Sequence[tuple[float, float, float, float, float]] = (), things: Sequence[Thing] = (),
    ground: str = "square", name: str = "toy",
) -> City:  # fmt: skip
    """A town of 200 m x 200 m with the given walls, each its own building, placed relative to the camera."""
    rows = np.array(walls, np.float32).reshape(-1, 5) + np.array([MIDDLE] * 4 + [0], np.float32)
    count = len(rows)
    return City(
        name,
        "Europe",
        latitude=48.0,
        longitude=10.0,
        seed=7,
        width=200.0,
        height=200.0,
        districts=(District("Toy", 0, 0, x1=200, y1=200, style=FLAT),),
        squares=(),
        walls=rows,
        wall_building=np.arange(count, dtype=np.int32),
        wall_look=np.arange(count, dtype=np.int64) + 5,
        wall_district=np.zeros(count, np.int32),
        ground=np.full((400, 400), GROUND.index(ground), np.uint8),
        cell=0.5,
        nodes=np.zeros((0, 2), np.float32),
        edges=np.zeros((0, 2), np.int32),
        edge_road=np.zeros(0, bool),
        things=tuple(things),
    )


def thing(
    kind: str,
    x: float,
    y: float,
    heading: float = 0.0,
    look: int = 4,
    size: tuple[float, float, float] | None = None,
    number: int = 1,
    doing: tuple[str, int] | None = None,
    z: float = 0.0,
) -> Thing:
    """A thing so far east and north of the camera."""
    width, depth, height = size or SIZES[kind]
    return Thing(
        number,
        kind,
        MIDDLE + x,
        MIDDLE + y,
        z=z,
        width=width,
        depth=depth,
        height=height,
        heading=heading,
        look=look,
        doing=doing,
    )


def shot(**changes: object) -> Shot:
    """To the north at noon in June."""
    values: dict[str, object] = {
        "key": "k",
        "city": "toy",
        "walker": "w",
        "sequence": "s",
        "frame": 0,
        "x": MIDDLE,
        "y": MIDDLE,
        "heading": 0.0,
        "time": 43200.0,
        "date": "2024-06-21",
        "camera": CAMERA,
        "weather": "clear",
        "season": "summer",
        "night": False,
        "direction": "Forward",
        "pano": False,
        "role": "resident",
    }
    return Shot(**{**values, **changes})  # type: ignore[arg-type]


def nobody(_: City, moments: list[life.Moment], **__: object) -> list[tuple[Thing, ...]]:
    return [() for _ in moments]


@pytest.fixture(autouse=True)
def _nobody_about(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy town has no streets on which somebody could walk."""
    if "whole_city" not in request.fixturenames:
        monkeypatch.setattr(render, "crowds", nobody)


@pytest.fixture(scope="module")
def whole_city() -> City:
    return town_map.build("quellmar", 3, 2)


def mask(view: View, kind: str, building: int = -1) -> np.ndarray:
    """Where parts of this kind are seen."""
    wanted = [k for k, part in enumerate(view.parts) if part.kind == kind and building in (-1, part.building)]
    return np.isin(view.segments, wanted)


def extent(seen: np.ndarray) -> tuple[int, int, int, int]:
    """First and last row, first and last column."""
    rows, columns = np.flatnonzero(seen.any(1)), np.flatnonzero(seen.any(0))
    return int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])


# ---- Geometry


def test_a_wall_covers_the_rows_and_columns_that_its_size_and_distance_say() -> None:
    # 10 m away, 6.5 m high: its top has a slope of 5 / 10, 32 rows above the middle (48), its foot of -1.5 / 10,
    # 9.6 rows below; its ends have slopes of -5 / 10 and 5 / 10, 32 columns from the middle (64)
    assert style(FLAT).family.top == "flat"
    view = render.view(toy([(-5, 10, 5, 10, 6.5)]), shot())
    assert extent(mask(view, "building")) == (16, 57, 32, 95)
    assert mask(view, "building").sum() == 42 * 64


def test_resolution_changes_nothing_but_the_number_of_pixels() -> None:
    city = toy([(-5, 10, 5, 10, 6.5)])
    small, large = render.view(city, shot()), render.view(city, shot(), 288, 384)
    assert extent(mask(large, "building")) == (48, 172, 96, 287)  # 57.6 x 3 = 172.8
    assert {part.kind for part in large.parts} == {part.kind for part in small.parts}
    assert large.pixels.mean() == pytest.approx(small.pixels.mean(), rel=0.02)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (33, 17), (224, 224), (17, 301)])
@pytest.mark.parametrize("pano", [False, True])
def test_any_size_will_do(size: tuple[int, int], pano: bool) -> None:
    city = toy([(-5, 10, 5, 10, 6.5)], [thing("car", 0, 6), thing("person", 1, 5, number=2)])
    view = render.view(city, shot(pano=pano), *size)
    assert view.pixels.shape == (*size, 3)
    assert view.segments.shape == size


def test_the_back_of_a_wall_is_not_seen() -> None:
    view = render.view(toy([(5, 10, -5, 10, 6.5)]), shot())
    assert not mask(view, "building").any()


def test_a_taller_wall_is_seen_above_a_lower_one() -> None:
    # 4.5 m high at 10 m: 3 / 10, 19.2 rows up; 13.5 m high at 20 m: 12 / 20, 38.4 rows up
    view = render.view(toy([(-9, 10, 9, 10, 4.5), (-18, 20, 18, 20, 13.5)]), shot())
    assert extent(mask(view, "building", 0))[:2] == (29, 57)
    assert extent(mask(view, "building", 1))[:2] == (10, 28)


def test_a_lower_wall_is_hidden_by_a_taller_one() -> None:
    view = render.view(toy([(-9, 10, 9, 10, 9.5), (-9, 15, 9, 15, 9.5)]), shot())
    assert mask(view, "building", 0).any()
    assert not mask(view, "building", 1).any()


@pytest.mark.parametrize(("heading", "building"), [(0, 0), (90, 1), (180, 2), (270, 3)])
def test_turning_the_camera_shows_the_other_walls(heading: float, building: int) -> None:
    walls = [(-3, 8, 3, 8, 5), (8, 3, 8, -3, 5), (3, -8, -3, -8, 5), (-8, -3, -8, 3, 5)]
    view = render.view(toy(walls), shot(heading=float(heading)))
    assert [part.building for part in view.parts if part.kind == "building"] == [building]


def test_a_panorama_shows_the_walls_all_around() -> None:
    walls = [(-3, 8, 3, 8, 5), (8, 3, 8, -3, 5), (3, -8, -3, -8, 5), (-8, -3, -8, 3, 5)]
    view = render.view(toy(walls), shot(pano=True), 96, 360)
    assert sorted(part.building for part in view.parts if part.kind == "building") == [0, 1, 2, 3]
    half = np.degrees(np.arctan2(3, 8))  # 20.6 degrees, that is columns
    first, last = extent(mask(view, "building", 0))[2:]
    assert (first, last) == (round(180 - half), round(180 + half) - 1)
    assert extent(mask(view, "building", 1))[2:] == (round(270 - half), round(270 + half) - 1)
    behind = mask(view, "building", 2).any(0)
    assert behind[0] and behind[-1] and not behind[100:260].any()


def test_a_thing_covers_as_many_columns_as_its_width_over_its_distance() -> None:
    # a garden wall 6 m wide and 2.1 m high; its front is 0.2 m before its middle at 16 m
    box = thing("wall", 0, 16, size=(6.0, 0.4, 2.1))
    first_row, last_row, first, last = extent(mask(render.view(toy(things=[box]), shot()), "wall"))
    assert last - first + 1 == pytest.approx(6 / 15.8 * 64, abs=1)
    assert (first + last) / 2 == pytest.approx(63.5, abs=0.6)
    assert first_row == pytest.approx(48 - 0.6 / 15.8 * 64, abs=1)
    assert last_row + 1 == pytest.approx(48 + 1.5 / 15.8 * 64, abs=1)


def test_twice_as_far_is_half_as_wide() -> None:
    wide = []
    for away in (10, 20, 40):
        left, right = extent(mask(render.view(toy(things=[thing("tree", 0, away)]), shot(), 384, 512), "tree"))[2:]
        wide.append(right - left + 1)
    assert wide[0] == pytest.approx(2 * wide[1], abs=4)
    assert wide[1] == pytest.approx(2 * wide[2], abs=4)


def test_a_car_is_longer_from_the_side() -> None:
    ahead, across = (
        extent(mask(render.view(toy(things=[thing("car", 0, 12, heading)]), shot()), "car")) for heading in (0.0, 90.0)
    )
    assert ahead[3] - ahead[2] + 1 == pytest.approx(1.8 / 9.9 * 64, abs=2)  # its back is 2.1 m nearer than its middle
    assert across[3] - across[2] + 1 == pytest.approx(4.2 / 11.1 * 64, abs=2)


def test_an_animal_that_goes_the_other_way_is_seen_mirrored() -> None:
    east, west = (
        mask(render.view(toy(things=[thing("horse", 0, 8, heading)]), shot()), "horse") for heading in (90.0, 270.0)
    )
    assert (east == west[:, ::-1]).mean() > 0.995
    assert (east != west).sum() > 20


def test_what_stands_on_the_ground_touches_it_and_what_flies_does_not() -> None:
    city = toy(things=[thing("person", -2, 8), thing("kite", 2, 8, z=4.0, number=2)])
    view = render.view(city, shot())
    assert extent(mask(view, "person"))[1] == pytest.approx(48 + 1.5 / 8 * 64 - 1, abs=1)
    assert extent(mask(view, "kite"))[1] < 48 - 2.4 / 8 * 64 + 2


def test_a_thing_behind_a_wall_is_hidden_and_before_it_is_not() -> None:
    wall = (-9, 10, 9, 10, 6.5)
    city = toy([wall], [thing("bus", 0, 16, number=1), thing("bench", 0, 7, number=2)])
    view = render.view(city, shot())
    assert {part.kind for part in view.parts if part.thing} == {"bench"}
    assert {one.id for one in view.things} == {1, 2}  # it is near all the same


def test_a_near_thing_hides_a_far_one() -> None:
    van, person = thing("truck", 0, 8, number=1), thing("person", 0, 16, number=2)
    assert {part.kind for part in render.view(toy(things=[van, person]), shot()).parts if part.thing} == {"truck"}


def test_a_thing_that_reaches_over_a_wall_is_seen_there() -> None:
    view = render.view(toy([(-9, 10, 9, 10, 4.0)], [thing("tower", 0, 30)]), shot())
    assert extent(mask(view, "tower"))[1] < 48 - 2.5 / 10 * 64 + 1


def test_a_thing_beside_the_camera_is_drawn_where_it_reaches_into_the_picture() -> None:
    fence = thing("fence", -1.5, 0.0, heading=90.0, size=(30.0, 0.1, 1.2))  # along the camera's left, also behind it
    seen = mask(render.view(toy(things=[fence]), shot()), "fence")
    assert seen[:, :20].any()
    assert not seen[:, 64:].any()


# ---- What is known of each pixel


def test_every_pixel_belongs_to_a_part_and_every_part_is_seen(whole_city: City) -> None:
    for number, (x, y) in enumerate(whole_city.nodes[::40].tolist()):
        view = render.view(whole_city, shot(x=x, y=y, heading=77.0 * number, time=36000.0, pano=number % 5 == 0))
        assert view.segments.dtype == np.int16
        assert np.unique(view.segments).tolist() == list(range(len(view.parts)))
        things = [part.thing.id for part in view.parts if part.thing]
        assert len(things) == len(set(things))
        assert set(things) <= {one.id for one in view.things}
        surfaces = [part.kind for part in view.parts if part.thing is None and part.kind != "building"]
        assert len(surfaces) == len(set(surfaces))
        assert "crossing" not in surfaces


def test_a_city_is_full_of_different_things(whole_city: City) -> None:
    kinds = set()
    for number, (x, y) in enumerate(whole_city.nodes[::12].tolist()):
        view = render.view(whole_city, shot(x=x, y=y, heading=50.0 * number, time=45000.0))
        kinds |= {part.kind for part in view.parts}
    assert {"building", "sky", "road", "pavement", "tree", "car", "street lamp", "person"} <= kinds


def test_distances_are_those_of_the_nearest_pixel() -> None:
    view = render.view(toy([(-9, 20, 9, 20, 6.5)], [thing("person", 0, 8)]), shot())
    near = {part.kind: part.distance for part in view.parts}
    assert near["building"] == pytest.approx(20, abs=0.05)
    assert near["person"] == pytest.approx(8, abs=0.1)
    assert near["square"] == pytest.approx(1.5 * np.hypot(1, 64 / 47.5), abs=0.05)  # the lowest row
    assert near["sky"] > 1000


@pytest.mark.parametrize(("ground", "kind"), [("road", "road"), ("crossing", "road"), ("water", "water")])
def test_the_ground_is_what_the_map_says(ground: str, kind: str) -> None:
    view = render.view(toy(ground=ground), shot())
    assert mask(view, kind)[60:].all()


def test_a_deck_belongs_to_its_bridge_and_is_road_where_there_is_none() -> None:
    assert mask(render.view(toy(ground="bridge"), shot()), "road")[60:].all()
    bridge = thing("bridge", 0, 14, size=(3.6, 18.0, 2.6))
    assert mask(render.view(toy(things=[bridge], ground="bridge"), shot()), "bridge")[70:].all()


def test_a_border_on_the_map_is_where_it_should_be() -> None:
    city = toy(ground="grass")
    city.ground[:, 200:] = GROUND.index("road")  # east of the camera, which looks north along the border
    view = render.view(city, shot())
    row = view.segments[80]
    kinds = [view.parts[k].kind for k in row.tolist()]
    assert kinds.index("road") == pytest.approx(64, abs=1)
    assert set(kinds[:63]) == {"grass"} and set(kinds[66:]) == {"road"}


# ---- How it looks


def brightness(view: View, seen: np.ndarray) -> float:
    return float(view.pixels[seen].mean())


@pytest.mark.parametrize("kind", [*THING_CLASSES, "tree", "fence", "wall", "flower"])
def test_every_kind_is_drawn(kind: str) -> None:
    size = SIZES.get(kind, (1.0, 1.0, 0.6))
    away, z = max(1.4 * max(size), 1.6) + 0.4, 1.2 if size[2] < 1 else 0.0
    views = []
    for heading, look in ((20.0, 1), (130.0, 8)):
        one = thing(kind, 0, away, heading=heading, look=look, size=size, z=z)
        views.append(render.view(toy(things=[one]), shot(), 192, 256))
    for view in views:
        assert mask(view, kind).sum() > 40
        assert view.pixels[mask(view, kind)].std() > 2  # not one flat colour
    assert (views[0].pixels != views[1].pixels).any()


@pytest.mark.parametrize("kind", SIGHTS)
def test_sights_of_a_kind_differ(kind: str) -> None:
    away = 1.3 * max(SIZES[kind])
    pictures = {
        hashlib.sha256(render.view(toy(things=[thing(kind, 0, away, 20.0, look)]), shot()).pixels.tobytes()).digest()
        for look in range(6)
    }
    assert len(pictures) == 6


def test_people_do_what_they_do() -> None:
    def outline(doing: str, height: float) -> bytes:
        size = (0.5, 0.35, height) if doing != "lying on" else (1.7, 0.5, height)
        one = thing("person", 0, 4, 90.0, size=size, doing=(doing, -1))
        return mask(render.view(toy(things=[one]), shot()), "person").tobytes()

    poses = [("standing on", 1.72), ("walking on", 1.72), ("running on", 1.72), ("photographing", 1.72),
             ("sitting on", 1.31), ("sitting on", 0.9), ("riding", 1.55), ("lying on", 0.4)]  # fmt: skip
    assert len({outline(*pose) for pose in poses}) == len(poses)


def test_facades_of_a_district_are_alike_but_not_the_same() -> None:
    one, two = (render.view(toy([(-5, 10, 5, 10, 9)], name=name), shot()) for name in ("a", "b"))
    assert (one.pixels == two.pixels).all()
    city = toy([(-5, 10, 5, 10, 9)], name="c")
    city.wall_look[:] = 12345
    other = render.view(city, shot())
    house = mask(other, "building")
    assert (one.pixels[house] != other.pixels[house]).mean() > 0.2


def test_a_wall_in_the_sun_is_brighter_than_one_in_the_shade() -> None:
    walls = [(-9, 10, 9, 10, 6.5), (9, -10, -9, -10, 6.5)]  # one faces south, one north; the sun is in the south
    lit, shaded = (render.view(toy(walls), shot(heading=heading)) for heading in (0.0, 180.0))
    assert brightness(lit, mask(lit, "building")) > 1.15 * brightness(shaded, mask(shaded, "building"))


def test_a_house_throws_its_shadow_away_from_the_sun() -> None:
    house = [(-9, -6, 9, -6, 12), (9, -6, 9, -2, 12), (9, -2, -9, -2, 12), (-9, -2, -9, -6, 12)]
    walls = [(x0, y0, x1, y1, h) for x0, y0, x1, y1, h in house]  # south of the camera: the ground before it is dark
    city = toy(walls)
    city.wall_building[:] = 0
    winter = shot(date="2024-12-21", season="winter")
    shaded, open_ground = render.view(city, winter), render.view(toy(), winter)
    near = np.s_[80:96, 50:78]
    assert shaded.pixels[near].mean() < 0.85 * open_ground.pixels[near].mean()


def test_night_is_darker_and_windows_are_lit() -> None:
    city = toy([(-9, 10, 9, 10, 14.0)])
    day, night = render.view(city, shot()), render.view(city, shot(night=True, time=82800.0))
    assert night.pixels.mean() < 0.5 * day.pixels.mean()
    house = mask(night, "building")
    assert night.pixels[house].max() > 150
    assert np.median(night.pixels[house].max(-1)) < 110


def test_a_street_lamp_lights_the_ground_at_night() -> None:
    lamp = thing("street lamp", 0, 6)
    dark, lit = (render.view(toy(things=some), shot(night=True, time=82800.0)) for some in ([], [lamp]))
    near = np.s_[60:75, 30:98]
    assert lit.pixels[near].mean() > 1.5 * dark.pixels[near].mean()


def test_fog_takes_the_contrast_of_what_is_far() -> None:
    def contrast(away: float, weather: str) -> float:
        city = toy([(-away, away, away, away, away)])
        view = render.view(city, shot(weather=weather))
        return float(view.pixels[mask(view, "building")].std())

    near, far = (contrast(away, "fog") / contrast(away, "clear") for away in (8.0, 60.0))
    assert near > 0.5
    assert far < 0.35 * near


def test_snow_is_white_and_leaves_follow_the_season() -> None:
    meadow = toy(things=[thing("tree", 0, 9, look=0)], ground="grass")

    def colours(kind: str, **changes: object) -> np.ndarray:
        view = render.view(meadow, shot(**changes))
        return np.asarray(view.pixels[mask(view, kind)].mean(0))

    summer, snow = colours("grass"), colours("grass", weather="snow", season="winter", date="2024-01-15")
    assert summer[1] > 1.3 * summer[2]
    assert np.ptp(snow) < 30 and snow.mean() > 1.4 * summer.mean()
    leaves = {season: colours("tree", season=season) for season in ("spring", "summer", "autumn")}
    assert leaves["summer"][1] > leaves["summer"][0]
    assert leaves["autumn"][0] > leaves["autumn"][1]
    bare = render.view(meadow, shot(season="winter"))
    assert mask(bare, "tree").sum() < 0.7 * mask(render.view(meadow, shot()), "tree").sum()


def test_the_camera_s_gain_colours_the_picture() -> None:
    city = toy([(-5, 10, 5, 10, 6.5)])
    plain = render.view(city, shot()).pixels.reshape(-1, 3).mean(0)
    warm = Camera("warm", 90, height=1.5, gain=(1.2, 1.0, 0.8), gamma=1.0, noise=0.0, vignette=0.0)
    seen = render.view(city, shot(camera=warm)).pixels.reshape(-1, 3).mean(0)
    assert seen[0] > 1.08 * plain[0]
    assert seen[1] == pytest.approx(plain[1])
    assert seen[2] < 0.9 * plain[2]


def test_two_cameras_see_the_same_scene() -> None:
    city = toy([(-5, 10, 5, 10, 6.5)], [thing("car", 1, 7, 40.0)])
    other = Camera("other", 90, height=1.5, gain=(0.9, 1.0, 1.1), gamma=1.1, noise=5.0, vignette=0.2)
    one, two = render.view(city, shot()), render.view(city, shot(camera=other))
    assert (one.segments == two.segments).all()
    assert (one.pixels != two.pixels).mean() > 0.9


def test_rain_and_snow_fall_anew_in_each_picture() -> None:
    for weather in ("rain", "snow"):
        one, two = (render.view(toy(), shot(weather=weather, key=key)) for key in "ab")
        assert 0.005 < (one.pixels != two.pixels).any(-1).mean() < 0.4


# ---- The same pixels always

_ELSEWHERE = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from test_render import *
render.crowds = nobody
for kind in ("bus", "temple", "cat"):  # other things come first here
    render.view(toy(things=[thing(kind, 0, 20)], name=kind), shot())
print(digest(render.view(*crowded())))
"""


def crowded() -> tuple[City, Shot]:
    kinds = ("car", "person", "tree", "bench", "temple", "dog", "street lamp", "umbrella")
    things = [thing(kind, 3.0 * k - 10, 9 + 2.5 * k, 40.0 * k, look=31 * k, number=k) for k, kind in enumerate(kinds)]
    noisy = Camera("noisy", 80, height=1.5, gain=(1.0, 0.95, 1.05), gamma=1.05, noise=5.0, vignette=0.2)
    return toy([(-15, 30, 15, 30, 12)], things), shot(camera=noisy, weather="rain", time=64000.0)


def digest(view: View) -> str:
    return hashlib.sha256(view.pixels.tobytes() + view.segments.tobytes()).hexdigest()


def test_the_same_shot_gives_the_same_bytes_here_and_in_another_process() -> None:
    first = digest(render.view(*crowded()))
    assert digest(render.view(*crowded())) == first
    command = [sys.executable, "-c", _ELSEWHERE, str(Path(__file__).parent)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == first


def test_several_shots_at_once_are_those_one_by_one(whole_city: City) -> None:
    places = whole_city.nodes[::25].tolist()
    shots = [
        shot(x=x, y=y, heading=77.0 * k, time=36000.0 + k, pano=k % 4 == 0, key=str(k))
        for k, (x, y) in enumerate(places)
    ]
    for one, view in zip(shots, render.views(whole_city, shots), strict=True):
        alone = render.view(whole_city, one)
        assert digest(view) == digest(alone)
        assert (view.parts, view.things) == (alone.parts, alone.things)


def test_another_key_gives_other_noise_but_the_same_scene() -> None:
    city, one = crowded()
    view, other = render.view(city, one), render.view(city, Shot(**{**one.__dict__, "key": "other"}))
    assert (view.segments == other.segments).all()
    assert (view.pixels != other.pixels).any()


def test_a_changed_city_of_the_same_name_is_seen_as_it_is() -> None:
    before, after = toy([(-5, 10, 5, 10, 6.5)]), toy()
    assert mask(render.view(before, shot()), "building").any()
    assert not mask(render.view(after, shot()), "building").any()
