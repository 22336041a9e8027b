"""The camera's geometry: which ray each pixel looks along, and where a point is in the picture.

A ray is (p, q, s): p to the right, q ahead, s up; a point at depth t along it is t times that. With a pinhole camera q
is 1 and depth is measured along the optical axis; in a panorama p and q are sine and cosine, and depth is the distance
over the ground. So both kinds of pictures are drawn by the same code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from wayfare.town.model import Shot
from wayfare.town.plane import bounded

NEAREST = 0.35  # metres: what is nearer is not seen
FAR = np.float32(1e6)  # the depth of the sky
ZERO, HALF, ONE = (np.array(value, np.float32) for value in (0, 0.5, 1))  # numpy is quicker with these than with 0.5


def share(values: np.ndarray) -> np.ndarray:
    """Clip to the range 0 to 1, in place."""
    return bounded(values, ZERO, ONE)


def counted(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """0, 1, ... up to each count, concatenated; and the index of the count that each number belongs to."""
    owner = np.arange(len(counts)).repeat(counts)
    number = np.arange(len(owner))
    number -= (counts.cumsum() - counts).repeat(counts)
    return number, owner


@dataclass(frozen=True, eq=False)
class Lens:
    """Everything that depends on the camera's height, but not on its position. Arrays are float32 unless they are
    indices. There is one lens for each kind of camera, so derived values can be cached."""

    height: int
    width: int
    pano: bool
    focal: float  # pixels per unit of slope, in the middle of the picture
    scale: np.ndarray  # the same, ()
    middle: np.ndarray  # (2, 1): column and row of the middle of the picture
    p: np.ndarray  # (width,): the rays' parts to the right
    q: np.ndarray  # ... and ahead
    flat: np.ndarray  # ... and their length without the part up
    slope: np.ndarray  # (height,): the rays' part up
    z: float  # metres above the ground
    ground: np.ndarray  # (height,): the depth of the ground; FAR above the horizon
    row: np.ndarray  # intp (height x width,): of each pixel
    column: np.ndarray
    length: np.ndarray  # (height x width,): of each pixel's ray


@dataclass(frozen=True)
class Eye:
    """A camera at a position, looking horizontally."""

    lens: Lens
    x: float
    y: float
    z: float
    ahead: tuple[float, float]  # unit vectors in the city's coordinates
    right: tuple[float, float]
    here: np.ndarray  # float32 (2, 1): x and y
    by_east: np.ndarray  # float32 (2, 1): how far to the right, and how far ahead, a metre to the east is
    by_north: np.ndarray
    rays: np.ndarray  # float32 (2, width): those of the columns in the city's coordinates, east and north

    def rows(self, slope: np.ndarray) -> np.ndarray:
        """The picture row, counted from the upper edge, at which this slope appears."""
        lens = self.lens
        down: np.ndarray = np.arctan(slope) * (lens.height / math.pi) if lens.pano else slope * lens.scale
        found: np.ndarray = lens.middle[1] - down
        return found

    def columns(self, across: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        """The column of a point; a panorama's ends meet behind the camera."""
        lens = self.lens
        scale = lens.width / (2 * math.pi)
        right: np.ndarray = np.arctan2(across, ahead) * scale if lens.pano else across / ahead * lens.scale
        found: np.ndarray = lens.middle[0] + right
        return found

    def turned(self, places: np.ndarray) -> np.ndarray:
        """How far to the right and how far ahead places, (2, n), are that lie so far east and north of the camera."""
        found: np.ndarray = self.by_east * places[0] + self.by_north * places[1]
        return found

    def place(self, rows: np.ndarray) -> None:
        """Write to things' numbers, see scene.thing_rows, how far to the right and how far ahead they are."""
        rows[9:] = self.turned(rows[:2] - self.here)

    def faces(self, across: np.ndarray, ahead: np.ndarray, radius: np.ndarray) -> np.ndarray:
        """Whether anything within a radius of these places, to the right and ahead, can be in the picture."""
        if self.lens.pano:
            return np.ones(len(across), bool)
        return _inside(across, ahead, radius, -float(self.lens.p[0]))


def in_sight(eyes: Sequence[Eye], places: np.ndarray, radius: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Whether these eyes can see anything within a radius of places in the city, (2, n)."""
    turns = zip(*((eye.here, eye.by_east, eye.by_north) for eye in eyes))
    here, by_east, by_north = (np.concatenate(parts, 1).take(which, axis=1) for parts in turns)
    x, y = places - here
    across, ahead = by_east * x + by_north * y
    pano, slant = np.array([(eye.lens.pano, -eye.lens.p[0]) for eye in eyes]).T.take(which, axis=1)
    found: np.ndarray = (pano > 0) | _inside(across, ahead, radius, slant)
    return found


def _inside(across: np.ndarray, ahead: np.ndarray, radius: np.ndarray, slant: np.ndarray | float) -> np.ndarray:
    """Whether it can lie between the picture's left and right edges."""
    inside: np.ndarray = np.abs(across) < slant * ahead + (radius + 0.4) * np.hypot(1, slant)
    return inside & (ahead > NEAREST - radius)


def eye_for(shot: Shot, height: int, width: int) -> Eye:
    """The eye of a shot."""
    lens = _lens(height, width, shot.pano, shot.camera.fov, shot.camera.height)
    angle = math.radians(shot.heading)
    sin, cos = math.sin(angle), math.cos(angle)
    numbers = ((shot.x, shot.y), (cos, -sin), (sin, cos), (cos, sin), (-sin, cos))
    here, right, ahead, by_east, by_north = np.array(numbers, np.float32)[:, :, None]
    rays = lens.p * right + lens.q * ahead
    return Eye(
        lens,
        shot.x,
        y=shot.y,
        z=lens.z,
        ahead=(sin, cos),
        right=(cos, -sin),
        here=here,
        by_east=by_east,
        by_north=by_north,
        rays=rays,
    )


@lru_cache(maxsize=32)
def _lens(height: int, width: int, pano: bool, fov: float, z: float) -> Lens:
    """Pixels are square, except in panoramas, which show all directions at any aspect ratio."""
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
    ground = np.where(slope < 0, z / np.maximum(-slope, 1e-5), FAR).astype(np.float32)
    scale, middle = np.array(focal, np.float32), np.array(((width / 2,), (height / 2,)), np.float32)
    return Lens(
        height,
        width,
        pano=pano,
        focal=focal,
        scale=scale,
        middle=middle,
        p=p,
        q=q,
        flat=level,
        slope=slope,
        z=z,
        ground=ground,
        row=row,
        column=column,
        length=length,
    )
