"""Weather effects: reflections in water and on wet stone, halos of lamps, rain and snow."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wayfare.town.camera.backdrop import GROUND_0, HOUSE_0, LAMP, Frame
from wayfare.town.camera.eye import NEAREST, Eye
from wayfare.town.camera.light import Light
from wayfare.town.model import GROUND, Thing
from wayfare.town.plane import bounded

_MIRRORS = np.zeros(HOUSE_0, np.float32)  # how much of what is above each surface is seen in it
_MIRRORS[GROUND_0 + GROUND.index("water")] = 0.62
_WET = _MIRRORS.copy()
for _kind, _share in (("road", 0.4), ("crossing", 0.4), ("pavement", 0.3), ("square", 0.34), ("bridge", 0.3)):
    _WET[GROUND_0 + GROUND.index(_kind)] = _share
_GLOWING = 10  # lamps at most that get a halo
_DROPS, _FLAKES = 110, 190


def reflect(frame: Frame, eye: Eye, light: Light) -> None:
    """Reflections in water and wet stone, stronger at flatter viewing angles."""
    lens = eye.lens
    half = lens.height // 2
    lower = frame.shows[(lens.height - half) * lens.width :]
    share_of = _WET if light.wet else _MIRRORS
    share = share_of.take(np.minimum(lower, HOUSE_0 - 1))
    at = (share > 0).nonzero()[0]
    if len(at) == 0:
        return
    share = share.take(at)
    at += (lens.height - half) * lens.width
    row, column = lens.row.take(at), lens.column.take(at)
    below = np.minimum(-lens.slope.take(row), 1)
    share *= 1 - 0.75 * below
    wave = np.sin(row * np.float32(2.1) + column * np.float32(0.37)) * np.float32(1.4 * lens.width / 128)
    mirrored = (lens.height - 1 - row) * lens.width + bounded(column + wave.astype(np.int32), 0, lens.width - 1)
    here, there = frame.light.take(at, axis=1), frame.light.take(mirrored, axis=1)
    there -= here
    there *= share
    here += there
    frame.put(at, here)


def add_halos(frame: Frame, things: Sequence[Thing], rows: np.ndarray, eye: Eye, light: Light) -> None:
    """Light around the lamps at night, and more of it in fog."""
    if light.dark < 0.3:
        return
    lens = eye.lens
    lamps = [k for k, thing in enumerate(things) if thing.kind == "street lamp"]
    if not lamps:
        return
    _, _, z, _, _, height, _, _, _, across, ahead = rows[:, lamps]
    depth = np.hypot(across, ahead) if lens.pano else ahead
    inside = depth > NEAREST
    across, ahead, depth, top = across[inside], ahead[inside], depth[inside], (z + height * 0.93)[inside]
    column, row = eye.columns(across, ahead), eye.rows((top - eye.z) / depth)
    on = (column >= 0) & (column < lens.width) & (row >= 0) & (row < lens.height)
    pixel_row, pixel_column = row.astype(np.int32), column.astype(np.int32)
    at = bounded(pixel_row, 0, lens.height - 1) * lens.width + bounded(pixel_column, 0, lens.width - 1)
    on &= frame.depth.take(at) > depth - 0.5
    fog = min(1.0, light.thickness * 20)
    picture = frame.light.reshape(3, lens.height, lens.width)
    nearest = sorted(on.nonzero()[0].tolist(), key=lambda k: float(depth[k]))
    for k in nearest[:_GLOWING]:
        radius = min(max(float((1.5 + 2.0 * fog) / depth[k]) * lens.focal, 1.5), lens.height / 3)
        r0, r1 = max(0, int(row[k] - 2 * radius)), min(lens.height, int(row[k] + 2 * radius) + 1)
        c0, c1 = max(0, int(column[k] - 2 * radius)), min(lens.width, int(column[k] + 2 * radius) + 1)
        dy = (np.arange(r0, r1, dtype=np.float32) + 0.5 - row[k]) / radius
        dx = (np.arange(c0, c1, dtype=np.float32) + 0.5 - column[k]) / radius
        shine = np.exp(-2 * dy * dy)[:, None] * np.exp(-2 * dx * dx)
        shine *= light.dark * 0.5 * math.exp(-light.thickness * float(depth[k]) * 0.5)
        picture[:, r0:r1, c0:c1] += LAMP[:, :, None] * shine


def fall(frame: Frame, eye: Eye, light: Light, seed: int) -> None:
    """Raindrops or snowflakes in front of the lens."""
    if not (light.wet or light.snow):
        return
    rng = np.random.default_rng(seed)
    lens = eye.lens
    height, width = lens.height, lens.width
    if light.wet:
        x, y, size = (rng.random(_DROPS, dtype=np.float32) for _ in "xys")
        length = ((size * 0.07 + 0.04) * height).astype(np.int32) + 1
        step = np.arange(int(length.max()), dtype=np.int32)[:, None]
        row = (y * height).astype(np.int32) + step
        column = (x * width + step * np.float32(0.18)).astype(np.int32)
        inside = (step < length) & (row < height) & (column < width)
        at = (row * width + column)[inside].astype(np.intp)
        _mix(frame, at, light.haze * 1.15 + 0.05, 0.17)
    else:
        x, y, size = (rng.random(_FLAKES, dtype=np.float32) for _ in "xys")
        radius = (0.3 + size * size) * (height / 110)
        reach = int(np.ceil(radius.max()))
        steps = np.arange(-reach, reach + 1, dtype=np.int32)
        row = (y * height).astype(np.int32)[:, None, None] + steps[:, None]
        column = (x * width).astype(np.int32)[:, None, None] + steps
        inside = (steps[:, None] ** 2 + steps**2 <= (radius * radius)[:, None, None]) & (row >= 0) & (row < height)
        inside &= (column >= 0) & (column < width)
        at = (row * width + column)[inside].astype(np.intp)
        _mix(frame, at, light.ambient * 0.9 + 0.35, 0.75)


def _mix(frame: Frame, at: np.ndarray, colour: np.ndarray, share: float) -> None:
    here = frame.light.take(at, axis=1)
    frame.put(at, here + (colour[:, None] - here) * share)
