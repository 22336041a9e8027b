"""Which things and surfaces are in a picture: a thing is an item of its own, a kind of surface is one item altogether.

That is how PSG annotates: each person is a segment, while all buildings are one "building", and all trees one "tree".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wayfare.town.model import Item, PicturePart, Thing, View, Weather
from wayfare.town.runs import runs
from wayfare.town.words import THING_CLASSES, THINGS

MIN_AREA = 12  # pixels; an annotator overlooks what is smaller,
MIN_SMALL = 6  # but looks closely at animals, and at what people carry, ride and play with
SIGHT: dict[Weather, float] = {"fog": 75.0, "snow": 250.0}  # metres; what is farther away is lost in the air
_THINGS = frozenset(THING_CLASSES)
_SMALL_GROUPS = ("Animals", "Clothing and Accessories", "Outdoor Activities", "Food")
_SMALL = frozenset(("bicycle", *(kind for group in _SMALL_GROUPS for kind in THINGS[group])))


class SeenItem(NamedTuple):
    """An item and the part of the world that it shows."""

    kind: str
    item: Item
    thing: Thing | None  # None for surfaces
    distance: float  # metres, of its nearest part


def gather(view: View, weather: Weather = "clear") -> tuple[tuple[SeenItem, ...], np.ndarray]:
    """The picture's items, things before surfaces, and which of them each pixel shows (-1: none)."""
    places: dict[int | str, int] = {}
    place_of = [places.setdefault(_same(part), len(places)) for part in view.parts]
    nearest: dict[int, PicturePart] = {}
    for part, place in zip(view.parts, place_of):
        if place not in nearest or part.distance < nearest[place].distance:
            nearest[place] = part
    shown, width = view.segments.ravel(), view.segments.shape[1]
    starts, lengths = runs(shown, width)
    place_in = np.array(place_of).take(shown.take(starts))  # of each run
    areas = np.bincount(place_in, lengths, len(places)).astype(int).tolist()
    boxes = _boxes(place_in, starts, lengths, len(places), width)
    far = SIGHT.get(weather, float("inf"))
    kept = [place for place, area in enumerate(areas) if area >= MIN_SMALL and _is_noticed(nearest[place], area, far)]
    kept.sort(key=lambda place: nearest[place].kind not in _THINGS)
    seen = []
    for number, place in enumerate(kept):
        part = nearest[place]
        item = Item(part.kind, boxes[place], areas[place], number)
        seen.append(SeenItem(part.kind, item, part.thing if part.kind in _THINGS else None, part.distance))
    number_of = np.full(len(places), np.int16(-1))
    number_of[kept] = np.arange(len(kept))
    return tuple(seen), number_of.take(place_in).repeat(lengths).reshape(view.segments.shape)


def _boxes(
    place: np.ndarray, starts: np.ndarray, lengths: np.ndarray, count: int, width: int
) -> list[tuple[int, int, int, int]]:
    """The boxes around the runs at each place."""
    row, column = np.divmod(starts, width)
    x0, y0, x1, y1 = boxes = np.empty((4, count), np.intp)
    x0[:], x1[:] = width, 0
    np.minimum.at(x0, place, column)
    np.maximum.at(x1, place, column + lengths)
    y0[place[::-1]] = row[::-1]  # runs are in the order of rows, and the last to be written stays
    y1[place] = row + 1
    return [(left, top, right, bottom) for left, top, right, bottom in boxes.T.tolist()]


def _is_noticed(part: PicturePart, area: int, far: float) -> bool:
    large = area >= MIN_AREA or part.kind in _SMALL
    return large and (part.distance <= far or part.kind == "sky")


def _same(part: PicturePart) -> int | str:
    """Parts with the same answer are one item."""
    return part.thing.id if part.thing is not None and part.kind in _THINGS else part.kind
