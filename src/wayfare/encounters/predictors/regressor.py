"""FedTour's regressor (Sect. IV-B): the change in my accuracy from the two accuracies alone, learnt from a study.

A support-vector regressor with an RBF kernel. Its settings are chosen by cross-validation over *models*: pairs that
share a model know of each other, and a division of pairs would flatter it. It is asked once for a grid of accuracies,
and the table is interpolated from then on, so that a phone needs 101 x 101 numbers and no library.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.exchange import Laboratory, Meeting
from wayfare.core.seeds import rng_for
from wayfare.encounters.predictors import FEWEST
from wayfare.encounters.predictors.study import Study, pack, read_bundle, study, unpack, write_bundle
from wayfare.io.cache import cache_dir, new_folder

GRID = 101
PAPER_MAPE = 0.06  # "under 6 %"; the paper does not say how it held pairs out
_FORM = 2  # raise it when the same laboratory gives other results
_PAIRS = 3000  # that the regressor is fitted to: twice as many take four times as long, and say no more
_FURTHER = 1500  # of further merges, beside them
_FEW_PAIRS = 600  # the same while its settings are chosen
_FOLDS, _INNER_FOLDS = 4, 3
_SETTINGS = tuple((c, gamma) for c in (0.3, 3.0, 30.0) for gamma in (0.1, 0.5, 2.0))
_EPSILON = 0.1  # standard deviations of the change: a smaller error is none


class Regressor:
    """A table of changes over my accuracy (rows) and the peer's (columns), both from 0 to 1."""

    def __init__(self, table: np.ndarray, low: float, high: float) -> None:
        if table.shape != (GRID, GRID) or not np.isfinite(table).all():
            raise DataError(f"a regressor's table is {GRID} x {GRID} numbers, not {table.shape}, all of them finite")
        if not 0 <= low <= high <= 1:
            raise DataError(f"a regressor's accuracies lie within 0 to 1, not from {low} to {high}")
        self.table, self.low, self.high = table, low, high

    def predict(self, mine: np.ndarray, meeting: Meeting) -> np.ndarray:
        """My accuracy after merging; NaN where the peer does not say how good it is."""
        after: np.ndarray = mine + self.change(mine, meeting.score)
        return after

    def change(self, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """By how much my accuracy would change. Beyond what it has seen it answers as at the nearest it has."""
        mine, theirs = np.broadcast_arrays(np.asarray(mine, float), np.asarray(theirs, float))
        known = np.isfinite(mine) & np.isfinite(theirs)
        pairs = np.stack((mine[known], theirs[known]))
        answer = np.full(mine.shape, np.nan)
        answer[known] = interpolated(self.table, *np.clip(pairs, self.low, self.high))
        return answer

    def is_outside(self, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """Where one of the two accuracies is outside of all that it was made from."""
        outside: np.ndarray = (np.minimum(mine, theirs) < self.low) | (np.maximum(mine, theirs) > self.high)
        return outside


def interpolated(table: np.ndarray, across: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Bilinear interpolation in a square table over [0, 1]^2; `across` is along its rows' axis."""
    last = len(table) - 1
    x, y = across * last, down * last
    i, j = (np.minimum(at.astype(np.int64), last - 1) for at in (x, y))
    x, y = x - i, y - j
    lower = table[i, j] * (1 - y) + table[i, j + 1] * y
    upper = table[i + 1, j] * (1 - y) + table[i + 1, j + 1] * y
    between: np.ndarray = lower * (1 - x) + upper * x
    return between


@dataclass(frozen=True)
class Quality:
    """How well accuracies of merged models are predicted, as mean absolute percentage errors (shares, not percent)."""

    mape: float  # of pairs of which neither model was seen in training
    mape_by_pair: float  # of pairs held out by themselves: leaks, because their models were seen with others
    unchanged: float  # of saying that nothing changes, on the same pairs as the first
    settings: dict[str, float]  # C, gamma, epsilon
    truth: np.ndarray = field(repr=False)  # held-out merged accuracies, by model, and what was predicted for them
    predicted: np.ndarray = field(repr=False)


def mape(truth: np.ndarray, predicted: np.ndarray) -> float:
    """The mean absolute percentage error, as a share; of a truth of 0 there is none, and it is left out."""
    some = truth > 0
    return float(np.mean(np.abs(predicted[some] - truth[some]) / truth[some])) if some.any() else float("nan")


# ---- learning


def fit(found: Study, seed: int = 0) -> tuple[Regressor, Quality]:
    """A regressor from a study, and how good it is on models it has not seen.

    That is measured on models of the paper's kind, without the further merges; with these the regressor is fitted then.
    """
    models = len(found.matrix)
    if models < FEWEST:
        raise ConfigError(f"a regressor needs a study of at least {FEWEST} models, this one has {models}")
    everyone = np.arange(models)
    rng = rng_for(seed, "regressor")
    truth, predicted, before = [], [], []
    for train, test in _folds(models, _FOLDS, rng):
        machine = _fitted(found, _pairs(train), _choose(found, train, rng), _PAIRS, rng)
        own, merged, guess = _examined(found, machine, _pairs(test))
        before.append(own)
        truth.append(merged)
        predicted.append(guess)
    true, said, unchanged = (np.concatenate(part) for part in (truth, predicted, before))
    settings = _choose(found, everyone, rng)
    machine = _fitted(found, _pairs(everyone), settings, _PAIRS, rng, further=found.further)
    axis = np.linspace(0, 1, GRID)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    table = machine.predict(grid).reshape(GRID, GRID)
    quality = Quality(
        mape(true, said), _mape_by_pair(found, settings, rng), mape(true, unchanged),
        settings={"C": settings[0], "gamma": settings[1], "epsilon": _EPSILON}, truth=true, predicted=said,
    )  # fmt: skip
    return Regressor(table, *found.reach), quality


def _folds(models: int, count: int, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Models to learn from and models held out, by turns."""
    parts = np.array_split(rng.permutation(models), count)
    for number, held in enumerate(parts):
        yield np.sort(np.concatenate([part for i, part in enumerate(parts) if i != number])), np.sort(held)


def _pairs(models: np.ndarray) -> np.ndarray:
    """All ordered pairs of these models, each with itself too, as the paper counts them."""
    return np.stack(np.meshgrid(models, models, indexing="ij"), -1).reshape(-1, 2)


def _choose(found: Study, models: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """C and gamma, by cross-validation over these models."""
    folds = [(models[train], models[test]) for train, test in _folds(len(models), _INNER_FOLDS, rng)]
    sampled = [(_some(_pairs(train), _FEW_PAIRS, rng), _some(_pairs(test), _FEW_PAIRS, rng)) for train, test in folds]
    errors = []
    for settings in _SETTINGS:
        scores = []
        for train, test in sampled:
            _, truth, said = _examined(found, _fitted(found, train, settings, _FEW_PAIRS, rng), test)
            scores.append(mape(truth, said))
        errors.append(np.mean(scores))
    return _SETTINGS[int(np.argmin(errors))]


class _ChangeRegressor:
    """A support-vector regressor of the change, with accuracies and changes brought to mean 0 and deviation 1.

    The change too: epsilon would else be larger than most changes. By hand, as sklearn's own takes longer than the fit.
    """

    def __init__(self, pairs: np.ndarray, change: np.ndarray, settings: tuple[float, float]) -> None:
        from sklearn.svm import SVR  # a second to import; only fitting needs it

        self._middle, self._width = pairs.mean(0), np.where(pairs.std(0) > 0, pairs.std(0), 1.0)
        self._mean, self._deviation = float(change.mean()), float(change.std()) or 1.0
        self._svr = SVR(kernel="rbf", C=settings[0], gamma=settings[1], epsilon=_EPSILON)
        self._svr.fit((pairs - self._middle) / self._width, (change - self._mean) / self._deviation)

    def predict(self, pairs: np.ndarray) -> np.ndarray:
        change: np.ndarray = self._svr.predict((pairs - self._middle) / self._width) * self._deviation + self._mean
        return change


def _fitted(
    found: Study,
    pairs: np.ndarray,
    settings: tuple[float, float],
    most: int,
    rng: np.random.Generator,
    further: np.ndarray | None = None,
) -> _ChangeRegressor:
    """A regressor of these pairs, and of further merges."""
    chosen = _some(pairs, most, rng)
    both, change = found.accuracy[chosen], found.change[chosen[:, 0], chosen[:, 1]]
    if further is not None:
        rows = _some(further, _FURTHER, rng)
        both = np.concatenate([both, rows[:, :2]])
        change = np.concatenate([change, rows[:, 2] - rows[:, 0]])
    return _ChangeRegressor(both, change, settings)


def _some(pairs: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """So many of the pairs at random; all of them if they are no more."""
    return pairs if len(pairs) <= most else pairs[np.sort(rng.choice(len(pairs), most, replace=False))]


def _examined(found: Study, machine: _ChangeRegressor, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Own, true merged and predicted merged accuracies; not of a model with itself, where there is nothing to say."""
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    own = found.accuracy[pairs[:, 0]]
    return own, found.matrix[pairs[:, 0], pairs[:, 1]], own + machine.predict(found.accuracy[pairs])


def _mape_by_pair(found: Study, settings: tuple[float, float], rng: np.random.Generator) -> float:
    """What a division of pairs would say: beside the honest figure, because the paper may have meant this one."""
    pairs = rng.permutation(_pairs(np.arange(len(found.matrix))))
    cut = len(pairs) // _FOLDS
    machine = _fitted(found, pairs[cut:], settings, _PAIRS, rng)
    _, truth, said = _examined(found, machine, _some(pairs[:cut], _PAIRS, rng))
    return mape(truth, said)


# ---- files


def save(found: Study, made: Regressor, quality: Quality, path: Path) -> Path:
    """One safetensors file with the study, the table, and how good it is."""
    bundle = pack(found)
    arrays = {
        "table": torch.from_numpy(made.table), "truth": torch.from_numpy(quality.truth),
        "predicted": torch.from_numpy(quality.predicted),
    }  # fmt: skip
    values = bundle.values | {
        "low": made.low, "high": made.high, "mape": quality.mape, "mape_by_pair": quality.mape_by_pair,
        "unchanged": quality.unchanged, "settings": json.dumps(quality.settings),
    }  # fmt: skip
    return write_bundle(Bundle({**bundle.tensors, "regressor": arrays}, values), path)


def load(path: Path) -> tuple[Study, Regressor, Quality]:
    """What `save` wrote; DataError says what is wrong with anything else."""
    bundle = read_bundle(path)
    try:
        found = unpack(bundle)
        arrays = {name: bundle["regressor"][name].numpy() for name in ("table", "truth", "predicted")}
        made = Regressor(arrays["table"], _number(bundle, "low"), _number(bundle, "high"))
        quality = Quality(
            _number(bundle, "mape"), _number(bundle, "mape_by_pair"), _number(bundle, "unchanged"),
            settings=json.loads(str(bundle.values["settings"])), truth=arrays["truth"], predicted=arrays["predicted"],
        )  # fmt: skip
    except DataError as error:
        raise DataError(str(error), file=path) from error
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise DataError(f"does not hold a regressor: {type(error).__name__} {error}", file=path) from error
    return found, made, quality


def _number(bundle: Bundle, name: str) -> float:
    if name not in bundle.values:
        raise KeyError(name)
    return bundle.number(name)


def from_study(laboratory: Laboratory, models: int, file: str = "") -> Regressor:
    """The regressor of a stored study; without a file, of a study in this laboratory, made once and kept."""
    if file:
        return load(Path(file))[1]
    if not laboratory.key:
        return fit(study(laboratory, models))[0]
    folder = cache_dir() / "studies" / f"{laboratory.key}-{models}-{_FORM}"
    with new_folder(folder) as making:  # another process that wants the same one waits for it
        if making is not None:
            found = study(laboratory, models)
            save(found, *fit(found), making / "study.safetensors")
    try:
        return load(folder / "study.safetensors")[1]
    except DataError as error:
        raise DataError(f"{error}. It is made again if you remove its folder", remedy=str(folder)) from error
