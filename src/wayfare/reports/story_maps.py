"""The maps on the page of the demo: a city from above, with points and pins on it."""

from __future__ import annotations

from collections.abc import Iterable

from wayfare.reports.page import Html, picture, tag
from wayfare.reports.story_parts import CityMap, Locating, Point

_UNIT = 1000.0  # across a map: positions are in thousandths of its width


def city_map(city: CityMap) -> Html:
    """Where photos were taken, in the colours of those who have them."""
    dots = [_dot(city, point, 5.5) for point in city.photos]
    words = f"{city.name}: where {len(city.photos)} photos were taken"
    caption = tag("figcaption", tag("b", city.name), f" {len(city.photos):,} photos, {city.note}")
    return tag("figure", _sheet(city, dots, words), caption, class_="city")


def located_map(found: Locating) -> Html:
    """Where photos were said to be taken, numbered, with a line to where they were."""
    city = found.city
    parts = [_dot(city, point, 4.5) for point in city.photos]
    for one in found.photos:
        if one.truth is not None:
            (x0, y0), (x1, y1) = _place(city, one.guess), _place(city, one.truth)
            parts.append(tag("path", d=f"M{x0:.0f} {y0:.0f}L{x1:.0f} {y1:.0f}", class_="off"))
            parts.append(tag("circle", cx=f"{x1:.0f}", cy=f"{y1:.0f}", r=13, class_="truth"))
    for at, one in enumerate(found.photos, start=1):
        if one.known or one.unknown is not True:  # what it calls unknown is nowhere
            x, y = _place(city, one.guess)
            number = tag("text", at, x=f"{x:.0f}", y=f"{y + 11:.0f}")
            parts.append(tag("g", tag("circle", cx=f"{x:.0f}", cy=f"{y:.0f}", r=24), number, class_=f"map-pin pin{at}"))
    caption = tag("figcaption", tag("b", city.name), " Pins: what the model says. Rings: where it was.")
    return tag("figure", _sheet(city, parts, f"{city.name}: the photos on the map"), caption, class_="city large")


def _sheet(city: CityMap, parts: Iterable[Html], words: str) -> Html:
    ground = picture(city.ground.jpeg, city.ground.words, city.ground.width, city.ground.height)
    box = f"0 0 {_UNIT:.0f} {_UNIT * city.height / city.width:.0f}"
    names = [
        tag("text", name, x=f"{1000 * x / city.width:.0f}", y=f"{1000 * (city.height - y) / city.width:.0f}")
        for x, y, name in city.sights
    ]
    over = tag("svg", *parts, tag("g", *names, class_="sights"), viewBox=box, role="img", aria_label=words)
    return tag("div", ground, over, class_="sheet")


def _place(city: CityMap, point: Point) -> tuple[float, float]:
    return _UNIT * point.x / city.width, _UNIT * (city.height - point.y) / city.width


def _dot(city: CityMap, point: Point, size: float) -> Html:
    x, y = _place(city, point)
    return tag("circle", cx=f"{x:.0f}", cy=f"{y:.0f}", r=size, class_=point.look)
