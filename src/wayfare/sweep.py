"""`wayfare sweep`: tries settings of a recipe and keeps the best by a validation metric. Each trial is a run folder.

Lists alone are tried in every combination; with a range, Optuna's TPE sampler proposes. Nothing is stored but the run
folders and `sweep.json`: the sampler has a seed and is told the same results in the same order, so it proposes the same
again when a sweep is continued.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from wayfare.core import disk
from wayfare.core.errors import ConfigError, WayfareError
from wayfare.core.protocols import Engine
from wayfare.experiment import Experiment
from wayfare.pages.record import Record, less_is_better
from wayfare.recipe import override
from wayfare.runner import Listener, run_all, silent

BEST, SETTINGS = "best.toml", "sweep.json"
_CHOSEN_ON = ("validation/", "clients/")  # held out by validation clients, and by the clients themselves
_WIDE = 10  # a range with this ratio of its ends or more is searched on a log scale


@dataclass(frozen=True)
class Values:
    """A list to choose from."""

    values: tuple[Any, ...]

    def propose(self, trial: Any, name: str) -> Any:
        """One of them."""
        return trial.suggest_categorical(name, self.values)


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`; whole numbers if both are."""

    low: float
    high: float

    def propose(self, trial: Any, name: str) -> Any:
        """A number in it, to three digits."""
        wide = self.low > 0 and self.high >= _WIDE * self.low
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, log=wide)
        return float(f"{trial.suggest_float(name, self.low, self.high, log=wide):.3g}")


Tried = Mapping[str, Values | Interval]


@dataclass(frozen=True)
class Trial:
    """One proposal and what came of it; `value` is None if its run failed, `failed` says why."""

    name: str
    settings: Mapping[str, Any]
    value: float | None = None
    failed: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {"run": self.name, "settings": dict(self.settings), "value": self.value, "failed": self.failed}


@dataclass(frozen=True)
class Sweep:
    """All trials of a sweep."""

    folder: Path
    metric: str
    trials: Sequence[Trial] = field(default_factory=tuple)

    @property
    def ranked(self) -> list[Trial]:
        """Those that have a value, the best first."""
        sign = 1 if less_is_better(self.metric) else -1
        return sorted((t for t in self.trials if t.value is not None), key=lambda t: sign * (t.value or 0.0))

    @property
    def best(self) -> Trial:
        if not self.ranked:
            why = "; ".join(sorted({trial.failed for trial in self.trials}))
            raise ConfigError(f"all {len(self.trials)} trials failed: {why}")
        return self.ranked[0]


def parse(text: str) -> tuple[str, Values | Interval]:
    """`training.lr=1e-4..1e-1` or `training.epochs=1,2,5`."""
    name, equals, rest = text.partition("=")
    name, rest = name.strip(), rest.strip()
    if not (name and equals and rest):
        raise ConfigError(f"--try {text!r}: expected SETTING=LOW..HIGH or SETTING=A,B,C")
    ends = re.fullmatch(r"(.+?)\.\.(.+)", rest)
    if ends:
        low, high = (_value(end) for end in ends.groups())
        if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high)) or low >= high:
            raise ConfigError(f"--try {text!r}: a range goes from a smaller to a larger number")
        return name, Interval(low, high)
    values = tuple(_value(each) for each in rest.split(","))
    if len(set(values)) < 2:
        raise ConfigError(f"--try {text!r}: expected at least two different values")
    return name, Values(values)


def _value(text: str) -> Any:
    try:
        value = json.loads(text.strip())
    except ValueError:
        return text.strip()
    return value if isinstance(value, bool | int | float | str) else text.strip()


