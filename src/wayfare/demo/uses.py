"""Putting the four models to use: three photos are located, two texts looked for, one scene graph drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.errors import DataError
from wayfare.demo.city import picture_of
from wayfare.demo.page_parts import (
    CityMap,
    FoundPhoto,
    GraphExample,
    LocatedPhoto,
    LocateExample,
    MapPoint,
    SearchExample,
)
from wayfare.downloads import onnxruntime_web
from wayfare.exporting.exporter import export
from wayfare.hashing.hash_model import hashing_run
from wayfare.hashing.indexing import add_pairs, model_for
from wayfare.hashing.search import Query, SearchIndex, search
from wayfare.pages.thumbnails import PictureSource, Thumbnails, evenly
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.index import Index
from wayfare.places.indexing import add
from wayfare.places.leave_one_out import Calibrator
from wayfare.places.locate import Answer, locate
from wayfare.places.positions import Spot
from wayfare.places.trained_model import load_model
from wayfare.scenes.graph import graphs
from wayfare.scenes.graph_files import drawn_of, shown_of
from wayfare.scenes.graph_picture import GraphSketch, photo
from wayfare.scenes.scene_model import load_scene_model
from wayfare.town import map as town_map
from wayfare.town.model import City

Progress = Callable[[str, int, int], None]
_FOUND = 8  # pictures for each text
_RELATIONS = 8  # in the graph
_OBJECTS = (5, 9)  # that its picture has, at least and at most
_KINDS = 5  # of relations that it has, at least
_STRANGERS = 100  # photos of other cities that are asked for
# Confidence of an answer that is taken if no threshold of the index is certain. On the three other cities of the town,
# with the untrained network, 87, 98 and 95 % of the photos that fit the rule of `locate_three` were located.
_SURE = 0.7
_TOGETHER = 2  # radii between the answers for photos taken one after the other
_LARGE, _SMALL = 320, 200  # pixels


# ---- Where was this taken?


def locate_three(run: Path, cities: dict[str, City], progress: Progress) -> LocateExample:
    """An index of the city that nobody learnt from; two of its photos, and one of another city.

    The two are fixed by a rule: of the photos that the model answers, and whose neighbours in their walk it locates
    close by, in the order of their files, those at a third and at two thirds. If there are none, of those answered, or
    of all. The third is the one in the middle of the other cities' photos. How all came out is beside them.
    """
    model = load_model(run)
    divided = model.task.loaded.divided
    photos, radius = divided.photos, model.task.radius
    asks = photos.query if photos.query is not None else np.zeros(len(photos), bool)
    inside = np.ones(len(photos), bool)
    inside[divided.pool] = False
    database = photos.take(inside & ~asks)
    added = add(model, database, run / "index", Calibrator(model, run, progress=progress), progress)
    index = Index(run / "index")
    queries = np.flatnonzero(asks & inside)
    near = photos.positives(radius, queries, np.flatnonzero(inside & ~asks))
    known = queries[[len(found) > 0 for found in near]]
    strangers = np.array(evenly(np.flatnonzero(asks & ~inside), _STRANGERS), np.int64)
    progress("locating photos", 0, len(known) + len(strangers))
    paths = photos.paths()
    learnt = added.facts.calibration
    threshold = None if learnt is None else _SURE if learnt.threshold is None else learnt.threshold
    answers = locate(index, [paths[row] for row in (*known, *strangers)], k=1, threshold=threshold).answers
    by_photo: dict[Path, Answer] = {answer.photo: answer for answer in answers}
    ours = [row for row in known if paths[row] in by_photo]
    theirs = [row for row in strangers if paths[row] in by_photo]
    city = cities[str(photos.city[ours[0]])]

    def away(row: int) -> float:
        spot = by_photo[paths[row]].position
        guess, truth = (_on(city, *place) for place in ((spot.latitude, spot.longitude), _degrees(photos, row)))
        return float(np.hypot(guess.x - truth.x, guess.y - truth.y))

    right = {row: away(row) <= radius for row in ours}
    accepted = [row for row in ours if by_photo[paths[row]].unknown is False]
    spots = {row: by_photo[paths[row]].position for row in ours}
    listed = [row for row in accepted if _walked_by(photos, row, spots, _TOGETHER * radius)] or accepted or ours
    chosen = [listed[len(listed) // 3], listed[2 * len(listed) // 3], theirs[len(theirs) // 2]]
    thumbnails = Thumbnails()

    def shown(row: int, is_known: bool) -> LocatedPhoto:
        answer = by_photo[paths[row]]
        match = answer.places[0].first.file
        about = f"taken in {str(photos.city[row]).capitalize()}"
        return LocatedPhoto(
            _picture(thumbnails, paths[row], about, _LARGE),
            _picture(thumbnails, match, "the most similar photo in the index"),
            about=about,
            known=is_known,
            unknown=answer.unknown,
            confidence=answer.confidence,
            metres=away(row) if is_known else None,
            guess=_on(city, answer.position.latitude, answer.position.longitude),
            truth=_on(city, *_degrees(photos, row)) if is_known else None,
        )

    here = [_on(city, *_degrees(database, row), "index") for row in range(len(database))]
    return LocateExample(
        city=map_of(city, here), index=len(index),
        photos=[shown(chosen[0], True), shown(chosen[1], True), shown(chosen[2], False)],
        threshold=threshold, is_certain=learnt is not None and learnt.threshold is not None,
        queries=len(ours), right=sum(right.values()),
        accepted=len(accepted), accepted_right=sum(right[row] for row in accepted), outside=len(theirs),
        refused=sum(by_photo[paths[row]].unknown is True for row in theirs), radius=radius,
    )  # fmt: skip


def page_in_browser(run: Path, progress: Progress) -> str:
    """The name of the exported page's folder; "" where ONNX Runtime for browsers was not fetched, or its extra not."""
    if not onnxruntime_web.is_there() or not all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))):
        return ""
    return export(run, "web", progress=progress).folder.name


