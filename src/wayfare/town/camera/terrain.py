"""The ground: each pixel below the horizon shows the surface at a point of the map."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from wayfare.town.camera.atlas import Tiles, channels
from wayfare.town.camera.backdrop import GROUND_0, LAMP, Frame, coarse_at, hazy, lamplight, shadow_top
from wayfare.town.camera.eye import HALF, ONE, Eye, Lens, share
from wayfare.town.camera.light import Light
from wayfare.town.camera.scene import BORDER, CODE, MARGIN, MARK, SHADE, CityScene
from wayfare.town.camera.surfaces import METRES, PAINT, SIDE, SURFACES, ground_tiles
from wayfare.town.plane import bounded

_KERB = SURFACES.index("kerb")
_LEVELS, _OFFSETS = Tiles(SIDE).levels, Tiles(SIDE).offsets
_CLEAR = 0.22  # metres that a pixel covers across: where it is more, borders and paint are not looked at closely
_RIGHT, _UP = np.array([[0], [1], [0], [1]], np.int32), np.array([[0], [0], [1], [1]], np.int32)
_PAINT = np.array(PAINT, np.float32)[:, None] / 255
_PARTS = (-0.25, 0.25)  # of a pixel's height, where far ground is looked at


class _Rows(NamedTuple):
    """What the rows of all pictures with one lens have in common; (height,), float32 unless it is an index."""

    level: np.ndarray  # int32: of the textures, so that a texel is about as long as a pixel
    offset: np.ndarray  # int32: where it begins
    side: np.ndarray  # int32: how many texels it has side by side
    near: int  # the first row in which borders and paint are looked at closely
    far: int  # the first in which a pixel covers less than half a metre
    depths: np.ndarray  # (2, height): of the two parts of a pixel
    weight: np.ndarray  # how much these count


@lru_cache(maxsize=32)
def _rows(lens: Lens) -> _Rows:
    texels = np.maximum(lens.ground * (1.6 * SIDE / METRES / lens.focal), 1)
    level = np.minimum(np.log2(texels), _LEVELS - 1).astype(np.int32)
    limit = np.float32(np.sqrt(0.5 * lens.z * lens.focal))
    step = np.pi / lens.height if lens.pano else 1 / lens.focal
    below = np.stack([np.maximum(-lens.slope - part * step, 1e-3) for part in _PARTS])
    near, far = (int(np.argmax(lens.ground < end)) for end in (_CLEAR * lens.focal, limit))
    weight = share(lens.ground / limit - 1)
    return _Rows(
        level, _OFFSETS.take(level), side=SIDE >> level, near=near, far=far, depths=lens.z / below, weight=weight
    )


def paint_ground(frame: Frame, shown: np.ndarray, scene: CityScene, eye: Eye, light: Light, season: str) -> None:
    """Colours and kinds of the ground's pixels, which are `shown`, bool (height, width).

    All pixels from the first such row on are computed, which is faster than selecting them.
    """
    lens = eye.lens
    first = int(shown.any(1).argmax())
    shown = shown[first:]
    if not shown[0].any():
        return
    rows = _rows(lens)
    depth = lens.ground[first:, None]
    places = (eye.rays[:, None] * depth + eye.here[:, None]).reshape(2, -1)
    tiles, palette = ground_tiles(season, light.snow, light.wet, scene.city.seed % 4)
    cell = scene.ground.reshape(-1).take(_cell_at(scene, places))
    code = (cell & 15).astype(np.int32)
    near = max(rows.near - first, 0) * lens.width
    drawn = _with_smooth_borders(scene, places, cell, code, near)
    colour = _texture(tiles, rows, first, places, drawn.reshape(shown.shape))
    _mix_far(colour, palette, scene, eye=eye, rows=rows, first=first)
    _add_marks(colour, scene, eye=eye, places=places, depth=depth, cell=cell, near=near, light=light)
    lit = ((cell >> SHADE) & 31).astype(np.float32) * (light.ambient * np.float32(1 / 31))[:, None]
    if light.dark or light.sun_colour[0] > 0.05:
        coarse = coarse_at(scene, places)
        sun = light.sun_colour[:, None] * max(0.0, light.sun[2])
        top = shadow_top(scene, coarse, light)
        lit += sun if top is None else sun * share(ONE - top)
        if light.dark:
            lit += LAMP * lamplight(scene, coarse, light.dark * 1.25)
    colour *= lit
    colour = hazy(colour.reshape(3, *shown.shape), depth, light)
    picture = frame.light.reshape(3, lens.height, lens.width)
    np.copyto(picture[:, first:], colour, where=shown)
    code += GROUND_0
    np.copyto(frame.shows.reshape(lens.height, lens.width)[first:], code.reshape(shown.shape), where=shown)


def _cell_at(scene: CityScene, places: np.ndarray) -> np.ndarray:
    """The index of the ground's cell at places, (2, n); the border cells continue beyond the city."""
    i, j = bounded((places * (1 / scene.city.cell)).astype(np.int32), 0, scene.ground_limits)
    found: np.ndarray = j * scene.ground.shape[1] + i
    return found


