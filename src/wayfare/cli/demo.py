"""wayfare demo: the whole story in one command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.progress import Progress
from rich.table import Table

from wayfare.cli.console import Json, Watch, answer, err, interruptible, recipe_path, watching
from wayfare.cli.runs import Engine, Workers
from wayfare.machine import opened
from wayfare.reports.tables import human_seconds

if TYPE_CHECKING:
    from wayfare.runner import Listener


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where everything goes.")] = Path("runs/demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Only see that it works: a tiny town, and hardly any learning.")
    ] = False,
    engine: Engine = "auto",
    workers: Workers = 0,
    json: Json = False,
) -> None:
    """Make a town, let its people learn four things together without sharing a photo, and put these to use.

    About five minutes on two cores; nothing is downloaded. It leaves one page, index.html in the folder, that tells it
    all. An interrupted demo goes on with the same command.
    """
    began = time.monotonic()
    again = f"wayfare demo --out {out}{' --quick' if quick else ''}"
    with opened(engine, workers) as machine, interruptible(again, "what is done so far"):
        from wayfare.demo import make_demo
        from wayfare.demo.plan import RECIPES

        with watching() as progress:
            stage = _Screen(progress)
            result = make_demo(out, {name: recipe_path(f"demo/{name}") for name in RECIPES}, machine, stage, quick)
    took = f"page: {result['page']}  ({human_seconds(time.monotonic() - began)})"
    answer(result, json, _table(result), took)


class _Screen:
    """Shows the progress: live on a terminal, in lines elsewhere."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress, self.text = progress, ""
        self.bar = None if progress is None else progress.add_task("", visible=False)

    def step(self, number: int, steps: int, title: str) -> None:
        err.print(f"[bold]{number}/{steps}[/bold] {title}", highlight=False, soft_wrap=True)
        if self.progress is not None and self.bar is not None:
            self.progress.update(self.bar, visible=False)

    def show(self, text: str, done: int, total: int) -> None:
        if self.progress is not None and self.bar is not None:
            self.progress.update(self.bar, description=text, completed=done, total=total, visible=done < total)
        elif text != self.text:
            err.print(f"{text} ({total:,}) ...", soft_wrap=True, highlight=False)
        self.text = text

    def watch(self, rounds: int, label: str) -> Listener:
        return Watch(self.progress, rounds, label)


def _table(result: dict[str, Any]) -> Table:
    """The main figure of each task, each way of learning a column."""
    from wayfare.reports.record import Record
    from wayfare.reports.story_words import SUBJECTS, Outcome, points

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="out of 100", title_justify="left")
    for name in ("", "before", "each alone", "together", "all in one place"):
        table.add_column(name, justify="right" if name else "left")
    for task, cells in result["runs"].items():
        found = Outcome.of(SUBJECTS[task], {cell: Record.read(done["run"]) for cell, done in cells.items()})
        values = (found.before, found.alone, found.together, found.pooled)
        table.add_row(SUBJECTS[task].title, *(points(value) if value == value else "–" for value in values))
    return table


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(demo)
