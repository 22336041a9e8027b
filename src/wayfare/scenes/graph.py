"""The scene graph of a picture: how the things in it relate, by a trained relation head.

Which objects there are, and where, is given (PredCls): by an annotation, by boxes of one's own, or by a detector. Two
objects have at most one relation, one way round; its score is p(predicate) score(subject) score(object).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wayfare.core.errors import ConfigError, DataError
from wayfare.io.images import decode
from wayfare.io.pictures import Skipped
from wayfare.scenes.boxes import Boxes, LabelledBox
from wayfare.scenes.detector import Detector, is_installed
from wayfare.scenes.graph_input import Find, FoundObjects, ObservedPicture, ReadPhoto, graph_inputs
from wayfare.scenes.labels import fitting, short
from wayfare.scenes.patches import DinoPatches
from wayfare.scenes.scene_model import SceneModel, one_scene
from wayfare.scenes.segmenting import PanopticFinder, SegmentHead

LEAST = 0.05  # the share of such relations that people have annotated, times how sure both objects are
MOST_OBJECTS = 300  # in a picture: every pair of them is looked at
_Progress = Callable[[int, int], None]


class ScoredRelation(NamedTuple):
    """A triplet; subject and object are places among the graph's objects."""

    subject: int
    object: int
    predicate: str
    score: float


@dataclass(frozen=True)
class PredictedGraph:
    """A picture's objects and how they relate, the surest relation first."""

    picture: ObservedPicture  # of its objects only those that the model knows
    relations: Sequence[ScoredRelation]
    unknown: Counter[str] = field(default_factory=Counter)  # labels that are no class of the model, with their number

    @property
    def names(self) -> list[str]:
        """The objects as a reader tells them apart: dog, person 1, person 2."""
        words = [short(label) for label in self.picture.labels]
        often, so_far, names = Counter(words), Counter[str](), []
        for word in words:
            so_far[word] += 1
            names.append(f"{word} {so_far[word]}" if often[word] > 1 else word)
        return names


@dataclass
class GraphReport:
    """What happened beside the graphs: filled while they are made."""

    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    known: int = 0  # objects that are of a class of the model


def graphs(
    model: SceneModel,
    paths: Sequence[Path | str],
    *,
    boxes: Boxes | None = None,
    images: Sequence[str] = (),
    top: int = 10,
    most: int = 100,
    score: float = 0.45,
    least: float = LEAST,
    head: Path | None = None,
    report: GraphReport | None = None,
    progress: _Progress = lambda done, total: None,
    read: ReadPhoto = decode,
) -> Iterator[PredictedGraph]:
    """The graphs of photos, folders of photos, or annotations, one after the other; see `graph_input`.

    `top`: relations of each; `score`: how sure the detector must be; `least`: how sure a relation must be; `head`: what
    `wayfare detect` has learnt, with which surfaces and masks are found in photos, too; `read`: how photos are read. If
    not one object in all pictures is of a class of the model, that is a DataError at the end.
    """
    if top < 1 or most < 1:
        raise ConfigError(f"top = {top}, most = {most}: expected at least 1")
    if not 0 <= score <= 1:
        raise ConfigError(f"score = {score}: expected 0 to 1")
    if not 0 <= least <= 1:
        raise ConfigError(f"least = {least}: expected 0 to 1")
    report = GraphReport() if report is None else report

    @cache
    def find() -> Find:
        if head is not None:
            return panoptic(head, score)
        detector = Detector(score)
        return lambda pixels: FoundObjects(detector.find(pixels))

    pictures, report.skipped[:], report.notes[:] = graph_inputs(
        [Path(path) for path in paths], boxes, images, most, find, read=read
    )
    if not model.task.model.features.new_photos and any(picture.photo for picture in pictures):
        raise ConfigError(
            f"the model {model.name!r} uses features that were computed before (model.features = 'file'), and new "
            "photos have none: train one with model.features = 'geometry' or 'roi'"
        )
    for done, picture in enumerate(pictures):
        progress(done, len(pictures))
        try:
            made = graph_of(model, picture.open(), top, least)
        except DataError as error:
            report.skipped.append(Skipped(picture.name, str(error).removeprefix(f"{picture.name}: ")))
            continue
        report.unknown += made.unknown
        report.known += len(made.picture.labels)
        report.notes += [f"{picture.name}: {note}" for note in made.picture.notes]
        if made.unknown and not made.picture.labels:
            report.skipped.append(
                Skipped(picture.name, f"no object of a class that the model knows: {listed(made.unknown)}")
            )
            continue
        yield made
    progress(len(pictures), len(pictures))
    if report.unknown and not report.known:
        raise DataError(
            f"none of the labels is a class of {model.name!r}: {listed(report.unknown)}",
            remedy=f"it has {len(model.classes)} classes: {', '.join(model.classes[:12])}, ...",
        )


