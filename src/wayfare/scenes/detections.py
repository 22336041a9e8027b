"""Detected objects in pictures, with scores (SGDet).

A file of detections is either in psg.json form (its relations are not read, scores are 1), or a JSON object with what
was found in each picture, by the picture's id or by its file's name:

    {"2371954": [{"label": "giraffe", "box": [386, 60, 601, 357], "score": 0.98}, ...],
     "2371955": {"panoptic": "2371955.png", "objects": [{"label": "zebra", "segment": 6128041}, ...]}}

A label is a class's name or number; a box is x1, y1, x2, y2 in pixels; a score is 1 where it is not stated. With a
panoptic picture (its name is below the file's folder) objects may name their segments: masks are compared by them, and
a segment without a box has the smallest one around it. Pictures that the file does not name have no detections.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.errors import DataError
from wayfare.io.entries import read_bytes
from wayfare.io.tables import kind_of
from wayfare.scenes.data import psg
from wayfare.scenes.data.scene_graphs import SceneGraphs, read_panoptic
from wayfare.scenes.pairs import MATCH, crossed, expanded, ious, segment_overlaps

_REMEDY = "correct it, or detect the objects again"


@dataclass(frozen=True)
class Detections:
    """Objects found in pictures."""

    found: SceneGraphs  # without relations
    scores: np.ndarray  # float32, one for each object

    def select(self, images: np.ndarray) -> Detections:
        """Those of some pictures, by their indices."""
        offsets = self.found.object_offsets
        row, place = expanded(np.diff(offsets)[images])
        return Detections(self.found.select(images), self.scores[offsets[images][row] + place])


def single(given: Detections) -> Detections:
    """One mask for an object; see `singles`."""
    kept = singles(given)
    return Detections(given.found.keep_objects(kept), given.scores[kept])


def singles(given: Detections) -> np.ndarray:
    """bool (N,): of detections of one class that overlap by half only the surest stays (Fair-PSGG)."""
    found, kept = given.found, np.zeros(len(given.scores), bool)
    for image in range(len(found)):
        rows = np.arange(found.object_offsets[image], found.object_offsets[image + 1])
        for row in rows[np.argsort(-given.scores[rows], kind="stable")]:
            same = rows[kept[rows] & (found.labels[rows] == found.labels[row])]
            shares = ious(np.repeat(found.boxes[row : row + 1], len(same), 0), found.boxes[same])
            kept[row] = not (shares >= MATCH).any()
    return kept


def annotated(scenes: SceneGraphs) -> Detections:
    """The annotated objects as if they had been detected, for example the segments of panoptic annotations."""
    found = replace(
        scenes, relations=scenes.relations[:0], relation_offsets=np.zeros(len(scenes) + 1, np.int64)
    )  # fmt: skip
    return Detections(found, np.ones(len(found.labels), np.float32))


def read(file: Path, scenes: SceneGraphs) -> Detections:
    """The detections of these pictures in the file, in their order."""
    if psg.recognises(file):
        return _from_psg(psg.load(file), file, scenes)
    try:
        entries = json.loads(read_bytes(file))
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}", file, remedy=_REMEDY) from error
    if not isinstance(entries, dict):
        raise DataError(f"expected an object of pictures, found {kind_of(entries)}", file, remedy=_REMEDY)
    reader = _DetectionReader(file, scenes)
    for place, (image_id, name) in enumerate(zip(scenes.image_ids, scenes.files)):
        key = next((key for key in (image_id, name, Path(name).name) if key in entries), None)
        reader.take(place, key or image_id, [] if key is None else entries[key])
    if not len(reader.scores):
        raise DataError("none of its pictures is one of the data's", file, remedy="name them by id or by file")
    return reader.detections()


def _from_psg(given: SceneGraphs, file: Path, scenes: SceneGraphs) -> Detections:
    known = {name: place for place, name in enumerate(scenes.classes)}
    strange = [name for place, name in enumerate(given.classes) if name not in known and place in given.labels]
    if strange:
        raise DataError(f"the data has no class {strange[0]!r}", file, remedy="use the data's names of classes")
    places = {image_id: place for place, image_id in enumerate(given.image_ids)}
    rows = np.array([places.get(image_id, -1) for image_id in scenes.image_ids], np.int64)
    if not (rows >= 0).any():
        raise DataError("none of its pictures is one of the data's", file, remedy="give the pictures the same ids")
    chosen = annotated(given.select(rows[rows >= 0])).found
    counts = np.zeros(len(scenes), np.int64)
    counts[rows >= 0] = np.diff(chosen.object_offsets)
    panoptic = np.full(len(scenes), "", object)
    files = [chosen.panoptic(place) or name for place, name in enumerate(chosen.panoptic_files)]
    panoptic[rows >= 0] = [str(name and Path(name).absolute()) for name in files]
    labels = np.array([known.get(name, 0) for name in given.classes], np.int32)[chosen.labels]
    return aligned(
        scenes, counts, panoptic,
        {"boxes": chosen.boxes, "labels": labels, "segment_ids": chosen.segment_ids, "areas": chosen.areas},
        np.ones(len(labels), np.float32),
    )  # fmt: skip


def aligned(
    scenes: SceneGraphs,
    counts: np.ndarray,
    panoptic: np.ndarray,
    objects: dict[str, np.ndarray],
    scores: np.ndarray,
) -> Detections:
    """Objects of the scenes' pictures, so many of each; panoptic pictures by their whole path, "" for none."""
    parts: dict[str, Any] = {**objects, "crowd": np.zeros(len(scores), bool), "panoptic_files": panoptic}
    found = replace(
        scenes, **parts, object_offsets=np.append(0, np.cumsum(counts)), relations=scenes.relations[:0],
        relation_offsets=np.zeros(len(scenes) + 1, np.int64),
    )  # fmt: skip
    return Detections(found, scores)


