"""The data types shared by the parts of the town.

    map.py      seed -> City                          streets, buildings, surfaces, sights, everything that stands there
    walkers.py  City -> Walkers                       who goes where, when, and takes which Shot
    render.py   City, Shot -> View                    pixels, and which part of the world each pixel shows
    truth.py    View, Shot -> Truth                   objects, relations, tags, labels, attributes
    make.py     all of it, over all cores, to a folder in the layouts of the real data sets

Coordinates are metres, x to the east and y to the north of the city's south-west corner; headings are degrees
clockwise from north; times are seconds since midnight of the town's one day. Everything follows from the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

Weather = Literal["clear", "cloudy", "rain", "fog", "snow"]
Season = Literal["spring", "summer", "autumn", "winter"]
Direction = Literal["Forward", "Backward", "Sideways"]

# What the ground is made of: the values of City.ground
GROUND = ("grass", "road", "crossing", "pavement", "square", "water", "flower", "bridge")


class Thing(NamedTuple):
    """Anything that stands or moves in the town and is not a building: a tree, a bench, a car, a person, a sight."""

    id: int  # unique in its city; the same thing keeps it as it moves
    kind: str  # a word of words.CLASSES
    x: float  # its centre on the ground
    y: float
    z: float  # how far its base is above the ground
    width: float  # across its heading
    depth: float  # along its heading
    height: float
    heading: float
    look: int  # seed of its colours and shape
    doing: tuple[str, int] | None = None  # what it does to which other thing: ("riding", 17); -1 is the ground under it


class District(NamedTuple):
    """A part of the city with its own architecture: all its facades are variations of one style."""

    name: str
    x0: float
    y0: float
    x1: float
    y1: float
    style: int  # seed of palette, storeys, windows, roofs


class Square(NamedTuple):
    """An open place with a sight on it."""

    name: str
    sight: str  # a word of words.SIGHTS
    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class City:
    """One city: all that does not change over the day. Made by map.build(name, seed, blocks)."""

    name: str
    continent: str
    latitude: float  # of the south-west corner
    longitude: float
    seed: int
    width: float
    height: float
    districts: tuple[District, ...]
    squares: tuple[Square, ...]
    # buildings' outer walls, one row each: x0, y0, x1, y1, height (m). Seen from outside, 0 is on the left of 1.
    walls: np.ndarray  # float32 (W, 5)
    wall_building: np.ndarray  # int32 (W,): which building
    wall_look: np.ndarray  # int64 (W,): seed of the facade's variation; a building's walls share it
    wall_district: np.ndarray  # int32 (W,): index into districts
    ground: np.ndarray  # uint8 (rows north, columns east) of cells of `cell` metres: indices into GROUND
    cell: float
    nodes: np.ndarray  # float32 (N, 2): street corners and path points, for those who walk and drive
    edges: np.ndarray  # int32 (E, 2): between nodes
    edge_road: np.ndarray  # bool (E,): vehicles may use it
    things: tuple[Thing, ...]  # what stays all day: trees, lamps, benches, parked cars, sights, potted plants


@dataclass(frozen=True)
class Camera:
    """How a device records light."""

    name: str
    fov: float  # degrees, horizontal
    height: float  # of the lens above the ground, metres
    gain: tuple[float, float, float]  # per channel
    gamma: float
    noise: float  # standard deviation of the sensor's noise by day, of 255
    vignette: float  # how much darker the corners are, 0 to 1


@dataclass(frozen=True)
class Shot:
    """A photograph to be taken."""

    key: str  # 22 letters and digits, unique over all cities, as Mapillary's
    city: str
    walker: str
    sequence: str  # 22 letters and digits
    frame: int  # place in its sequence
    x: float
    y: float
    heading: float  # of the camera
    time: float  # seconds since midnight
    date: str  # "2024-06-21": sets season; sequences of a city are of several dates
    camera: Camera
    weather: Weather
    season: Season
    night: bool
    direction: Direction  # the camera's heading relative to the way it goes
    pano: bool  # an equirectangular 360 degree picture
    role: str  # "resident", "tourist", "vehicle", "signage"


class PicturePart(NamedTuple):
    """One thing or surface that is seen in a picture."""

    kind: str  # a word of words.CLASSES
    thing: Thing | None  # None for surfaces and buildings
    distance: float  # metres, of its nearest visible pixel
    building: int = -1


@dataclass(frozen=True)
class View:
    """What the camera saw."""

    pixels: np.ndarray  # uint8 (H, W, 3)
    segments: np.ndarray  # int16 (H, W): index into parts; every pixel belongs to one
    parts: tuple[PicturePart, ...]
    things: tuple[Thing, ...]  # all that were near and before the camera, hidden or not


class Item(NamedTuple):
    """A segment of a photograph: a thing, or a piece of surface."""

    kind: str
    box: tuple[int, int, int, int]  # x0, y0, x1, y1 in pixels; x1 and y1 are outside
    area: int
    segment: int  # its value in Truth.segments: its own place in Truth.items


@dataclass(frozen=True)
class Truth:
    """All that is known about a photograph, as careful annotators would write it down, except for the tags."""

    items: tuple[Item, ...]
    relations: tuple[tuple[int, int, str], ...]  # subject and object as places in items, predicate
    tags: tuple[str, ...]  # as a person would write them: incomplete, with synonyms and noise
    labels: tuple[str, ...]  # of truth.LABELS, several per photo
    attributes: tuple[str, ...]  # those of truth.ATTRIBUTES that hold
    segments: np.ndarray  # int16 (H, W): index into items, -1 where a pixel belongs to none


@dataclass(frozen=True)
class Photo:
    """A shot that was taken."""

    shot: Shot
    view: View
    truth: Truth
    latitude: float
    longitude: float


class LayoutWriter(Protocol):
    """One real data set's layout, written from the town's photographs: a module of town/write with these functions.

    `take` runs in worker processes, in any order; `index` once, at the end, with all entries in the order of the shots.
    """

    def wants(self, shot: Shot) -> bool:
        """Whether this photograph is in this data set."""

    def take(self, folder: Path, stage: Path, number: int, photo: Photo, jpeg: bytes) -> dict[str, Any]:
        """Write the picture's own files to `folder`; what is only needed for `index` to `stage`, which is deleted.

        `number` counts the wanted photographs from 0. Returns what `index` needs, as JSON.
        """

    def index(self, folder: Path, stage: Path, entries: Sequence[tuple[Shot, dict[str, Any]]], seed: int) -> None:
        """Write the files that are about all pictures."""
