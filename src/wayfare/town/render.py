"""The camera: from a city and a shot to the picture, and which part of the world each pixel shows.

How it sees is in the modules of camera/. First it finds how far each pixel looks; then it draws the things, then sky,
ground and houses where no thing hides them, then what the weather lays over all. Last the device makes a picture of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from wayfare.core.seeds import seed_for
from wayfare.town.camera.backdrop import GROUND_0, HILL, HOUSE_0, NOTHING, SKY, THING_0, Frame, add_stars, paint_sky
from wayfare.town.camera.eye import FAR, Eye, eye_for, in_sight
from wayfare.town.camera.figures import add_rest, draw_things, in_view, things_near, unhidden
from wayfare.town.camera.light import develop, light_for
from wayfare.town.camera.scene import CityScene, scene_of, thing_rows
from wayfare.town.camera.terrain import paint_ground
from wayfare.town.camera.walls import Strips, cast, paint_walls, smooth_tops
from wayfare.town.camera.weather import add_halos, fall, reflect
from wayfare.town.life import Moment, crowds
from wayfare.town.model import GROUND, City, PicturePart, Shot, Thing, View
from wayfare.town.runs import runs

_CROSSING, _ROAD, _BRIDGE = (GROUND_0 + GROUND.index(kind) for kind in ("crossing", "road", "bridge"))
HILL_DISTANCE, SKY_DISTANCE = 3000.0, 10000.0  # metres; as good as any


def view(city: City, shot: Shot, height: int = 96, width: int = 128) -> View:
    """What the camera sees: the same pixels for the same city and shot, in any process."""
    return views(city, [shot], height, width)[0]


def views(city: City, shots: Sequence[Shot], height: int = 96, width: int = 128) -> list[View]:
    """The same for several shots at once, which is faster."""
    eyes = [eye_for(shot, height, width) for shot in shots]
    moments = [Moment(shot.x, shot.y, shot.time, shot.date) for shot in shots]
    moving = crowds(city, moments, sight=partial(in_sight, eyes))
    return [_view(city, shot, eye, things) for shot, eye, things in zip(shots, eyes, moving, strict=True)]


def _view(city: City, shot: Shot, eye: Eye, moving: tuple[Thing, ...]) -> View:
    scene, light = scene_of(city), light_for(city.latitude, shot)
    height, width = eye.lens.height, eye.lens.width
    strips = cast(scene, eye)
    ground = eye.lens.ground[:, None]
    on_ground = ground < strips.pixel_depth
    on_wall = (strips.pixel_depth < FAR) & ~on_ground
    frame = Frame(
        np.empty((3, height * width), np.float32),
        np.minimum(ground, strips.pixel_depth).reshape(-1),
        np.full(height * width, NOTHING, np.int32),
    )
    near, things, rows = _things(scene, moving, eye, frame)
    rest = draw_things(frame, things, rows=rows, scene=scene, eye=eye, light=light, season=shot.season)
    free = (frame.shows == NOTHING).reshape(height, width)
    paint_sky(frame, (~(on_ground | on_wall) & free).reshape(-1).nonzero()[0], scene, eye, light)
    add_stars(frame, eye, light)
    paint_ground(frame, on_ground & free, scene, eye=eye, light=light, season=shot.season)
    paint_walls(frame, (on_wall & free).reshape(-1).nonzero()[0], strips, scene=scene, eye=eye, light=light)
    smooth_tops(frame, strips, eye)
    add_rest(frame, rest)
    reflect(frame, eye, light)
    add_halos(frame, things, rows, eye, light)
    seed = seed_for(city.seed, shot.key, "noise")
    fall(frame, eye, light, seed)
    pixels = develop(frame.light, shot.camera, light.dark, height=height, width=width, seed=seed)
    return View(pixels, *_parts(frame, scene, strips, things, eye), near)


def _things(
    scene: CityScene, moving: tuple[Thing, ...], eye: Eye, frame: Frame
) -> tuple[tuple[Thing, ...], list[Thing], np.ndarray]:
    """All things near, those that may be seen, and the numbers of the latter, as of scene.thing_rows."""
    standing = things_near(scene, eye)
    rows = np.concatenate((scene.things.take(standing, axis=1), thing_rows(moving)), 1)
    eye.place(rows)
    some = in_view(rows, eye)
    rows = rows.take(some, axis=1)
    count = int(some.searchsorted(len(standing)))
    near = [scene.city.things[k] for k in standing.take(some[:count]).tolist()]
    near += [moving[k] for k in (some[count:] - len(standing)).tolist()]
    seen = unhidden(rows, eye, frame)
    return tuple(near), [near[k] for k in seen.tolist()], rows.take(seen, axis=1)


def _parts(
    frame: Frame, scene: CityScene, strips: Strips, things: list[Thing], eye: Eye
) -> tuple[np.ndarray, tuple[PicturePart, ...]]:
    """Which part each pixel shows, int16 (height, width), and the parts."""
    lens, shows = eye.lens, frame.shows
    size = THING_0 + len(things)
    merged = np.arange(size)
    merged[_CROSSING] = _ROAD
    merged[_BRIDGE] = _bridge_code(things, eye)
    buildings = scene.city.wall_building.take(strips.near).tolist()
    first_wall: dict[int, int] = {}
    merged[HOUSE_0 : HOUSE_0 + len(buildings)] = [
        first_wall.setdefault(building, HOUSE_0 + k) for k, building in enumerate(buildings)
    ]
    starts, lengths = runs(shows, lens.width)
    codes = merged.take(shows.take(starts))
    nearest = np.full(size, np.float32(SKY_DISTANCE))
    np.minimum.at(nearest, codes, np.minimum.reduceat(frame.depth * lens.length, starts))
    nearest[HILL] = HILL_DISTANCE
    used = np.bincount(codes, minlength=size).nonzero()[0]
    merged[used] = np.arange(len(used))
    parts = []
    for code, distance in zip(used.tolist(), nearest.take(used).tolist()):
        if code >= THING_0:
            thing = things[code - THING_0]
            parts.append(PicturePart(thing.kind, thing, distance))
        elif code >= HOUSE_0:
            parts.append(PicturePart("building", None, distance, buildings[code - HOUSE_0]))
        else:
            kind = "sky" if code == SKY else "hill" if code == HILL else GROUND[code - GROUND_0]
            parts.append(PicturePart(kind, None, distance))
    segments = merged.take(codes).astype(np.int16).repeat(lengths)
    return segments.reshape(lens.height, lens.width), tuple(parts)


def _bridge_code(things: list[Thing], eye: Eye) -> int:
    """A bridge's deck belongs to the bridge; if that is not among the things in view, it is road."""
    near = [
        ((thing.x - eye.x) ** 2 + (thing.y - eye.y) ** 2, number)
        for number, thing in enumerate(things)
        if thing.kind == "bridge"
    ]
    return THING_0 + min(near)[1] if near else _ROAD
