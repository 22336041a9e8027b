"""The houses. The rays of all columns are crossed with all walls that can be in view. In each column walls are looked
at from near to far; a wall shows only what rises above all nearer ones, so a column is a short list of walls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wayfare.town.camera import bays
from wayfare.town.camera import facades as houses
from wayfare.town.camera.atlas import channels
from wayfare.town.camera.backdrop import HOUSE_0, LAMP, THING_0, Frame, coarse_at, hazy, lamplight, shadow_top
from wayfare.town.camera.eye import FAR, HALF, NEAREST, ONE, ZERO, Eye, counted, share
from wayfare.town.camera.light import Light
from wayfare.town.camera.scene import CityScene
from wayfare.town.plane import bounded

RANGE = 220.0  # metres: farther houses are not seen
LAYERS = 12  # walls in one column that are looked at
_BEHIND = 1e-3  # metres ahead: what is less counts as behind the camera
_MARGIN = np.array([[-1], [1]], np.float32)  # pixels by which a wall is looked for to its left and right
_WINDOW = np.array([1.0, 0.8, 0.48], np.float32)[:, None]  # light from windows


@dataclass
class Strips:
    """Visible parts of walls: one entry for each column and wall visible there."""

    wall: np.ndarray  # index into the scene's walls
    column: np.ndarray
    depth: np.ndarray
    along: np.ndarray  # 0 to 1 from the wall's left to its right end
    facing: np.ndarray  # cosine between the ray and the wall's normal
    edge: np.ndarray  # the height of the upper edge in the picture, in rows
    place: np.ndarray  # that of the wall among `near`
    near: np.ndarray  # the walls that could be in view
    of_pixel: np.ndarray  # intp (height, width): which strip; their number where there is none
    pixel_depth: np.ndarray  # float32 (height, width): FAR where there is none


def cast(scene: CityScene, eye: Eye) -> Strips:
    """Find the visible parts of the walls."""
    lens = eye.lens
    near, place, column, depth, along, turn = _cross(scene, eye)
    # in each column from near to far: numbers from 0 up are ordered like their bits
    order = (column << 32 | depth.view(np.int32)).argsort(kind="stable")
    column = column.take(order)
    count = np.bincount(column, minlength=lens.width)
    rank = np.arange(len(order)) - (count.cumsum() - count).take(column)
    if len(order) and count.max() > LAYERS:
        kept = (rank < LAYERS).nonzero()[0]
        order, column, rank = order.take(kept), column.take(kept), rank.take(kept)
    place, depth, along, turn = (part.take(order) for part in (place, depth, along, turn))
    wall = near.take(place)
    looks = scene.facades
    period = (along * looks.periods.take(wall)) % ONE
    step = bounded((period * houses.STEPS).astype(np.int32), 0, houses.STEPS - 1)
    drop = houses.tops().take(looks.top.take(wall) * houses.STEPS + step)
    rise = np.full((lens.width, LAYERS), -1e4, np.float32)
    at = column * LAYERS + rank
    rise.reshape(-1)[at] = (scene.walls[4].take(wall) - drop - eye.z) / depth
    edge = eye.rows(np.maximum.accumulate(rise, axis=1).take(at))
    first = bounded(np.ceil(edge - HALF), 0, lens.height).astype(np.int32)
    shown = first < lens.height
    shown[1:] &= (first[1:] < first[:-1]) | (rank[1:] == 0)
    strip = shown.nonzero()[0]
    wall, place, column, depth, first = (part.take(strip) for part in (wall, place, column, depth, first))
    facing = -turn.take(strip) / (scene.walls[5].take(wall) * lens.flat.take(column))
    of_pixel, pixel_depth = _pixels(eye, column, first, depth)
    return Strips(
        wall,
        column,
        depth=depth,
        along=along.take(strip),
        facing=facing,
        edge=edge.take(strip),
        place=place,
        near=near,
        of_pixel=of_pixel,
        pixel_depth=pixel_depth,
    )


def _cross(scene: CityScene, eye: Eye) -> tuple[np.ndarray, ...]:
    """The walls that can be in view; and wherever a column's ray meets one of them: the wall's place among these, the
    column, the depth, where on the wall, the turn."""
    lens = eye.lens
    starts, along = scene.walls[:2] - eye.here, scene.walls[2:4]
    cross = starts[0] * along[1] - starts[1] * along[0]  # negative where the eye is on the outer side
    first = eye.turned(starts)
    ends = np.stack((first, first + eye.turned(along)), 1)  # right, ahead; of both ends
    if lens.pano:
        seen = (cross < 0) & ((ends * ends).sum(0).min(0) < RANGE * RANGE)
    else:
        right, ahead = ends
        sides = ahead * (-lens.p[0] * 1.02)
        seen = (cross < 0) & (ahead.min(0) < RANGE) & (ahead.max(0) > NEAREST)
        seen &= (right < sides).any(0) & (-right < sides).any(0)
    near = seen.nonzero()[0]
    right, ahead = ends.take(near, axis=2)
    if lens.pano:
        bounds = np.floor(eye.columns(right, ahead)).astype(np.intp)
        wide = (bounds[1] - bounds[0]) % lens.width + 3
    else:  # an end behind the camera is beyond the picture's edge
        bounds = eye.columns(right, np.maximum(ahead, _BEHIND))
        bounds = np.where(ahead > _BEHIND, bounds, ((0,), (lens.width,))) + _MARGIN
        bounds = bounded(bounds, 0, lens.width).astype(np.intp)
        wide = np.maximum(bounds[1] - bounds[0], 0)
    column, place = counted(wide)
    column += (bounds[0] - lens.pano).take(place)
    if lens.pano:
        column %= lens.width
    x, y = starts.take(near, axis=1).take(place, axis=1)
    along_x, along_y = along.take(near, axis=1).take(place, axis=1)
    cross = cross.take(near).take(place)
    east, north = eye.rays.take(column, axis=1)
    turn = east * along_y
    turn -= north * along_x
    np.minimum(turn, -1e-6, out=turn)  # what is not turned to the ray gets far away
    depth = cross / turn
    where = north * x
    where -= east * y
    where /= turn
    met = ((where >= 0) & (where < 1) & (depth >= NEAREST) & (depth < FAR)).nonzero()[0]
    return near, *(part.take(met) for part in (place, column, depth, where, turn))


def _pixels(eye: Eye, column: np.ndarray, first: np.ndarray, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The strip that each pixel shows, and its depth. Within a column strips are ordered from near to far.

    Each reaches from its first row down to that of the nearer one before it; above the farthest there is none.
    """
    height, width = eye.lens.height, eye.lens.width
    count = len(column)
    at = np.arange(count) + column  # with one entry more for each column: that of no strip
    strip = np.full(count + width, count)
    strip[at] = np.arange(count)
    begins, ends = np.zeros((2, count + width), np.intp)
    begins[at] = first
    ends[1:] = begins[:-1]
    ends[0] = ends[1:][strip[:-1] == count] = height  # of the nearest strip in each column
    # np.repeat goes down the columns, the last one first
    by_column = strip[::-1].repeat((ends - begins)[::-1]).reshape(width, height)
    of_pixel = np.ascontiguousarray(by_column[::-1].T)
    return of_pixel, np.concatenate((depth, (FAR,))).take(of_pixel)


