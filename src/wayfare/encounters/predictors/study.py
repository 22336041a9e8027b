"""The study of merged models (FedTour, Sect. IV-A): many models of differing quality, and the mean of every two.

The paper trains 231 models: 66 "diverse combinations" of small (0-1000), medium (1001-3000) and large (3001-5000)
numbers of pictures of 10 classes, three data sets for each, and 33 data sets with only 0-10 or 11-100 pictures of a
class. It does not say which combinations. But 10 classes can be divided over three sizes in exactly 66 ways if it only
matters how many classes get which, and over two sizes in 11 ways, 33 data sets of three each: so that is the rule here,
and which classes they are is drawn.

During a tour devices also have models that are none of these: the base model, and means of several. So the regressor
is also fitted to merges of the base and of means of two, four and eight models (`Study.further`), which the paper's
numbers of pairs do not count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wayfare.core import disk
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError, DataError, StoreError
from wayfare.core.exchange import Laboratory
from wayfare.encounters.predictors import FEWEST

MODELS = 231  # the paper's
PAPER_IMPROVING = 37_315 / 53_361
_SETS = 3  # data sets for each combination
_POOR = 1 / 7  # of all data sets: 33 of 231
_SIZES = (0.2, 0.6, 1.0)  # small, medium and large end at these shares of a class: 1000, 3000 and 5000 of 5000
_POOR_SIZES = ((0.002, 2), (0.02, 10))  # 10 and 100 of 5000; where there is little data, at least so many

_MEANS = 1 / 4  # of the models: so many means are studied too
_MEMBERS = (2, 4, 8)  # models in a mean
_PARTNERS = 24  # models that each mean is merged with

Say = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Study:
    """How good each model is, and the mean of each two of them."""

    matrix: np.ndarray  # (models, models) accuracies of the means, symmetric; the diagonal is the models themselves
    counts: np.ndarray  # (models, classes) pictures that each was trained on
    about: dict[str, Any] = field(default_factory=dict)  # where it comes from
    # (merges, 3) own accuracy, the peer's, and of the mean of both: where one is the base or a mean of models
    further: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))

    def __post_init__(self) -> None:
        rows = self.further
        if rows.ndim != 2 or rows.shape[1] != 3 or not (np.isfinite(rows) & (rows >= 0) & (rows <= 1)).all():
            raise DataError("further merges of a study are rows of three accuracies from 0 to 1")
        models = len(self.matrix)
        if self.matrix.shape != (models, models) or self.counts.ndim != 2 or len(self.counts) != models:
            raise DataError(
                f"a study of n models has a matrix (n, n) and counts (n, classes), not {self.matrix.shape} and "
                f"{self.counts.shape}"
            )
        good = np.isfinite(self.matrix) & (self.matrix >= 0) & (self.matrix <= 1)
        if not models or not good.all() or not (self.matrix == self.matrix.T).all():
            raise DataError("the matrix of a study holds accuracies from 0 to 1, the same in both orders of a pair")

    @property
    def accuracy(self) -> np.ndarray:
        """Of each model by itself, (models,)."""
        return np.diagonal(self.matrix)

    @property
    def change(self) -> np.ndarray:
        """What model i (row) gains by merging with model j (column)."""
        gained: np.ndarray = self.matrix - self.accuracy[:, None]
        return gained

    @property
    def improving(self) -> float:
        """The share of all ordered pairs, also of each model with itself as in the paper, that improve the first."""
        return float((self.change > 0).mean())

    @property
    def better_than_both(self) -> float:
        """The share of all ordered pairs whose mean is better than either."""
        return float((self.matrix > np.maximum(self.accuracy[:, None], self.accuracy)).mean())

    @property
    def reach(self) -> tuple[float, float]:
        """The lowest and the highest accuracy of a model that was merged."""
        both = np.concatenate([self.accuracy, self.further[:, :2].ravel()])
        return float(both.min()), float(both.max())

    @property
    def distinct(self) -> int:
        """Pairs of two different models, in one order: so many means were judged."""
        return len(self.matrix) * (len(self.matrix) - 1) // 2


def study(laboratory: Laboratory, models: int = MODELS, about: dict[str, Any] | None = None) -> Study:
    """Train that many models on data sets of the paper's kind, and judge the mean of every two."""
    labels, classes = np.asarray(laboratory.labels), laboratory.classes
    counts = draw_counts(models, np.bincount(labels, minlength=classes), laboratory.rng("study counts"))
    rng = laboratory.rng("study samples")
    of_class = [np.flatnonzero(labels == c) for c in range(classes)]
    sets = [
        np.sort(np.concatenate([rng.choice(of_class[c], n, replace=False) for c, n in enumerate(row)]))
        for row in counts
    ]  # fmt: skip
    trained = laboratory.train(sets)
    first, second = np.triu_indices(models)
    matrix = np.empty((models, models))
    matrix[first, second] = laboratory.merged(trained, np.stack((first, second), 1))
    matrix[second, first] = matrix[first, second]
    further = _further(laboratory, trained, np.diagonal(matrix))
    origin = {"key": laboratory.key, "models": models, "pictures": len(labels), "wayfare": version("wayfare")}
    return Study(matrix, counts, origin | (about or {}), further)


