"""The picture in the making, and the sky: what pixels show, how deep it lies, and the light that comes from there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wayfare.data.town.camera.eye import FAR, Eye, bounded
from wayfare.data.town.camera.light import Light
from wayfare.data.town.camera.scene import COARSE, HILLS, PAD, Scene
from wayfare.data.town.camera.surfaces import CLOUDS, clouds, stars

# What a pixel shows: these, the kinds of GROUND from GROUND_0 on, HOUSE_0 + the place of a wall among those that may be
# in view, THING_0 + that of a thing
SKY, HILL, GROUND_0, HOUSE_0, THING_0 = 0, 1, 2, 16, 4096
NOTHING = -1  # not yet known
LAMP = np.array([1.0, 0.74, 0.42], np.float32)[:, None]  # the colour of lamplight
_STEPS = (2, 4, 6, 9, 12, 16, 21, 27, 35, 46)  # metres towards the sun at which heights are looked up


@dataclass
class Frame:
    """A picture in the making: one row of pixels, line after line."""

    light: np.ndarray  # float32 (3, pixels)
    depth: np.ndarray  # float32 (pixels,); FAR for the sky
    shows: np.ndarray  # int32 (pixels,)

    def put(self, at: np.ndarray, colour: np.ndarray) -> None:
        """Light for some pixels; channel by channel, which is what numpy does fastest."""
        for channel in range(3):
            self.light[channel][at] = colour[channel]


def hazy(colour: np.ndarray, depth: np.ndarray, light: Light) -> np.ndarray:
    """The colour, (3, n), through so much air; changed in place."""
    clear = np.exp(depth * np.float32(-light.thickness))
    for channel in range(3):
        haze = light.haze[channel]
        colour[channel] -= haze
        colour[channel] *= clear
        colour[channel] += haze
    return colour


def coarse_at(scene: Scene, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Index into heights and lamps, kept so far from the border that steps towards the sun stay inside."""
    rows, columns = scene.heights.shape
    i = bounded((x * np.float32(1 / COARSE)).astype(np.int32), -8, columns - 2 * PAD + 8)
    j = bounded((y * np.float32(1 / COARSE)).astype(np.int32), -8, rows - 2 * PAD + 8)
    return (j + np.int32(PAD)) * np.int32(columns) + (i + np.int32(PAD))


def shadow_top(scene: Scene, coarse: np.ndarray, light: Light) -> np.ndarray | None:
    """How high the houses' shadow reaches at these places, in metres; None if there is no sun to speak of."""
    if light.sun_colour[0] < 0.08:
        return None
    east, north, up = light.sun
    level = max(1e-3, float(np.hypot(east, north)))
    heights = scene.heights.reshape(-1)
    columns = scene.heights.shape[1]
    top = np.zeros(len(coarse), np.int16)
    for step in _STEPS:
        drop = round(step * up / level * 10)
        if drop >= scene.highest:
            break
        shift = round(step * east / level / COARSE) + round(step * north / level / COARSE) * columns
        np.maximum(top, heights.take(coarse + np.int32(shift)) - np.int16(drop), out=top)
    return top * np.float32(0.1)


def paint_sky(frame: Frame, at: np.ndarray, scene: Scene, eye: Eye, light: Light) -> None:
    """Sky and hills."""
    row, column = eye.lens.row.take(at), eye.lens.column.take(at)
    slope, flat = eye.lens.slope.take(row), eye.lens.flat.take(column)
    up = slope / flat  # tangent of the elevation
    rising = np.maximum(up, 0)
    share = np.sqrt(np.minimum(rising * np.float32(1 / 1.6), 1))
    colour = np.empty((3, len(at)), np.float32)
    for channel in range(3):
        np.multiply(share, light.zenith[channel] - light.horizon[channel], out=colour[channel])
        colour[channel] += light.horizon[channel]
    # clouds and stars are on a plane high above
    reach = np.float32(36) / ((rising + np.float32(0.16)) * flat)
    east, north = eye.east.take(column), eye.north.take(column)
    u = (east * reach + np.float32(eye.x * 0.02 + 4096)).astype(np.int32) & (CLOUDS - 1)
    v = (north * reach + np.float32(eye.y * 0.02 + 4096)).astype(np.int32) & (CLOUDS - 1)
    place = u + v * np.int32(CLOUDS)
    thin = np.ones(1, np.float32)  # how much shines through the clouds
    if light.cover > 0:
        thick = clouds().take(place)
        amount = bounded((thick - np.float32(1 - light.cover)) * np.float32(3.2), 0, 1)
        amount *= np.minimum(rising * np.float32(9), 1) * np.float32(0.85)
        white = (
            light.ambient * np.float32(0.85) + light.sun_colour * np.float32(0.75) + light.horizon * np.float32(0.28)
        )
        body = np.float32(1.06) - np.float32(0.3) * thick
        for channel in range(3):
            colour[channel] += (body * white[channel] - colour[channel]) * amount
        thin = 1 - np.float32(0.75) * amount
    behind = not eye.lens.pano and eye.ahead[0] * light.sun[0] + eye.ahead[1] * light.sun[1] < -0.2
    if not behind and (light.dark > 0.9 or light.sun_colour[0] > 0.05):
        _add_sun(colour, east, north, slope, flat, light, thin)
    frame.shows[at] = SKY
    _add_hills(frame, at, colour, scene, eye, light, up, column)
    frame.put(at, colour)