def sweep(
    recipe: Mapping[str, Any],
    tried: Tried,
    out: Path | str,
    engine: str | Engine = "auto",
    *,
    trials: int = 20,
    metric: str = "",
    seed: int = 0,
    listen: Listener = silent,
) -> Sweep:
    """Run trials, each in a folder of its own below `out`; what is finished is read and not run again.

    `metric` is what decides, by default the main one that validation clients or the clients' held-out samples give.
    """
    folder, table = Path(out), {key: value for key, value in recipe.items() if key != "cells"}
    _check_same(
        folder, {"recipe": table, "tried": {k: repr(v) for k, v in tried.items()}, "metric": metric, "seed": seed}
    )
    proposals = _Tpe(tried, seed) if any(isinstance(each, Interval) for each in tried.values()) else _Grid(tried)
    count = min(trials, proposals.most)
    found: list[Trial] = []
    for number in range(count):
        settings, name = proposals.ask(), f"trial-{number:03d}"
        listen("trial", {"number": number + 1, "total": count, "settings": settings})
        trial = Trial(name, settings)
        trial, metric = _measured(trial, override(table, settings), folder, engine, metric=metric, listen=listen)
        found.append(trial)
        proposals.tell(trial.value if trial.value is None or not less_is_better(metric) else -trial.value)
    result = Sweep(folder, metric, tuple(found))
    best = Experiment.from_table(override(table, dict(result.best.settings)))
    disk.write(folder / BEST, best.to_toml().encode())
    return result


def _measured(
    trial: Trial, table: dict[str, Any], folder: Path, engine: str | Engine, *, metric: str, listen: Listener
) -> tuple[Trial, str]:
    """The trial with what it came to, and the metric that was looked at."""
    wrong: list[str] = []
    experiment = Experiment.from_table({**table, "name": trial.name})
    if not metric:
        _check_held_out(experiment)
    run_all({trial.name: experiment}, folder, engine, listen=listen, failed=lambda _, error: wrong.append(str(error)))
    if wrong:
        return replace(trial, failed=wrong[0]), metric
    record = Record.read(folder / trial.name)
    metric = metric or next((m for prefix in _CHOSEN_ON for m in record.metrics if m.startswith(prefix)), "")
    if metric not in record.metrics:
        raise ConfigError(f"--metric {metric!r} is not measured; there are {', '.join(record.metrics)}")
    value = record.final(metric)
    if value is None or not math.isfinite(value):
        return replace(trial, failed=f"{metric} is not a number"), metric
    return replace(trial, value=value), metric


def _check_held_out(experiment: Experiment) -> None:
    held = experiment.evaluation
    if held.holdout == 0 and held.validation_clients == 0:
        raise WayfareError(
            "nothing is held out to choose settings by: --set evaluation.holdout=0.2 or "
            "--set evaluation.validation_clients=2; or name a metric by --metric"
        )


class _Grid:
    """Every combination of lists."""

    def __init__(self, tried: Tried) -> None:
        lists = {name: each.values for name, each in tried.items() if isinstance(each, Values)}
        self.most = math.prod(map(len, lists.values()))
        self._left = (dict(zip(lists, values)) for values in product(*lists.values()))

    def ask(self) -> dict[str, Any]:
        return next(self._left)

    def tell(self, value: float | None) -> None:
        """A combination is tried whatever the others gave."""


class _Tpe:
    """What Optuna proposes from what came before; None is told where a run failed."""

    most = sys.maxsize

    def __init__(self, tried: Tried, seed: int) -> None:
        import optuna  # an extra

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._tried = tried
        self._study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        self._fail = optuna.trial.TrialState.FAIL

    def ask(self) -> dict[str, Any]:
        self._asked = self._study.ask()
        return {name: each.propose(self._asked, name) for name, each in self._tried.items()}

    def tell(self, value: float | None) -> None:
        self._study.tell(self._asked, value, state=self._fail if value is None else None)


def _check_same(folder: Path, settings: dict[str, Any]) -> None:
    """A sweep is continued with the same settings; only the number of trials may differ."""
    text = json.dumps(settings, indent=1, default=str, sort_keys=True)
    path = folder / SETTINGS
    try:
        held = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
        if held - {SETTINGS} and SETTINGS not in held:
            raise ConfigError(f"{folder} is not empty and not a sweep; choose another --out")
        if held - {SETTINGS} and disk.read(path) != text.encode():  # without trials nothing has begun
            raise ConfigError(
                f"{folder} is another sweep: recipe, settings, metric or seed differ; choose another --out"
            )
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used: {error.strerror or error}; choose another --out") from error
    if not held - {SETTINGS}:
        disk.write(path, text.encode())