def _further(laboratory: Laboratory, trained: Sequence[Any], accuracy: np.ndarray) -> np.ndarray:
    """Merges of the base with every model, and of means of several with some models and with each other."""
    rng, count = laboratory.rng("study means"), len(trained)
    means = max(_MEMBERS[0], round(count * _MEANS))
    sizes = [min(_MEMBERS[i % len(_MEMBERS)], count) for i in range(means)]
    groups = [np.sort(rng.choice(count, size, replace=False)) for size in sizes]
    [base] = laboratory.train([np.empty(0, np.int64)])
    others = [base, *laboratory.mixed(trained, groups)]
    place = count + np.arange(len(others))
    partners = [np.arange(count)] + [rng.choice(count, min(_PARTNERS, count), replace=False) for _ in groups]
    pairs = [np.stack(np.broadcast_arrays(one, with_), 1) for one, with_ in zip(place, partners)]
    own, peer = np.triu_indices(len(others))
    chosen = np.concatenate([*pairs, np.stack((place[own], place[peer]), 1)])
    merged = laboratory.merged([*trained, *others], chosen)
    alone = np.concatenate([accuracy, merged[len(merged) - len(own) :][own == peer]])
    rows = np.column_stack([alone[chosen], merged])[chosen[:, 0] != chosen[:, 1]]
    return np.concatenate([rows, rows[:, [1, 0, 2]]])


def draw_counts(models: int, available: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How many pictures of each class each data set gets, (models, classes): the rich first, then the poor."""
    if models < FEWEST:
        raise ConfigError(f"a study of {models} models: at least {FEWEST} are needed, the paper has {MODELS}")
    if not available.sum():
        raise ConfigError(
            "a study needs pictures to train on, and the laboratory has none: set topology.public to their number, or "
            "give the policy a file that `wayfare study` wrote"
        )
    poor = round(models * _POOR)
    small, medium, large = (np.rint(share * available).astype(np.int64) for share in _SIZES)
    few, some = (np.minimum(np.maximum(np.rint(s * available), n), available).astype(np.int64) for s, n in _POOR_SIZES)
    none = np.full(len(available), -1)  # the first size begins at 0
    rich = _draw(models - poor, np.stack((none, small, medium, large)), rng)
    return np.concatenate((rich, _draw(poor, np.stack((none, few, some)), rng)))


def _draw(sets: int, ends: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Counts between the ends of the sizes (rows), for combinations of sizes with three data sets each."""
    sizes, classes = len(ends) - 1, ends.shape[1]
    ways = divisions(classes, sizes)
    combinations = -(-sets // _SETS)
    last = len(ways) - 1
    spread = np.rint(np.linspace(0, last, combinations) if combinations > 1 else [last / 2]).astype(np.int64)
    chosen = [rng.permutation(np.repeat(np.arange(sizes), ways[way])) for way in spread]
    size = np.array([chosen[number // _SETS] for number in range(sets)], np.int64).reshape(sets, classes)
    columns = np.arange(classes)
    high = ends[size + 1, columns]
    return rng.integers(np.minimum(ends[size, columns] + 1, high), high + 1)


def divisions(classes: int, sizes: int) -> np.ndarray:
    """Every way to say how many classes are of which size, from all of the first to all of the last."""
    if sizes == 1:
        return np.array([[classes]])
    bars = np.stack(np.meshgrid(*[np.arange(classes + 1)] * (sizes - 1), indexing="ij"), -1).reshape(-1, sizes - 1)
    ways = np.stack([*bars.T, classes - bars.sum(1)], 1)
    ways = ways[ways[:, -1] >= 0]
    return ways[np.lexsort((*ways.T, ways @ np.arange(sizes)))]


# ---- files


def pack(study: Study) -> Bundle:
    """The study as a bundle, to be written."""
    named = {"matrix": study.matrix, "counts": study.counts, "further": study.further}
    arrays = {name: torch.from_numpy(np.array(array)) for name, array in named.items()}
    return Bundle({"study": arrays}, {"about": json.dumps(study.about, sort_keys=True)})


def unpack(bundle: Bundle) -> Study:
    """Read what `pack` made; DataError says what is wrong with anything else."""
    try:
        about = json.loads(str(bundle.values["about"]))
        arrays = {name: bundle["study"][name].numpy() for name in ("matrix", "counts", "further")}
        if not isinstance(about, dict):
            raise TypeError(f"about is {about!r}")
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise DataError(f"does not hold a study: {type(error).__name__} {error}") from error
    return Study(arrays["matrix"], arrays["counts"], about, arrays["further"])


def read_bundle(path: Path) -> Bundle:
    """A study's file; whatever else it is, a DataError says so."""
    remedy = "make one with `wayfare study RECIPE --out FILE`"
    try:
        return Bundle.unpack(path.read_bytes())
    except FileNotFoundError:
        raise DataError("no such file", file=path, remedy=remedy) from None
    except (OSError, StoreError) as error:
        raise DataError(f"not a readable study: {error}", file=path, remedy=remedy) from error


def write_bundle(bundle: Bundle, path: Path) -> Path:
    """One safetensors file, whole or not at all."""
    disk.write(path, bundle.pack())
    return path
