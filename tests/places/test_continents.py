"""Continents: all cities of MSLS, and some that are near a border."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from photo_tables import street
from wayfare.io.utm import project, zone_name
from wayfare.places.data.place_photos import Group
from wayfare.places.partition.continents import continent, continent_of

MSLS = {
    "trondheim": (63.4, 10.4, "Europe"), "london": (51.5, -0.1, "Europe"), "boston": (42.4, -71.1, "America"),
    "melbourne": (-37.8, 145.0, "Oceania"), "amsterdam": (52.4, 4.9, "Europe"), "helsinki": (60.2, 24.9, "Europe"),
    "tokyo": (35.7, 139.7, "Asia"), "toronto": (43.7, -79.4, "America"), "saopaulo": (-23.6, -46.6, "America"),
    "moscow": (55.8, 37.6, "Europe"), "zurich": (47.4, 8.5, "Europe"), "paris": (48.9, 2.3, "Europe"),
    "bangkok": (13.8, 100.5, "Asia"), "budapest": (47.5, 19.0, "Europe"), "austin": (30.3, -97.7, "America"),
    "berlin": (52.5, 13.4, "Europe"), "ottawa": (45.4, -75.7, "America"), "phoenix": (33.4, -112.1, "America"),
    "goa": (15.5, 73.8, "Asia"), "amman": (31.95, 35.9, "Asia"), "nairobi": (-1.3, 36.8, "Africa"),
    "manila": (14.6, 121.0, "Asia"), "cph": (55.7, 12.6, "Europe"), "sf": (37.8, -122.4, "America"),
    "miami": (25.8, -80.2, "America"), "athens": (38.0, 23.7, "Europe"), "buenosaires": (-34.6, -58.4, "America"),
    "stockholm": (59.3, 18.1, "Europe"), "bengaluru": (13.0, 77.6, "Asia"), "kampala": (0.3, 32.6, "Africa"),
}  # fmt: skip
OTHERS = {
    "reykjavik": (64.1, -21.9, "Europe"), "honolulu": (21.3, -157.9, "Oceania"), "tunis": (36.8, 10.2, "Africa"),
    "tangier": (35.8, -5.8, "Africa"), "gibraltar": (36.1, -5.3, "Europe"), "palermo": (38.1, 13.4, "Europe"),
    "valletta": (35.9, 14.5, "Europe"), "tripoli": (32.9, 13.2, "Africa"), "alexandria": (31.2, 29.9, "Africa"),
    "jerusalem": (31.8, 35.2, "Asia"), "jeddah": (21.5, 39.2, "Asia"), "port sudan": (19.6, 37.2, "Africa"),
    "djibouti": (11.6, 43.1, "Africa"), "aden": (12.8, 45.0, "Asia"), "istanbul": (41.02, 28.95, "Europe"),
    "ankara": (39.9, 32.9, "Asia"), "tbilisi": (41.7, 44.8, "Asia"), "sochi": (43.6, 39.7, "Europe"),
    "yekaterinburg": (56.8, 60.6, "Asia"), "perm": (58.0, 56.2, "Europe"), "jakarta": (-6.2, 106.8, "Asia"),
    "darwin": (-12.5, 130.8, "Oceania"), "port moresby": (-9.5, 147.2, "Oceania"), "guam": (13.5, 144.8, "Oceania"),
    "suva": (-18.1, 178.4, "Oceania"), "papeete": (-17.5, -149.6, "Oceania"), "anchorage": (61.2, -149.9, "America"),
    "provideniya": (64.4, -173.2, "Asia"), "cape town": (-33.9, 18.4, "Africa"), "recife": (-8.1, -34.9, "America"),
    "port louis": (-20.2, 57.5, "Africa"), "mcmurdo": (-77.8, 166.7, "Antarctica"),
}  # fmt: skip


@pytest.mark.parametrize(("city", "there"), [*MSLS.items(), *OTHERS.items()])
def test_the_continent_of_a_city(city: str, there: tuple[float, float, str]) -> None:
    latitude, longitude, wanted = there
    assert continent(latitude, longitude) == wanted, city


def test_msls_has_thirty_cities_on_five_continents() -> None:
    assert len(MSLS) == 30 and {there[2] for there in MSLS.values()} == {
        "Africa",
        "America",
        "Asia",
        "Europe",
        "Oceania",
    }


@pytest.mark.parametrize("city", MSLS)
def test_metres_and_a_zone_do_as_well_as_degrees(city: str) -> None:
    latitude, longitude, wanted = MSLS[city]
    zone = zone_name(np.array([latitude]), np.array([longitude]))
    east, north = project(np.array([latitude]), np.array([longitude]), int(zone[:-1]), zone[-1] == "S")
    photos = street(("d1", "elsewhere", [0.0]), ("d2", city, [float(east[0])]))
    photos = replace(photos, groups=(Group("elsewhere", ""), Group(city, zone)), northing=np.array([0, north[0]]))
    assert continent_of(photos, 1) == wanted
    assert continent_of(photos, 0) is None
    degrees = replace(photos, latitude=np.array([np.nan, latitude]), longitude=np.array([np.nan, longitude]))
    wrong_zone = replace(degrees, groups=(Group("elsewhere", "1S"), Group(city, "")))
    assert continent_of(wrong_zone, 1) == wanted
