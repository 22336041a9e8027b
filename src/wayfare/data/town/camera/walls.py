"""The houses. The rays of all columns are crossed with all walls that can be in view. In each column walls are looked
at from near to far; a wall shows only what rises above all nearer ones, so a column is a short list of walls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wayfare.data.town.camera import bays
from wayfare.data.town.camera import facades as houses
from wayfare.data.town.camera.atlas import channels
from wayfare.data.town.camera.backdrop import HOUSE_0, LAMP, THING_0, Frame, coarse_at, hazy, shadow_top
from wayfare.data.town.camera.eye import FAR, NEAREST, Eye, bounded
from wayfare.data.town.camera.light import Light
from wayfare.data.town.camera.scene import Scene

RANGE = 220.0  # metres: farther houses are not seen
LAYERS = 12  # walls in one column that are looked at
_WINDOW = np.array([1.0, 0.8, 0.48], np.float32)[:, None]  # light from windows


@dataclass
class Strips:
    """What is seen of walls: one entry for each column and wall that shows there."""

    wall: np.ndarray  # index into the scene's walls
    column: np.ndarray
    depth: np.ndarray
    along: np.ndarray  # 0 to 1 from the wall's left to its right end
    facing: np.ndarray  # cosine between the ray and the wall's normal
    edge: np.ndarray  # the height of the upper edge in the picture, in rows
    place: np.ndarray  # that of the wall among `near`
    near: np.ndarray  # the walls that could be in view
    of_pixel: np.ndarray  # int32 (height, width): which strip; their number where there is none
    pixel_depth: np.ndarray  # float32 (height, width): FAR where there is none


def cast(scene: Scene, eye: Eye) -> Strips:
    """Find what is seen of the walls."""
    lens = eye.lens
    near, depth, share, turn = _cross(scene, eye)
    layers = min(LAYERS, int(np.count_nonzero(depth < FAR, axis=1).max())) if len(near) else 0
    if layers == 0:
        none, size = np.zeros(0, np.float32), (lens.height, lens.width)
        no_number = none.astype(np.intp)
        blank = np.zeros(size, np.int32), np.full(size, FAR, np.float32)
        return Strips(no_number, no_number, none, none, none, none, no_number, no_number, *blank)
    order = np.argsort(depth, axis=1)[:, :layers]
    order += (np.arange(lens.width) * len(near))[:, None]
    depth, share, turn = depth.take(order), share.take(order), turn.take(order)
    place = order % len(near)
    wall = near.take(place)
    looks = scene.facades
    period = (share * looks.periods.take(wall)) % 1
    step = bounded((period * houses.STEPS).astype(np.int32), 0, houses.STEPS - 1)
    drop = houses.tops().take(looks.top.take(wall) * np.int32(houses.STEPS) + step)
    rise = (scene.walls[4].take(wall) - drop - np.float32(eye.z)) / depth
    rise[depth >= FAR] = -1e4
    edge = eye.rows(np.maximum.accumulate(rise, axis=1))
    first = bounded(np.ceil(edge - np.float32(0.5)), 0, lens.height).astype(np.int32)
    shown = first < lens.height
    shown[:, 1:] &= first[:, 1:] < first[:, :-1]
    strip = np.flatnonzero(shown)
    column = strip // layers
    wall, place, depth, first = wall.take(strip), place.take(strip), depth.take(strip), first.take(strip)
    facing = -turn.take(strip) / (scene.walls[5].take(wall) * lens.flat.take(column))
    of_pixel, pixel_depth = _pixels(eye, column, first, depth)
    return Strips(wall, column, depth, share.take(strip), facing, edge.take(strip), place, near, of_pixel, pixel_depth)


def _cross(scene: Scene, eye: Eye) -> tuple[np.ndarray, ...]:
    """The walls that can be in view; and for each column and each of them the depth, where on the wall, the turn."""
    x, y, along_x, along_y, _, _ = scene.walls
    x, y = x - np.float32(eye.x), y - np.float32(eye.y)
    cross = x * along_y - y * along_x  # negative where the eye is on the outer side
    a0, d0 = eye.turned(x, y)
    da, dd = eye.turned(along_x, along_y)
    a1, d1 = a0 + da, d0 + dd
    if eye.lens.pano:
        seen = (cross < 0) & (np.minimum(a0 * a0 + d0 * d0, a1 * a1 + d1 * d1) < RANGE * RANGE)
    else:
        side = np.float32(-eye.lens.p[0] * 1.02)
        seen = (cross < 0) & (np.minimum(d0, d1) < RANGE) & (np.maximum(d0, d1) > NEAREST)
        seen &= ((a0 < side * d0) | (a1 < side * d1)) & ((-a0 < side * d0) | (-a1 < side * d1))
    near = np.flatnonzero(seen)
    x, y, along_x, along_y, cross = (part.take(near) for part in (x, y, along_x, along_y, cross))
    east, north = eye.east[:, None], eye.north[:, None]
    turn = east * along_y
    turn -= north * along_x
    np.minimum(turn, np.float32(-1e-6), out=turn)  # what is not turned to the ray gets far away
    depth = cross / turn
    share = north * x
    share -= east * y
    share /= turn
    missed = (share < 0) | (share >= 1) | (depth < NEAREST)
    depth[missed] = FAR
    return near, depth, share, turn


def _pixels(eye: Eye, column: np.ndarray, first: np.ndarray, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which strip each pixel looks at, and its depth. Within a column strips are ordered from near to far.

    In the row where a strip begins, it takes over from the next farther one, whose number is one higher.
    """
    height, width = eye.lens.height, eye.lens.width
    count = len(column)
    last = np.searchsorted(column, np.arange(width), side="right").astype(np.int32)
    steps = np.bincount(first * width + column, minlength=(height + 1) * width)
    steps = steps[: height * width].reshape(height, width).astype(np.int16)
    begun = np.cumsum(steps, axis=0, dtype=np.int16)
    strip = np.where(begun > 0, last - begun, np.int32(count))
    return strip, np.append(depth, FAR).take(strip)


