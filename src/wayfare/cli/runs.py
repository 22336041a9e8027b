"""Commands that run experiments: run, resume."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wayfare.cli.console import (
    AllowCode,
    Json,
    Recipe,
    Settings,
    Watch,
    WatchAll,
    answer,
    err,
    foreign,
    interruptible,
    list_notes,
    parse_settings,
    tell,
    watching,
)
from wayfare.core.errors import ConfigError
from wayfare.engines import open_engine
from wayfare.pages.compare import compare
from wayfare.pages.compare_page import write_page
from wayfare.pages.record import Record
from wayfare.pages.tables import compare_table, run_table
from wayfare.papers.files import recipe_path, recipes
from wayfare.report import write_report

if TYPE_CHECKING:
    from wayfare.experiment import Experiment

Engine = Annotated[
    str, typer.Option(help="auto, local (one process), pool (one process per core), flower, or package.module:Name.")
]
Workers = Annotated[int, typer.Option(min=0, help="Worker processes; 0: one per core.")]
Track = Annotated[
    list[str] | None,
    typer.Option(help="Where to log metrics: tensorboard, mlflow or none. Repeatable. Default: tensorboard."),
]


_NEXT = {  # what can be done with a run of a task
    "places": "wayfare index {run}{photos}\n      wayfare locate PHOTO --run {run}",
    "objects": "wayfare predict PHOTO --run {run}",
    "attributes": "wayfare predict PHOTO --run {run}",
    "hashing": "wayfare index {run}\n      wayfare search WORDS --run {run}",
    "scenes": "wayfare graph PHOTO --run {run}",
}


class Changed(StrEnum):
    """What a run can be continued without."""

    data = "data"
    memory = "memory"


Out = Annotated[Path | None, typer.Option("--out", "-o", help="The run folder. Default: a new one under runs/.")]


def run(
    recipe: Recipe,
    out: Out = None,
    engine: Engine = "auto",
    workers: Workers = 0,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds, instead of the recipe's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed, instead of the recipe's.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Run this many times, with seeds counting up from the first.")] = 1,
    baselines: Annotated[
        bool,
        typer.Option("--baselines", help="Also run the baselines: untrained, each client alone, all data pooled."),
    ] = False,
    set_: Settings = None,
    track: Track = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Run an experiment; everything it produces goes into one folder.

    Given a folder or file of your own data, it first makes a recipe for it, as [bold]wayfare init[/bold] does, or uses
    the existing one.

    The same experiment gives the same model, bit for bit, on every engine, with any number of workers, and after
    interruptions.
    """
    path = _recipe_of(Path(recipe)) if _is_data(recipe) else recipe_path(recipe)
    changes = parse_settings(set_) | {k: v for k, v in (("rounds", rounds), ("seed", seed)) if v is not None}
    with open_engine(engine, workers) as machine:
        from wayfare.experiment import Experiment
        from wayfare.results import over_seeds
        from wayfare.runner import run_all

        experiment = Experiment.read(path, changes)
        folder = out or fresh_folder(experiment.name)
        if baselines:
            _beside_baselines(experiment, folder, machine, track, json=json, seeds=seeds)
            return
        if seeds == 1:
            summary = _one(experiment, folder, machine, track)
        else:
            plan = {f"seed-{s}": experiment.with_seed(s) for s in range(experiment.seed, experiment.seed + seeds)}
            with interruptible("the same command again"), watching() as progress:
                summaries = run_all(plan, folder, machine, track=trackers_of(track), listen=WatchAll(progress))
    if seeds == 1:
        record = Record.read(folder)
        shown = (run_table(record), f"report: {write_report(folder)}", *_next_steps(record, folder))
        answer(summary, json, *shown)
        return
    comparison = compare([folder])
    page = write_page(comparison, folder / "compare.html")
    answer(over_seeds(folder, summaries), json, compare_table(comparison), f"page: {page}")


def _beside_baselines(
    experiment: Experiment, folder: Path, machine: Any, track: list[str] | None, *, json: bool, seeds: int
) -> None:
    """The run and what it is measured against, each in a folder of its own, and one page of all."""
    from wayfare.baselines import UNTRAINED, with_baselines, write_untrained
    from wayfare.runner import run_all

    if seeds != 1:
        raise ConfigError("--baselines and --seeds do not go together: `wayfare reproduce` runs both")
    plan = with_baselines(experiment)
    with interruptible("the same command again with --out"), watching() as progress:
        summaries = run_all(plan, folder, machine, track=trackers_of(track), listen=WatchAll(progress))
    comparison = compare([write_untrained(folder), *(folder / name for name in plan)])
    page = write_page(comparison, folder / "compare.html")
    untrained = comparison.groups[0].records[0].final_metrics
    found: dict[str, Any] = {UNTRAINED: untrained, **{n: s.metrics for n, s in zip(plan, summaries)}}
    answer({"run": str(folder), "page": str(page), "metrics": found}, json, compare_table(comparison), f"page: {page}")


