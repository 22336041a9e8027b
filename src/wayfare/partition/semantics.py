"""The meaning of a sample as numbers: the category tensor of the federated scene-graph benchmark (its Sec. 3.1).

Each label of a sample is counted in a cell of a tensor with one axis for each kind of label: a relation of a scene
graph has a subject, an object and a predicate, a tag only one axis. A sample is represented by its flattened counts.

    scenes/categories.py                            scene graphs: 13 x 13 x 7 counts with PSG's super-classes
    attributes/categories.py                        a table of attributes: -1 and 1
    as_categories(table, names=("dog", "snow"))     a plain array, for example of multi-label data
    count(...)                                      data of your own: a tensor of any order from a list of labels

A task can be split by them if "categories" is among its `sources` and `source("categories")` returns them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wayfare.core.errors import ConfigError, DataError

MOST_CELLS = 50_000  # of a whole tensor; of a larger one only the cells that occur are kept
MOST_VALUES = 2**28  # cells x samples: 1 GiB


class Level(NamedTuple):
    """Counts of one kind of label in every sample, to measure how different clients are."""

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
    words: tuple[str, ...] = ()  # its labels in words
    picture: Path | None = None  # where there is one
    drawing: Drawing | None = None


@dataclass(frozen=True)
class Categories:
    """The category tensors of N samples."""

    values: np.ndarray  # float32 (N, D)
    names: tuple[str, ...]  # of the D cells, to be read
    axes: tuple[tuple[str, ...], ...] = ()  # the tensor's axes, D cells in all; () where the cells are just a row
    levels: Mapping[str, Level] = field(default_factory=dict)
    unit: str = "labels"  # what a sample's cells count: its relations, its tags
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


def as_categories(annotations: Categories | np.ndarray, names: Sequence[str] = ()) -> Categories:
    """A plain array, a row or a tensor for each sample, as categories; with `names` of the columns also as a level."""
    if isinstance(annotations, Categories):
        return annotations
    if annotations.ndim < 2 or annotations.dtype.kind not in "biuf":
        found = f"{annotations.dtype} of shape {annotations.shape}"
        raise ConfigError(f"categories must be numbers, a row or a tensor for each sample; found {found}")
    flat = annotations.reshape(len(annotations), math.prod(annotations.shape[1:])).astype(np.float32)
    if not names:
        return Categories(flat, tuple(f"cell {k}" for k in range(flat.shape[1])))
    if (flat < 0).any():
        raise ConfigError("categories with names are counts or yes and no: none may be below 0")
    return Categories(flat, tuple(names), (tuple(names),), {"label": Level(flat, tuple(names))}, "labels")


def count(
    samples: int,
    sample: np.ndarray,
    places: np.ndarray,
    axes: Sequence[Sequence[str]],
    spoken: Sequence[int] | None = None,
    levels: Mapping[str, Level] | None = None,
) -> Categories:
    """Categories from a list of labels: the r-th label belongs to sample[r] and lies at places[r] on the axes.

    `axes` names the values on each axis; `spoken` is the order in which a cell's names are joined, by default that of
    the axes. Of a tensor with very many cells only those that occur are kept.
    """
    shape = tuple(len(axis) for axis in axes)
    cells = math.prod(shape)
    sample, places = np.asarray(sample), np.asarray(places)
    if not shape or not cells:
        raise ConfigError("a category tensor without cells: name the values on each of its axes")
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


def level_of(samples: int, sample: np.ndarray, label: np.ndarray, names: Sequence[str]) -> Level:
    counts = np.zeros((samples, len(names)), np.float32)
    np.add.at(counts, (sample, label), np.float32(1))
    return Level(counts, tuple(names))