def _walked_by(photos: PlacePhotos, row: int, spots: dict[int, Spot], most: float) -> bool:
    """Whether the photos taken just before and just after one, in its sequence, are located near it, too."""
    if photos.sequence is None or photos.frame is None:
        return False
    beside = (photos.sequence == photos.sequence[row]) & (np.abs(photos.frame - photos.frame[row]) == 1)
    others = [spots[other] for other in np.flatnonzero(beside).tolist() if other in spots]
    here = spots[row]
    away = [float(np.hypot(one.easting - here.easting, one.northing - here.northing)) for one in others]
    return len(away) == 2 and max(away) <= most


def map_of(city: City, photos: Sequence[MapPoint], note: str = "") -> CityMap:
    """A city's map with points on it."""
    sights = [(square.x, square.y, square.sight) for square in city.squares]
    return CityMap(
        city.name.capitalize(),
        picture_of(city),
        width=city.width,
        height=city.height,
        photos=photos,
        sights=sights,
        note=note,
    )


def points_of(city: City, photos: PlacePhotos, rows: np.ndarray, looks: Sequence[str]) -> list[MapPoint]:
    """Photographs as points of a city's map."""
    return [_on(city, *_degrees(photos, row), look) for row, look in zip(rows.tolist(), looks)]


def _on(city: City, latitude: float, longitude: float, look: str = "") -> MapPoint:
    x, y = town_map.to_xy(city, latitude, longitude)
    return MapPoint(float(x), float(y), look)


def _degrees(photos: PlacePhotos, row: int) -> tuple[float, float]:
    if photos.latitude is None or photos.longitude is None:
        raise DataError("these photographs have no latitude and longitude", photos.root)
    return float(photos.latitude[row]), float(photos.longitude[row])


# ---- Which photos show this?


def search_twice(run: Path, progress: Progress) -> list[SearchExample]:
    """The two things that most pictures show, looked for among pictures that nobody learnt from.

    The texts of the pictures are not used: their own words would find them without any model.
    """
    found, out = hashing_run(run), run / "index"
    pairs = found.task.pairs
    add_pairs(model_for(found, out), found, out, progress, rows=pairs.query)
    index = SearchIndex(out)
    fine = pairs.names[-pairs.levels[-1] :] if pairs.levels else pairs.names
    counts = dict(zip(pairs.names, pairs.labels[pairs.query].sum(0).tolist()))
    words = [word for word in sorted(fine, key=lambda name: -counts[name]) if index.model.knows(word)][:2]
    answers = search(index, [Query(word) for word in words], k=_FOUND, find="photos", use_texts=False).answers
    thumbnails = Thumbnails()
    made = []
    for word, answer in zip(words, answers):
        hits = [
            FoundPhoto(
                _picture(thumbnails, hit.files[0], " ".join(hit.texts)) if hit.files else None,
                ", ".join(_last(hit.labels)),
                " ".join(hit.texts), word in hit.labels,
            )
            for hit in answer.hits
        ]  # fmt: skip
        made.append(SearchExample(word, hits, counts[word] / max(1, len(pairs.query))))
    return made


def _last(labels: Sequence[str]) -> Sequence[str]:
    return labels[-1:]


# ---- How do things relate?


def draw_graph(run: Path) -> GraphExample:
    """The graph of the first test picture in which enough goes on and not too much, beside the town's own record."""
    model = load_scene_model(run)
    test = model.task.loaded.test.truth
    objects = np.diff(test.object_offsets)
    kinds = np.array([len(np.unique(test[row].relations[:, 2])) for row in range(len(test))])
    fits = np.flatnonzero((objects >= _OBJECTS[0]) & (objects <= _OBJECTS[1]) & (kinds >= _KINDS))
    place = int(fits[0]) if len(fits) else int(np.argmax(kinds))
    made = next(graphs(model, [test.root], images=[str(test.image_ids[place])], top=_RELATIONS))
    drawn = GraphSketch(drawn_of(made, len(model.things), model.classes))
    known = {(int(s), int(o), model.predicates[p]) for s, o, p in test[place].relations.tolist()}
    right = [(one.subject, one.object, one.predicate) in known for one in made.relations]
    plain = None if made.picture.pixels is None else _picture(Thumbnails(), made.picture.pixels, "the photo", _LARGE)
    return GraphExample(plain, shown_of(made, drawn, photo(drawn)), right)


def _picture(thumbnails: Thumbnails, source: Path | np.ndarray, words: str, side: int = _SMALL) -> Any:
    return thumbnails.picture(PictureSource(source, words), side)