def paint_walls(frame: Frame, at: np.ndarray, strips: Strips, scene: CityScene, eye: Eye, light: Light) -> None:
    """Colours of the walls' pixels, from the tiles of their storeys and bays."""
    if len(at) == 0:
        return
    tiles = houses.TILES
    numbers, counts = _per_strip(strips, scene, eye, light)
    strip = strips.of_pixel.reshape(-1).take(at)
    row = eye.lens.row.take(at)
    ground, per_ground, per_storey, storeys, roof, per_roof = numbers[:6].take(strip, axis=1)
    depth, side, sun, top, lamp = numbers[9:].take(strip, axis=1)
    low_tile, roof_tile, upper_tile, hashed = counts.take(strip, axis=1)
    z = eye.z + depth * eye.lens.slope.take(row)
    storey = (z - ground) * per_storey
    whole = np.floor(storey)
    bounded(whole, 0, storeys)
    up = storey - whole
    mixed = (hashed + whole.astype(np.int32) * 0x3C6EF35F) * 0x5BD1E995
    texel = upper_tile + ((((mixed >> 16) & 0x7FFF) * bays.DOOR) >> 15) * tiles.stride
    low, high = z < ground, z >= roof
    np.copyto(up, z * per_ground, where=low)
    np.copyto(up, (z - roof) * per_roof, where=high)
    np.copyto(texel, low_tile, where=low)
    np.copyto(texel, roof_tile, where=high)
    down = bounded((ONE - up) * side, ZERO, side - ONE).astype(np.int32)
    texel += down * side.astype(np.int32)
    colour = channels(tiles.texels.take(texel))
    painted = colour[3]
    sun *= ONE - share((top - z) * 2)
    soft = np.minimum(z * 0.05 + 0.82, ONE)  # less light reaches the foot of a wall
    glow = None
    if light.dark:
        lamp *= np.maximum(1 - z * 0.1, 0)
        on = ((mixed >> 8) & 0xFF) < np.where(low, 200, 100)
        glow = tiles.glow.take(texel) * on * np.float32(light.dark * 0.8 / 255)
    colour = colour[:3]
    colour *= ONE + painted * (numbers[6:9] - ONE).take(strip, axis=1)
    lit = soft * light.ambient[:, None]
    lit += sun * light.sun_colour[:, None]
    if glow is not None:
        lit += lamp * LAMP
    colour *= lit
    if glow is not None:
        colour += glow * _WINDOW
    frame.put(at, hazy(colour, depth, light))
    frame.shows[at] = (strips.place + HOUSE_0).take(strip)


