"""Latitude and longitude (WGS 84) to metres in the plane that touches the Earth at a point, and back.

Unlike UTM, the plane has true scale and true north at its origin: distances within a city are exact to a centimetre.
"""

from __future__ import annotations

import numpy as np

_RADIUS = 6_378_137.0  # equatorial radius in metres
_E2 = 6.69437999014e-3  # the first eccentricity, squared


def from_centre(places: np.ndarray) -> np.ndarray:
    """Earth-centred coordinates in metres, (..., 3), of latitudes and longitudes in degrees, (..., 2)."""
    latitude, longitude = np.moveaxis(np.radians(places), -1, 0)
    across = _RADIUS / np.sqrt(1 - _E2 * np.sin(latitude) ** 2)
    flat = across * np.cos(latitude)
    up = across * (1 - _E2) * np.sin(latitude)
    return np.stack([flat * np.cos(longitude), flat * np.sin(longitude), up], -1)


def to_metres(places: np.ndarray, origin: tuple[float, float]) -> np.ndarray:
    """Metres east and north of the origin, (..., 2), of latitudes and longitudes."""
    latitude, longitude = np.radians(origin)
    x, y, z = np.moveaxis(from_centre(places) - from_centre(np.array(origin)), -1, 0)
    outwards = np.cos(longitude) * x + np.sin(longitude) * y
    east = np.cos(longitude) * y - np.sin(longitude) * x
    return np.stack([east, np.cos(latitude) * z - np.sin(latitude) * outwards], -1)


def to_degrees(metres: np.ndarray, origin: tuple[float, float]) -> np.ndarray:
    """Latitudes and longitudes, (..., 2), of metres east and north of an origin that is not a pole."""
    wide = np.sqrt(1 - _E2 * np.sin(np.radians(origin[0])) ** 2)
    in_a_metre = np.degrees([wide**3 / (_RADIUS * (1 - _E2)), wide / (_RADIUS * np.cos(np.radians(origin[0])))])
    places: np.ndarray = np.array(origin) + metres[..., ::-1] * in_a_metre
    for _ in range(6):  # each step reduces the error: within a city, to a thousandth
        places = places + (metres - to_metres(places, origin))[..., ::-1] * in_a_metre
    return places
