"""wayfare demo: the whole story in one command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.progress import Progress
from rich.table import Table

from wayfare.cli.console import Json, Watch, answer, err, foreign, interruptible, watching
from wayfare.cli.runs import Engine, Workers
from wayfare.engines import open_engine
from wayfare.pages.record import Record
from wayfare.pages.tables import human_seconds
from wayfare.papers.files import recipe_path

if TYPE_CHECKING:
    from wayfare.runner import Listener


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder.")] = Path("runs/demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Check that everything works: a tiny town, very little training.")
    ] = False,
    engine: Engine = "auto",
    workers: Workers = 0,
    json: Json = False,
) -> None:
    """Make a synthetic town, train four models on its people's photos without sharing any, and use the models.

    Takes two to three minutes on two idle cores; nothing is downloaded. The result is one page, index.html in the
    output folder. To continue an interrupted demo, run the same command again.
    """
    began = time.monotonic()
    again = f"wayfare demo --out {out}{' --quick' if quick else ''}"
    with open_engine(engine, workers) as machine, interruptible(again, "what is done so far"):
        from wayfare.demo import make_demo
        from wayfare.demo.recipes import RECIPES

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
        err.print(f"[bold]{number}/{steps}[/bold] {foreign(title)}", highlight=False, soft_wrap=True)
        if self.progress is not None and self.bar is not None:
            self.progress.update(self.bar, visible=False)

    def show(self, text: str, done: int, total: int) -> None:
        if self.progress is not None and self.bar is not None:
            self.progress.update(self.bar, description=foreign(text), completed=done, total=total, visible=done < total)
        elif text != self.text:
            err.print(f"{foreign(text)} ({total:,}) ...", soft_wrap=True, highlight=False)
        self.text = text

    def watch(self, rounds: int, label: str) -> Listener:
        return Watch(self.progress, rounds, label)


def _table(result: dict[str, Any]) -> Table:
    """The main figure of each task, each way of learning a column."""
    from wayfare.demo.page_words import DEMO_TASKS, TaskResult, points

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="out of 100", title_justify="left")
    for name in ("", "before training", "each alone", "federated", "all data pooled"):
        table.add_column(name, justify="right" if name else "left")
    for task, cells in result["runs"].items():
        found = TaskResult.of(DEMO_TASKS[task], {cell: Record.read(done["run"]) for cell, done in cells.items()})
        values = (found.before, found.alone, found.together, found.pooled)
        table.add_row(DEMO_TASKS[task].title, *(points(value) if value == value else "–" for value in values))
    return table


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(demo)
