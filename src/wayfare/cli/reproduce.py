"""wayfare reproduce: run a paper's table again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wayfare.cli.console import (
    AllowCode,
    Json,
    Recipe,
    Settings,
    WatchAll,
    answer,
    interruptible,
    parse_settings,
    watching,
)
from wayfare.cli.runs import Engine, Track, Workers, trackers_of
from wayfare.engines import open_engine
from wayfare.papers.files import recipe_path
from wayfare.papers.paper import Scale


def reproduce(
    recipe: Recipe,
    data: Annotated[Path | None, typer.Option(help="The paper's data set, if you have it on disk.")] = None,
    scale: Annotated[
        Scale | None,
        typer.Option(help="The paper's settings, or small ones that need no data. Default: paper with --data."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the runs go; runs already in this folder are continued.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per cell.")] = 1,
    cells: Annotated[str, typer.Option(help="Only these cells, comma-separated.")] = "",
    engine: Engine = "auto",
    workers: Workers = 0,
    set_: Settings = None,
    track: Track = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Run every cell of a recipe's table and show them side by side, with the paper's values where it has some.

    A recipe has cells: [cells.NAME] with the settings in which each differs. Finished cells are not run again, and an
    interrupted one continues: run the same command again.
    """
    path, changes = recipe_path(recipe), parse_settings(set_)
    with open_engine(engine, workers) as machine:  # first: its workers start while torch is imported here
        from wayfare.papers.reproduce import reproduce as run_table

        with interruptible("the same command again"), watching() as progress:
            found = run_table(
                path,
                scale=scale,
                data=data,
                cells=[name.strip() for name in cells.split(",") if name.strip()],
                seeds=seeds,
                changes=changes,
                out=out,
                engine=machine,
                track=trackers_of(track),
                listen=WatchAll(progress),
            )
    answer(found.as_dict(), json, *found.shown())


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(reproduce)
