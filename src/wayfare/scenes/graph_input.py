"""The pictures to make graphs of, with their objects: from annotations, from boxes, or from a detector.

What is given may be a photo, a folder of photos, a psg.json, or a folder with one. With boxes of one's own a folder is
always one of photos. What cannot be used is skipped with a reason, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wayfare.core.errors import ConfigError, DataError
from wayfare.io.folders import pictures_below
from wayfare.io.images import decode
from wayfare.io.pictures import Skipped
from wayfare.scenes import detections
from wayfare.scenes.boxes import Boxes, LabelledBox
from wayfare.scenes.data import psg
from wayfare.scenes.data.scene_graphs import SceneGraphs

_JSON = (".json", ".json.gz")
DETECTIONS = "detections.json"  # beside the psg.json that `wayfare detect` writes


class FoundObjects(NamedTuple):
    """What a detector found in a picture."""

    boxes: Sequence[LabelledBox]
    segments: np.ndarray | None = None  # int32 (H, W): places among the boxes; -1 for none


Find = Callable[[np.ndarray], FoundObjects]  # the objects of a picture, uint8 RGB
ReadPhoto = Callable[[Path], np.ndarray]


@dataclass(frozen=True)
class ObservedPicture:
    """A picture and the objects in it."""

    file: Path  # the photo, or where it would be if an annotation has none
    image_id: str  # in the annotation; "" for a photo
    size: tuple[int, int]  # width, height
    labels: Sequence[str]
    boxes: np.ndarray  # float32 (K, 4): inside the picture
    scores: np.ndarray  # float32 (K,)
    areas: np.ndarray  # int64 (K,): pixels of the segment; -1 where it is not known
    pixels: np.ndarray | None = None  # uint8 RGB; None where there is no photo
    segments: np.ndarray | None = None  # int32 (H, W): places among the objects; -1 for none
    notes: tuple[str, ...] = ()  # what was unusual and has been corrected


@dataclass(frozen=True)
class GraphInput:
    """Something to make a graph of: `open` reads it, and raises a DataError if it cannot be used."""

    name: str
    open: Callable[[], ObservedPicture]
    photo: bool  # and not a picture of an annotation


def graph_inputs(
    paths: Sequence[Path],
    boxes: Boxes | None,
    images: Sequence[str],
    most: int,
    find: Callable[[], Find],
    *,
    read: ReadPhoto = decode,
) -> tuple[list[GraphInput], list[Skipped], list[str]]:
    """The pictures below some paths, what was skipped, and notes for the user.

    `images` are ids or files' names of pictures in annotations, all others of which are left out; `most` is how many of
    an annotation are taken; `find` makes the detector, and is called when it is first needed.
    """
    pictures: list[GraphInput] = []
    skipped: list[Skipped] = []
    notes: list[str] = []
    annotated = False
    for path in dict.fromkeys(paths):
        if boxes is None and _annotation(path):
            graphs = psg.load(path)
            if graphs.problems.count:
                notes.append(f"{graphs.problems.count:,} problems in {path}: see `wayfare data check {path}`")
            chosen = _chosen(graphs, path, images)
            if len(chosen) > most and not images:
                notes.append(
                    f"{path} has {len(chosen):,} pictures: these are the first {most:,}; name others with --image ID, "
                    "or take more with --most N"
                )
            scores = _scores(graphs)
            pictures += [_of_annotation(graphs, index, scores) for index in chosen[: None if images else most]]
            annotated = True
            continue
        files = [path / name for name in pictures_below(path)] if path.is_dir() else [path]
        skipped += [] if files else [Skipped(str(path), "no JPEG, PNG or WebP pictures and no psg.json in this folder")]
        pictures += [_photo(file, boxes, find, read) for file in files]
    if images and not annotated:
        raise ConfigError("--image selects pictures of a psg.json, but none is given: give photos by their paths")
    return pictures, skipped, notes


def _annotation(path: Path) -> bool:
    if path.is_dir():
        return psg.recognises(path)
    if not path.is_file() or not path.name.lower().endswith(_JSON):
        return False
    if not psg.recognises(path):
        remedy = "give boxes of photos with --boxes FILE, in addition to the photos"
        raise DataError("a JSON file, but not scene graphs in psg.json form", path, remedy=remedy)
    return True


# ---- Pictures of an annotation


def _chosen(graphs: SceneGraphs, path: Path, images: Sequence[str]) -> list[int]:
    """The pictures named by an id or a file's name; all if none is."""
    if not images:
        return list(range(len(graphs)))
    places: dict[str, int] = {}
    for index, (image_id, file) in enumerate(zip(graphs.image_ids.tolist(), graphs.files.tolist())):
        for name in (image_id, file, Path(file).name, Path(file).stem):
            places.setdefault(name, index)
    for image in images:
        if image not in places:
            near = get_close_matches(image, places, n=1, cutoff=0.7)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(graphs.image_ids[:3].tolist())}, ..."
            raise ConfigError(f"--image {image}: no picture of {path} has this id or name; {hint}")
    return list(dict.fromkeys(places[image] for image in images))


