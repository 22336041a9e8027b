"""What a sample means, as numbers: the category tensor of the federated scene-graph benchmark (its Sec. 3.1).

Whatever is said of a sample falls into a cell of a tensor with one axis for each kind of label: a relation of a scene
graph has a subject, an object and a predicate, a tag only itself. A sample is its counts in all cells, laid flat.

    categories(graphs, groups)                      scene graphs: 13 x 13 x 7 counts with PSG's super-classes
    categories(attributes, drop=("Smiling",))       a table of attributes: -1 and 1
    categories(photos)                              tags: a bag of words
    categories(table, names=("dog", "snow"))        a plain array: labels of which a sample may have several, say
    categories.register(MyAnnotations)(function)    data of your own: a function that gives `Categories`, for which
                                                    `count` makes a tensor of any order

A task can be split by them if it has them, or any of the above, as its `categories`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, singledispatch
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from wayfare.data.celeba import Attributes
from wayfare.data.mirflickr import TaggedPhotos
from wayfare.data.scene_graphs import SceneGraphs
from wayfare.data.super_classes import SuperClasses
from wayfare.errors import ConfigError, DataError, unknown

MOST_CELLS = 50_000  # of a whole tensor; of a larger one only the cells that occur are kept
MOST_VALUES = 2**28  # cells x samples: 1 GiB
Part = Literal["subject", "object", "predicate"]
_SPOKEN = ("subject", "predicate", "object")  # the order in which a triplet is read


class Level(NamedTuple):
    """One kind of label, counted in every sample: by which to see how different clients are."""

    counts: np.ndarray  # float32 (N, L)
    names: tuple[str, ...]  # L


class Drawing(NamedTuple):
    """A scene graph to be drawn."""

    size: tuple[float, float]  # height, width
    names: tuple[str, ...]  # of the objects
    boxes: tuple[tuple[float, ...], ...]  # x1, y1, x2, y2 of each
    relations: tuple[tuple[int, str, int], ...]  # subject, predicate, object


class Example(NamedTuple):
    """One sample, to be looked at."""

    id: str  # what its file or its annotation calls it
    words: tuple[str, ...] = ()  # what is said of it
    picture: Path | None = None  # where there is one
    drawing: Drawing | None = None


@dataclass(frozen=True)
class Categories:
    """The category tensors of N samples."""

    values: np.ndarray  # float32 (N, D)
    names: tuple[str, ...]  # of the D cells, to be read
    axes: tuple[tuple[str, ...], ...] = ()  # the tensor's axes, D cells in all; () where the cells are just a row
    levels: Mapping[str, Level] = field(default_factory=dict)
    said: str = "remarks"  # what is counted by a sample's cells: its relations, its tags
    example: Callable[[int], Example] | None = None  # what there is to see of a sample

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.dtype != np.float32 or not np.isfinite(self.values).all():
            found = f"{self.values.dtype} of shape {self.values.shape}"
            raise DataError(f"categories must be finite float32 numbers, a row for each sample; found {found}")
        cells = {"names": len(self.names)} | ({"axes": math.prod(map(len, self.axes))} if self.axes else {})
        for what, number in cells.items():
            if number != self.values.shape[1]:
                raise DataError(f"categories have {self.values.shape[1]} cells, but {what} for {number}")
        for name, level in self.levels.items():
            if level.counts.shape != (len(self), len(level.names)):
                wanted = (len(self), len(level.names))
                raise DataError(f"the level {name!r} has counts of shape {level.counts.shape}, expected {wanted}")

    def __len__(self) -> int:
        return len(self.values)


@singledispatch
def categories(annotations: Any, **settings: Any) -> Categories:
    """The category tensors of a data set's annotations: see the top of this module."""
    known = ", ".join(sorted(kind.__name__ for kind in categories.registry if kind is not object))
    raise ConfigError(
        f"no category tensor is known for {type(annotations).__name__}, only for {known}; "
        "register a function of your own with categories.register"
    )


@categories.register
def _(annotations: Categories) -> Categories:
    return annotations


