"""Running a paper's table again: every cell of a recipe, side by side, with the paper's values where it has some.

    from wayfare.papers.reproduce import reproduce
    found = reproduce("fedvpr/table4", seeds=3)
    print(found.as_dict()["orderings"], found.page)

Finished cells are not run again, and an interrupted one continues: call it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Engine
from wayfare.engines import open_engine
from wayfare.experiment import Experiment
from wayfare.pages.compare import Comparison, RunGroup
from wayfare.pages.compare_page import write_page
from wayfare.pages.partition import write_partition
from wayfare.pages.record import Record
from wayfare.pages.tables import compare_table
from wayfare.papers.files import recipe_path
from wayfare.papers.paper import Cell, Fact, Paper, Scale
from wayfare.papers.plan import OF_NETWORKS, Plan, missing_weights, read_plan
from wayfare.papers.reproduction import Reproduction, places_table, reproduction, small_scale
from wayfare.partition.summary import summarise_split
from wayfare.runner import Listener, run_all, silent


@dataclass(frozen=True)
class ReproducedTable:
    """The runs of a recipe's cells, and the page about them."""

    comparison: Comparison
    paper: Reproduction | None  # None where the recipe is of no paper
    page: Path

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        result = self.comparison.as_dict() | {"page": str(self.page)}
        if self.paper is None:
            return result
        return result | self.paper.as_dict() | {"notes": [*self.paper.notes, *self.comparison.notes]}

    def shown(self) -> list[Any]:
        """For the terminal."""
        if self.paper is None:
            return [compare_table(self.comparison), f"page: {self.page}"]
        return [self.paper.table(self.comparison), *map(Text, self.paper.notes), f"page: {self.page}"]


@dataclass(frozen=True)
class SplitFigure:
    """A figure of who has what: the split is drawn, and nothing is trained."""

    plan: Plan
    paper: Paper
    table: Mapping[str, Any]
    places: Mapping[str, Sequence[Mapping[str, Any]]]  # "cities" and "continents", a row for each
    page: Path

    @property
    def notes(self) -> list[str]:
        notes = [small_scale(self.plan.small)] if self.plan.scale == Scale.small else []
        return notes + ([f"Changed: {self.plan.changed}."] if self.plan.changed else [])

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        head = {"paper": {"title": self.paper.title}, "scale": self.plan.scale, "notes": self.notes}
        return head | {"table": self.table} | dict(self.places) | {"page": str(self.page)}

    def shown(self) -> list[Any]:
        """For the terminal."""
        tables = [places_table(self.paper, rows) for rows in self.places.values()]
        words = map(Text, (self.plan.about, *self.notes))
        return [Text(self.plan.title), *tables, *words, f"page: {self.page}"]


def reproduce(
    recipe: str | Path,
    *,
    scale: Scale | None = None,
    data: Path | None = None,
    cells: Sequence[str] = (),
    seeds: int = 1,
    changes: Mapping[str, Any] | None = None,
    out: Path | None = None,
    engine: str | Engine = "auto",
    workers: int = 0,
    track: Sequence[str] = (),
    listen: Listener = silent,
) -> ReproducedTable | SplitFigure:
    """Run every cell of a recipe's table, or some of them, and write a page that puts them side by side.

    `recipe` is a file or a recipe's name; `scale`, `data`, `changes` and `cells` are those of `plan.read_plan`,
    and `listen` hears what `runner.run_all` reports.
    """
    path = recipe_path(str(recipe))
    with open_engine(engine, workers) as machine:
        plan = read_plan(path, scale, data, changes, cells)
        folder = out or plan.folder
        if plan.paper is not None and plan.whole is not None:
            return _draw_split(plan, plan.paper, plan.whole, folder, listen)
        left_out = _left_out(plan, path)
        for name, why in left_out.items():
            listen("warning", {"text": f"left out {name}: {why}"})
        runs = {name: plan.runs_of(name, seeds) for name in plan.experiments if name not in left_out}
        every = {run: experiment for each in runs.values() for run, experiment in each.items()}
        run_all(every, folder, machine, track=track, listen=listen)
    groups = [RunGroup(name, tuple(Record.read(folder / run) for run in own)) for name, own in runs.items()]
    return _compare(plan, left_out, Comparison(tuple(groups)), folder)


def _compare(plan: Plan, left_out: Mapping[str, str], comparison: Comparison, folder: Path) -> ReproducedTable:
    found, table = None, None
    if plan.paper is not None:
        cells = {group.label: plan.cells[group.label] for group in comparison.groups}
        facts = {name: _network_facts(plan.experiments[name], cell) for name, cell in cells.items()}
        found = reproduction(
            plan.paper,
            cells,
            comparison,
            plan.scale,
            small=plan.small,
            left_out=left_out,
            facts=facts,
            changed=plan.changed,
        )
        table = found.page_table(comparison)
    page = write_page(comparison, folder / plan.page, plan.title, plan.about, table)
    return ReproducedTable(comparison, found, page)


def _draw_split(plan: Plan, paper: Paper, whole: Experiment, folder: Path, listen: Listener) -> SplitFigure:
    listen("preparing", {"text": f"{plan.name}: drawing the split", "done": 0, "total": 0})
    summary = summarise_split(whole.split(), whole.task)
    if "places" not in summary:
        raise ConfigError(f"{plan.name}: paper.split counts what is in each city, and this task has no cities")
    page = write_partition(summary, folder / plan.page)
    kinds = {kind: summary["places"][kind] for kind in ("cities", "continents")}
    return SplitFigure(plan, paper, summary["table"], kinds, page)


def _left_out(plan: Plan, path: Path) -> dict[str, str]:
    """The cells that cannot be run, and why; at the paper's scale there must be none."""
    if not plan.cells:
        raise ConfigError(f"{path} has no [cells.NAME] tables: it is one experiment, for `wayfare run`")
    missing = {name: file for name, each in plan.experiments.items() if (file := missing_weights(each))}
    if missing and (plan.scale != Scale.small or len(missing) == len(plan.experiments)):
        files, first = ", ".join(dict.fromkeys(missing.values())), next(iter(missing.values()))
        converted = f"Convert torchvision's: wayfare data import-weights FILE.pth {first}"
        how = converted if first.endswith(".safetensors") else "Put it there"
        raise ConfigError(f"weights not found: {files}. {how}")
    return {name: f"its weights, {file}, are not available" for name, file in missing.items()}


def _network_facts(experiment: Experiment, cell: Cell) -> dict[str, Fact]:
    """Parameters in millions, where the paper has a column for them."""
    if not set(cell.also) & set(OF_NETWORKS):
        return {}
    parameters = list(experiment.task.network().parameters())
    counts = sum(p.numel() for p in parameters), sum(p.numel() for p in parameters if p.requires_grad)
    return {name: count / 1e6 for name, count in zip(OF_NETWORKS, counts)}