def _scores(graphs: SceneGraphs) -> np.ndarray:
    """float32 (N,): what `wayfare detect` wrote beside the objects that it found; 1 for annotated ones."""
    file = graphs.root / DETECTIONS
    if file.is_file():
        found = detections.read(file, graphs)
        if np.array_equal(found.found.labels, graphs.labels):
            return found.scores
    return np.ones(len(graphs.labels), np.float32)


def _of_annotation(graphs: SceneGraphs, index: int, scores: np.ndarray) -> GraphInput:
    file = graphs.picture(index)
    named = file or graphs.root / (graphs.files[index] or graphs.image_ids[index])

    def opened() -> ObservedPicture:
        graph, notes = graphs[index], []
        pixels = decode(file) if file is not None else None
        size = graph.size[::-1]
        if pixels is not None:
            if any(size) and size != pixels.shape[1::-1]:
                found = f"{pixels.shape[1]} x {pixels.shape[0]} pixels"
                raise DataError(f"{found}, the annotation says {size[0]} x {size[1]}", file)
            size = (pixels.shape[1], pixels.shape[0])
        if not all(size):
            reach = np.ceil(graph.boxes.max(0, initial=1))
            size = (int(reach[2]), int(reach[3]))
            notes.append("its size is not stated: as far as its objects reach")
        segments = None
        if graphs.panoptic(index) is not None:
            try:
                segments = graphs.segments(index)
            except DataError as error:
                notes.append(f"boxes are drawn in place of segments: {error}")
            if segments is not None and segments.shape != size[::-1]:
                segments = None
                notes.append("boxes are drawn in place of segments: the panoptic picture has another size")
        objects = slice(graphs.object_offsets[index], graphs.object_offsets[index + 1])
        return ObservedPicture(
            file=named,
            image_id=graph.image_id,
            size=size,
            labels=[graphs.classes[label] for label in graph.labels],
            boxes=graph.boxes,
            scores=scores[objects],
            areas=graphs.areas[objects],
            pixels=pixels,
            segments=segments,
            notes=tuple(notes),
        )

    return GraphInput(str(named), opened, photo=False)


# ---- Photos


def _photo(file: Path, boxes: Boxes | None, find: Callable[[], Find], read: ReadPhoto) -> GraphInput:
    def opened() -> ObservedPicture:
        if not file.exists():
            near = get_close_matches(file.name, _names(file.parent), n=1)
            raise DataError("no such file" + (f"; did you mean {file.parent / near[0]}?" if near else ""), file)
        pixels = read(file)
        if boxes is None:
            return _observed(file, pixels, find()(pixels), noted=False)
        own = boxes.of(file)
        if own is None:
            raise DataError(f"no boxes for it in {boxes.file}", file)
        return _observed(file, pixels, FoundObjects(own), noted=True)

    return GraphInput(str(file), opened, photo=True)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def _observed(file: Path, pixels: np.ndarray, objects: FoundObjects, noted: bool) -> ObservedPicture:
    """Clip boxes at the picture's edges and leave out those entirely outside; with `noted`, add notes about them."""
    size, found = (pixels.shape[1], pixels.shape[0]), objects.boxes
    boxes = np.array([one.box for one in found], np.float64).reshape(-1, 4)
    inside = boxes.clip(0, np.array([*size, *size]))
    fits = (inside[:, 2] > inside[:, 0]) & (inside[:, 3] > inside[:, 1])
    notes = []
    if outside := [one.label for one, kept in zip(found, fits) if not kept]:
        notes.append(f"left out, outside the picture of {size[0]} x {size[1]}: {', '.join(outside[:8])}")
    cut = (np.abs(inside - boxes).max(1, initial=0) > 1) & fits  # rounding is not reported
    if cut.any():
        notes.append(f"cut at the picture's edge: {', '.join(found[place].label for place in np.flatnonzero(cut)[:8])}")
    kept = [one for one, inside_it in zip(found, fits) if inside_it]
    return ObservedPicture(
        file=file,
        image_id="",
        size=size,
        labels=[one.label for one in kept],
        boxes=inside[fits].astype(np.float32),
        scores=np.array([one.score for one in kept], np.float32),
        areas=np.full(len(kept), -1, np.int64),
        pixels=pixels,
        segments=objects.segments if fits.all() else None,
        notes=tuple(notes) if noted else (),
    )