@categories.register(np.ndarray)
def _(annotations: np.ndarray, names: Sequence[str] = ()) -> Categories:
    """Numbers as they are, a row or a tensor for each sample. With `names` of a row's places these are a level too."""
    if annotations.ndim < 2 or annotations.dtype.kind not in "biuf":
        found = f"{annotations.dtype} of shape {annotations.shape}"
        raise ConfigError(f"categories must be numbers, a row or a tensor for each sample; found {found}")
    flat = annotations.reshape(len(annotations), math.prod(annotations.shape[1:])).astype(np.float32)
    if not names:
        return Categories(flat, tuple(f"cell {k}" for k in range(flat.shape[1])))
    if (flat < 0).any():
        raise ConfigError("categories with names are counts or yes and no: none may be below 0")
    return Categories(flat, tuple(names), (tuple(names),), {"label": Level(flat, tuple(names))}, "labels")


@categories.register
def _(
    annotations: SceneGraphs,
    groups: SuperClasses | None = None,
    axes: Sequence[Part] = ("subject", "object", "predicate"),
) -> Categories:
    """Counts of relations (repeated ones count again), by the groups of their parts, or by their own classes."""
    if strange := set(axes) - set(get_args(Part)):
        raise unknown("axis", min(strange), get_args(Part), "categories of scene graphs")
    if not axes or len(set(axes)) != len(axes):
        raise ConfigError(f"categories of scene graphs: axes must be different ones of {', '.join(get_args(Part))}")
    image, relations = annotations.relation_images, annotations.relations
    ends = annotations.labels[relations[:, :2] + annotations.object_offsets[image][:, None]]
    places: dict[str, np.ndarray] = {"subject": ends[:, 0], "object": ends[:, 1], "predicate": relations[:, 2]}
    names = {"subject": annotations.classes, "object": annotations.classes, "predicate": annotations.predicates}
    if groups is not None:
        for part in ("subject", "object"):
            places[part], names[part] = groups.object_of[places[part]], groups.objects
        places["predicate"], names["predicate"] = groups.predicate_of[places["predicate"]], groups.predicates
    spoken = [axes.index(part) for part in _SPOKEN if part in axes]
    levels = {
        "predicate": _level(len(annotations), image, relations[:, 2], annotations.predicates),
        "object": _level(len(annotations), annotations.object_images, annotations.labels, annotations.classes),
    }
    where, chosen = np.stack([places[part] for part in axes], -1), [names[part] for part in axes]
    found = count(len(annotations), image, where, chosen, spoken, levels)
    return replace(found, said="relations", example=partial(_scene, annotations))


def _scene(graphs: SceneGraphs, row: int) -> Example:
    graph = graphs[row]
    # PSG's sky-other-merged and grass-merged are sky and grass to a reader
    names = tuple(graphs.classes[k].removesuffix("-merged").removesuffix("-other") for k in graph.labels)
    relations = tuple(dict.fromkeys((s, graphs.predicates[p], o) for s, o, p in graph.relations.tolist()))
    words = tuple(dict.fromkeys(f"{names[s]} {predicate} {names[o]}" for s, predicate, o in relations))
    height, width = graph.size if all(graph.size) else graph.boxes[:, 3:1:-1].max(axis=0, initial=1).tolist()
    boxes = tuple(map(tuple, graph.boxes.tolist()))
    return Example(
        graph.image_id, words, graphs.picture(row), Drawing((float(height), float(width)), names, boxes, relations)
    )


@categories.register
def _(annotations: Attributes, drop: Collection[str] = ()) -> Categories:
    """1 for an attribute that a picture has, -1 for one it has not. Drop the one that is to be learnt: with it among
    the others, clusters are nearly pure in it."""
    for name in drop:
        annotations.column(name)  # raises where there is none of this name
    kept = [place for place, name in enumerate(annotations.names) if name not in drop]
    if not kept:
        raise ConfigError("categories of attributes: all of them are dropped; keep at least one")
    values = annotations.values[:, kept]
    names = tuple(annotations.names[place] for place in kept)
    whole = Level(annotations.values.astype(np.float32), annotations.names)
    signs = np.where(values, np.float32(1), np.float32(-1))
    show = partial(_portrait, annotations)
    return Categories(signs, names, (names,), {"attribute": whole}, "attributes", show)


