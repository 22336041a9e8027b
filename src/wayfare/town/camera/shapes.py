"""How each kind of thing looks: from a thing and a viewing direction to its pieces.

nature.py     trees, flowers, plants in pots
people.py     people and animals
vehicles.py   what drives, rolls or floats
furniture.py  what stands in streets and on tables, and what people carry
sights.py     the ten sights
"""

from __future__ import annotations

from collections.abc import Callable

from wayfare.town.camera import furniture, nature, people, vehicles
from wayfare.town.camera.sights import VARIANTS, sight
from wayfare.town.camera.solids import Shape
from wayfare.town.model import Thing
from wayfare.town.words import SIGHTS

_BY_LOOK: dict[str, Callable[[int], Shape]] = {
    "bicycle": vehicles.bicycle, "car": vehicles.car, "motorcycle": vehicles.motorcycle, "bus": vehicles.bus,
    "truck": vehicles.truck, "boat": vehicles.boat,
    "traffic light": furniture.traffic_light, "fire hydrant": furniture.fire_hydrant, "stop sign": furniture.stop_sign,
    "banner": furniture.banner, "street lamp": furniture.street_lamp, "bench": furniture.bench,
    "chair": furniture.chair, "dining table": furniture.dining_table, "backpack": furniture.backpack,
    "umbrella": furniture.umbrella, "handbag": furniture.handbag, "suitcase": furniture.suitcase,
    "sports ball": furniture.sports_ball, "kite": furniture.kite, "skateboard": furniture.skateboard,
    "cake": furniture.cake, "fence": furniture.fence, "wall": furniture.wall,
}  # fmt: skip
_ANIMALS = ("bird", "cat", "dog", "horse", "duck")
_LOOKS = 360  # looks differ modulo this
_SIDES = ("front", "right", "back", "left")
_shapes: dict[tuple[object, ...], Shape] = {}


def shape_of(thing: Thing, camera: float, season: str, snow: bool) -> Shape:
    """The pieces of a thing; `camera` is the camera's direction in degrees clockwise from the thing's heading."""
    kind, look = thing.kind, thing.look
    side = ""
    doing = thing.doing[0] if thing.doing else ""
    if kind == "person" or kind in _ANIMALS:
        side = _SIDES[int(camera / 90 + 0.5) % 4]
        if kind == "person":
            pose = people.pose_of(doing, thing.height)
            key: tuple[object, ...] = (kind, look % people.PEOPLE, pose, side, season == "winter")
        else:
            key = (kind, look % people.FURS, doing, side)
    elif kind in SIGHTS:
        key = (kind, look % VARIANTS)
    elif kind in ("tree", "flower", "potted plant"):
        key = (kind, look % _LOOKS, season, snow)
    elif kind == "fruit":
        key = (kind, look % _LOOKS, thing.width > 0.5)
    else:
        key = (kind, look % _LOOKS)
    found = _shapes.get(key)
    if found is None:
        found = _shapes[key] = _make(thing, side, doing, season, snow)
    return found


def _make(thing: Thing, side: str, doing: str, season: str, snow: bool) -> Shape:
    kind, look = thing.kind, thing.look % _LOOKS
    if kind == "person":
        return people.person(look, people.pose_of(doing, thing.height), side, season == "winter")
    if kind in _ANIMALS:
        return people.animal(kind, look, doing, side)
    if kind in SIGHTS:
        return sight(kind, look)
    if kind == "tree":
        return nature.tree(look, season, snow)
    if kind == "flower":
        return nature.flower(look, season)
    if kind == "potted plant":
        return nature.potted_plant(look, season)
    if kind == "fruit":
        return furniture.fruit(look, thing.width)
    return _BY_LOOK[kind](look)