def graph_of(model: SceneModel, picture: ObservedPicture, top: int, least: float = 0.0) -> PredictedGraph:
    """The graph of one picture: its `top` surest relations, none with a score below `least`."""
    places = np.array(fitting(picture.labels, model.classes), np.int64)
    unknown = Counter(label for label, place in zip(picture.labels, places) if place < 0)
    known = np.flatnonzero(places >= 0)
    if len(known) > MOST_OBJECTS:
        raise DataError(f"{len(known)} objects, at most {MOST_OBJECTS} are processed", picture.file)
    picture = _only(picture, known, model.classes, places)
    if len(known) < 2:
        return PredictedGraph(picture, (), unknown)
    guesses = model.guesses(one_scene(model, picture, places[known]))
    subject, other, predicate = guesses.triplets.T
    scores = model.sureness.of(guesses.scores) * picture.scores[subject] * picture.scores[other]
    best = np.argsort(-scores, kind="stable")
    _, first = np.unique(np.sort(guesses.triplets[best, :2], 1), axis=0, return_index=True)
    best = best[np.sort(first)][:top]  # of two objects the surest relation, one way round
    best = best[scores[best] >= least]
    relations = [
        ScoredRelation(int(subject[row]), int(other[row]), model.predicates[predicate[row]], float(scores[row]))
        for row in best
    ]
    return PredictedGraph(picture, relations, unknown)


def panoptic(head: Path, score: float) -> Find:
    """Things and surfaces by the head that `wayfare detect` has learnt, and the detector's boxes if it is installed."""
    learnt = SegmentHead.load(head)
    finder = PanopticFinder(learnt, DinoPatches(), Detector(score).find if is_installed() else None)

    def find(pixels: np.ndarray) -> FoundObjects:
        found = finder.find(pixels)
        rows = zip(found.labels, found.boxes.tolist(), found.scores.tolist())
        boxes = [LabelledBox(label, (x1, y1, x2, y2), sure) for label, (x1, y1, x2, y2), sure in rows]
        return FoundObjects(boxes, found.places)

    return find


def as_table(graph: PredictedGraph) -> dict[str, Any]:
    """A graph for JSON."""
    picture = graph.picture
    rows = zip(picture.labels, picture.boxes.tolist(), picture.scores.tolist())
    return {
        "file": str(picture.file),
        **({"image_id": picture.image_id} if picture.image_id else {}),
        "size": list(picture.size),
        "objects": [
            {"id": place, "label": label, "box": [round(side, 2) for side in box], "score": round(score, 4)}
            for place, (label, box, score) in enumerate(rows)
        ],
        "relations": [relation._asdict() | {"score": round(relation.score, 6)} for relation in graph.relations],
        "unknown_labels": dict(graph.unknown),
    }


def as_result(
    run: Path | str, model: SceneModel, top: int, tables: Sequence[dict[str, Any]], report: GraphReport
) -> dict[str, Any]:
    """All graphs for JSON, as the command line prints them and the web application hands them out."""
    return {
        "run": str(run), "model": model.digest, "top": top, "graphs": list(tables),
        "unknown_labels": dict(report.unknown), "skipped": [item._asdict() for item in report.skipped],
        "notes": report.notes,
    }  # fmt: skip


def listed(labels: Counter[str]) -> str:
    """ "3 hat, 1 shoe": the most frequent ones."""
    shown = [f"{count} {label!r}" for label, count in labels.most_common(12)]
    return ", ".join(shown) + (", ..." if len(labels) > len(shown) else "")


def _only(picture: ObservedPicture, kept: np.ndarray, classes: Sequence[str], places: np.ndarray) -> ObservedPicture:
    """The same picture with some of its objects, under the model's names for them."""
    segments = picture.segments
    if segments is not None and len(kept) < len(picture.labels):
        moved = np.full(len(picture.labels) + 1, -1, np.int32)  # the last one is what -1 finds
        moved[kept] = np.arange(len(kept))
        segments = moved[segments]
    labels = [classes[places[place]] for place in kept]
    return replace(
        picture,
        labels=labels,
        boxes=picture.boxes[kept],
        scores=picture.scores[kept],
        areas=picture.areas[kept],
        segments=segments,
    )
