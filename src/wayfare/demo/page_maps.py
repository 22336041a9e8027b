"""The maps on the page of the demo: a city from above, with points and pins on it, in the units of the drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wayfare.demo.page_parts import CityMap, LocateExample, MapPoint
from wayfare.pages.dataset_parts import Picture

_UNIT = 1000.0  # across a map: positions are in thousandths of its width


@dataclass(frozen=True)
class CityDrawing:
    """A city's map with what is drawn over it."""

    name: str
    words: str  # what it shows, for those who do not see it
    caption: str
    ground: Picture
    height: str
    dots: Sequence[tuple[str, str, str]]  # x, y, class
    dot_size: float
    sights: Sequence[tuple[str, str, str]]  # name, x, y
    errors: Sequence[tuple[str, str, str]] = ()  # the path from an answer to the true position, which is x, y
    pins: Sequence[tuple[int, str, str, str]] = ()  # number, x, y, y of the text


def city_drawing(city: CityMap) -> CityDrawing:
    """Where photos were taken, in the colours of the clients that have them."""
    count = len(city.photos)
    return _drawing(city, f"{city.name}: where {count} photos were taken", f"{count:,} photos, {city.note}", 5.5)


def located_drawing(found: LocateExample) -> CityDrawing:
    """The model's answers, numbered, each with a line to the true position."""
    city = found.city
    errors, pins = [], []
    for number, one in enumerate(found.photos, start=1):
        x, y = _place(city, one.guess)
        if one.truth is not None:
            across, down = _place(city, one.truth)
            errors.append((f"M{x:.0f} {y:.0f}L{across:.0f} {down:.0f}", f"{across:.0f}", f"{down:.0f}"))
        if one.known or one.unknown is not True:  # what it calls unknown is nowhere
            pins.append((number, f"{x:.0f}", f"{y:.0f}", f"{y + 11:.0f}"))
    caption = "Pins: the model's answers. Rings: the true positions."
    return _drawing(city, f"{city.name}: the photos on the map", caption, dot_size=4.5, errors=errors, pins=pins)


def _drawing(
    city: CityMap,
    words: str,
    caption: str,
    dot_size: float,
    errors: Sequence[tuple[str, str, str]] = (),
    pins: Sequence[tuple[int, str, str, str]] = (),
) -> CityDrawing:
    dots = [(*_place(city, point), point.look) for point in city.photos]
    sights = [(name, *_place(city, MapPoint(x, y))) for x, y, name in city.sights]
    return CityDrawing(
        name=city.name,
        words=words,
        caption=caption,
        ground=city.ground,
        height=f"{_UNIT * city.height / city.width:.0f}",
        dots=[(f"{x:.0f}", f"{y:.0f}", look) for x, y, look in dots],
        dot_size=dot_size,
        sights=[(name, f"{x:.0f}", f"{y:.0f}") for name, x, y in sights],
        errors=errors,
        pins=pins,
    )


def _place(city: CityMap, point: MapPoint) -> tuple[float, float]:
    return _UNIT * point.x / city.width, _UNIT * (city.height - point.y) / city.width
