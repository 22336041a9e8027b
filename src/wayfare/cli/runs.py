"""Commands that run experiments: run, resume."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wayfare.cli.console import (
    Json,
    Recipe,
    Settings,
    TimeLeft,
    Watch,
    answer,
    err,
    interruptible,
    parse_settings,
    recipe_path,
    watching,
)
from wayfare.errors import ConfigError, DataError, DeviceError, QuorumError, WayfareError
from wayfare.machine import opened
from wayfare.reports.compare import compare, write_page
from wayfare.reports.record import Record
from wayfare.reports.report import write_report
from wayfare.reports.tables import compare_table, run_table

if TYPE_CHECKING:
    from wayfare.experiment import Experiment

Engine = Annotated[
    str, typer.Option(help="auto, local (one process), pool (a process per core), flower, or package.module:Name.")
]
Workers = Annotated[int, typer.Option(min=0, help="Worker processes; 0 takes one per core.")]
Track = Annotated[
    list[str] | None, typer.Option(help="Also log to tensorboard or mlflow. Repeatable; 'none' for neither.")
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The run folder; by default a new one under runs/.")]


def run(
    recipe: Recipe,
    out: Out = None,
    engine: Engine = "auto",
    workers: Workers = 0,
    rounds: Annotated[int | None, typer.Option(help="Rounds to run, instead of the recipe's.")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed, instead of the recipe's.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Run over this many seeds, counting up from the seed.")] = 1,
    set_: Settings = None,
    track: Track = None,
    json: Json = False,
) -> None:
    """Run an experiment and leave everything in a folder.

    The same experiment gives the same model, bit for bit, whatever the engine, the workers or interruptions.
    """
    path = recipe_path(recipe)
    changes = parse_settings(set_) | {k: v for k, v in (("rounds", rounds), ("seed", seed)) if v is not None}
    with opened(engine, workers) as machine:
        from wayfare.experiment import Experiment

        experiment = Experiment.read(path, changes)
        folder = out or fresh_folder(experiment.name)
        if seeds == 1:
            summary = _one(experiment, folder, machine, track)
        else:
            plan = {f"seed-{s}": experiment.with_seed(s) for s in range(experiment.seed, experiment.seed + seeds)}
            summaries = run_all(plan, folder, machine, track)
    if seeds == 1:
        answer(summary, json, run_table(Record.read(folder)), f"report: {_report(folder)}")
        return
    comparison = compare([folder])
    page = write_page(comparison, folder / "compare.html")
    answer(over_seeds(folder, summaries), json, compare_table(comparison), f"page: {page}")


def resume(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    engine: Engine = "auto",
    workers: Workers = 0,
    rounds: Annotated[int | None, typer.Option(help="A new total of rounds, to go on with a finished run.")] = None,
    track: Track = None,
    json: Json = False,
) -> None:
    """Continue a run where it stopped: interrupted, killed, or finished and now extended."""
    if (folder / "experiment.toml").exists() or not any(folder.glob("seed-*/experiment.toml")):
        with interruptible(f"wayfare resume {folder}"), opened(engine, workers) as machine, watching() as progress:
            from wayfare.runner import resume as continue_run

            watch = Watch(progress, rounds or _rounds(folder), folder.name)
            summary = continue_run(folder, machine, track=_track(track), rounds=rounds, listen=watch)
        answer(summary, json, run_table(Record.read(folder)), f"report: {_report(folder)}")
        return
    raise ConfigError(f"{folder} holds several runs: resume one of {sorted(p.name for p in folder.glob('seed-*'))}")


def run_all(
    plan: dict[str, Experiment],
    folder: Path,
    machine: Any,
    track: list[str] | None,
    failed: Callable[[str, WayfareError], None] | None = None,
) -> list[dict[str, Any]]:
    """Run experiments one after another on one engine, continuing what is begun and leaving what is done.

    With `failed`, one that fails through its own fault is told and left out; the others go on.
    """
    from wayfare.experiment import Experiment
    from wayfare.runner import resume as continue_run
    from wayfare.runner import run as begin_run

    summaries, left, task = [], TimeLeft(), None
    with interruptible("the same command again"), watching() as progress:
        for number, (name, experiment) in enumerate(plan.items(), start=1):
            place = folder / name
            left.begin(experiment.rounds, sum(not _is_done(folder / later) for later in list(plan)[number:]))
            watch = Watch(progress, experiment.rounds, f"[{number}/{len(plan)}] {name}", left)
            if (place / "experiment.toml").exists():
                if not experiment.is_in((place / "experiment.toml").read_text(encoding="utf-8")):
                    raise ConfigError(f"{place} holds a run with other settings: remove it, or choose another --out")
                play = partial(continue_run, place)
            else:
                # of a copy, which goes with what it has read; the plan's experiments stay until the last has run
                copy = Experiment.from_toml(experiment.to_toml())
                task = task if task == copy.task else copy.task
                play = partial(begin_run, replace(copy, task=task), place)
            try:
                summaries.append(play(machine, track=_track(track), listen=watch))
            except (ConfigError, DataError, DeviceError, QuorumError) as error:
                if failed is None:
                    raise
                failed(name, error)
                continue
            left.end(summaries[-1]["seconds"])
            _report(place)
    return summaries


def _is_done(folder: Path) -> bool:
    return (folder / "summary.json").exists()


def _one(experiment: Experiment, folder: Path, machine: Any, track: list[str] | None) -> dict[str, Any]:
    from wayfare.runner import run as begin_run

    err.print(f"run folder: {folder}", highlight=False)
    with interruptible(f"wayfare resume {folder}"), watching() as progress:
        watch = Watch(progress, experiment.rounds, experiment.name)
        summary = begin_run(experiment, folder, machine, track=_track(track), listen=watch)
    for skipped in summary["skipped_files"][:5]:
        err.print(f"[yellow]left out[/yellow] {skipped['file']}: {skipped['reason']}", highlight=False, soft_wrap=True)
    if len(summary["skipped_files"]) > 5:
        err.print(f"[yellow]left out[/yellow] {len(summary['skipped_files'])} files in all; the report lists them")
    return summary


def over_seeds(folder: Path, summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """One result for several seeds: means, with the standard deviation beside them."""
    names = summaries[0]["metrics"]
    columns = {name: [summary["metrics"][name] for summary in summaries] for name in names}
    return {
        "run": str(folder),
        "rounds": summaries[0]["rounds"],
        "metrics": {name: statistics.fmean(values) for name, values in columns.items()},
        "sd": {name: statistics.stdev(values) for name, values in columns.items()},
        "model_sha256": [summary["model_sha256"] for summary in summaries],
        **{key: sum(s[key] for s in summaries) for key in ("seconds", "bytes_up", "bytes_down", "refused", "cold")},
        "runs": summaries,
    }


def fresh_folder(name: str) -> Path:
    """runs/<name>-<time>, or the next free one."""
    base = Path("runs") / f"{name or 'run'}-{time.strftime('%Y%m%d-%H%M%S')}"
    number, folder = 1, base
    while folder.exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def _track(names: list[str] | None) -> list[str]:
    return ["tensorboard"] if names is None else [name for name in names if name != "none"]


def _rounds(folder: Path) -> int:
    from wayfare.experiment import read_table

    path = folder / "experiment.toml"
    return int(read_table(path).get("rounds", 0)) if path.exists() else 0


def _report(folder: Path) -> Path:
    return write_report(folder)


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    for command in (run, resume):
        app.command()(command)
