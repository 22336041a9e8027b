"""What a sample means, as numbers: the category tensor of the federated scene-graph benchmark (its Sec. 3.1).

Whatever is said of a sample falls into a cell of a tensor with one axis for each kind of label: a relation of a scene
graph has a subject, an object and a predicate, a tag only itself. A sample is its counts in all cells, laid flat.

    categories(graphs, groups)                      scene graphs: 13 x 13 x 7 counts with PSG's super-classes
    categories(attributes, drop=("Smiling",))       a table of attributes: -1 and 1
    categories(photos)                              tags: a bag of words
    categories.register(MyAnnotations)(function)    data of your own: a function that gives `Categories`, for which
                                                    `count` makes a tensor of any order
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from itertools import product
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from wayfare.data.celeba import Attributes
from wayfare.data.mirflickr import TaggedPhotos
from wayfare.data.scene_graphs import SceneGraphs
from wayfare.data.super_classes import SuperClasses
from wayfare.errors import ConfigError, DataError, unknown

MOST_CELLS = 50_000
Part = Literal["subject", "object", "predicate"]
_SPOKEN = ("subject", "predicate", "object")  # the order in which a triplet is read


class Level(NamedTuple):
    """One kind of label, counted in every sample: by which to see how different clients are."""

    counts: np.ndarray  # float32 (N, L)
    names: tuple[str, ...]  # L


@dataclass(frozen=True)
class Categories:
    """The category tensors of N samples."""

    values: np.ndarray  # float32 (N, D)
    names: tuple[str, ...]  # of the D cells, to be read
    axes: tuple[tuple[str, ...], ...] = ()  # the tensor's axes, D cells in all; () where the cells are just a row
    levels: Mapping[str, Level] = field(default_factory=dict)

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
def _(annotations: np.ndarray) -> Categories:
    """Numbers as they are: a tensor for each sample, its cells without names."""
    if annotations.ndim < 2 or annotations.dtype.kind not in "biuf":
        found = f"{annotations.dtype} of shape {annotations.shape}"
        raise ConfigError(f"categories must be numbers, a row or a tensor for each sample; found {found}")
    flat = annotations.reshape(len(annotations), math.prod(annotations.shape[1:])).astype(np.float32)
    return Categories(flat, tuple(f"cell {k}" for k in range(flat.shape[1])))


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
    chosen = [names[part] for part in axes]
    return count(len(annotations), image, np.stack([places[part] for part in axes], -1), chosen, spoken, levels)


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
    return Categories(np.where(values, np.float32(1), np.float32(-1)), names, (names,), {"attribute": whole})


@categories.register
def _(annotations: TaggedPhotos) -> Categories:
    """1 for a tag that is under a photograph."""
    photo = np.repeat(np.arange(len(annotations)), np.diff(annotations.tag_offsets))
    level = {"tag": _level(len(annotations), photo, annotations.tags, annotations.vocabulary)}
    return count(len(annotations), photo, annotations.tags[:, None], [annotations.vocabulary], levels=level)


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
    """
    shape = tuple(len(axis) for axis in axes)
    cells = math.prod(shape)
    sample, places = np.asarray(sample), np.asarray(places)
    if not shape or not 0 < cells <= MOST_CELLS:
        raise ConfigError(
            f"a category tensor of {' x '.join(map(str, shape)) or 'no'} cells, at most {MOST_CELLS} are possible; "
            "put labels together into super-classes, or use fewer axes"
        )
    if places.shape != (len(sample), len(shape)):
        raise DataError(f"places of shape {places.shape}: expected {(len(sample), len(shape))}, a place on each axis")
    outside = ((places < 0) | (places >= shape)).any(axis=1) | (sample < 0) | (sample >= samples)
    if outside.any():
        first = int(outside.argmax())
        raise DataError(
            f"remark {first} is of sample {sample[first]} at {places[first].tolist()}; "
            f"there are {samples} samples and {list(shape)} places on the axes"
        )
    values = np.zeros((samples, cells), np.float32)
    np.add.at(values, (sample, np.ravel_multi_index(tuple(places.T), shape)), np.float32(1))
    order = range(len(shape)) if spoken is None else spoken
    names = tuple(" - ".join(cell[axis] for axis in order) for cell in product(*axes))
    return Categories(values, names, tuple(map(tuple, axes)), levels or {})


def _level(samples: int, sample: np.ndarray, label: np.ndarray, names: Sequence[str]) -> Level:
    counts = np.zeros((samples, len(names)), np.float32)
    np.add.at(counts, (sample, label), np.float32(1))
    return Level(counts, tuple(names))
