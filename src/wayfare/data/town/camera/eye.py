"""The camera's geometry: which ray each pixel looks along, and where a point is in the picture.

A ray is (p, q, s): p to the right, q ahead, s up; a point at depth t along it is t times that. With a pinhole camera q
is 1 and depth is measured along the optical axis; in a panorama p and q are sine and cosine, and depth is the distance
over the ground. So both kinds of pictures are drawn by the same code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from wayfare.data.town.model import Shot

NEAREST = 0.35  # metres: what is nearer is not seen
FAR = np.float32(1e6)  # the depth of the sky
_Bound = float | np.float32 | np.ndarray


def bounded(values: np.ndarray, low: _Bound, high: _Bound) -> np.ndarray:
    """Clip in place, and return the same array: np.clip takes ten times as long on the small arrays of a picture."""
    np.maximum(values, low, out=values)
    return np.minimum(values, high, out=values)


@dataclass(frozen=True)
class Lens:
    """All that does not depend on where the camera stands. Arrays are float32 unless they are indices."""

    height: int
    width: int
    pano: bool
    focal: float  # pixels per unit of slope, in the middle of the picture
    p: np.ndarray  # (width,): the rays' parts to the right
    q: np.ndarray  # ... and ahead
    flat: np.ndarray  # ... and their length without the part up
    slope: np.ndarray  # (height,): the rays' part up
    row: np.ndarray  # intp (height x width,): of each pixel
    column: np.ndarray
    length: np.ndarray  # (height x width,): of each pixel's ray


@dataclass(frozen=True)
class Eye:
    """A camera that stands somewhere and looks level."""

    lens: Lens
    x: float
    y: float
    z: float
    ahead: tuple[float, float]  # unit vectors in the city's coordinates
    right: tuple[float, float]
    east: np.ndarray  # float32 (width,): the rays in the city's coordinates
    north: np.ndarray
    ground: np.ndarray  # float32 (height,): the depth of the ground; FAR above the horizon

    def rows(self, slope: np.ndarray) -> np.ndarray:
        """The height in the picture, counted in rows from its upper edge, of this slope."""
        lens = self.lens
        if lens.pano:
            return np.float32(lens.height / 2) - np.arctan(slope) * np.float32(lens.height / math.pi)
        return np.float32(lens.height / 2) - slope * np.float32(lens.focal)

    def columns(self, across: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        """Where a point is from the left; a panorama's ends meet behind the camera."""
        lens = self.lens
        if lens.pano:
            return np.float32(lens.width / 2) + np.arctan2(across, ahead) * np.float32(lens.width / (2 * math.pi))
        return np.float32(lens.width / 2) + across / ahead * np.float32(lens.focal)

    def turned(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far to the right and how far ahead points are that lie x east and y north of the camera."""
        (ax, ay), (rx, ry) = ((np.float32(x), np.float32(y)) for x, y in (self.ahead, self.right))
        return x * rx + y * ry, x * ax + y * ay


def eye_for(shot: Shot, height: int, width: int) -> Eye:
    """The eye of a shot."""
    lens = _lens(height, width, shot.pano, shot.camera.fov)
    angle = math.radians(shot.heading)
    ahead, right = (math.sin(angle), math.cos(angle)), (math.cos(angle), -math.sin(angle))
    east, north = (lens.p * np.float32(right[axis]) + lens.q * np.float32(ahead[axis]) for axis in (0, 1))
    z = shot.camera.height
    ground = np.where(lens.slope < 0, np.float32(z) / np.maximum(-lens.slope, np.float32(1e-5)), FAR)
    return Eye(lens, shot.x, shot.y, z, ahead, right, east, north, ground)


@lru_cache(maxsize=32)
def _lens(height: int, width: int, pano: bool, fov: float) -> Lens:
    """Pixels are square, except in a panorama, which shows all directions whatever its shape."""
    across, up = np.arange(width) + 0.5 - width / 2, height / 2 - (np.arange(height) + 0.5)
    if pano:
        azimuth = across * 2 * math.pi / width
        focal = width / (2 * math.pi)
        p, q, slope = np.sin(azimuth), np.cos(azimuth), np.tan(up * math.pi / height)
    else:
        focal = width / 2 / math.tan(math.radians(fov) / 2)
        p, q, slope = across / focal, np.ones(width), up / focal
    flat = np.hypot(p, q)
    row, column = np.divmod(np.arange(height * width), width)
    length = np.hypot(flat[column], slope[row]).astype(np.float32)
    p, q, slope, level = (part.astype(np.float32) for part in (p, q, slope, flat))
    return Lens(height, width, pano, focal, p, q, level, slope, row, column, length)
