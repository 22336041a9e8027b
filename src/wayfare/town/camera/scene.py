"""What the camera needs of a city and computes only once: finer surfaces, heights, lamps' light, hills."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage

from wayfare.core.seeds import rng_for
from wayfare.town.camera.facades import Facades, facades, style
from wayfare.town.model import GROUND, City, Thing

CODE = {name: code for code, name in enumerate(GROUND)}
# A cell of the ground in 32 bits: what it is made of, whether another surface is beside it, how sure it is to be this
# and not another surface (of 255: it grows with the distance to the border), how much light reaches it (of 31), and
# what is painted on it
BORDER, MARGIN, SHADE, MARK = 4, 5, 13, 18  # the bits where they begin; the surface begins at bit 0
SMOOTH = 0.8  # metres over which borders are smoothed
COARSE = 0.5  # metres: cells of heights and of lamplight
PAD = 128  # coarse cells around the city, so that looking towards the sun never leaves the array
BEYOND = 8  # coarse cells around the city that are looked at; what is farther away counts as there
HILLS = 1440  # directions in which the hills' height is known


@dataclass(frozen=True)
class CityScene:
    """A city prepared for the camera."""

    city: City
    walls: np.ndarray  # float32 (7, W): x0, y0, x1 - x0, y1 - y0, height, length, building
    facades: Facades
    ground: np.ndarray  # uint32, of the shape of City.ground
    marks: np.ndarray  # float32 (M, 9): what is painted on the ground, see _paint
    heights: np.ndarray  # int16, COARSE cells with PAD around: how high the buildings are, decimetres
    highest: int  # the highest of heights
    ground_limits: np.ndarray  # int32 (2, 1): the last column and row of the ground
    coarse_limits: np.ndarray  # int32 (2, 1): so many columns and rows of COARSE cells are looked at
    lamps: np.ndarray  # uint8, like heights: light from street lamps
    hills: np.ndarray  # float32 (HILLS + 1,): their slope above the horizon, by direction
    things: np.ndarray  # float32 (11, T), as of thing_rows
    near: dict[tuple[int, int, float], np.ndarray] = field(default_factory=dict)  # see figures.things_near


_SCENES: OrderedDict[tuple[str, int], CityScene] = OrderedDict()
_KEPT = 4


def scene_of(city: City) -> CityScene:
    """The prepared city; the last few are cached."""
    key = (city.name, city.seed)
    found = _SCENES.get(key)
    if found is None or found.city is not city:
        found = _SCENES[key] = _prepare(city)
        if len(_SCENES) > _KEPT:
            _SCENES.popitem(last=False)
    _SCENES.move_to_end(key)
    return found


def _prepare(city: City) -> CityScene:
    walls = city.walls.astype(np.float32)
    along = walls[:, 2:4] - walls[:, 0:2]
    length = np.hypot(along[:, 0], along[:, 1])
    rows = np.stack((walls[:, 0], walls[:, 1], along[:, 0], along[:, 1], walls[:, 4], length))
    styles = [style(district.style, district.name) for district in city.districts]
    looks = facades(walls, city.wall_look, styles, city.wall_district)
    heights = _heights(city)
    cells = np.array(city.ground.shape[::-1], np.int32)[:, None] - 1
    limits = np.array(heights.shape[::-1], np.int32)[:, None] - (2 * PAD - 2 * BEYOND)
    ground, marks = _ground(city, heights)
    return CityScene(
        city,
        walls=np.ascontiguousarray(rows, np.float32),
        facades=looks,
        ground=ground,
        marks=marks,
        heights=heights,
        highest=int(heights.max(initial=0)),
        ground_limits=cells,
        coarse_limits=limits,
        lamps=_lamplight(city, heights.shape),
        hills=_hills(city.seed),
        things=thing_rows(city.things),
    )


def thing_rows(things: tuple[Thing, ...]) -> np.ndarray:
    """Where things are and how large, float32 (11, T): x, y, z, width, depth, height, heading, radius on the ground,
    the side of a square that is as large as what is seen of the thing; and, for Eye.place, right and ahead of it."""
    rows = np.empty((11, len(things)), np.float32)
    if things:
        rows[:7] = np.array([thing[2:9] for thing in things], np.float32).T
    _, _, _, width, depth, height, _, radius, side, _, _ = rows
    radius[:] = np.hypot(width, depth) / 2
    side[:] = np.sqrt(np.maximum(width, depth) * height)
    return rows


# ---- The ground


def _ground(city: City, heights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The packed ground, and the marks on it."""
    best = np.full(city.ground.shape, -1, np.float32)
    second = best.copy()
    code = np.zeros(city.ground.shape, np.uint32)
    for value in np.unique(city.ground).tolist():  # like a blurred picture of each surface; the strongest wins
        mask = (city.ground == value).astype(np.float32)
        share = ndimage.gaussian_filter(mask, SMOOTH / city.cell, mode="nearest", truncate=2.5)
        wins = share > best
        second = np.where(wins, best, np.maximum(second, share))
        code[wins] = value
        best = np.where(wins, share, best)
    for ring in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):  # beyond the border this goes on: water, or meadows
        code[ring] = np.where(code[ring] == CODE["water"], CODE["water"], CODE["grass"])
    margin = np.rint(np.clip(best - np.maximum(second, 0), 0, 1) * 255).astype(np.uint32)
    border = ndimage.maximum_filter(code, 3) != ndimage.minimum_filter(code, 3)
    shade = np.rint(_shade(city, heights) * 31).astype(np.uint32)
    marks, mark = _paint(city, code)
    packed = code | border.astype(np.uint32) << BORDER | margin << MARGIN | shade << SHADE | mark << MARK
    return packed, marks


