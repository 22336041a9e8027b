"""The picture being drawn, and the sky: what pixels show, its depth, and the light it sends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from wayfare.town.camera.eye import FAR, HALF, Eye, Lens, share
from wayfare.town.camera.light import Light
from wayfare.town.camera.scene import BEYOND, COARSE, HILLS, PAD, CityScene
from wayfare.town.camera.surfaces import CLOUDS, clouds, stars
from wayfare.town.plane import bounded

# What a pixel shows: these, the kinds of GROUND from GROUND_0 on, HOUSE_0 + the place of a wall among those that may be
# in view, THING_0 + that of a thing
SKY, HILL, GROUND_0, HOUSE_0, THING_0 = 0, 1, 2, 16, 4096
NOTHING = -1  # not yet known
LAMP = np.array([1.0, 0.74, 0.42], np.float32)[:, None]  # the colour of lamplight
_STEPS = (2, 4, 6, 9, 12, 16, 21, 27, 35, 46)  # metres towards the sun at which heights are looked up


@dataclass
class Frame:
    """A picture being drawn: all pixels in one array, line by line."""

    light: np.ndarray  # float32 (3, pixels)
    depth: np.ndarray  # float32 (pixels,); FAR for the sky
    shows: np.ndarray  # int32 (pixels,)

    def put(self, at: np.ndarray, colour: np.ndarray) -> None:
        """Light for some pixels; channel by channel, which is what numpy does fastest."""
        for channel in range(3):
            self.light[channel][at] = colour[channel]


def hazy(colour: np.ndarray, depth: np.ndarray, light: Light) -> np.ndarray:
    """The colour, (3, ...), seen through this much air; changed in place."""
    clear = np.exp(depth * -light.thickness)
    haze = light.haze.reshape(3, *(1,) * (colour.ndim - 1))
    colour -= haze
    colour *= clear
    colour += haze
    return colour


def coarse_at(scene: CityScene, places: np.ndarray) -> np.ndarray:
    """Index into heights and lamps of places, (2, n), kept so near to the city that steps towards the sun stay inside.

    It is counted from the corner of what can be reached, see `_reachable`.
    """
    cells = (places * (1 / COARSE)).astype(np.int32)
    cells += BEYOND
    i, j = bounded(cells, 0, scene.coarse_limits)
    found: np.ndarray = j * np.intp(scene.heights.shape[1]) + i
    return found


def lamplight(scene: CityScene, coarse: np.ndarray, strength: float) -> np.ndarray:
    """Light from street lamps at these places."""
    return _reachable(scene.lamps).take(coarse) * np.float32(strength / 255)


def _reachable(raster: np.ndarray, shift: int = 0) -> np.ndarray:
    """The cells of heights or lamps, row after row, from that on which coarse_at calls 0; or from a shifted one."""
    return raster.reshape(-1)[(PAD - BEYOND) * (raster.shape[1] + 1) + shift :]


def shadow_top(scene: CityScene, coarse: np.ndarray, light: Light) -> np.ndarray | None:
    """How high the houses' shadow reaches at these places, in metres; None without enough sun."""
    if light.sun_colour[0] < 0.08:
        return None
    top = np.zeros(len(coarse), np.int16)
    for shift, drop in _to_sun(light.sun, scene.heights.shape[1]):
        if drop >= scene.highest:
            break
        np.maximum(top, _reachable(scene.heights, shift).take(coarse) - drop, out=top)
    return top * np.float32(0.1)


@lru_cache(maxsize=512)
def _to_sun(sun: tuple[float, float, float], columns: int) -> list[tuple[int, np.int16]]:
    """Steps towards the sun: by how many cells, and how many decimetres lower the shadow is that comes from there."""
    east, north, up = sun
    level = max(1e-3, math.hypot(east, north))
    return [
        (
            round(step * east / level / COARSE) + round(step * north / level / COARSE) * columns,
            np.int16(min(round(step * up / level * 10), 32767)),
        )
        for step in _STEPS
    ]


@lru_cache(maxsize=32)
def _sky(lens: Lens) -> np.ndarray:
    """What the sky's pixels, those from the picture's upper edge to the horizon, have in common in all pictures with
    this lens: float32 (4, n) of the tangent of the elevation, how much the zenith's colour counts, how far away the
    plane of the clouds is, and how well they are seen."""
    up = (lens.slope[lens.slope >= 0, None] / lens.flat).reshape(-1)
    flat = lens.flat.take(lens.column[: len(up)])
    high = np.sqrt(np.minimum(up * (1 / 1.6), 1))
    return np.stack((up, high, 36 / ((up + 0.16) * flat), np.minimum(up * 9, 1) * 0.85))


