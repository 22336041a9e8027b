"""Distances and means of positions, by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from wayfare.core.errors import DataError
from wayfare.places.data.place_photos import Group, PlacePhotos
from wayfare.places.positions import closest, mean_spot, metres, read_photographs, rows_of

Table = Callable[..., PlacePhotos]
CITIES = [Group("city0", "33N"), Group("city1", "33N")]
MADRID, WELLINGTON = (40.4168, -3.7038), (-41.2866, 174.7756)  # nearly on opposite sides of the Earth


def test_metres_within_a_group_are_flat(table: Table) -> None:
    rows = rows_of(table([(0, 0), (3, 4), (0, 10)]), CITIES)
    assert metres(rows, rows[0]).tolist() == [0, 5, 10]


def test_cities_without_degrees_are_never_near_each_other(table: Table) -> None:
    rows = rows_of(table([(0, 0), (0, 0), (1, 0)], [0, 1, 1]), CITIES)
    assert metres(rows, rows[0]).tolist() == [0, np.inf, np.inf]
    assert metres(rows, rows[2]).tolist() == [np.inf, 1, 0]
    strange = rows_of(table([(0, 0), (1, 0)], [0, 1]), [])  # groups that are not the index's
    assert metres(strange, strange[0]).tolist() == [np.inf, np.inf]


def test_across_groups_degrees_tell(table: Table) -> None:
    """One minute of latitude is a nautical mile; and the way around the Earth is not through it."""
    degrees = [(0, 0), (1 / 60, 0), MADRID, WELLINGTON]
    rows = rows_of(table([(0, 0)] * 4, [0, 1, 0, 1], degrees), CITIES)
    assert metres(rows, rows[0])[1] == pytest.approx(1852, rel=0.007)
    assert metres(rows, rows[2])[3] == pytest.approx(19_855_000, rel=0.015)


def test_the_closest(table: Table) -> None:
    asked = rows_of(table([(0, 0), (0, 0), (50, 0)], [0, 1, 0]), CITIES)
    there = rows_of(table([(30, 40), (1000, 0), (0, 7)], [0, 0, 1]), CITIES)
    assert closest(asked, there).tolist() == [50, 7, pytest.approx(np.hypot(20, 40))]
    assert np.isinf(closest(rows_of(table([(0, 0)]), []), there)).all()


def test_the_closest_across_zones(table: Table) -> None:
    asked = rows_of(table([(0, 0)], [0], [(10.0, 6.0)]), CITIES)
    there = rows_of(table([(0, 0)] * 2, [1, 1], [(10.0, 6.1), (10.0001, 6.0)]), CITIES)
    assert closest(asked, there)[0] == pytest.approx(11.06, abs=0.02)


def test_a_weighted_mean(table: Table) -> None:
    rows = rows_of(table([(100, 200), (104, 200), (100, 208)]), CITIES)
    spot, spread = mean_spot(rows, np.array([2.0, 1.0, 1.0]), CITIES[0])
    assert (spot.easting, spot.northing, spot.city, spot.zone) == (101, 202, "city0", "33N")
    assert np.isnan(spot.latitude)
    # 2 at (-1, -2), 1 at (3, -2), 1 at (-1, 6): (2 * 5 + 13 + 37) / 4 = 15
    assert spread == pytest.approx(np.sqrt(15))


def test_a_weighted_mean_of_degrees(table: Table) -> None:
    """East of Greenwich and west of it: the mean is between, and of another zone only degrees count."""
    degrees = [(51.5, -0.0002), (51.5, 0.0002), (51.5004, 0.0002)]
    rows = rows_of(table([(0, 0), (8, 0), (-500, 99)], [0, 0, 1], degrees), CITIES)
    spot, _ = mean_spot(rows, np.array([1.0, 2.0, 1.0]), CITIES[0])
    assert (spot.latitude, spot.longitude) == (pytest.approx(51.5001, abs=1e-7), pytest.approx(0.0001, abs=1e-7))
    assert (spot.easting, spot.northing) == (pytest.approx(16 / 3), 0)


def test_what_is_not_known_is_said_so(table: Table) -> None:
    rows = rows_of(table([(1, 2)]), CITIES)
    assert np.isnan([rows[name][0] for name in ("latitude", "longitude", "heading")]).all()
    assert np.isnat(rows["captured"][0])


def test_a_street_is_read(street: Path) -> None:
    photos = read_photographs(street)
    assert len(photos) == 120
    database = read_photographs(street, database=True)
    assert len(database) == 60 and database.query is not None and not database.query.any()


def test_photographs_without_positions_are_refused(tmp_path: Path) -> None:
    for side in ("query", "ref"):
        (tmp_path / "frames" / side).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / "frames" / side / f"{number}.png")
    with pytest.raises(DataError, match="no positions"):
        read_photographs(tmp_path / "frames")
    with pytest.raises(DataError, match="no such"):
        read_photographs(tmp_path / "missing")


def test_another_layout_is_refused(tmp_path: Path) -> None:
    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "1.png")
    with pytest.raises(DataError, match="layout 'folder'"):
        read_photographs(tmp_path)
