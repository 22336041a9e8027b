"""Light and air: where the sun is, its colours, the visibility, and how a camera records it.

Colours are albedo times light, 0 to 1, in the camera's own scale: a white sheet in the noon sun is near 1.
"""

from __future__ import annotations

import math
from datetime import date as day_of
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from wayfare.core.seeds import rng_for
from wayfare.town.model import Camera, Shot
from wayfare.town.plane import bounded

# By the sun's elevation in degrees: light from the sun, light from the sky, the sky's zenith and its horizon
_ELEVATIONS = (-14.0, -6.0, -1.0, 4.0, 12.0, 35.0, 90.0)
_SUN = ((0, 0, 0), (0, 0, 0), (30, 14, 6), (122, 80, 44), (150, 122, 84), (150, 136, 114), (150, 140, 122))
_AMBIENT = (
    (44, 50, 76),
    (64, 68, 98),
    (108, 104, 122),
    (124, 124, 138),
    (142, 148, 160),
    (154, 160, 170),
    (158, 162, 170),
)
_ZENITH = ((8, 11, 30), (28, 38, 84), (72, 94, 152), (88, 132, 198), (78, 140, 216), (62, 126, 214), (54, 116, 208))
_HORIZON = (
    (20, 24, 46),
    (92, 76, 104),
    (238, 156, 104),
    (246, 208, 160),
    (212, 224, 234),
    (192, 216, 238),
    (188, 214, 238),
)


class _Air(NamedTuple):
    sun: float  # how much of the sun comes through
    ambient: float
    grey: float  # how much of the sky's colour is lost
    cover: float  # of clouds
    sight: float  # metres after which two thirds of the contrast are gone


_AIR = {
    "clear": _Air(1.0, 1.0, 0.0, 0.34, 900.0),
    "cloudy": _Air(0.16, 1.22, 0.72, 0.85, 420.0),
    "rain": _Air(0.04, 0.98, 0.9, 1.0, 150.0),
    "fog": _Air(0.03, 1.18, 0.95, 0.0, 26.0),
    "snow": _Air(0.06, 1.2, 0.9, 1.0, 85.0),
}


class Light(NamedTuple):
    """Light and air of a picture. Colours are float32 (3,)."""

    sun: tuple[float, float, float]  # direction to the sun (or, at night, the moon): east, north, up
    sun_colour: np.ndarray
    ambient: np.ndarray
    zenith: np.ndarray
    horizon: np.ndarray
    haze: np.ndarray  # the colour of the air
    clouds: np.ndarray
    hills: np.ndarray
    thickness: float  # of the air per metre
    cover: float
    dark: float  # 0 by day, 1 at night: lamps and windows are lit
    wet: bool
    snow: bool


def sun_at(latitude: float, date: str, time: float) -> tuple[float, float]:
    """Elevation, and heading clockwise from north, of the sun in degrees."""
    tilt = _tilt(date)
    hour = math.radians((time / 3600 - 12) * 15)
    phi = math.radians(latitude)
    up = math.sin(phi) * math.sin(tilt) + math.cos(phi) * math.cos(tilt) * math.cos(hour)
    east = -math.cos(tilt) * math.sin(hour)
    north = math.cos(phi) * math.sin(tilt) - math.sin(phi) * math.cos(tilt) * math.cos(hour)
    return math.degrees(math.asin(max(-1.0, min(1.0, up)))), math.degrees(math.atan2(east, north)) % 360


@lru_cache(maxsize=512)
def _tilt(date: str) -> float:
    """How far north of the equator the sun stands, in radians."""
    day = day_of.fromisoformat(date).timetuple().tm_yday
    return math.radians(-23.44) * math.cos(2 * math.pi * (day + 10) / 365)


def light_for(latitude: float, shot: Shot) -> Light:
    """The light of a shot. What the shot says about night takes precedence over the clock."""
    elevation, heading = sun_at(latitude, shot.date, shot.time)
    elevation = min(elevation, -12.0) if shot.night else max(elevation, -3.0)
    return _light(round(elevation * 2) / 2, round(heading), shot.weather)