def paint_walls(frame: Frame, at: np.ndarray, strips: Strips, scene: Scene, eye: Eye, light: Light) -> None:
    """Colours of the walls' pixels, from the tiles of their storeys and bays."""
    if len(at) == 0:
        return
    tiles = houses.TILES
    numbers, counts = _per_strip(strips, scene, eye, light)
    strip = strips.of_pixel.reshape(-1).take(at).astype(np.intp)
    row = eye.lens.row.take(at)
    ground, per_ground, per_storey, storeys, roof, per_roof = (part.take(strip) for part in numbers[:6])
    depth, side, sun, top, lamp = (part.take(strip) for part in numbers[9:])
    low_tile, roof_tile, upper_tile, hashed = (part.take(strip) for part in counts)
    z = np.float32(eye.z) + depth * eye.lens.slope.take(row)
    storey = (z - ground) * per_storey
    whole = np.floor(storey)
    bounded(whole, 0, storeys)
    up = storey - whole
    mixed = (hashed + whole.astype(np.int32) * np.int32(0x3C6EF35F)) * np.int32(0x5BD1E995)
    texel = upper_tile + ((((mixed >> 16) & 0x7FFF) * np.int32(bays.DOOR)) >> 15) * np.int32(tiles.stride)
    low, high = z < ground, z >= roof
    np.copyto(up, z * per_ground, where=low)
    np.copyto(up, (z - roof) * per_roof, where=high)
    np.copyto(texel, low_tile, where=low)
    np.copyto(texel, roof_tile, where=high)
    down = bounded((1 - up) * side, 0, side - 1).astype(np.int32)
    texel += down * side.astype(np.int32)
    colour = channels(tiles.texels.take(texel))
    painted = colour[3]
    sun *= 1 - bounded((top - z) * np.float32(2), 0, 1)
    soft = np.minimum(np.float32(0.82) + z * np.float32(0.05), 1)  # less light reaches the foot of a wall
    glow = None
    if light.dark:
        lamp *= np.maximum(1 - z * np.float32(0.1), 0)
        on = ((mixed >> 8) & 0xFF) < np.where(low, 200, 100)
        glow = tiles.glow.take(texel) * on * np.float32(light.dark * 0.8 / 255)
    for channel in range(3):
        plane = colour[channel]
        plane *= 1 + painted * (numbers[6 + channel].take(strip) - 1)
        lit = soft * light.ambient[channel]
        lit += sun * light.sun_colour[channel]
        if glow is not None:
            lit += lamp * LAMP[channel]
        plane *= lit
        if glow is not None:
            plane += glow * _WINDOW[channel]
    frame.put(at, hazy(colour[:3], depth, light))
    frame.shows[at] = strips.place.take(strip) + np.int32(HOUSE_0)


