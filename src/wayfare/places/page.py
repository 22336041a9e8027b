"""The page of `wayfare locate`: each photo beside the places it looks like, and a map of where they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from wayfare.pages.dataset_parts import Picture
from wayfare.pages.page import render, save
from wayfare.pages.tables import human_seconds, number

_WIDE, _HIGH, _MARGIN = 480, 330, 22  # of a map, in units of its own
_LEAST = 30.0  # metres to the north and south of the middle
_STEPS = (1, 2, 5)  # of the scale of a map, times a power of ten


@dataclass(frozen=True)
class PlaceSketch:
    """A map in metres from the position: x to the east, y to the north."""

    places: Sequence[tuple[int, Sequence[tuple[float, float]]]]  # a place's number, and where its photographs are
    others: Sequence[tuple[float, float]]  # further photographs of the index

    @cached_property
    def drawing(self) -> SketchDrawing:
        return _drawing(self)


@dataclass(frozen=True)
class SketchDrawing:
    """The same in the units of the page."""

    others: Sequence[tuple[str, str]]
    photos: Sequence[tuple[str, str, int]]  # with the number of the colour
    pins: Sequence[tuple[int, str, str, str, int]]  # number of the place, x, y, y of the text, colour
    cross: str
    scale: str  # the path of the scale bar
    scale_text: str
    width: int = _WIDE
    height: int = _HIGH


@dataclass(frozen=True)
class PlaceShown:
    """A place that the photo may be of."""

    picture: Picture | None
    file: str
    metres: float  # from the first place; inf where that is not known
    distance: float
    photos: int
    where: str

    @property
    def away(self) -> str:
        """How far it is from the first place."""
        if not math.isfinite(self.metres):
            return "in another city"
        return f"{self.metres:.0f} m from 1" if self.metres < 10_000 else f"{self.metres / 1000:,.0f} km from 1"


@dataclass(frozen=True)
class PhotoAnswer:
    """One photo with its answer."""

    name: str
    picture: Picture | None
    unknown: bool | None
    confidence: float | None
    position: str
    link: str  # to a map on the net; "" where degrees are not known
    agreeing: int
    spread: float
    places: Sequence[PlaceShown]
    sketch: PlaceSketch
    here: tuple[int, int] | None = None  # how many of how many nearest photographs are at the first place


@dataclass(frozen=True)
class LocatePage:
    """All that the page shows."""

    index: str
    photos: int
    model: str
    radius: float
    threshold: float | None
    learnt: Sequence[str]  # what is said about confidence
    found: Sequence[PhotoAnswer]
    photos_asked: int  # of all pages
    judged: tuple[int, int] | None  # found and unknown ones among them; None where nothing is judged
    more: int = 0  # photos that are on no page
    pages: Sequence[str] = ()  # names of all files, where there are several
    number: int = 1  # of this one
    skipped: Sequence[tuple[str, str]] = ()
    seconds: dict[str, float] = field(default_factory=dict)


def write_located(page: LocatePage, out: Path) -> Path:
    """Write the page and return where it is."""
    return save(page_of(page), out)


def page_of(page: LocatePage) -> str:
    """The page as HTML."""
    count = page.photos_asked
    title = page.found[0].name if count == 1 else "Where these photos were taken"
    each = [f"{name} {human_seconds(spent / max(1, count))}" for name, spent in page.seconds.items()]
    return render("locate.html", title=title, page=page, tiles=_tiles(page, count), each=", ".join(each))


def _tiles(page: LocatePage, count: int) -> list[tuple[str, str, str]]:
    if count <= 1 and not page.skipped:
        return []
    shown = [("photos", number(count), f"looked for among {number(page.photos)}")]
    if page.judged is not None:
        found, unknown = page.judged
        shown += [("found", number(found), ""), ("unknown", number(unknown), "")]
    if page.skipped:
        shown.append(("not readable", number(len(page.skipped)), "listed below"))
    return shown


# ---- The map


def _drawing(sketch: PlaceSketch) -> SketchDrawing:
    """Grey what is in the index, numbered the places, and the position in the middle of a cross."""
    points = [(0.0, 0.0), *(point for _, members in sketch.places for point in members)]
    (west, east), (south, north) = ((min(side), max(side)) for side in zip(*points))
    half = max(_LEAST, (north - south) / 2, (east - west) / 2 * _HIGH / _WIDE)
    scale = (_HIGH / 2 - _MARGIN) / half

    def at(x: float, y: float) -> tuple[float, float]:
        return _WIDE / 2 + scale * (x - (west + east) / 2), _HIGH / 2 - scale * (y - (south + north) / 2)

    inside = [(x, y) for x, y in (at(*point) for point in sketch.others) if 0 <= x <= _WIDE and 0 <= y <= _HIGH]
    near = [(*at(x, y), _colour(number)) for number, members in sketch.places for x, y in members]
    pins = [(number, *at(*members[0])) for number, members in reversed(sketch.places)]
    x, y = at(0, 0)
    ticks = ((x - 19, y, "h8"), (x + 11, y, "h8"), (x, y - 19, "v8"), (x, y + 11, "v8"))
    bar, text = _scale_bar(scale)
    return SketchDrawing(
        others=[(f"{x:.1f}", f"{y:.1f}") for x, y in inside],
        photos=[(f"{x:.1f}", f"{y:.1f}", colour) for x, y, colour in near],
        pins=[(n, f"{x:.1f}", f"{y:.1f}", f"{y + 4:.1f}", _colour(n)) for n, x, y in pins],
        cross="".join(f"M{x:.1f} {y:.1f}{line}" for x, y, line in ticks),
        scale=bar,
        scale_text=text,
    )


def _scale_bar(scale: float) -> tuple[str, str]:
    """Its path, and how long it is in words."""
    most = _WIDE / 5 / scale  # metres
    power = 10 ** math.floor(math.log10(most))
    length = max(step * power for step in _STEPS if step * power <= most)
    text = f"{length:g} m" if length < 1000 else f"{length / 1000:g} km"
    y, end = _HIGH - 12, 12 + scale * length
    return f"M12 {y - 5}v5H{end:.1f}v-5", text


def _colour(number: int) -> int:
    return (number - 1) % 6 + 1
