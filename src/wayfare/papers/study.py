"""FedTour's study (Sect. IV): many models are trained, every two of them merged, and what a merge changes is learnt.

from wayfare.papers.study import study_merges
study_merges(Experiment.read(path), "study.safetensors", models=33)
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.device import Bench
from wayfare.core.errors import ConfigError
from wayfare.core.gate import Gate
from wayfare.core.protocols import Engine, Progress, silent
from wayfare.core.seeds import rng_for
from wayfare.encounters.laboratory import LAB_ROUND, Lab, base_model
from wayfare.encounters.predictors.regressor import Quality, fit, save
from wayfare.encounters.predictors.study import Study
from wayfare.encounters.predictors.study import study as study_in
from wayfare.encounters.study_page import write_study
from wayfare.encounters.topology import Encounters
from wayfare.engines import open_engine
from wayfare.experiment import Experiment
from wayfare.pages.tables import number

MODELS, JUDGED = 231, 1000  # the paper's number of models; pictures on which they are judged
_MOST_JUDGING = 5  # at most a fifth of the pool judges, the rest trains


def study_merges(
    experiment: Experiment,
    out: Path | str,
    models: int = MODELS,
    judged: int = JUDGED,
    *,
    engine: str | Engine = "auto",
    workers: int = 0,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Conduct a study, fit the regressor, and write both to a file, with a page beside it; returns the numbers.

    A policy reads the file: exchange.regressor = "FILE".
    """
    file = Path(out)
    if file.is_dir():
        raise ConfigError(f"--out {file} is a folder: give a file name, {file / 'study.safetensors'} for instance")
    found = conduct(experiment, models, judged, engine=engine, workers=workers, progress=progress)
    progress("fitting the regressor", 0, 0)
    regressor, quality = fit(found, int(found.about["seed"]))
    save(found, regressor, quality, file)
    summary = summarise(found, quality)
    page = write_study(
        title=title_of(found),
        rows=rows(summary),
        accuracy=found.accuracy,
        change=found.change,
        table=regressor.table,
        truth=quality.truth,
        predicted=quality.predicted,
        about=found.about,
        out=file.with_name(file.name + ".html"),
    )
    return {"title": title_of(found), "study": str(file), "page": str(page), **summary, "about": found.about}


def conduct(
    experiment: Experiment,
    models: int = MODELS,
    judged: int = JUDGED,
    *,
    engine: str | Engine = "auto",
    workers: int = 0,
    progress: Progress = silent,
) -> Study:
    """The study of a recipe's task and training, on a division of the pool of its own, with plain FedAvg."""
    task, seed, policy = experiment.task, experiment.seed, experiment.policy
    if "tally" not in task.provides or task.labels is None:
        raise ConfigError(f"{type(task).__name__} has no classes to count correct answers of: use the task 'objects'")
    task.prepare(progress)
    # without the recipe's partition and topology, which a study has no use for and which may need other files
    plain = Experiment(task=task, training=experiment.training, seed=seed, device=experiment.device)
    judged = min(judged, task.samples // _MOST_JUDGING)
    order = rng_for(seed, "study").permutation(task.samples)
    judge, train = order[:judged], np.sort(order[judged:])
    topology = experiment.topology
    iterations = topology.base_iterations if isinstance(topology, Encounters) else 0
    with open_engine(engine, workers) as machine, tempfile.TemporaryDirectory(prefix="wayfare-study-") as folder:

        @cache
        def bench() -> Bench:
            return plain.bench(Path(folder))

        machine.open(plain.to_toml(), folder, bench)
        machine.set_client_sizes(lambda id: 0)  # an engine that served a run before would look for these devices there
        start = plain.strategy.start(task, bench().loaded(0, bench().initial))
        if iterations:
            progress("training the base model", 0, 0)
            start = base_model(
                Gate(machine, policy, 0), plain.strategy, task, start=start, samples=train, iterations=iterations
            )
        lab = Lab(
            Gate(machine, policy, LAB_ROUND), plain.strategy, task, start, seed=seed, train=train,
            labels=task.labels[train], judge=judge, progress=progress, about=repr(plain.training),
        )  # fmt: skip
        about = {"recipe": experiment.name, "seed": seed, "judged": judged, "base_iterations": iterations}
        return study_in(lab, models, {**about, "experiment": plain.to_toml()})


def title_of(found: Study) -> str:
    """The recipe and the number of models."""
    return f"{found.about['recipe'] or 'study'}, {number(len(found.accuracy))} models"


def summarise(found: Study, quality: Quality) -> dict[str, Any]:
    """The study in numbers; shares, not percent."""
    accuracy = found.accuracy
    return {
        "models": len(accuracy),
        "pairs": accuracy.size**2,
        "merged": found.distinct,
        "accuracy": {name: float(getattr(accuracy, name)()) for name in ("min", "mean", "max")},
        "improving": found.improving,
        "better_than_both": found.better_than_both,
        "mape": quality.mape,
        "mape_by_pair": quality.mape_by_pair,
        "mape_unchanged": quality.unchanged,
        "regressor": quality.settings,
    }


def rows(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What was measured, its value, and the paper's."""
    accuracy = summary["accuracy"]
    span = " / ".join(f"{100 * accuracy[name]:.1f}" for name in ("min", "mean", "max"))

    def percent(name: str) -> str:
        return f"{100 * summary[name]:.1f} %"

    return [
        ("models", number(summary["models"]), "231"),
        ("ordered pairs, also with itself", number(summary["pairs"]), "53,361"),
        ("distinct means of two", number(summary["merged"]), "26,565"),
        ("accuracy: least / mean / most", f"{span} %", "–"),
        ("better than the first of a pair", percent("improving"), "69.9 %"),
        ("better than both of a pair", percent("better_than_both"), "–"),
        ("MAPE on models not seen", percent("mape"), "< 6 %"),
        ("MAPE on pairs not seen (leaks)", percent("mape_by_pair"), "< 6 %"),
        ('MAPE of "nothing changes"', percent("mape_unchanged"), "–"),
    ]
