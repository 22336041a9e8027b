"""wayfare study: what merging two models changes, and a regressor that predicts it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from wayfare.cli.console import (
    AllowCode,
    Json,
    Recipe,
    Settings,
    answer,
    foreign,
    parse_settings,
    plain_table,
    progress_bar,
)
from wayfare.engines import open_engine
from wayfare.papers.files import recipe_path


def study(
    recipe: Recipe,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write; its page is FILE.html.")],
    models: Annotated[int, typer.Option(min=8, help="Models to train; the paper has 231.")] = 231,
    judged: Annotated[
        int, typer.Option(min=1, help="Pictures on which models are tested, at most a fifth of all.")
    ] = 1000,
    data: Annotated[Path | None, typer.Option(help="Where the data is, instead of the recipe's data.path.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The seed, instead of the recipe's.")] = None,
    engine: Annotated[str, typer.Option(help="auto, local (one process) or pool (a process per core).")] = "auto",
    workers: Annotated[int, typer.Option(min=0, help="Worker processes; 0: one per core.")] = 0,
    set_: Settings = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Train many models, merge every two of them, and learn to predict what a merge changes (FedTour, Sect. IV).

    Data, network and training are the recipe's. Its pool of pictures is divided into those to train on and those to
    test with; the recipe's test set is not used. A policy reads the file that this writes: exchange.regressor = "FILE".
    """
    changes = parse_settings(set_) | ({} if seed is None else {"seed": seed})
    path = recipe_path(recipe)
    with open_engine(engine, workers) as machine, progress_bar("reading the data") as show:
        from wayfare.papers.plan import read_experiment
        from wayfare.papers.study import rows, study_merges

        experiment = read_experiment(path, changes, data)
        found = study_merges(experiment, out, models, judged, engine=machine, progress=show)
    answer(found, json, _table(found["title"], rows(found)), f"study: {out}", f"page: {found['page']}")


def _table(title: str, rows: list[tuple[str, str, str]]) -> Table:
    table = plain_table(title)
    table.add_column("")
    for name in ("here", "paper"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*map(foreign, row))
    table.caption = "MAPE: mean absolute percentage error of merged accuracies; the paper does not say how it split"
    return table


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(study)
