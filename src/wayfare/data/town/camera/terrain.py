"""The ground: each pixel below the horizon looks at a point of the map, which says what is there."""

from __future__ import annotations

import numpy as np

from wayfare.data.town.camera.atlas import Tiles, channels
from wayfare.data.town.camera.backdrop import GROUND_0, LAMP, Frame, coarse_at, hazy, shadow_top
from wayfare.data.town.camera.eye import Eye, bounded
from wayfare.data.town.camera.light import Light
from wayfare.data.town.camera.scene import BORDER, CODE, MARGIN, MARK, SHADE, Scene
from wayfare.data.town.camera.surfaces import METRES, PAINT, SIDE, SURFACES, ground_tiles

_KERB = SURFACES.index("kerb")
_CLEAR = 0.22  # metres that a pixel covers across: where it is more, borders and paint are not looked at closely
_RIGHT, _UP = np.array([[0], [1], [0], [1]], np.int32), np.array([[0], [0], [1], [1]], np.int32)
_PARTS = (-0.25, 0.25)  # of a pixel's height, where far ground is looked at


def paint_ground(frame: Frame, at: np.ndarray, scene: Scene, eye: Eye, light: Light, season: str) -> None:
    """Colours and kinds of the ground's pixels."""
    if len(at) == 0:
        return
    lens = eye.lens
    row, column = lens.row.take(at), lens.column.take(at)
    depth = eye.ground.take(row)
    x = np.float32(eye.x) + eye.east.take(column) * depth
    y = np.float32(eye.y) + eye.north.take(column) * depth
    tiles, palette = ground_tiles(season, light.snow, light.wet, scene.city.seed % 4)
    cell = scene.ground.reshape(-1).take(_cell_at(scene, x, y))
    code = (cell & 15).astype(np.int32)
    near = int(np.searchsorted(row, np.argmax(eye.ground < _CLEAR * lens.focal)))  # rows get nearer from top to bottom
    drawn = _with_smooth_borders(scene, x, y, cell, code, near)
    colour = _texture(tiles, eye, x, y, drawn, row)
    _mix_far(colour, palette, scene, eye, row, column)
    _add_marks(colour, scene, eye, x, y, depth, cell, near, light)
    shade = ((cell >> SHADE) & 31) * np.float32(1 / 31)
    lit = light.ambient[:, None] * shade
    coarse = coarse_at(scene, x, y) if light.dark or light.sun_colour[0] > 0.05 else None
    if coarse is not None:
        sun: np.ndarray | np.float32 = np.float32(max(0.0, light.sun[2]))
        top = shadow_top(scene, coarse, light)
        if top is not None:
            sun = sun * bounded(1 - top, 0, 1)
        for channel in range(3):
            lit[channel] += light.sun_colour[channel] * sun
    if light.dark and coarse is not None:
        lit += LAMP * (scene.lamps.reshape(-1).take(coarse) * np.float32(light.dark * 1.25 / 255))
    colour *= lit
    frame.put(at, hazy(colour, depth, light))
    frame.shows[at] = code + np.int32(GROUND_0)