@lru_cache(maxsize=512)
def _light(elevation: float, heading: float, weather: str) -> Light:
    air = _AIR[weather]
    sun, ambient, zenith, horizon = (_mix(elevation, table) for table in (_SUN, _AMBIENT, _ZENITH, _HORIZON))
    grey = 0.5 * (zenith + horizon)
    grey = np.float32(0.3 * grey[0] + 0.5 * grey[1] + 0.2 * grey[2]) * np.array([0.97, 1.0, 1.04], np.float32)
    dim = {"rain": 0.78, "cloudy": 0.95}.get(weather, 1.0)
    zenith += (grey * (0.86 * dim) - zenith) * air.grey
    horizon += (grey * (1.12 * dim) - horizon) * air.grey
    haze = horizon * 0.8 + zenith * 0.2
    if weather == "fog":
        zenith = haze * 0.97
        horizon = haze
    dark = min(1.0, max(0.0, (2.0 - elevation) / 8))
    if elevation < -5:  # the moon stands opposite, and gives a little
        sun = sun + np.array([0.03, 0.04, 0.07], np.float32)
        up, heading = 40.0, heading + 180
    else:
        up = max(elevation, 1.5)
    level = math.cos(math.radians(up))
    direction = (
        math.sin(math.radians(heading)) * level,
        math.cos(math.radians(heading)) * level,
        math.sin(math.radians(up)),
    )
    sun, ambient = sun * air.sun, ambient * air.ambient
    clouds = ambient * 0.85 + sun * 0.75 + horizon * 0.28
    if weather == "snow":
        hills = np.array([0.6, 0.62, 0.66], np.float32) * ambient
    else:
        hills = np.array([0.30, 0.36, 0.26], np.float32) * (ambient + sun * 0.4)
    hills = haze + (hills - haze) * math.exp(-700 / air.sight)
    return Light(
        direction,
        sun,
        ambient=ambient,
        zenith=zenith,
        horizon=horizon,
        haze=haze,
        clouds=clouds,
        hills=hills,
        thickness=1 / air.sight,
        cover=air.cover,
        dark=dark,
        wet=weather == "rain",
        snow=weather == "snow",
    )


def _mix(elevation: float, table: tuple[tuple[int, int, int], ...]) -> np.ndarray:
    columns = np.array(table, np.float64).T / 255
    return np.array([np.interp(elevation, _ELEVATIONS, column) for column in columns], np.float32)


def develop(light: np.ndarray, camera: Camera, dark: float, height: int, width: int, seed: int) -> np.ndarray:
    """Turn light, float32 (3, pixels), into a picture, uint8 (height, width, 3).

    A camera with gain 1, gamma 1, no vignette and no noise shows 255 times the light, with soft highlights.
    """
    steps = 4096
    table = _response(camera.gain, camera.gamma, steps)
    light *= _vignette(camera.vignette, steps / 2, height, width)
    index = light.astype(np.intp)
    starts = [seed >> shift & 0xFFFF for shift in (0, 16, 32)]
    strength = np.array(camera.noise * (1 + dark), np.float32)
    picture = np.empty((height * width, 3), np.uint8)
    bank = _noise(height * width)
    for channel in range(3):
        value = table[channel].take(index[channel], mode="clip")
        value += bank[starts[channel] : starts[channel] + height * width] * strength
        picture[:, channel] = bounded(value, 0, 255)
    return picture.reshape(height, width, 3)


@lru_cache(maxsize=64)
def _response(gain: tuple[float, float, float], gamma: float, steps: int) -> np.ndarray:
    """Float32 (3, steps) for light from 0 to 2: values from 0 to 255; half is added so that cutting off rounds."""
    light = np.arange(steps) * 2 / steps
    result = np.empty((3, steps), np.float32)
    for channel in range(3):
        value = light * gain[channel]
        knee = 0.8  # above it, light saturates softly
        value = np.where(value > knee, knee + (1 - knee) * (1 - np.exp(-(value - knee) / (1 - knee))), value)
        result[channel] = 255 * value**gamma + 0.5
    return result


@lru_cache(maxsize=64)
def _vignette(amount: float, scale: float, height: int, width: int) -> np.ndarray:
    """The brightness scale, reduced in the corners."""
    y, x = np.mgrid[0:height, 0:width]
    radius = ((x + 0.5) / width - 0.5) ** 2 + ((y + 0.5) / height - 0.5) ** 2
    found: np.ndarray = (scale * (1 - amount * 2 * radius)).astype(np.float32).reshape(-1)
    return found


@lru_cache(maxsize=4)
def _noise(pixels: int) -> np.ndarray:
    """A long array of normal numbers; each picture reads a different part."""
    return rng_for("sensor").standard_normal(pixels + (1 << 16), dtype=np.float32)