def _with_smooth_borders(
    scene: CityScene, places: np.ndarray, cell: np.ndarray, code: np.ndarray, near: int
) -> np.ndarray:
    """Near borders, decide between the surfaces of four cells by how sure they are; `code` is changed in place.

    Returns what is drawn, which may be a kerb where `code` is pavement.
    """
    at = ((cell[near:] & (1 << BORDER)) > 0).nonzero()[0] + near
    if len(at) == 0:
        return code
    rows, columns = scene.ground.shape
    middle = places.take(at, axis=1) * (1 / scene.city.cell) - HALF
    corner = np.floor(middle)
    i, j = corner.astype(np.int32)
    fx, fy = middle - corner
    mine = code.take(at)
    # the four cells around, as rows: lower left, lower right, upper left, upper right
    i, j = bounded(i + _RIGHT, 0, columns - 1), bounded(j + _UP, 0, rows - 1)
    found = scene.ground.reshape(-1).take(j * columns + i)
    weight = ((found >> MARGIN) & 255).astype(np.float32)
    weight[::2] *= ONE - fx
    weight[1::2] *= fx
    weight[:2] *= ONE - fy
    weight[2:] *= fy
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


def _texture(tiles: Tiles, rows: _Rows, first: int, places: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """The surfaces' colours, (3, n)."""
    level, offset, side = (part[first:, None] for part in (rows.level, rows.offset, rows.side))
    texels = (places * (SIDE / METRES)).astype(np.int32) & (SIDE - 1)
    u, v = texels.reshape(2, *drawn.shape) >> level
    v *= side
    v += u
    v += offset
    v += drawn * tiles.stride
    return channels(tiles.texels.take(v.reshape(-1)))[:3]


def _mix_far(colour: np.ndarray, palette: np.ndarray, scene: CityScene, eye: Eye, rows: _Rows, first: int) -> None:
    """Far away a pixel covers metres of ground: take the mean of two points in it."""
    if rows.far <= first:
        return
    depths = rows.depths[:, first : rows.far, None]
    places = eye.rays[:, None, None] * depths + eye.here[:, None, None]
    cells = _cell_at(scene, places.reshape(2, -1))
    upper, lower = scene.ground.reshape(-1).take(cells).reshape(2, -1) & 15
    mean = palette.take(upper << 4 | lower, axis=1)
    near = colour[:, : mean.shape[1]]
    mean -= near
    mean *= rows.weight[first : rows.far].repeat(eye.lens.width)
    near += mean


def _add_marks(
    colour: np.ndarray, scene: CityScene, eye: Eye, places: np.ndarray, depth: np.ndarray, cell: np.ndarray, near: int,
    light: Light,
) -> None:  # fmt: skip
    """Paint on the road."""
    at = (cell[near:] >= 1 << MARK).nonzero()[0] + near
    if len(at) == 0:
        return
    x, y = places.take(at, axis=1)
    ax, ay, a0, period, on, bx, by, b0, half = scene.marks.take(cell.take(at) >> MARK, axis=0).T
    per_pixel = eye.lens.scale / depth.take(at // eye.lens.width)
    along = (x * ax + y * ay + a0) % period
    cover = share((on / 2 - np.abs(along - on / 2)) * per_pixel + HALF)
    cover *= share((half - np.abs(x * bx + y * by + b0)) * per_pixel + HALF)
    cover *= 0.5 if light.snow else 0.88
    under = colour.take(at, axis=1)
    under += (_PAINT - under) * cover
    for plane, painted in zip(colour, under):
        plane[at] = painted