def _portrait(attributes: Attributes, row: int) -> Example:
    words = tuple(name for name, there in zip(attributes.names, attributes.values[row]) if there)
    file = None if attributes.folder is None else attributes.folder / str(attributes.files[row])
    return Example(str(attributes.files[row]), words, file if file is not None and file.is_file() else None)


@categories.register
def _(annotations: TaggedPhotos) -> Categories:
    """1 for a tag that is under a photograph."""
    photo = np.repeat(np.arange(len(annotations)), np.diff(annotations.tag_offsets))
    level = {"tag": _level(len(annotations), photo, annotations.tags, annotations.vocabulary)}
    found = count(len(annotations), photo, annotations.tags[:, None], [annotations.vocabulary], levels=level)
    return replace(found, said="tags", example=partial(_tagged, annotations))


def _tagged(photos: TaggedPhotos, row: int) -> Example:
    words = tuple(photos.vocabulary[tag] for tag in photos.tags[photos.tag_offsets[row] : photos.tag_offsets[row + 1]])
    return Example(str(photos.files[row]), words, photos.path(row) if photos.path(row).is_file() else None)


def count(
    samples: int,
    sample: np.ndarray,
    places: np.ndarray,
    axes: Sequence[Sequence[str]],
    spoken: Sequence[int] | None = None,
    levels: Mapping[str, Level] | None = None,
) -> Categories:
    """Categories from what is said of `samples` samples: the r-th remark is about sample[r], at places[r] on the axes.

    `axes` names what there is on each axis; `spoken` is the order in which a cell's names are read, if not theirs.
    A tensor of very many cells becomes a row of those in which there is something.
    """
    shape = tuple(len(axis) for axis in axes)
    cells = math.prod(shape)
    sample, places = np.asarray(sample), np.asarray(places)
    if not shape or not cells:
        raise ConfigError("a category tensor of no cells: name what there is on each of its axes")
    if places.shape != (len(sample), len(shape)):
        raise DataError(f"places of shape {places.shape}: expected {(len(sample), len(shape))}, a place on each axis")
    outside = ((places < 0) | (places >= shape)).any(axis=1) | (sample < 0) | (sample >= samples)
    if outside.any():
        first = int(outside.argmax())
        raise DataError(
            f"remark {first} is of sample {sample[first]} at {places[first].tolist()}; "
            f"there are {samples} samples and {list(shape)} places on the axes"
        )
    order = range(len(shape)) if spoken is None else spoken
    whole = cells <= MOST_CELLS
    if whole:
        kept = np.indices(shape).reshape(len(shape), -1).T
        column = np.ravel_multi_index(tuple(places.T), shape)
    else:
        kept, column = np.unique(places, axis=0, return_inverse=True)
    if samples * len(kept) > MOST_VALUES:
        size, most = (4 * values / 1e9 for values in (samples * len(kept), MOST_VALUES))
        raise ConfigError(
            f"a category tensor of {' x '.join(map(str, shape))} = {cells:,} cells, {len(kept):,} of them used by "
            f"{samples:,} samples, would take {size:.2f} GB, at most {most:.2f} GB are possible; put labels together "
            "into super-classes, or use fewer axes"
        )
    values = np.zeros((samples, len(kept)), np.float32)
    np.add.at(values, (sample, column.reshape(-1)), np.float32(1))
    names = tuple(" - ".join(axes[axis][cell[axis]] for axis in order) for cell in kept.tolist())
    return Categories(values, names, tuple(map(tuple, axes)) if whole else (), levels or {})


def _level(samples: int, sample: np.ndarray, label: np.ndarray, names: Sequence[str]) -> Level:
    counts = np.zeros((samples, len(names)), np.float32)
    np.add.at(counts, (sample, label), np.float32(1))
    return Level(counts, tuple(names))
