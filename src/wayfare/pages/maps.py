"""Maps of where photographs were taken and where devices went: one for each city, metres on both axes.

Sources whose positions are degrees share maps where they are near each other, whatever data set they came from; a
source in metres of its own has its own map.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

import numpy as np

from wayfare.pages.dataset_parts import Layer, Map
from wayfare.pages.thumbnails import evenly

MOST_MAPS = 12
MOST_POINTS = 2500  # of a layer of a map
MOST_ON_WAYS = 40_000  # points of all ways of all maps
_STEP = 5.0  # metres: points of a way nearer than this are one
_LEAP = 60.0  # metres: who is so far from where they were is not shown to have gone there in a straight line
_CELL = 0.25  # degrees: what is more than two of them apart is another city
_DEGREE = 111_320.0  # metres
_Region = int | str
_Cell = tuple[int, int]


@dataclass(frozen=True)
class MapSource:
    """Points of one kind, or the ways of devices of one kind."""

    layer: str
    kind: Literal["photos", "ways", "fixed"]
    tracks: Sequence[np.ndarray]  # (n, 2): a device's latitudes and longitudes, or x and y; points are one track
    words: Sequence[str] = ()  # of each point
    city: str = ""
    plane: str = ""  # names x and y that are not degrees; what has the same name is on the same map


def draw(sources: Sequence[MapSource]) -> list[Map]:
    """All maps, those with the most on them first."""
    regions = _regions(sources)
    on_map: dict[_Region, list[MapSource]] = {}
    for source in sources:
        for region, part in _split(source, regions):
            on_map.setdefault(region, []).append(part)
    ranked = sorted(on_map.values(), key=lambda parts: -sum(len(track) for part in parts for track in part.tracks))
    titles = [_title(parts) for parts in ranked]
    flat = [_flattened(parts) for parts in ranked[:MOST_MAPS]]
    thinned = [[_thinned(part) if part.kind == "ways" else part for part in parts] for parts in flat]
    ways = [track for parts in thinned for part in parts if part.kind == "ways" for track in part.tracks]
    share = min(1.0, MOST_ON_WAYS / max(sum(map(len, ways)), 1))
    notes = [f"The {MOST_MAPS} of {len(ranked)} cities with the most data."] if len(ranked) > MOST_MAPS else []
    notes += [f"Tracks of about {share:.0%} of the devices."] if share < 1 else []
    return [
        Map(title, [_layer(part, share) for part in parts], " ".join(notes)) for title, parts in zip(titles, thinned)
    ]


# ---- Which city


def _regions(sources: Sequence[MapSource]) -> dict[_Cell, int]:
    """The number of the region that each cell of the globe with something in it belongs to; regions do not touch."""
    found = [_cells(track) for source in sources if not source.plane for track in source.tracks]
    used = set(chain.from_iterable(found))
    numbers: dict[_Cell, int] = {}
    count = 0
    for start in sorted(used):
        todo = [] if start in numbers else [start]
        count += bool(todo)
        while todo:
            cell = todo.pop()
            if cell in used and cell not in numbers:
                numbers[cell] = count
                todo += [(cell[0] + north, cell[1] + east) for north in (-1, 0, 1) for east in (-1, 0, 1)]
    return numbers


def _cells(track: np.ndarray) -> list[_Cell]:
    known = track[np.isfinite(track).all(1)]
    return [(row, column) for row, column in np.floor(known / _CELL).astype(int).tolist()]


def _split(source: MapSource, regions: dict[_Cell, int]) -> Iterator[tuple[_Region, MapSource]]:
    """The parts of a source that are on different maps: photographs one by one, ways as a whole."""
    where: list[_Region]
    if source.kind == "ways":
        tracks = [track for track in source.tracks if np.isfinite(track).all(1).any()]
        where = [source.plane or regions[_cells(track)[0]] for track in tracks]
        for region in dict.fromkeys(where):
            yield region, replace(source, tracks=[track for track, there in zip(tracks, where) if there == region])
    else:
        points = np.concatenate([np.empty((0, 2)), *source.tracks])
        known = np.flatnonzero(np.isfinite(points).all(1))
        where = [source.plane or regions[cell] for cell in _cells(points)]
        for region in dict.fromkeys(where):
            rows = known[[there == region for there in where]]
            words = [source.words[row] for row in rows] if source.words else ()
            yield region, replace(source, tracks=[points[rows]], words=words)


def _title(parts: Sequence[MapSource]) -> str:
    """What most of it is called, else where it is."""
    names = Counter(part.city for part in parts if part.city)
    if names or parts[0].plane:
        return names.most_common(1)[0][0] if names else parts[0].plane
    latitude, longitude = np.nanmedian(np.concatenate([track for part in parts for track in part.tracks]), axis=0)
    return f"{latitude:.4f}, {longitude:.4f}"


# ---- Metres


def _flattened(parts: Sequence[MapSource]) -> list[MapSource]:
    """In metres from the south-west corner of all."""
    if not parts[0].plane:
        latitude = float(np.nanmedian(np.concatenate([track[:, 0] for part in parts for track in part.tracks])))
        scale = np.array([_DEGREE * math.cos(math.radians(latitude)), _DEGREE])
        parts = [replace(part, tracks=[track[:, ::-1] * scale for track in part.tracks]) for part in parts]
    corner = np.nanmin(np.concatenate([track for part in parts for track in part.tracks]), axis=0)
    return [replace(part, tracks=[track - corner for track in part.tracks]) for part in parts]


def _thinned(ways: MapSource) -> MapSource:
    return replace(ways, tracks=[_without_repeats(_with_leaps(track)) for track in ways.tracks])


def _with_leaps(track: np.ndarray) -> np.ndarray:
    """With a NaN row wherever it leaps."""
    leaps = np.flatnonzero(np.hypot(*np.diff(track, axis=0).T) > _LEAP)
    return np.insert(track, leaps + 1, np.nan, axis=0)


def _without_repeats(track: np.ndarray) -> np.ndarray:
    """Only points that are in another small square than the one before; a single NaN row for each gap."""
    cells = np.floor(track / _STEP)
    gap = np.isnan(cells).any(1)
    cells[gap] = np.inf  # equal to itself, as NaN is not
    kept = np.ones(len(track), bool)
    kept[1:] = (cells[1:] != cells[:-1]).any(1)
    return np.asarray(track[kept])


def _layer(part: MapSource, share: float) -> Layer:
    """Points with a decimal, and that share of the ways, in whole metres."""
    if part.kind != "ways":
        rows = evenly(range(len(part.tracks[0])), MOST_POINTS)
        x, y = part.tracks[0][rows].round(1).T.tolist()
        return Layer(part.layer, part.kind, x, y, [part.words[row] for row in rows] if part.words else ())
    gap = np.full((1, 2), np.nan)
    tracks = [part.tracks[place] for place in evenly(range(len(part.tracks)), math.ceil(share * len(part.tracks)))]
    points = np.concatenate([piece for track in tracks for piece in (track, gap)]).round()
    x, y = ([None if math.isnan(value) else int(value) for value in column] for column in points.T.tolist())
    return Layer(part.layer, part.kind, x, y)