class _DetectionReader:
    """Takes what was found in one picture after the other."""

    def __init__(self, file: Path, scenes: SceneGraphs) -> None:
        self.file, self.scenes = file, scenes
        self.known = {name: place for place, name in enumerate(scenes.classes)}
        self.counts = np.zeros(len(scenes), np.int64)
        self.panoptic = np.full(len(scenes), "", object)
        self.boxes: list[Sequence[float]] = []
        self.labels: list[int] = []
        self.segments: list[int] = []
        self.scores: list[float] = []

    def take(self, place: int, key: str, entry: Any) -> None:
        if isinstance(entry, dict):
            name, entry = entry.get("panoptic", ""), entry.get("objects")
            if not isinstance(name, str) or ".." in Path(name).parts or Path(name).is_absolute():
                raise self._wrong(f"{key}.panoptic", "a name below this folder", name)
            self.panoptic[place] = str((self.file.parent / name).absolute()) if name else ""
        if not isinstance(entry, list):
            raise self._wrong(key, "a list of objects", entry)
        tight = self._tight_boxes(place, key, entry)
        height, width = self.scenes.sizes[place].tolist()
        for number, item in enumerate(entry):
            where = f"{key}[{number}]"
            if not isinstance(item, dict):
                raise self._wrong(where, "an object with label and box", item)
            segment, score = item.get("segment", -1), item.get("score", 1.0)
            if type(segment) is not int or not -1 <= segment < 2**24:
                raise self._wrong(f"{where}.segment", "a segment id that fits into a pixel", segment)
            if not _is_number(score) or not 0 <= score <= 1:
                raise self._wrong(f"{where}.score", "a number from 0 to 1", score)
            box = item.get("box", tight.get(segment))
            if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):
                raise self._wrong(f"{where}.box", "four numbers, or the segment of a panoptic picture", box)
            right, foot = (min(end, side) if side else end for end, side in zip(box[2:], (width, height)))
            box = [max(box[0], 0), max(box[1], 0), right, foot]
            if not (box[0] < box[2] and box[1] < box[3]):
                raise self._wrong(f"{where}.box", "x1 < x2 and y1 < y2 within the picture", item.get("box"))
            self.labels.append(self._label(item.get("label"), where))
            self.boxes.append(box)
            self.segments.append(segment)
            self.scores.append(score)
        self.counts[place] = len(entry)

    def _label(self, label: Any, where: str) -> int:
        if isinstance(label, str) and label in self.known:
            return self.known[label]
        if type(label) is int and 0 <= label < len(self.known):
            return label
        raise self._wrong(f"{where}.label", "the name or number of one of the data's classes", label)

    def _tight_boxes(self, place: int, key: str, items: list[Any]) -> dict[int, list[float]]:
        """The smallest box around each segment, where boxes are left out."""
        if all(not isinstance(item, dict) or "box" in item for item in items) or not self.panoptic[place]:
            return {}
        ids = read_panoptic(Path(self.panoptic[place]))
        if (stated := tuple(self.scenes.sizes[place].tolist())) != ids.shape and any(stated):
            raise self._wrong(
                f"{key}.panoptic", f"{stated[1]} x {stated[0]} pixels", f"{ids.shape[1]} x {ids.shape[0]}"
            )
        boxes = {}
        for value in np.unique(ids).tolist():
            rows, columns = np.nonzero(ids == value)
            ends = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
            boxes[value] = [float(end) for end in ends]
        return boxes

    def _wrong(self, where: str, expected: str, found: Any) -> DataError:
        return DataError(f"expected {expected}, found {kind_of(found)}", self.file, field=where, remedy=_REMEDY)

    def detections(self) -> Detections:
        objects: dict[str, np.ndarray] = {
            "boxes": np.array(self.boxes, np.float32).reshape(-1, 4),
            "labels": np.array(self.labels, np.int32),
            "segment_ids": np.array(self.segments, np.int32),
            "areas": np.full(len(self.labels), -1, np.int64),
        }
        scores = np.array(self.scores, np.float32)
        return aligned(self.scenes, self.counts, self.panoptic, objects, scores)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


# ---- matching detections with annotations


def true_labels(found: SceneGraphs, truth: SceneGraphs, overlaps: np.ndarray) -> np.ndarray:
    """int64 (N,): the class of the annotated object that each detection overlaps most, -1 if by less than one half.

    Of those that it overlaps equally, one of its own class.
    """
    detection, meant = crossed(found.object_offsets, truth.object_offsets).T
    close = np.flatnonzero(overlaps >= MATCH)
    other = found.labels[detection[close]] != truth.labels[meant[close]]
    close = close[np.lexsort((other, -overlaps[close]))]
    which, first = np.unique(detection[close], return_index=True)
    labels = np.full(len(found.labels), -1, np.int64)
    labels[which] = truth.labels[meant[close[first]]]
    return labels


def mask_overlaps(found: SceneGraphs, truth: SceneGraphs) -> np.ndarray:
    """float64 (sum of D_i G_i,): IoU of segments, from the panoptic pictures of both; the order of `crossed`."""
    shares = [np.zeros(0)]
    for place, sizes in enumerate(zip(np.diff(found.object_offsets), np.diff(truth.object_offsets))):
        if all(sizes):
            maps = found.segments(place), truth.segments(place)
            shares.append(segment_overlaps(*maps, *map(int, sizes)).ravel())
    return np.concatenate(shares)