def _per_strip(strips: Strips, scene: Scene, eye: Eye, light: Light) -> tuple[np.ndarray, np.ndarray]:
    """All that is the same along a strip: float32 (14, strips), and int32 (4, strips)."""
    looks, tiles = scene.facades, houses.TILES
    wall, depth, along = strips.wall, strips.depth, strips.along
    sizes = looks.sizes.take(wall, axis=1)
    per_storey, count, normal_x, normal_y = sizes[2], sizes[9], sizes[10], sizes[11]
    bay = along * count
    which = np.floor(bay)
    texels = depth * per_storey / np.sqrt(np.maximum(strips.facing, np.float32(0.05)))
    level = np.log2(bounded(texels * np.float32(0.8 * bays.SIDE / eye.lens.focal), 1, bays.SIDE)).astype(np.int32)
    side = np.int32(bays.SIDE) >> level
    stride = np.int32(tiles.stride)
    base = looks.tile.take(wall) * stride + tiles.offsets.take(level)
    seed = looks.hash.take(wall)
    hashed = seed + which.astype(np.int64) * 0x9E3779B1
    spread = ((hashed & 0xFFFFFFFF) * 0x85EB >> 13) & 0xFFFF
    low = np.where(looks.shop.take(wall), bays.SHOP + spread % 3, bays.LOW + spread % 2)
    low[(which == np.floor(count / 2)) & (count > 1)] = bays.DOOR
    within = np.minimum(((bay - which) * side).astype(np.int32), side - 1)
    period = (along * looks.periods.take(wall)) % 1
    counts = np.empty((4, len(wall)), np.int32)
    counts[0] = base + low * stride + within
    counts[1] = base + (bays.ROOF + (seed & 1)) * stride + np.minimum((period * side).astype(np.int32), side - 1)
    counts[2] = base + np.int32(bays.UPPER) * stride + within
    counts[3] = hashed & 0x7FFFFFFF
    x = np.float32(eye.x) + eye.east.take(strips.column) * depth + normal_x * np.float32(1.2)
    y = np.float32(eye.y) + eye.north.take(strips.column) * depth + normal_y * np.float32(1.2)
    coarse = coarse_at(scene, x, y)
    top = shadow_top(scene, coarse, light)
    numbers = np.empty((14, len(wall)), np.float32)
    numbers[:9] = sizes[:9]
    numbers[9] = depth
    numbers[10] = side
    numbers[11] = np.maximum(normal_x * np.float32(light.sun[0]) + normal_y * np.float32(light.sun[1]), 0)
    numbers[12] = -1 if top is None else top
    numbers[13] = scene.lamps.reshape(-1).take(coarse) * np.float32(light.dark * 0.8 / 255)
    return numbers, counts


def smooth_tops(frame: Frame, strips: Strips, eye: Eye) -> None:
    """Where an upper edge goes through a pixel, mix what is below and above it."""
    height, width = eye.lens.height, eye.lens.width
    row = np.floor(strips.edge).astype(np.int32)
    inside = np.flatnonzero((row > 0) & (row < height - 1))
    inside = inside[frame.shows.take(row.take(inside) * width + strips.column.take(inside)) < THING_0]
    row = row.take(inside)
    at = row * width + strips.column.take(inside)
    share = (row + 1) - strips.edge.take(inside)
    for plane in frame.light:
        above, below = plane.take(at - width), plane.take(at + width)
        plane[at] = above + (below - above) * share
