"""The camera: from a city and a shot to the picture, and which part of the world each pixel shows.

How it sees is in the modules of camera/. First it finds how far each pixel looks; then it draws the things, then sky,
ground and houses where no thing hides them, then what the weather lays over all. Last the device makes a picture of it.
"""

from __future__ import annotations

import numpy as np

from wayfare.core.seeds import seed_for
from wayfare.data.town.camera.backdrop import (
    GROUND_0,
    HILL,
    HOUSE_0,
    NOTHING,
    SKY,
    THING_0,
    Frame,
    add_stars,
    paint_sky,
)
from wayfare.data.town.camera.eye import FAR, Eye, eye_for
from wayfare.data.town.camera.figures import add_rest, draw_things, in_view, unhidden
from wayfare.data.town.camera.light import develop, light_for
from wayfare.data.town.camera.scene import Scene, scene_of, thing_rows
from wayfare.data.town.camera.terrain import paint_ground
from wayfare.data.town.camera.walls import Strips, cast, paint_walls, smooth_tops
from wayfare.data.town.camera.weather import add_halos, fall, reflect
from wayfare.data.town.life import crowd
from wayfare.data.town.model import GROUND, City, Part, Shot, Thing, View

HILL_DISTANCE, SKY_DISTANCE = 3000.0, 10000.0  # metres; as good as any


def view(city: City, shot: Shot, height: int = 96, width: int = 128) -> View:
    """What the camera sees: the same pixels for the same city and shot, in any process."""
    scene, eye, light = scene_of(city), eye_for(shot, height, width), light_for(city.latitude, shot)
    strips = cast(scene, eye)
    on_ground = eye.ground[:, None] < strips.pixel_depth
    on_wall = (strips.pixel_depth < FAR) & ~on_ground
    frame = Frame(
        np.empty((3, height * width), np.float32),
        np.where(on_ground, eye.ground[:, None], strips.pixel_depth).reshape(-1),
        np.full(height * width, NOTHING, np.int32),
    )
    near, things, rows = _things(scene, shot, eye, frame)
    rest = draw_things(frame, things, rows, scene, eye, light, shot.season)
    free = (frame.shows == NOTHING).reshape(height, width)
    paint_sky(frame, np.flatnonzero(~(on_ground | on_wall) & free), scene, eye, light)
    add_stars(frame, eye, light)
    paint_ground(frame, np.flatnonzero(on_ground & free), scene, eye, light, shot.season)
    paint_walls(frame, np.flatnonzero(on_wall & free), strips, scene, eye, light)
    smooth_tops(frame, strips, eye)
    add_rest(frame, rest)
    reflect(frame, eye, light)
    add_halos(frame, things, rows, eye, light)
    seed = seed_for(city.seed, shot.key, "noise")
    fall(frame, eye, light, seed)
    pixels = develop(frame.light, shot.camera, light.dark, height, width, seed)
    return View(pixels, *_parts(frame, scene, strips, things, eye), near)


def _things(scene: Scene, shot: Shot, eye: Eye, frame: Frame) -> tuple[tuple[Thing, ...], list[Thing], np.ndarray]:
    """All things near, those that may be seen, and the numbers of the latter."""
    city = scene.city
    moving = crowd(city, shot.x, shot.y, shot.time, shot.date)
    standing = in_view(scene.things, eye)
    moving_rows = thing_rows(moving)
    passing = in_view(moving_rows, eye)
    rows = np.concatenate((scene.things[:, standing], moving_rows[:, passing]), 1)
    stay = [city.things[k] for k in standing.tolist()]
    things = stay + [moving[k] for k in passing.tolist()]
    seen = unhidden(rows, eye, frame)
    return (*stay, *moving), [things[k] for k in seen.tolist()], rows.take(seen, axis=1)


def _parts(
    frame: Frame, scene: Scene, strips: Strips, things: list[Thing], eye: Eye
) -> tuple[np.ndarray, tuple[Part, ...]]:
    """Which part each pixel shows, int16 (height, width), and the parts."""
    shows = frame.shows
    crossing, road, bridge = (GROUND_0 + GROUND.index(kind) for kind in ("crossing", "road", "bridge"))
    size = THING_0 + len(things)
    merged = np.arange(size)
    merged[crossing] = road
    merged[bridge] = _bridge_code(things, eye, road)
    buildings = scene.city.wall_building.take(strips.near).tolist()
    first_wall: dict[int, int] = {}
    merged[HOUSE_0 : HOUSE_0 + len(buildings)] = [
        first_wall.setdefault(building, HOUSE_0 + k) for k, building in enumerate(buildings)
    ]
    shows = merged.take(shows)
    nearest = np.full(size, np.float32(SKY_DISTANCE))
    np.minimum.at(nearest, shows, frame.depth * eye.lens.length)
    nearest[HILL] = HILL_DISTANCE
    used = np.flatnonzero(np.bincount(shows, minlength=size)).tolist()
    merged[used] = np.arange(len(used))
    parts = []
    for code, distance in zip(used, nearest[used].tolist()):
        if code >= THING_0:
            thing = things[code - THING_0]
            parts.append(Part(thing.kind, thing, distance))
        elif code >= HOUSE_0:
            parts.append(Part("building", None, distance, buildings[code - HOUSE_0]))
        else:
            kind = "sky" if code == SKY else "hill" if code == HILL else GROUND[code - GROUND_0]
            parts.append(Part(kind, None, distance))
    segments = merged.take(shows).astype(np.int16)
    return segments.reshape(eye.lens.height, eye.lens.width), tuple(parts)


def _bridge_code(things: list[Thing], eye: Eye, road: int) -> int:
    """A bridge's deck belongs to the bridge; if that is not among the things in view, it is road."""
    near = [
        ((thing.x - eye.x) ** 2 + (thing.y - eye.y) ** 2, number)
        for number, thing in enumerate(things)
        if thing.kind == "bridge"
    ]
    return THING_0 + min(near)[1] if near else road