def paint_sky(frame: Frame, at: np.ndarray, scene: CityScene, eye: Eye, light: Light) -> None:
    """Sky and hills."""
    up, high, reach, seen = _sky(eye.lens).take(at, axis=1)
    column = eye.lens.column.take(at)
    ways = eye.rays.take(column, axis=1)
    horizon = light.horizon[:, None]
    colour = (light.zenith[:, None] - horizon) * high
    colour += horizon
    thin: np.ndarray | int = 1  # how much shines through the clouds
    if light.cover > 0:
        # clouds and stars are on a plane high above
        origin = np.array(((eye.x * 0.02 + 4096,), (eye.y * 0.02 + 4096,)), np.float32)
        u, v = (ways * reach + origin).astype(np.int32) & (CLOUDS - 1)
        thick = clouds().take(u + v * CLOUDS)
        amount = share((thick - (1 - light.cover)) * 3.2)
        amount *= seen
        white = light.clouds[:, None] * (1.06 - 0.3 * thick)
        white -= colour
        white *= amount
        colour += white
        thin = 1 - 0.75 * amount
    behind = not eye.lens.pano and eye.ahead[0] * light.sun[0] + eye.ahead[1] * light.sun[1] < -0.2
    if not behind and (light.dark > 0.9 or light.sun_colour[0] > 0.05):
        _add_sun(colour, at, ways, lens=eye.lens, light=light, thin=thin)
    frame.shows[at] = SKY
    _add_hills(frame, at, colour=colour, scene=scene, eye=eye, light=light, up=up, column=column)
    frame.put(at, colour)


def _add_sun(
    colour: np.ndarray, at: np.ndarray, ways: np.ndarray, lens: Lens, light: Light, thin: np.ndarray | int
) -> None:
    """The sun and its glare, or the moon, where clouds are thin."""
    x, y, z = light.sun
    toward = (ways[0] * x + ways[1] * y + lens.slope.take(lens.row.take(at)) * z) / lens.length.take(at)
    if light.dark < 0.9:
        glare = np.maximum(toward, 0)
        for _ in range(3):
            glare *= glare
        glare *= 0.22
        glare[toward > 0.9985] += 2
        colour += light.sun_colour[:, None] * (glare * thin)
    else:
        colour += (toward > 0.9990) * np.float32(0.9 * _clear_at_night(light)) * thin


def _clear_at_night(light: Light) -> float:
    return max(0.0, 1 - light.thickness * 300) * (1 - light.cover)


def add_stars(frame: Frame, eye: Eye, light: Light) -> None:
    """Stars where the sky is visible at night."""
    strength = _clear_at_night(light) * light.dark
    if strength < 0.1:
        return
    lens = eye.lens
    up, bright = stars()[2:]
    across, ahead = eye.turned(stars()[:2])
    if lens.pano:
        depth = np.hypot(across, ahead)
    else:
        some = (ahead > 0.05).nonzero()[0]
        across, ahead, up, bright = (part.take(some) for part in (across, ahead, up, bright))
        depth = ahead
    column, row = eye.columns(across, ahead), eye.rows(up / depth)
    inside = ((column >= 0) & (column < lens.width) & (row >= 0) & (row < lens.height)).nonzero()[0]
    at = row.take(inside).astype(np.intp) * lens.width + column.take(inside).astype(np.intp)
    of_sky = frame.depth.take(at) >= FAR
    at, shine = at[of_sky], bright.take(inside)[of_sky] * strength
    for plane in frame.light:
        plane[at] += shine


def _add_hills(
    frame: Frame, at: np.ndarray, colour: np.ndarray, scene: CityScene, eye: Eye, light: Light, up: np.ndarray,
    column: np.ndarray,
) -> None:  # fmt: skip
    low = (up < 0.22).nonzero()[0]
    if len(low) == 0:
        return
    east, north = eye.rays
    azimuth = np.arctan2(east, north) * (HILLS / (2 * np.pi))
    hill = scene.hills.take(azimuth.astype(np.int32) % HILLS).take(column.take(low))
    above = hill - up.take(low)
    frame.shows[at.take(low[above > 0])] = HILL
    cover = share(above * eye.lens.scale + HALF)
    sky = colour.take(low, axis=1)
    sky += (light.hills[:, None] - sky) * cover
    for channel in range(3):
        colour[channel][low] = sky[channel]
