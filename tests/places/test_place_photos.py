"""UTM by known numbers, moments, and the table of place photographs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wayfare.core.errors import DataError
from wayfare.io import utm
from wayfare.io.folders import inside, moment, pictures_below
from wayfare.places.data.place_photos import Group, PlacePhotos, coded, joined, text_column

# ---- UTM


def test_where_the_central_meridian_crosses_the_equator() -> None:
    easting, northing = utm.project(np.array([0.0]), np.array([3.0]), 31, False)
    assert easting[0] == 500_000 and northing[0] == 0
    _, southern = utm.project(np.array([0.0]), np.array([3.0]), 31, True)
    assert southern[0] == 10_000_000


@pytest.mark.parametrize(
    ("latitude", "longitude", "zone", "easting", "northing", "within"),
    [
        (33.3, 44.4, 38, 444140.54, 3684706.36, 0.01),  # the example of GeographicLib's GeoConvert
        (51.2, 7.5, 32, 395201.3104, 5673135.2412, 0.001),  # the example of the Python package utm
        (43.642567, -79.387139, 17, 630084, 4833438, 1.0),  # the CN Tower, as encyclopedias have it
        (45.0, 9.0, 32, 500000.0, 0.9996 * 4984944.378, 0.001),  # half way up a meridian of WGS 84
        (90.0, 9.0, 32, 500000.0, 0.9996 * 10001965.729, 0.001),  # a quarter of a meridian
    ],
)
def test_published_positions(
    latitude: float, longitude: float, zone: int, easting: float, northing: float, within: float
) -> None:
    assert utm.zone_of(np.array([latitude]), np.array([longitude]))[0] == zone
    found = utm.project(np.array([latitude]), np.array([longitude]), zone, False)
    assert found[0][0] == pytest.approx(easting, abs=within)
    assert found[1][0] == pytest.approx(northing, abs=within)


def test_a_meridian_is_as_long_as_its_integral() -> None:
    """Along the central meridian northing is 0.9996 times the arc of the ellipse, summed up in small steps."""
    a, f = 6378137.0, 1 / 298.257223563
    e2 = f * (2 - f)
    middles = np.radians((np.arange(700_000) + 0.5) * 1e-4)
    arc = np.cumsum(a * (1 - e2) / (1 - e2 * np.sin(middles) ** 2) ** 1.5) * np.radians(1e-4)
    for latitude in (1, 23, 51, 70):
        _, northing = utm.project(np.array([latitude]), np.array([-3.0]), 30, False)
        assert northing[0] == pytest.approx(0.9996 * arc[latitude * 10_000 - 1], abs=1e-4)


def test_east_and_west_mirror_each_other_and_so_do_north_and_south() -> None:
    latitude, longitude = np.array([40.0, 40.0, -40.0]), np.array([11.5, 6.5, 11.5])
    easting, northing = utm.project(latitude, longitude, 32, np.array([False, False, True]))
    assert easting[0] - 500_000 == pytest.approx(500_000 - easting[1], abs=1e-6)
    assert easting[0] == pytest.approx(easting[2], abs=1e-6)
    assert northing[0] == pytest.approx(10_000_000 - northing[2], abs=1e-6)


@pytest.mark.parametrize(
    ("place", "zone"),
    [
        ((0, -180), 1),
        ((0, 179.9), 60),
        ((0, 180), 1),
        ((0, 5.999), 31),
        ((0, 6), 32),
        ((60.39, 5.32), 32),  # Bergen, by rule 31
        ((55.99, 5.32), 31),
        ((64.0, 5.32), 31),
        ((60.0, 2.9), 31),
        ((78.22, 8.9), 31),  # Svalbard has no even zones
        ((78.22, 15.65), 33),
        ((78.22, 21), 35),
        ((78.22, 40), 37),
        ((78.22, 42), 38),
        ((71.9, 8.9), 32),
    ],
)
def test_zones_and_their_exceptions(place: tuple[float, float], zone: int) -> None:
    assert utm.zone_of(np.array([place[0]]), np.array([place[1]]))[0] == zone


def test_a_town_on_a_border_of_zones_stays_in_one_piece() -> None:
    latitude = np.full(3, 51.5)
    easting, _, zones = utm.region(latitude, np.array([-0.001, -0.0005, 0.0005]))
    assert zones == ["30N"] * 3
    metres_per_degree = np.pi / 180 * 6378137 / np.sqrt(1 - 0.00669438 * np.sin(np.radians(51.5)) ** 2) * 0.6225146366
    assert np.diff(easting) == pytest.approx(np.array([0.0005, 0.001]) * metres_per_degree, rel=1e-3)
    _, _, apart = utm.region(np.array([51.5, 40.7, -33.9]), np.array([0.1, -74, 18.4]))
    assert apart == ["31N", "18N", "34S"]


# ---- When


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2014-08-08", "2014-08-08T00:00:00"),
        ("2014-08-08 12:30:00", "2014-08-08T12:30:00"),
        ("2014-08-08T12:30:00+02:00", "2014-08-08T10:30:00"),
        ("2014:08:08 12:30:00", "2014-08-08T12:30:00"),
        ("20140808_123000", "2014-08-08T12:30:00"),
        ("20140808_12", "2014-08-08T12:00:00"),
        ("20140808123000", "2014-08-08T12:30:00"),
        ("20140808", "2014-08-08T00:00:00"),
        ("201408", "2014-08-01T00:00:00"),
        ("2014", "2014-01-01T00:00:00"),
        ("1407501000", "2014-08-08T12:30:00"),
        ("1407501000123", "2014-08-08T12:30:00.123"),
    ],
)
def test_moments(text: str, expected: str) -> None:
    assert np.datetime64(moment(text), "ms") == np.datetime64(expected)


@pytest.mark.parametrize("text", ["", "yesterday", "2014-13-01", "20141301", "0000:00:00 00:00:00", "1" * 400, "٢٠١٤"])
def test_no_moments(text: str) -> None:
    with pytest.raises(ValueError, match="expected a date"):
        moment(text)


# ---- Names


def test_names_stay_inside() -> None:
    assert inside("./a/b.jpg") == inside("a\\b.jpg") == inside(" a//b.jpg ") == "a/b.jpg"
    for way_out in ("../a.jpg", "a/../../b.jpg", "/etc/passwd", "C:\\a.jpg", "\\\\host\\a.jpg", "..\\a.jpg"):
        with pytest.raises(ValueError, match="points outside"):
            inside(way_out)
    with pytest.raises(ValueError, match="found none"):
        inside("  ")


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "val").mkdir()
    (tmp_path / "val" / "a.jpg").write_bytes(b"")
    (tmp_path / "val" / ".hidden.jpg").write_bytes(b"")
    (tmp_path / "val" / "notes.txt").write_bytes(b"")
    (tmp_path / "test").symlink_to(tmp_path / "val")  # as the formatter of deep-vg makes it
    (tmp_path / "val" / "up").symlink_to(tmp_path)
    assert pictures_below(tmp_path) == ["test/a.jpg", "val/a.jpg"]


# ---- The table


def table(root: Path, city: str, zone: str, places: list[tuple[float, float]], **columns: object) -> PlacePhotos:
    names = text_column([f"{city}{number}.jpg" for number in range(len(places))])
    easting, northing = np.array(places, np.float64).reshape(-1, 2).T
    return PlacePhotos(
        root=root,
        files=names,
        keys=names,
        groups=(Group(city, zone),),
        group=np.zeros(len(places), np.int32),
        easting=easting,
        northing=northing,
        split=np.full(len(places), "train", "U5"),
        **columns,  # type: ignore[arg-type]
    )


def test_positions_of_two_cities_are_never_compared() -> None:
    here = [(0.0, 0.0), (3.0, 4.0), (30.0, 0.0)]
    both = joined([table(Path(), city, "31N", here, query=np.array([True, False, False])) for city in ("a", "b")])
    assert [found.tolist() for found in both.positives(5)] == [[1], [4]]
    assert [found.tolist() for found in both.positives(4.99)] == [[], []]
    assert [found.tolist() for found in both.positives(30)] == [[1, 2], [4, 5]]


def test_two_zones_are_two_groups() -> None:
    here = table(Path(), "a", "31N", [(0, 0)])
    there = replace(table(Path(), "a", "32N", [(0, 0)]), keys=text_column(["other"]))
    both = joined([here, there])
    assert both.groups == (Group("a", "31N"), Group("a", "32N"))
    assert both.positives(10, np.array([0]), np.array([1]))[0].tolist() == []
    with pytest.raises(DataError, match="the files do not say which photographs are queries"):
        both.positives(10)


def test_unknown_positions_are_near_nothing() -> None:
    photos = table(Path(), "a", "", [(0, 0), (np.nan, np.nan), (0, 0)], query=np.array([True, True, False]))
    assert [found.tolist() for found in photos.positives(10)] == [[2], []]


def test_taking_some_keeps_every_column_in_step() -> None:
    photos = table(
        Path(),
        "a",
        "31N",
        [(float(n), 0.0) for n in range(5)],
        night=np.arange(5) % 2 == 1,
        sequences=("x", "y"),
        sequence=np.array([0, 0, 1, 1, -1], np.int32),
        subtasks={"all": np.arange(5) > 2},
        pairs=np.array([[0, 3], [1, 4], [2, 3]]),
        query=np.array([True, True, True, False, False]),
    )
    some = photos.take(np.array([4, 1, 0]))
    assert some.keys.tolist() == ["a4.jpg", "a1.jpg", "a0.jpg"]
    assert some.night is not None and some.night.tolist() == [False, True, False]
    assert some.subtasks["all"].tolist() == [True, False, False]
    assert some.pairs is not None and some.pairs.tolist() == [[1, 0]]
    assert [found.tolist() for found in some.positives(0)] == [[0], []]
    assert photos.take(photos.easting > 2).keys.tolist() == ["a3.jpg", "a4.jpg"]


def test_joining_fills_what_one_part_does_not_know() -> None:
    first = table(Path(), "a", "", [(0, 0)], sequences=("s", "t"), sequence=np.array([1], np.int32))
    second = table(Path(), "b", "", [(0, 0)], night=np.array([True]), heading=np.array([7.0]))
    third = table(Path(), "c", "", [(0, 0)], sequences=("t", "u"), sequence=np.array([0], np.int32))
    both = joined([first, second, third])
    assert both.sequences == ("s", "t", "u")
    assert both.sequence is not None and both.sequence.tolist() == [1, -1, 1]
    assert both.night is not None and both.night.tolist() == [False, True, False]
    assert both.heading is not None and np.isnan(both.heading).tolist() == [True, False, True]
    assert both.captured is None
    assert both.city.tolist() == ["a", "b", "c"]


def test_columns_out_of_step_are_refused() -> None:
    with pytest.raises(DataError, match="night has shape"):
        table(Path(), "a", "", [(0, 0)], night=np.array([True, False]))
    with pytest.raises(DataError, match="same key"):
        joined([table(Path(), "a", "", [(0, 0)])] * 2)


def test_codes() -> None:
    names, codes = coded(["b", "", "a", "b"])
    assert names == ("b", "a") and codes.tolist() == [0, -1, 1, 0]