def _paint(city: City, code: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Stripes on crossings, dashes along roads: a table, and for each cell its row there.

    A row is ax, ay, a0, period, on, bx, by, b0, half: at x, y there is paint where a = ax x + ay y + a0 modulo the
    period is below `on`, and b, which is made likewise, is nearer to 0 than `half`.
    """
    table = [(0.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0, 0.0, -1.0)]
    mark = np.zeros(code.shape, np.uint32)
    _paint_stripes(city.cell, code, mark, table)
    _paint_dashes(city, code, mark, table)
    return np.array(table, np.float32), mark


_Table = list[tuple[float, float, float, float, float, float, float, float, float]]


def _paint_stripes(cell: float, code: np.ndarray, mark: np.ndarray, table: _Table) -> None:
    """Stripes along the road on each crossing; a crossing is longer over the road than along it."""
    labels, _ = ndimage.label(code == CODE["crossing"], np.ones((3, 3)))
    for number, place in enumerate(ndimage.find_objects(labels), 1):
        y, x = np.nonzero(labels[place] == number)
        dy, dx = y - y.mean(), x - x.mean()
        angle = 0.5 * np.arctan2(2 * (dx * dy).mean(), (dx * dx).mean() - (dy * dy).mean())
        ax, ay = float(np.cos(angle)), float(np.sin(angle))
        middle = [(float(at.mean()) + 0.5 + part.start) * cell for at, part in ((x, place[1]), (y, place[0]))]
        mark[place][y, x] = len(table)
        table.append((ax, ay, 110.0 - ax * middle[0] - ay * middle[1], 1.1, 0.55, 0.0, 0.0, 0.0, 1000.0))


def _paint_dashes(city: City, code: np.ndarray, mark: np.ndarray, table: _Table) -> None:
    """Dashes along the middle of the longer roads."""
    starts, ends = (city.nodes[city.edges[city.edge_road, end]].astype(np.float64) for end in (0, 1))
    for a, b in zip(starts, ends):
        length = float(np.hypot(*(b - a)))
        if length < 20:
            continue
        ax, ay = ((b - a) / length).tolist()
        s = np.arange(2.0, length - 2.0, city.cell / 2)
        for aside in (-0.25, 0.0, 0.25):
            column = ((a[0] + ax * s - ay * aside) / city.cell).astype(int)
            row = ((a[1] + ay * s + ax * aside) / city.cell).astype(int)
            inside = (column >= 0) & (row >= 0) & (column < code.shape[1]) & (row < code.shape[0])
            column, row = column[inside], row[inside]
            on_road = code[row, column] == CODE["road"]
            mark[row[on_road], column[on_road]] = len(table)
        along, aside = 1.0 - ax * a[0] - ay * a[1], ay * a[0] - ax * a[1]
        table.append((ax, ay, along, 6.0, 3.0, -ay, ax, aside, 0.08))


# ---- Heights and light


def _heights(city: City) -> np.ndarray:
    """Buildings' heights on a coarse raster: each building is filled within the walls it shows."""
    size = (int(np.ceil(city.width / COARSE)) + 2 * PAD, int(np.ceil(city.height / COARSE)) + 2 * PAD)
    image = Image.new("I;16", size, 0)
    draw = ImageDraw.Draw(image)
    corners: dict[int, dict[tuple[float, float], None]] = {}
    for wall in np.argsort(city.walls[:, 4], kind="stable").tolist():  # lower ones first
        x0, y0, x1, y1 = np.round(city.walls[wall, :4].astype(np.float64), 1).tolist()
        corners.setdefault(int(city.wall_building[wall]), {}).update({(x0, y0): None, (x1, y1): None})
    tall = dict(zip(city.wall_building.tolist(), city.walls[:, 4].tolist()))
    for building, points in corners.items():
        mx, my = (sum(point[axis] for point in points) / len(points) for axis in (0, 1))
        around = sorted(points, key=lambda point: math.atan2(point[1] - my, point[0] - mx))
        at = [(x / COARSE + PAD - 0.5, y / COARSE + PAD - 0.5) for x, y in around]
        if len(at) > 2:
            draw.polygon(at, fill=round(tall[building] * 10))
    return np.asarray(image).astype(np.int16)


def _shade(city: City, heights: np.ndarray) -> np.ndarray:
    """How much of the sky's light reaches each cell of the ground: less near walls."""
    built = (heights[PAD:-PAD, PAD:-PAD] > 0).astype(np.float32)
    near = ndimage.uniform_filter(ndimage.uniform_filter(built, 5), 5)
    rows, columns = (
        np.minimum((np.arange(size) + 0.5) * city.cell / COARSE, limit - 1).astype(int)
        for size, limit in zip(city.ground.shape, near.shape)
    )
    return np.asarray(1 - 0.5 * near[np.ix_(rows, columns)], np.float32)


def _lamplight(city: City, shape: tuple[int, ...]) -> np.ndarray:
    """Pools of light under the street lamps."""
    light = np.zeros(shape, np.float32)
    reach = round(14 / COARSE)
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1] * COARSE
    pool = (1 / (1 + (x * x + y * y) / 16)).astype(np.float32)
    pool = np.maximum(pool - pool[0, reach], 0)
    for thing in city.things:
        if thing.kind == "street lamp":
            column, row = int(thing.x / COARSE) + PAD, int(thing.y / COARSE) + PAD
            if reach <= column < shape[1] - reach and reach <= row < shape[0] - reach:
                light[row - reach : row + reach + 1, column - reach : column + reach + 1] += pool
    return (255 * np.minimum(light, 1)).astype(np.uint8)


def _hills(seed: int) -> np.ndarray:
    """A skyline all around, the same from everywhere in the city because it is far away."""
    rng = rng_for(seed, "hills")
    angle = np.linspace(0, 2 * np.pi, HILLS + 1)
    slope = np.full(HILLS + 1, float(rng.uniform(0.02, 0.06)))
    for wave in range(1, 24):
        slope += float(rng.normal(0, 0.045 / wave**0.9)) * np.sin(wave * angle + float(rng.uniform(0, 2 * np.pi)))
    found: np.ndarray = np.clip(slope, 0.004, 0.2).astype(np.float32)
    return found
