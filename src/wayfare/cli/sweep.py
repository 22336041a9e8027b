"""wayfare sweep: choose settings by validation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from wayfare.cli.console import (
    AllowCode,
    Json,
    Recipe,
    Settings,
    WatchAll,
    answer,
    err,
    interruptible,
    parse_settings,
    plain_table,
    watching,
)
from wayfare.cli.runs import Engine, Workers, fresh_folder
from wayfare.core.errors import ConfigError
from wayfare.engines import open_engine
from wayfare.pages.compare import compare
from wayfare.pages.compare_page import PaperTable, write_page
from wayfare.papers.files import recipe_path
from wayfare.recipe import override, read_table

_SHOWN = 10


def sweep(
    recipe: Recipe,
    try_: Annotated[
        list[str],
        typer.Option(
            "--try",
            help="A setting and what to try: training.lr=1e-4..1e-1 (a range) or strategy.mu=0.01,0.1,1. Repeatable.",
            metavar="KEY=VALUES",
        ),
    ],
    trials: Annotated[int, typer.Option(min=1, help="At most this many runs.")] = 20,
    metric: Annotated[
        str, typer.Option(help="The metric that decides. Default: the main one on data that clients hold out.")
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder. Default: a new one under runs/.")] = None,
    engine: Engine = "auto",
    workers: Workers = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the proposals.")] = 0,
    set_: Settings = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Try settings of a recipe and keep the best.

    Each trial is a run folder. The best settings are written as [bold]best.toml[/bold], and a page compares all trials.
    With lists alone, every combination is tried; with a range, Optuna proposes. The same command with the same --out
    continues an interrupted sweep, and adds trials if --trials is larger.
    """
    from wayfare.sweep import BEST, Interval, parse
    from wayfare.sweep import sweep as try_all

    tried = dict(parse(each) for each in try_)
    if any(isinstance(each, Interval) for each in tried.values()):
        _check_installed()
    table = override(read_table(recipe_path(recipe)), parse_settings(set_))
    if metric.startswith("test/"):
        err.print("[yellow]warning[/yellow] settings chosen on test data look better than they are", highlight=False)
    folder = out or fresh_folder(f"sweep-{Path(recipe).stem}")
    err.print(f"folder: {folder}", highlight=False)
    how = f"the same command with --out {folder}"
    with open_engine(engine, workers) as machine, interruptible(how), watching() as progress:
        trace = _Trials(progress)
        found = try_all(table, tried, folder, machine, trials=trials, metric=metric, seed=seed, listen=trace)
    best, settings = found.best, list(tried)
    rows = [(t.name, *(str(t.settings[s]) for s in settings), f"{t.value:.4g}") for t in found.ranked]
    shown = PaperTable(f"Trials, best first, by {found.metric}", ("trial", *settings, found.metric), rows, ())
    page = write_page(compare([folder / t.name for t in found.ranked]), folder / "sweep.html", "Sweep", paper=shown)
    result = {
        "folder": str(folder), "metric": found.metric, "best": best.as_dict(), "recipe": str(folder / BEST),
        "page": str(page), "trials": [trial.as_dict() for trial in found.trials],
    }  # fmt: skip
    lines = [f"{t.name} failed: {t.failed}" for t in found.trials if t.value is None]
    lines += [f"page: {page}", f"best settings: {folder / BEST}"]
    lines.append(f"to judge it on test data: wayfare run {folder / BEST} --seeds 3")
    answer(result, json, _table(shown), *lines)


class _Trials(WatchAll):
    """Names the settings of each trial before its run."""

    def __call__(self, event: str, data: dict[str, Any]) -> None:
        if event == "trial":
            settings = ", ".join(f"{name} = {value}" for name, value in data["settings"].items())
            err.print(f"trial {data['number']}/{data['total']}: {settings}", markup=False, highlight=False)
        else:
            super().__call__(event, data)


def _check_installed() -> None:
    try:
        import optuna  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError("ranges need Optuna: pip install 'wayfare[sweep]', or give lists instead") from error


def _table(shown: PaperTable) -> Table:
    table = plain_table(shown.title)
    for head in shown.heads:
        table.add_column(head)
    for row in shown.rows[:_SHOWN]:
        table.add_row(*row)
    return table


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(sweep)
