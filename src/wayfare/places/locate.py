"""Where was this photo taken? The nearest photographs of an index, as places, and what follows from them.

Matches are gathered into places from the nearest outwards: each that lies at most `radius` metres from the first match
of a place belongs to it, and the others begin places of their own.

The position is the mean of the matches that agree: those of the first place among the 20 nearest. Each counts by how
much nearer it is, as a descriptor, than the first match of another place; one that is no nearer does not count.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wayfare.core.errors import ConfigError, DataError
from wayfare.io.folders import pictures_below
from wayfare.io.pictures import Skipped
from wayfare.places.calibration import SCORES, TOP, Curve, curve_of, other_place, scores_of
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.index import Facts, Index
from wayfare.places.positions import Spot, closest, mean_spot, metres, rows_of
from wayfare.places.trained_model import describe

_FIRST_LOOK, _LAST_LOOK = 128, 8192  # matches in which places are looked for; many may be of one place


@dataclass(frozen=True)
class Match:
    """A photograph of the index."""

    row: int
    file: Path
    distance: float  # of the descriptors
    metres: float  # from the first match; inf if it is in another city, and nothing tells how far away that is
    spot: Spot


@dataclass(frozen=True)
class Place:
    """Matches that lie together, the nearest descriptor first."""

    matches: tuple[Match, ...]

    @property
    def first(self) -> Match:
        return self.matches[0]


@dataclass(frozen=True)
class Answer:
    """Where one photo was taken, as far as the index knows."""

    photo: Path
    places: tuple[Place, ...]
    position: Spot
    agreeing: int  # matches that the position is the mean of
    spread: float  # metres from the position, the root mean square of those matches
    nearest: tuple[int, ...]  # rows of the 20 nearest matches
    scores: dict[str, float]  # see calibration.py
    confidence: float | None  # 0..1; None where the index has none
    unknown: bool | None  # confidence is below the threshold; None where there is no confidence or no threshold


@dataclass
class Located:
    """The answers for some photos, those that could not be read, and how long it took."""

    answers: list[Answer] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    threshold: float | None = None
    seconds: dict[str, float] = field(default_factory=lambda: {"decode": 0.0, "embed": 0.0, "search": 0.0})


def locate(index: Index, photos: Iterable[Path | str], k: int = 5, threshold: float | None = None) -> Located:
    """Find photos, files or whole folders of them, in an index: the k nearest places of each."""
    calibration = index.facts.calibration
    if k < 1:
        raise ConfigError(f"k = {k}: expected at least one place")
    if threshold is not None and calibration is None:
        raise ConfigError(
            f"{index.folder} gives no confidence ({index.facts.uncalibrated}), so a threshold cannot be applied"
        )
    located = Located(threshold=calibration.threshold if calibration and threshold is None else threshold)
    files = _files(photos)
    for part in describe(index.model, files):
        began = time.perf_counter()
        lists = _lists(index, part.descriptors, k)
        for name, spent in (("decode", part.decoding), ("embed", part.embedding)):
            located.seconds[name] += spent
        located.seconds["search"] += time.perf_counter() - began
        located.answers += [_answer(index, files[i], found, located.threshold) for i, found in zip(part.kept, lists)]
        located.skipped += part.skipped
    return located


def scores(index: Index, descriptors: np.ndarray) -> np.ndarray:
    """The scores (n, 3) of photos that are descriptors already: for Calibration.confidence, or to compare them."""
    rows, distances = index.search(descriptors, TOP)
    found = [scores_of(far, index.metres(near), index.facts.radius) for near, far in zip(rows, distances)]
    return np.array(found).reshape(len(rows), len(SCORES))


def curve(index: Index, answers: Sequence[Answer], truth: PlacePhotos) -> Curve:
    """Precision and recall of answers over all thresholds, for photos of which a table says where they were taken.

    A photo's place is known if the index has a photograph within its radius; an answer is right if its first match is
    one. Where the index gives no confidence, the nearest descriptor's distance takes its place (as a negative number).
    """
    rows = true_rows(index, answers, truth)
    first = index.photos[np.array([answer.places[0].first.row for answer in answers], np.int64)]
    right = np.array([metres(one[None], other)[0] for one, other in zip(first, rows)]) <= index.facts.radius
    current = np.delete(np.asarray(index.photos), list(index.facts.replaced))
    known = (closest(rows, current) <= index.facts.radius) | right
    values = [-answer.scores["nearest"] if answer.confidence is None else answer.confidence for answer in answers]
    return curve_of(np.array(values), right, known)


def true_rows(index: Index, answers: Sequence[Answer], truth: PlacePhotos) -> np.ndarray:
    """Where the photos of answers were taken, as rows like those of the index."""
    row_of = {path.resolve(): row for row, path in enumerate(truth.paths())}
    if missing := [answer.photo for answer in answers if answer.photo.resolve() not in row_of]:
        raise DataError("its true position is not in the table", missing[0])
    numbers = np.array([row_of[answer.photo.resolve()] for answer in answers], np.int64)
    return np.asarray(rows_of(truth, index.groups)[numbers])


def grouped(rows: np.ndarray, photos: np.ndarray, radius: float, most: int) -> list[np.ndarray]:
    """Which matches, in order of their distance, are of one place: the first `most` places, as places in `rows`."""
    places: list[np.ndarray] = []
    left = np.arange(len(rows))
    while len(left) and len(places) < most:
        here = metres(photos[rows[left]], photos[rows[left[0]]]) <= radius
        here[0] = True
        places.append(left[here])
        left = left[~here]
    return places


def as_table(answer: Answer) -> dict[str, Any]:
    """An answer for JSON; null is what is not known."""
    position = _spot(answer.position) | {"photos": answer.agreeing, "spread_m": answer.spread}
    places = [
        {**_spot(place.first.spot), "metres": _finite(place.first.metres), "distance": place.first.distance,
         "matches": [_match(match) for match in place.matches]}
        for place in answer.places
    ]  # fmt: skip
    verdict = {"unknown": answer.unknown, "confidence": answer.confidence, "scores": answer.scores}
    return {"photo": str(answer.photo), **verdict, "position": position, "places": places}


def as_result(index: Index, located: Located, k: int) -> dict[str, Any]:
    """All answers for JSON, as the command line prints them and the web application hands them out."""
    return {
        "index": str(index.folder), "model": index.facts.model, "k": k,
        "threshold": located.threshold, "calibration": calibrated(index.facts),
        "answers": [as_table(found) for found in located.answers],
        "skipped": [item._asdict() for item in located.skipped], "seconds": located.seconds,
    }  # fmt: skip


def calibrated(facts: Facts) -> dict[str, Any]:
    """For JSON, how far confidence can be trusted; or why there is none."""
    found = facts.calibration
    if found is None:
        return {"threshold": None, "uncalibrated": facts.uncalibrated}
    names = ("threshold", "precision", "recall", "wanted", "strangers", "queries")
    return {name: getattr(found, name) for name in names} | found.figures | {"doubts": list(found.doubts)}


def _files(photos: Iterable[Path | str]) -> list[Path]:
    """Each photo once; of a folder, all pictures in it."""
    paths: list[Path] = []
    for path in map(Path, photos):
        paths += [path / name for name in pictures_below(path)] if path.is_dir() else [path]
    return list(dict.fromkeys(paths))


class _List(NamedTuple):
    """The matches of a photo."""

    rows: np.ndarray  # of the index, nearest first
    distances: np.ndarray
    places: list[np.ndarray]  # see `grouped`


def _lists(index: Index, descriptors: np.ndarray, k: int) -> list[_List]:
    """For each photo, as many matches as are needed for k places."""
    lists: dict[int, _List] = {}
    todo, width = np.arange(len(descriptors)), max(_FIRST_LOOK, TOP, 4 * k)
    while len(todo):
        for number, rows, distances in zip(todo.tolist(), *index.search(descriptors[todo], width)):
            lists[number] = _List(rows, distances, grouped(rows, index.photos, index.facts.radius, k))
        enough = width >= min(len(index), _LAST_LOOK)
        todo = np.array([number for number in todo.tolist() if len(lists[number].places) < k and not enough], np.int64)
        width *= 8
    return [lists[number] for number in range(len(descriptors))]


def _answer(index: Index, photo: Path, found: _List, threshold: float | None) -> Answer:
    rows, distances, radius = found.rows, found.distances, index.facts.radius
    away = index.metres(rows)
    here = away[:TOP] <= radius
    here[0] = True
    weights = np.maximum(other_place(distances[:TOP], here) - distances[:TOP][here], 0)
    if not weights.any():  # another place is as near: nothing but the order speaks for this one
        weights[distances[:TOP][here] == distances[0]] = 1.0
    group = index.groups[index.photos["group"][rows[0]]]
    position, spread = mean_spot(index.photos[rows[:TOP][here]], weights, group)
    values, calibration = scores_of(distances, away, radius), index.facts.calibration
    confidence = None if calibration is None else float(calibration.confidence(values))
    places = tuple(
        Place(tuple(_matched(index, int(rows[i]), float(distances[i]), float(away[i])) for i in members))
        for members in found.places
    )
    return Answer(
        photo, places, position=position, agreeing=int((weights > 0).sum()), spread=spread,
        nearest=tuple(rows[:TOP].tolist()),
        scores={name: float(value) for name, value in zip(SCORES, values)}, confidence=confidence,
        unknown=None if confidence is None or threshold is None else confidence < threshold,
    )  # fmt: skip


def _matched(index: Index, row: int, distance: float, away: float) -> Match:
    return Match(row, index.file(row), distance, away, index.spot(row))


def _match(match: Match) -> dict[str, Any]:
    away = {"metres": _finite(match.metres), "distance": match.distance}
    return {"file": str(match.file), **away, **_spot(match.spot)}


def _spot(spot: Spot) -> dict[str, Any]:
    return {name: _finite(value) if isinstance(value, float) else value for name, value in spot._asdict().items()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
