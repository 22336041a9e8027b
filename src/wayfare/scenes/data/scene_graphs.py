"""Scene graphs of many pictures in a few flat arrays: what is in each picture, where, and how it relates.

Offsets say where each picture's objects and relations begin, so that the 48,749 pictures of PSG take some tens of
megabytes. Everything that makes a smaller set of a larger one is here; reading files is in `psg`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from wayfare.core.errors import DataError
from wayfare.io.findings import Problems
from wayfare.io.images import decode

Quirk = Literal["empty", "duplicates", "self", "crowd"]
_FOLDERS = (".", "coco", "../coco", "annotations", "coco/annotations", "../coco/annotations")
_PER_IMAGE = ("image_ids", "files", "panoptic_files", "sizes", "lines", "entries")
_PER_OBJECT = ("boxes", "labels", "crowd", "segment_ids", "areas")


class SceneGraph(NamedTuple):
    """One picture's graph."""

    image_id: str
    size: tuple[int, int]  # height, width; 0, 0 where it is not stated
    boxes: np.ndarray  # float32 (K, 4)
    labels: np.ndarray  # int32 (K,): things first, then stuff
    relations: np.ndarray  # int32 (R, 3): subject and object as places among the K, predicate
    segment_ids: np.ndarray  # int32 (K,): the value in the panoptic picture; -1 where there is none


@dataclass(frozen=True)
class SceneGraphs:
    """The graphs of N pictures with M objects and R relations."""

    root: Path  # the folder that the files' names start from
    things: tuple[str, ...]
    stuff: tuple[str, ...]
    predicates: tuple[str, ...]
    test_image_ids: tuple[str, ...]  # also of pictures that are not here
    image_ids: np.ndarray  # str objects (N,)
    files: np.ndarray  # str objects (N,)
    panoptic_files: np.ndarray  # str objects (N,): "" where none is named
    sizes: np.ndarray  # int32 (N, 2): height, width; 0 where not stated
    lines: np.ndarray  # int64 (N,): of the entry in the file
    entries: np.ndarray  # int64 (N,): the entry's place in the file's list
    object_offsets: np.ndarray  # int64 (N + 1,)
    boxes: np.ndarray  # float32 (M, 4)
    labels: np.ndarray  # int32 (M,)
    crowd: np.ndarray  # bool (M,)
    segment_ids: np.ndarray  # int32 (M,): -1 where there is none
    areas: np.ndarray  # int64 (M,): of the segment, in pixels; -1 where not stated
    relation_offsets: np.ndarray  # int64 (N + 1,)
    relations: np.ndarray  # int32 (R, 3)
    problems: Problems = field(default_factory=Problems)

    def __len__(self) -> int:
        return len(self.image_ids)

    def __getitem__(self, index: int) -> SceneGraph:
        objects = slice(self.object_offsets[index], self.object_offsets[index + 1])
        relations = slice(self.relation_offsets[index], self.relation_offsets[index + 1])
        size = (int(self.sizes[index, 0]), int(self.sizes[index, 1]))
        parts = self.boxes[objects], self.labels[objects], self.relations[relations], self.segment_ids[objects]
        return SceneGraph(self.image_ids[index], size, *parts)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the objects' labels."""
        return self.things + self.stuff

    @property
    def test(self) -> np.ndarray:
        """bool (N,): the picture is one to test with."""
        return np.isin(self.image_ids.astype(str), np.array(self.test_image_ids, str))

    @property
    def relation_images(self) -> np.ndarray:
        """int64 (R,): which picture each relation belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.relation_offsets))

    @property
    def object_images(self) -> np.ndarray:
        """int64 (M,): which picture each object belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.object_offsets))

    def picture(self, index: int) -> Path | None:
        """The picture's file, if it is there."""
        return _find(self.root, self.files[index], "images")

    def panoptic(self, index: int) -> Path | None:
        """The panoptic picture's file, if it is there."""
        return _find(self.root, self.panoptic_files[index], "panoptic")

    def segments(self, index: int) -> np.ndarray:
        """int32 (H, W): which of the picture's objects each pixel shows; -1 for none."""
        if (file := self.panoptic(index)) is None:
            name = self.panoptic_files[index] or "a panoptic picture"
            raise DataError(f"no {name} for image {self.image_ids[index]}", self.root)
        return places_of(read_panoptic(file), self[index].segment_ids)

    # ---- Parts of it

    def select(self, images: np.ndarray) -> SceneGraphs:
        """Some of the pictures, by their indices or as a mask, in that order."""
        images = np.flatnonzero(images) if images.dtype == bool else images.astype(np.int64)
        objects, object_offsets = _ranges(self.object_offsets, images)
        relations, relation_offsets = _ranges(self.relation_offsets, images)
        parts: dict[str, Any] = {name: getattr(self, name)[images] for name in _PER_IMAGE}
        parts |= {name: getattr(self, name)[objects] for name in _PER_OBJECT}
        parts |= {"object_offsets": object_offsets, "relation_offsets": relation_offsets}
        return replace(self, **parts, relations=self.relations[relations])

    def keep_relations(self, kept: np.ndarray) -> SceneGraphs:
        """All pictures, with those relations for which the mask is true."""
        offsets = np.append(0, np.cumsum(kept))[self.relation_offsets]
        return replace(self, relations=self.relations[kept], relation_offsets=offsets)

    def keep_objects(self, kept: np.ndarray) -> SceneGraphs:
        """All pictures, with those objects for which the mask is true and the relations among them."""
        counted = np.append(0, np.cumsum(kept))
        offsets = counted[self.object_offsets]
        ends = self.relations[:, :2] + self.object_offsets[self.relation_images][:, None]
        moved = self.relations.copy()
        moved[:, :2] = counted[ends] - offsets[self.relation_images][:, None]
        parts: dict[str, Any] = {name: getattr(self, name)[kept] for name in _PER_OBJECT}
        changed = replace(self, **parts, object_offsets=offsets, relations=moved)
        return changed.keep_relations(kept[ends].all(axis=1))

    def without(self, *quirks: Quirk) -> SceneGraphs:
        """Leave out: `crowd` segments, relations of an object with itself (`self`), repeated triplets (`duplicates`),
        and then pictures without relations (`empty`)."""
        kept = self
        if "crowd" in quirks:
            kept = kept.keep_objects(~kept.crowd)
        if "self" in quirks:
            kept = kept.keep_relations(kept.relations[:, 0] != kept.relations[:, 1])
        if "duplicates" in quirks:
            kept = kept.keep_relations(_firsts(_triplets(kept)))
        if "empty" in quirks:
            kept = kept.select(np.diff(kept.relation_offsets) > 0)
        return kept

    def counts(self) -> dict[str, int]:
        """How much there is, and how much of it is odd."""
        triplets, images = _triplets(self), self.relation_images
        once = _firsts(triplets)
        pairs, times = np.unique(_pairs(self)[once], return_counts=True)
        several = pairs[times > 1] // self._most_objects**2
        return {
            "images": len(self),
            "objects": len(self.labels),
            "relations": len(self.relations),
            "object classes": len(self.classes),
            "predicates": len(self.predicates),
            "test images": int(self.test.sum()),
            "images without relations": int((np.diff(self.relation_offsets) == 0).sum()),
            "repeated triplets": int((~once).sum()),
            "images with repeated triplets": len(np.unique(images[~once])),
            "pairs with several predicates": int((times > 1).sum()),
            "images with such pairs": len(np.unique(several)),
            "self-relations": int((self.relations[:, 0] == self.relations[:, 1]).sum()),
            "crowd segments": int(self.crowd.sum()),
        }

    @property
    def _most_objects(self) -> int:
        return int(np.diff(self.object_offsets).max(initial=1))


