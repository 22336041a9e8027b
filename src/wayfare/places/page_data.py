"""What the page of `wayfare locate` shows, gathered from the answers, the photos and the index."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from wayfare.pages.thumbnails import PictureSource, Thumbnails, evenly
from wayfare.places.calibration import in_words
from wayfare.places.index import Index
from wayfare.places.locate import Answer, Located, Match, Place
from wayfare.places.page import LocatePage, PhotoAnswer, PlaceShown, PlaceSketch, write_located
from wayfare.places.positions import Spot

_ON_A_PAGE, _MOST_PAGES = 50, 20  # photos, and files
_FEW = 10  # photos that are shown large
_LARGE, _SMALL = 620, 200  # pixels
_MOST_POINTS = 200  # photographs of the index on a map
_MAP = 2000.0  # metres: a place that is further away is not on the map
_LEAST = 60.0  # metres from the middle that every map shows


def write_page(index: Index, located: Located, out: Path) -> Path:
    """Write the page and return where it is; with many photos, further pages are beside it."""
    first, answers = out / "report.html" if out.is_dir() else out, located.answers
    starts = range(0, max(1, min(len(answers), _ON_A_PAGE * _MOST_PAGES)), _ON_A_PAGE)
    names = [first.name, *(f"{first.stem}-{number}{first.suffix}" for number in range(2, len(starts) + 1))]
    whole, thumbnails = _whole(index, located), Thumbnails()
    side = _LARGE if len(answers) <= _FEW else _SMALL
    for number, (start, name) in enumerate(zip(starts, names), start=1):
        found = [_found(index, answer, thumbnails, side) for answer in answers[start : start + _ON_A_PAGE]]
        pages = names if len(names) > 1 else ()
        write_located(replace(whole, found=found, pages=pages, number=number), first.with_name(name))
    return first


def _whole(index: Index, located: Located) -> LocatePage:
    """What all pages have, without a photo."""
    facts, answers = index.facts, located.answers
    judged = [answer.unknown for answer in answers if answer.unknown is not None]
    return LocatePage(
        index=str(index.folder), photos=len(index), model=f"{facts.run} {facts.model[:12]}".strip(),
        radius=facts.radius, threshold=located.threshold, learnt=in_words(facts.calibration, facts.uncalibrated),
        found=[], photos_asked=len(answers), judged=(judged.count(False), judged.count(True)) if judged else None,
        more=max(0, len(answers) - _ON_A_PAGE * _MOST_PAGES),
        skipped=[(item.file, item.reason) for item in located.skipped], seconds=located.seconds,
    )  # fmt: skip


def position_text(spot: Spot) -> str:
    """In degrees where they are known, else in metres."""
    if math.isfinite(spot.latitude):
        north, east = ("N" if spot.latitude >= 0 else "S"), ("E" if spot.longitude >= 0 else "W")
        text = f"{abs(spot.latitude):.5f}° {north}, {abs(spot.longitude):.5f}° {east}"
    else:
        text = f"{spot.easting:,.0f} m E, {spot.northing:,.0f} m N {spot.zone}".rstrip()
    return f"{spot.city}: {text}" if spot.city else text


def _found(index: Index, answer: Answer, thumbnails: Thumbnails, side: int) -> PhotoAnswer:
    spot, nearest = answer.position, np.array(answer.nearest)
    link = ""
    if math.isfinite(spot.latitude):
        where = f"mlat={spot.latitude:.6f}&mlon={spot.longitude:.6f}"
        link = f"https://www.openstreetmap.org/?{where}#map=18/{spot.latitude:.6f}/{spot.longitude:.6f}"
    return PhotoAnswer(
        name=answer.photo.name,
        picture=thumbnails.picture(PictureSource(answer.photo, f"the photo {answer.photo.name}"), side),
        unknown=answer.unknown,
        confidence=answer.confidence,
        position=position_text(spot),
        link=link,
        agreeing=answer.agreeing,
        spread=answer.spread,
        places=[_shown(place, thumbnails) for place in answer.places],
        sketch=sketch_of(index, answer),
        here=(int((index.metres(nearest) <= index.facts.radius).sum()), len(nearest)),
    )


def _shown(place: Place, thumbnails: Thumbnails) -> PlaceShown:
    first = place.first
    small = thumbnails.picture(PictureSource(first.file, f"a photograph of the index, {first.file.name}"), _SMALL)
    where = position_text(first.spot)
    return PlaceShown(
        small, first.file.name, first.metres, distance=first.distance, photos=len(place.matches), where=where
    )


def sketch_of(index: Index, answer: Answer) -> PlaceSketch:
    """What is near the position, of its own group."""
    spot, photos = answer.position, index.photos
    groups, group = photos["group"], int(photos["group"][answer.places[0].first.row])
    x, y = np.asarray(photos["easting"]) - spot.easting, np.asarray(photos["northing"]) - spot.northing

    def points(matches: tuple[Match, ...]) -> list[tuple[float, float]]:
        return [(float(x[match.row]), float(y[match.row])) for match in matches if int(groups[match.row]) == group]

    places = [
        (number, points(place.matches))
        for number, place in enumerate(answer.places, start=1)
        if place.first.metres <= _MAP and int(groups[place.first.row]) == group
    ]
    reach = max([_LEAST, *(2 * abs(value) for _, members in places for point in members for value in point)])
    near = np.flatnonzero((groups == group) & (np.abs(x) < reach) & (np.abs(y) < reach))
    return PlaceSketch(places, [(float(x[row]), float(y[row])) for row in evenly(near, _MOST_POINTS)])
