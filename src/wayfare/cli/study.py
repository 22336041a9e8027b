"""wayfare study: what becomes of two models when they are merged, and a regressor that foretells it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from wayfare.cli.console import Json, Recipe, Settings, answer, err, parse_settings, recipe_path
from wayfare.errors import ConfigError
from wayfare.machine import opened
from wayfare.reports.tables import number

if TYPE_CHECKING:
    from wayfare.core.device import Bench
    from wayfare.experiment import Experiment
    from wayfare.policies.predictors.regressor import Quality
    from wayfare.policies.predictors.study import Study

_MOST_JUDGING = 5  # a fifth of the pool at most judges, the rest trains


def study(
    recipe: Recipe,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write; a page FILE.html goes beside it.")],
    models: Annotated[int, typer.Option(min=8, help="Models to train; the paper has 231.")] = 231,
    judged: Annotated[int, typer.Option(min=1, help="Pictures on which models are judged, a fifth at most.")] = 1000,
    data: Annotated[Path | None, typer.Option(help="Where the data is, instead of the recipe's task.path.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The seed, instead of the recipe's.")] = None,
    engine: Annotated[str, typer.Option(help="auto, local (one process) or pool (a process per core).")] = "auto",
    workers: Annotated[int, typer.Option(min=0, help="Worker processes of the pool; 0 takes one per core.")] = 0,
    set_: Settings = None,
    json: Json = False,
) -> None:
    """Train many models, merge every two of them, and learn to predict what a merge is worth (FedTour, Sect. IV).

    Data, network and training are the recipe's. Its pool of pictures is divided into those to train on and those to
    judge by; the test set is not touched. A policy reads the file that this writes: exchange.regressor = "FILE".
    """
    if out.is_dir():
        raise ConfigError(f"--out {out} is a folder: give the name of a file, {out / 'study.safetensors'} for instance")
    given = {"task.path": None if data is None else str(data), "seed": seed}
    changes = parse_settings(set_) | {key: value for key, value in given.items() if value is not None}
    path = recipe_path(recipe)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with opened(engine, workers) as machine, Progress(*columns, console=err) as progress:
        from wayfare.experiment import Experiment
        from wayfare.policies.predictors.regressor import fit, save
        from wayfare.reports.study import write_study

        bar = progress.add_task("reading the data", total=None)

        def say(text: str, done: int, total: int) -> None:
            progress.update(bar, description=text, completed=done, total=total or None)

        found = conduct(Experiment.read(path, changes), machine, models, judged, say)
        progress.update(bar, description="fitting the regressor", completed=0, total=None)
        regressor, quality = fit(found, int(found.about["seed"]))
    save(found, regressor, quality, out)
    summary = summarise(found, quality)
    title = f"{found.about['recipe'] or 'study'}, {number(models)} models"
    page = write_study(
        title, rows(summary), found.accuracy, found.change, regressor.table, quality.truth, quality.predicted,
        found.about, out.with_name(out.name + ".html"),
    )  # fmt: skip
    shown = _table(title, summary), f"study: {out}", f"page: {page}"
    answer({"study": str(out), "page": str(page), **summary, "about": found.about}, json, *shown)


def conduct(
    experiment: Experiment, machine: Any, models: int, judged: int, say: Callable[[str, int, int], None]
) -> Study:
    """The study of a recipe's task and training, on its own division of the pool, by plain FedAvg."""
    import numpy as np

    from wayfare.core.laboratory import Lab, base_model
    from wayfare.core.seeds import rng_for
    from wayfare.experiment import Experiment
    from wayfare.policies.predictors.study import study as made

    task, seed, deadline = experiment.task, experiment.seed, experiment.policy.deadline
    if not hasattr(task, "tally") or task.labels is None:
        raise ConfigError(f"{type(task).__name__} has no classes to be right about: a study is for the task 'objects'")
    if hasattr(task, "ready"):
        task.ready(say)
    # without the recipe's partition and topology, which a study has no use for and which may need other files
    plain = Experiment(task=task, training=experiment.training, seed=seed, device=experiment.device)
    judged = min(judged, task.samples // _MOST_JUDGING)
    order = rng_for(seed, "study").permutation(task.samples)
    judge, train = order[:judged], np.sort(order[judged:])
    iterations = int(getattr(experiment.topology, "base_iterations", 0))
    with tempfile.TemporaryDirectory(prefix="wayfare-study-") as folder:

        @cache
        def bench() -> Bench:
            return plain.bench(Path(folder))

        machine.open(plain.to_toml(), folder, bench)
        if hasattr(machine, "deal_by"):
            machine.deal_by(lambda id: 0)  # an engine that served a run before would look for these devices there
        start = plain.strategy.start(task, bench().loaded(0, bench().initial))
        if iterations:
            say("training the base model", 0, 0)
            start = base_model(machine, plain.strategy, task, start, train, iterations, deadline)
        lab = Lab(
            machine, plain.strategy, task, start, seed, train, task.labels[train], judge, deadline, say,
            repr(plain.training),
        )  # fmt: skip
        about = {"recipe": experiment.name, "seed": seed, "judged": judged, "base_iterations": iterations}
        return made(lab, models, {**about, "experiment": plain.to_toml()})


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


def rows(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
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


def _table(title: str, summary: dict[str, Any]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("")
    for name in ("here", "paper"):
        table.add_column(name, justify="right")
    for row in rows(summary):
        table.add_row(*row)
    table.caption = "MAPE: mean absolute percentage error of merged accuracies; the paper does not say how it split"
    return table


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(study)