def _add_sun(
    colour: np.ndarray, east: np.ndarray, north: np.ndarray, slope: np.ndarray, flat: np.ndarray, light: Light,
    thin: np.ndarray,
) -> None:  # fmt: skip
    """The sun and its glare, or the moon, as far as the clouds are thin."""
    x, y, z = (np.float32(part) for part in light.sun)
    toward = (east * x + north * y + slope * z) / np.sqrt(flat * flat + slope * slope)
    if light.dark < 0.9:
        glare = np.maximum(toward, 0)
        for _ in range(3):
            glare = glare * glare
        shine = (glare * np.float32(0.22) + (toward > 0.9985) * np.float32(2.0)) * thin
        for channel in range(3):
            colour[channel] += light.sun_colour[channel] * shine
    else:
        colour += (toward > 0.9990) * np.float32(0.9 * _clear_at_night(light)) * thin


def _clear_at_night(light: Light) -> float:
    return max(0.0, 1 - light.thickness * 300) * (1 - light.cover)


def add_stars(frame: Frame, eye: Eye, light: Light) -> None:
    """Points of light where the sky is seen at night."""
    strength = _clear_at_night(light) * light.dark
    if strength < 0.1:
        return
    lens = eye.lens
    east, north, up, bright = stars()
    across, ahead = eye.turned(east, north)
    if lens.pano:
        depth = np.hypot(across, ahead)
    else:
        some = np.flatnonzero(ahead > 0.05)
        across, ahead, up, bright = (part.take(some) for part in (across, ahead, up, bright))
        depth = ahead
    column, row = eye.columns(across, ahead), eye.rows(up / depth)
    inside = np.flatnonzero((column >= 0) & (column < lens.width) & (row >= 0) & (row < lens.height))
    at = row.take(inside).astype(np.int32) * np.int32(lens.width) + column.take(inside).astype(np.int32)
    of_sky = frame.depth.take(at) >= FAR
    at, shine = at[of_sky], bright.take(inside)[of_sky] * np.float32(strength)
    for plane in frame.light:
        plane[at] += shine


def _add_hills(
    frame: Frame, at: np.ndarray, colour: np.ndarray, scene: Scene, eye: Eye, light: Light, up: np.ndarray,
    column: np.ndarray,
) -> None:  # fmt: skip
    low = np.flatnonzero(up < 0.22)
    if len(low) == 0:
        return
    azimuth = np.arctan2(eye.east, eye.north) * np.float32(HILLS / (2 * np.pi))
    hill = scene.hills.take(azimuth.astype(np.int32) % HILLS).take(column.take(low))
    above = hill - up.take(low)
    frame.shows[at.take(low[above > 0])] = HILL
    green = np.array([0.30, 0.36, 0.26], np.float32) * (light.ambient + light.sun_colour * np.float32(0.4))
    if light.snow:
        green = np.array([0.6, 0.62, 0.66], np.float32) * light.ambient
    body = light.haze + (green - light.haze) * np.float32(np.exp(-light.thickness * 700))
    cover = bounded(above * np.float32(eye.lens.focal) + np.float32(0.5), 0, 1)
    for channel in range(3):
        colour[channel][low] += (body[channel] - colour[channel][low]) * cover