def _next_steps(record: Record, folder: Path) -> list[str]:
    """How the model is used, for tasks that have a command for it."""
    steps = _NEXT.get(record.component("task"), "")
    own = isinstance(record.experiment.get("data"), dict) and record.experiment["data"].get("path")
    filled = steps.format(run=quote(str(folder)), photos="" if own else " --photos DIR")
    return [f"Next: {filled}"] if steps and record.finished else []


def _is_data(given: str) -> bool:
    """Whether it is a folder, or a file such as a trace, rather than a recipe."""
    path = Path(given)
    if given in recipes():
        if path.is_dir():
            tell(f"{given} is read as the recipe of this name; for the folder, give ./{given}")
        return False
    return path.is_dir() or (path.is_file() and path.suffix.lower() not in (".toml", ""))


def _recipe_of(data: Path) -> Path:
    """The recipe for a folder of data: the one that `wayfare init` made here, or a new one."""
    if (data / "experiment.toml").exists():
        raise ConfigError(f"{data} is a run, not a recipe; to continue it: wayfare resume {data}")
    recipe = Path(f"{data.resolve().name.partition('.')[0] or 'mine'}.toml")
    if recipe.exists():
        err.print(f"existing recipe: {recipe}", highlight=False)
        return recipe
    from wayfare.cli.init import make_recipe
    from wayfare.starting.templates import Choices

    made = make_recipe(data, recipe, Choices())
    tell(f"recipe: {recipe}; page: {made['page']}; {made['estimate']}")
    list_notes(made["hints"])
    return recipe


def resume(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    engine: Engine = "auto",
    workers: Workers = 0,
    rounds: Annotated[int | None, typer.Option(help="A new total number of rounds, to extend a finished run.")] = None,
    allow_changed: Annotated[
        list[Changed] | None,
        typer.Option(help="Continue although this has changed: the data, or the devices' memories. Repeatable."),
    ] = None,
    track: Track = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Continue a run that was interrupted or killed, or extend a finished one."""
    if (folder / "experiment.toml").exists() or not any(folder.glob("seed-*/experiment.toml")):
        with interruptible(f"wayfare resume {folder}"), open_engine(engine, workers) as machine, watching() as progress:
            from wayfare.runner import resume as continue_run

            watch = Watch(progress, rounds or _rounds(folder), folder.name)
            summary = continue_run(
                folder,
                machine,
                track=trackers_of(track),
                rounds=rounds,
                listen=watch,
                allow_changed=allow_changed or (),
            )
        answer(summary, json, run_table(Record.read(folder)), f"report: {write_report(folder)}")
        return
    raise ConfigError(f"{folder} contains several runs: resume one of {sorted(p.name for p in folder.glob('seed-*'))}")


def _one(experiment: Experiment, folder: Path, machine: Any, track: list[str] | None) -> dict[str, Any]:
    from wayfare.runner import run as begin_run

    err.print(f"run folder: {folder}", highlight=False)
    with interruptible(f"wayfare resume {folder}"), watching() as progress:
        watch = Watch(progress, experiment.rounds, experiment.name)
        summary = begin_run(experiment, folder, machine, track=trackers_of(track), listen=watch)
    for skipped in summary["skipped_files"][:5]:
        err.print(
            f"[yellow]left out[/yellow] {foreign(skipped['file'])}: "
            f"{foreign(skipped['reason'].removeprefix(skipped['file']).lstrip(': '))}",
            highlight=False,
            soft_wrap=True,
        )
    if len(summary["skipped_files"]) > 5:
        err.print(f"[yellow]left out[/yellow] {len(summary['skipped_files'])} files in all; the report lists them")
    return summary


def fresh_folder(name: str) -> Path:
    """runs/<name>-<time>, or the next free one."""
    base = Path("runs") / f"{name or 'run'}-{time.strftime('%Y%m%d-%H%M%S')}"
    number, folder = 1, base
    while folder.exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def trackers_of(names: list[str] | None) -> list[str]:
    """What --track asks for."""
    return ["tensorboard"] if names is None else [name for name in names if name != "none"]


def _rounds(folder: Path) -> int:
    from wayfare.recipe import read_table

    path = folder / "experiment.toml"
    rounds = read_table(path).get("rounds", 0) if path.exists() else 0
    return rounds if isinstance(rounds, int) else 0  # what is wrong with it, the run will say


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    for command in (run, resume):
        app.command()(command)
