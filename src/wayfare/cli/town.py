"""wayfare town: make a synthetic town in the layouts of the real data sets."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from wayfare.cli.console import Json, answer, foreign, interruptible, progress_bar


class Sizes(StrEnum):
    """How large a town."""

    tiny = "tiny"
    small = "small"
    city = "city"


def town(
    folder: Annotated[Path, typer.Argument(help="Output folder: a new one, or that of an interrupted town.")],
    size: Annotated[Sizes, typer.Option(help="tiny: 200 photos for tests; small: 3,000; city: 32,000.")] = Sizes.small,
    seed: Annotated[int, typer.Option(min=0, help="Random seed: each gives a different town.")] = 0,
    height: Annotated[int, typer.Option(help="Height of the pictures in pixels.")] = 96,
    width: Annotated[int, typer.Option(help="Width of the pictures in pixels.")] = 128,
    only: Annotated[
        str, typer.Option(help="Only these layouts, comma-separated: msls, psg, ... Traces are always written.")
    ] = "",
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: one per core.")] = 0,
    json: Json = False,
) -> None:
    """Make a synthetic town: streets, sights, people, and the photos that they take in a day.

    Nothing is downloaded, and the same seed gives the same bytes. The photos are written in the layouts of real data
    sets: an MSLS tree, psg.json with panoptic PNGs, MIRFlickr's folders, FashionVC's .mat files, CelebA's lists,
    CIFAR-10's batches, geotagged phone photos, and the walkers' traces. To continue after an interruption, run the same
    command again.

    [bold]wayfare data show DIR[/bold] shows the result.
    """
    from wayfare.town.make import LAYOUTS, Spec, make

    layouts = tuple(name.strip() for name in only.split(",")) if only else LAYOUTS
    spec = Spec(size.value, seed, height, width, layouts)
    with interruptible("the same command again", "what is made so far"), progress_bar("starting") as show:
        summary = make(folder, spec, workers, show)
    table = Table(
        title=f"{foreign(folder)}: {summary['photos']:,} photos in {len(summary['cities'])} cities",
        title_justify="left",
    )
    for column in ("layout", "photos"):
        table.add_column(column, justify="right" if column == "photos" else "left")
    for name, count in summary["layouts"].items():
        table.add_row(foreign(folder / name), f"{count:,}")
    table.add_row(foreign(folder / "traces"), "")
    answer({"path": str(folder), **summary}, json, table, f"to see it: wayfare data show {foreign(folder, 1000)}")


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(town)