def _ranges(offsets: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The flat places of some pictures' parts, and their offsets once gathered."""
    counts = np.diff(offsets)[images]
    gathered = np.append(0, np.cumsum(counts))
    return np.repeat(offsets[images] - gathered[:-1], counts) + np.arange(gathered[-1]), gathered


def _pairs(graphs: SceneGraphs) -> np.ndarray:
    """A number for each relation's picture, subject and object."""
    most = graphs._most_objects
    subjects, objects = graphs.relations[:, 0].astype(np.int64), graphs.relations[:, 1].astype(np.int64)
    return (graphs.relation_images * most + subjects) * most + objects


def _triplets(graphs: SceneGraphs) -> np.ndarray:
    numbers: np.ndarray = _pairs(graphs) * max(len(graphs.predicates), 1) + graphs.relations[:, 2]
    return numbers


def _firsts(values: np.ndarray) -> np.ndarray:
    """True where a value is there for the first time."""
    first = np.zeros(len(values), bool)
    first[np.unique(values, return_index=True)[1]] = True
    return first


# ---- Files


def _find(root: Path, name: str, flat: str) -> Path | None:
    """A named file in the usual places: as PSG's own code has them, or all in one folder."""
    if not name:
        return None
    for file in (*(root / folder / name for folder in _FOLDERS), root / flat / Path(name).name):
        try:
            if file.is_file():
                return file
        except OSError:  # a name that no disk would hold
            return None
    return None


def read_panoptic(file: Path) -> np.ndarray:
    """int32 (H, W): the id of the segment that each pixel belongs to, red + 256 green + 65536 blue."""
    with file.open("rb") as opened:
        if opened.read(8) != b"\x89PNG\r\n\x1a\n":
            raise DataError("not a PNG: its ids would not be exact", file)
    return np.asarray(decode(file).astype(np.int32) @ np.array([1, 256, 65536], np.int32))


def places_of(ids: np.ndarray, segment_ids: np.ndarray) -> np.ndarray:
    """int32, of the shape of `ids`: the place of each id among the segments; -1 where it is not one of them."""
    if not len(segment_ids):
        return np.full(ids.shape, -1, np.int32)
    order = np.argsort(segment_ids)
    found = np.searchsorted(segment_ids[order], ids).clip(max=len(order) - 1)
    return np.where(segment_ids[order][found] == ids, order[found], -1).astype(np.int32)