def _per_strip(strips: Strips, scene: CityScene, eye: Eye, light: Light) -> tuple[np.ndarray, np.ndarray]:
    """All that is constant along a strip: float32 (14, strips), and int32 (4, strips)."""
    looks, tiles = scene.facades, houses.TILES
    wall, depth, along = strips.wall, strips.depth, strips.along
    sizes = looks.sizes.take(wall, axis=1)
    per_storey, count, normal_x, normal_y = sizes[2], sizes[9], sizes[10], sizes[11]
    texels = depth * per_storey / np.sqrt(np.maximum(strips.facing, 0.05)) * (0.8 * bays.SIDE / eye.lens.focal)
    level = np.log2(bounded(texels, ONE, bays.SIDE)).astype(np.int32)
    side = bays.SIDE >> level
    bay = along * count
    which = np.minimum(np.floor(bay), count - ONE)
    parts = np.array((bay - which, (along * looks.periods.take(wall)) % ONE))
    within, in_period = np.minimum((parts * side).astype(np.int32), side - 1)
    low, hashed = looks.bays.take(looks.first_bay.take(wall) + which.astype(np.intp), axis=1)
    base = looks.tile.take(wall) + tiles.offsets.take(level)
    upper = base + within  # the tiles of upper storeys come first
    counts = np.array((upper + low, base + looks.roof.take(wall) + in_period, upper, hashed))
    places = eye.here + eye.rays.take(strips.column, axis=1) * depth + sizes[10:] * 1.2
    coarse = coarse_at(scene, places)
    top = shadow_top(scene, coarse, light)
    numbers = np.empty((14, len(wall)), np.float32)
    numbers[:9] = sizes[:9]
    numbers[9] = depth
    numbers[10] = side
    numbers[11] = np.maximum(normal_x * light.sun[0] + normal_y * light.sun[1], ZERO)
    numbers[12] = -1 if top is None else top
    numbers[13] = lamplight(scene, coarse, light.dark * 0.8)
    return numbers, counts


def smooth_tops(frame: Frame, strips: Strips, eye: Eye) -> None:
    """Blend pixels at upper edges with what is above them."""
    height, width = eye.lens.height, eye.lens.width
    row = np.floor(strips.edge).astype(np.int32)
    inside = ((row > 0) & (row < height - 1)).nonzero()[0]
    inside = inside[frame.shows.take(row.take(inside) * width + strips.column.take(inside)) < THING_0]
    row = row.take(inside)
    at = row * width + strips.column.take(inside)
    part = (row + 1) - strips.edge.take(inside)
    above, below = frame.light.take(at - width, axis=1), frame.light.take(at + width, axis=1)
    below -= above
    below *= part
    above += below
    frame.put(at, above)