def _cell_at(scene: Scene, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The index of the ground's cell; beyond the city's border it goes on as it is there."""
    rows, columns = scene.ground.shape
    per = np.float32(1 / scene.city.cell)
    i = bounded((x * per).astype(np.int32), 0, columns - 1)
    j = bounded((y * per).astype(np.int32), 0, rows - 1)
    return j * np.int32(columns) + i


def _with_smooth_borders(
    scene: Scene, x: np.ndarray, y: np.ndarray, cell: np.ndarray, code: np.ndarray, near: int
) -> np.ndarray:
    """Near borders, decide between the surfaces of four cells by how sure they are; `code` is changed in place.

    Returns what is drawn, which may be a kerb where `code` is pavement.
    """
    at = np.flatnonzero(cell[near:] & np.uint32(1 << BORDER)) + near
    if len(at) == 0:
        return code
    rows, columns = scene.ground.shape
    per = np.float32(1 / scene.city.cell)
    fx, fy = x.take(at) * per - np.float32(0.5), y.take(at) * per - np.float32(0.5)
    left, below = np.floor(fx), np.floor(fy)
    fx -= left
    fy -= below
    i, j = left.astype(np.int32), below.astype(np.int32)
    mine = code.take(at)
    # the four cells around, as rows: lower left, lower right, upper left, upper right
    i, j = bounded(i + _RIGHT, 0, columns - 1), bounded(j + _UP, 0, rows - 1)
    found = scene.ground.reshape(-1).take(j * np.int32(columns) + i)
    weight = np.stack(((1 - fx) * (1 - fy), fx * (1 - fy), (1 - fx) * fy, fx * fy))
    weight *= ((found >> MARGIN) & 255).astype(np.float32)
    kind = (found & 15).astype(np.int32)
    same = kind == mine
    sure = np.where(same, weight, -weight).sum(0)
    other = np.where(same, -1, kind).max(0)
    by_road = ((kind == CODE["road"]) | (kind == CODE["crossing"])).any(0)
    mine = np.where(sure >= 0, mine, other)
    code[at] = mine
    drawn = code.copy()
    kerb = (mine == CODE["pavement"]) & by_road & (np.abs(sure) < 48)
    drawn[at[kerb]] = _KERB
    return drawn


def _texture(tiles: Tiles, eye: Eye, x: np.ndarray, y: np.ndarray, drawn: np.ndarray, row: np.ndarray) -> np.ndarray:
    """The surface's colours, in the size in which a texel is about as long as a pixel."""
    scale = np.float32(SIDE / METRES)
    texels = np.maximum(eye.ground * np.float32(1.6 * scale / eye.lens.focal), 1)
    level = np.minimum(np.log2(texels), tiles.levels - 1).astype(np.int32)
    offset = tiles.offsets.take(level).take(row)
    level = level.take(row)
    u = ((x * scale).astype(np.int32) & (SIDE - 1)) >> level
    v = ((y * scale).astype(np.int32) & (SIDE - 1)) >> level
    texel = drawn * np.int32(tiles.stride) + offset + v * (np.int32(SIDE) >> level) + u
    return channels(tiles.texels.take(texel))[:3]


def _mix_far(
    colour: np.ndarray, palette: np.ndarray, scene: Scene, eye: Eye, row: np.ndarray, column: np.ndarray
) -> None:
    """Far away a pixel covers metres of ground: take the mean of several points in it."""
    lens = eye.lens
    limit = np.float32(np.sqrt(0.5 * eye.z * lens.focal))  # where a pixel covers half a metre
    last = int(np.searchsorted(row, np.argmax(eye.ground < limit)))
    if last == 0:
        return
    row, column = row[:last], column[:last]
    east, north = eye.east.take(column), eye.north.take(column)
    total = np.zeros((3, last), np.float32)
    step = np.pi / lens.height if lens.pano else 1 / lens.focal
    ground = scene.ground.reshape(-1)
    for part in _PARTS:
        depths = np.float32(eye.z) / np.maximum(-lens.slope - np.float32(part * step), np.float32(1e-3))
        depth = depths.take(row)
        code = ground.take(_cell_at(scene, np.float32(eye.x) + east * depth, np.float32(eye.y) + north * depth)) & 15
        for channel in range(3):
            total[channel] += palette[channel].take(code)
    weight = bounded(eye.ground / limit - 1, 0, 1).take(row)
    for channel in range(3):
        colour[channel, :last] += (total[channel] * np.float32(1 / len(_PARTS)) - colour[channel, :last]) * weight


def _add_marks(
    colour: np.ndarray, scene: Scene, eye: Eye, x: np.ndarray, y: np.ndarray, depth: np.ndarray,
    cell: np.ndarray, near: int, light: Light,
) -> None:  # fmt: skip
    """Paint on the road."""
    at = np.flatnonzero(cell[near:] >> MARK) + near
    if len(at) == 0:
        return
    x, y, depth = x.take(at), y.take(at), depth.take(at)
    ax, ay, a0, period, on, bx, by, b0, half = scene.marks.take(cell.take(at) >> MARK, axis=0).T
    per_pixel = np.float32(eye.lens.focal) / depth
    along = (x * ax + y * ay + a0) % period
    cover = bounded((on / 2 - np.abs(along - on / 2)) * per_pixel + np.float32(0.5), 0, 1)
    cover *= bounded((half - np.abs(x * bx + y * by + b0)) * per_pixel + np.float32(0.5), 0, 1)
    cover *= np.float32(0.5 if light.snow else 0.88)
    for channel in range(3):
        plane = colour[channel]
        plane[at] += (np.float32(PAINT[channel] / 255) - plane.take(at)) * cover
