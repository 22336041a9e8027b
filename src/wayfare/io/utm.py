"""Latitude and longitude (WGS 84) to metres: Universal Transverse Mercator.

Krueger's series to the fourth power of the third flattening is accurate to a millimetre within 3,000 km of the zone's
central meridian, so photographs just outside a zone can use the same zone as their neighbours.
"""

from __future__ import annotations

import numpy as np

_RADIUS = 6_378_137.0  # equatorial radius in metres
_FLATTENING = 1 / 298.257223563
_SCALE = 0.9996  # on the central meridian
_EAST, _SOUTH = 500_000.0, 10_000_000.0  # offsets that keep every coordinate in a zone positive

_N = _FLATTENING / (2 - _FLATTENING)
_MERIDIAN = _RADIUS / (1 + _N) * (1 + _N**2 / 4 + _N**4 / 64)  # a quarter meridian divided by pi / 2
_ALPHA = (
    _N / 2 - 2 * _N**2 / 3 + 5 * _N**3 / 16 + 41 * _N**4 / 180,
    13 * _N**2 / 48 - 3 * _N**3 / 5 + 557 * _N**4 / 1440,
    61 * _N**3 / 240 - 103 * _N**4 / 140,
    49561 * _N**4 / 161280,
)
_ECCENTRICITY = 2 * np.sqrt(_N) / (1 + _N)

# where the zones are not six degrees wide: south, north, west, east, zone
_EXCEPTIONS = (
    (56, 64, 3, 12, 32),  # Norway's south-west
    (72, 84, 0, 9, 31),  # Svalbard
    (72, 84, 9, 21, 33),
    (72, 84, 21, 33, 35),
    (72, 84, 33, 42, 37),
)


def zone_of(latitude: np.ndarray, longitude: np.ndarray) -> np.ndarray:
    """The zone number of each place, 1 to 60; longitudes may range from -180 to 180 or from 0 to 360 degrees."""
    latitude, longitude = np.asarray(latitude, np.float64), np.asarray(longitude, np.float64)
    zone = np.floor((longitude + 180) / 6).astype(np.int64) % 60 + 1
    for south, north, west, east, number in _EXCEPTIONS:
        inside = (latitude >= south) & (latitude < north) & (longitude >= west) & (longitude < east)
        zone = np.where(inside, number, zone)
    return zone


def project(
    latitude: np.ndarray, longitude: np.ndarray, zone: np.ndarray | int, south: np.ndarray | bool
) -> tuple[np.ndarray, np.ndarray]:
    """Easting and northing in metres in the given zone; `south` counts northing from 10,000 km south of the equator."""
    phi = np.radians(np.asarray(latitude, np.float64))
    off = (np.asarray(longitude, np.float64) - (np.asarray(zone) * 6 - 183) + 180) % 360 - 180
    lam = np.radians(off)
    stretch = _ECCENTRICITY * np.arctanh(_ECCENTRICITY * np.sin(phi))
    conformal = np.sinh(np.arcsinh(np.tan(phi)) - stretch)  # the tangent of the conformal latitude
    xi = np.arctan2(conformal, np.cos(lam))
    eta = np.arcsinh(np.sin(lam) / np.hypot(conformal, np.cos(lam)))
    north, east = xi.copy(), eta.copy()
    for power, alpha in enumerate(_ALPHA, 1):
        north += alpha * np.sin(2 * power * xi) * np.cosh(2 * power * eta)
        east += alpha * np.cos(2 * power * xi) * np.sinh(2 * power * eta)
    easting = _EAST + _SCALE * _MERIDIAN * east
    northing = np.where(south, _SOUTH, 0.0) + _SCALE * _MERIDIAN * north
    return easting, northing


def zone_name(latitude: np.ndarray, longitude: np.ndarray) -> str:
    """The zone of the median of some places, with its hemisphere: "33N", "34S"."""
    middle = np.median(latitude), np.median(longitude)
    return f"{int(zone_of(*middle))}{'S' if middle[0] < 0 else 'N'}"


def region(latitude: np.ndarray, longitude: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Easting, northing and zone name of photographs anywhere.

    If all lie within six degrees, they share the zone and hemisphere of their median, so that a town on the border
    between zones stays in one piece. Otherwise each has its own zone.
    """
    latitude, longitude = np.asarray(latitude, np.float64), np.asarray(longitude, np.float64)
    if len(latitude) and np.ptp(longitude) < 6 and np.ptp(latitude) < 6:
        names = [zone_name(latitude, longitude)] * len(latitude)
    else:
        zones, south = zone_of(latitude, longitude), latitude < 0
        names = [f"{zone}{'S' if below else 'N'}" for zone, below in zip(zones, south)]
    numbers = np.array([int(name[:-1]) for name in names], np.int64)
    return (*project(latitude, longitude, numbers, np.array([name[-1] == "S" for name in names], bool)), names)
