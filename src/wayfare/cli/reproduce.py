"""The command that runs every cell of a recipe's table: reproduce.

A recipe's cells say in which settings each differs from the recipe, and what the paper has for it:

    [paper]                     what the table is; see `wayfare.reports.reproduction.Paper`
    [small]                     settings that replace the recipe's at small scale; `about` says in words what they are
    [small.without_data]        more of them, for the data that stands in where there is no --data
    [cells.NAME]                settings, and beside them label, paper, paper_sd and also
    [cells.NAME.small]          settings of the cell at small scale

They are put one over the other in this order: the recipe, [small], [small.without_data], the cell, its own small,
--data and --set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from wayfare.cli.console import Json, Recipe, Settings, answer, err, parse_settings, recipe_path
from wayfare.cli.runs import Engine, Track, Workers, run_all
from wayfare.errors import ConfigError, unknown
from wayfare.machine import opened
from wayfare.reports.compare import Comparison, Group, write_page
from wayfare.reports.partition import write_partition
from wayfare.reports.record import Record
from wayfare.reports.reproduction import (
    MEASURES,
    ROUNDS_TO,
    Cell,
    Fact,
    Paper,
    places_table,
    reproduction,
    small_scale,
)
from wayfare.reports.tables import compare_table

if TYPE_CHECKING:
    from wayfare.experiment import Experiment

_OWN = ("label", "paper", "paper_sd", "also")  # of a cell, beside its settings
_SAFE = ".safetensors"
_OF_NETWORKS = ("parameters_M", "trained_M")  # columns that no run folder has


class Scale(StrEnum):
    """How large a reproduction is."""

    small = "small"
    paper = "paper"


@dataclass(frozen=True)
class Plan:
    """A recipe at one scale."""

    name: str
    title: str
    about: str
    paper: Paper | None
    scale: str  # "" where the recipe has but one
    small: str  # what small scale means, in words
    cells: dict[str, Cell]
    experiments: dict[str, Experiment]
    whole: Experiment | None  # of a figure about the split, which has no cells
    changed: str  # by --set, in words

    @property
    def folder(self) -> Path:
        """Where its runs go unless something else is asked for; recipes of one paper share theirs."""
        shared = self.paper.runs if self.paper is not None else ""
        return Path("runs") / (shared or self.name) / self.scale

    @property
    def page(self) -> str:
        """The page's name: of several recipes in one folder each has its own."""
        return f"{self.name}.html" if self.paper is not None else "index.html"


def reproduce(
    recipe: Recipe,
    data: Annotated[Path | None, typer.Option(help="The paper's data set, where you have it on disk.")] = None,
    scale: Annotated[
        Scale | None,
        typer.Option(help="The paper's settings, or small ones that need no data; by default paper with --data."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the runs go; a folder that exists is continued.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per cell.")] = 1,
    cells: Annotated[str, typer.Option(help="Only these cells, comma-separated.")] = "",
    engine: Engine = "auto",
    workers: Workers = 0,
    set_: Settings = None,
    track: Track = None,
    json: Json = False,
) -> None:
    """Run every cell of a recipe's table and put them side by side, with the paper's values where it has some.

    A recipe has cells: [cells.NAME] with the settings in which each differs. Finished cells are not run again, and an
    interrupted one goes on: give the same command again.
    """
    path, changes = recipe_path(recipe), parse_settings(set_)
    result, shown = reproduce_recipe(path, out, seeds, cells, engine, workers, changes, track, scale, data)
    answer(result, json, *shown)


def reproduce_recipe(
    path: Path,
    out: Path | None,
    seeds: int,
    only: str,
    engine: str,
    workers: int,
    changes: Mapping[str, Any],
    track: list[str] | None,
    scale: Scale | None = None,
    data: Path | None = None,
) -> tuple[dict[str, Any], list[Any]]:
    """All cells of a recipe; returns the result and what to show of it."""
    with opened(engine, workers) as machine:
        plan = read_plan(path, scale, data, changes, [name.strip() for name in only.split(",") if name.strip()])
        folder = out or plan.folder
        if plan.paper is not None and plan.whole is not None:
            return _show_split(plan, plan.paper, plan.whole, folder)
        chosen, left_out = _choose(plan, path)
        runs = {name: seeds_of(plan, name, seeds) for name in chosen}
        run_all({run: e for each in runs.values() for run, e in each.items()}, folder, machine, track)
    groups = [Group(name, tuple(Record.read(folder / run) for run in runs[name])) for name in chosen]
    comparison = Comparison(tuple(groups))
    return _result(plan, {name: plan.cells[name] for name in chosen}, left_out, comparison, folder)


def _result(
    plan: Plan, cells: dict[str, Cell], left_out: dict[str, str], comparison: Comparison, folder: Path
) -> tuple[dict[str, Any], list[Any]]:
    if plan.paper is None:
        page = write_page(comparison, folder / plan.page, plan.title, plan.about)
        return comparison.as_dict() | {"page": str(page)}, [compare_table(comparison), f"page: {page}"]
    facts = {name: _network_facts(plan.experiments[name], cell) for name, cell in cells.items()}
    found = reproduction(plan.paper, cells, comparison, plan.scale, plan.small, left_out, facts, plan.changed)
    page = write_page(comparison, folder / plan.page, plan.title, plan.about, found.section(comparison))
    shown = [found.table(comparison), *map(Text, found.notes), f"page: {page}"]
    notes = [*found.notes, *comparison.notes]
    return comparison.as_dict() | found.as_dict() | {"notes": notes, "page": str(page)}, shown


def _show_split(plan: Plan, paper: Paper, whole: Experiment, folder: Path) -> tuple[dict[str, Any], list[Any]]:
    """A figure of who has what: the split is drawn, and nothing is trained."""
    from wayfare.runner import partition_summary

    err.print(f"{plan.name}: drawing the split ...", highlight=False)
    summary = partition_summary(whole.split(), whole)
    if "places" not in summary:
        raise ConfigError(f"{plan.name}: paper.split counts what is in each city, and this task has no cities")
    page = write_partition(summary, folder / plan.page)
    kinds = {kind: summary["places"][kind] for kind in ("cities", "continents")}
    notes = [small_scale(plan.small)] if plan.scale == Scale.small else []
    notes += [f"Changed: {plan.changed}."] if plan.changed else []
    tables = [places_table(paper, rows) for rows in kinds.values()]
    shown = [Text(plan.title), *tables, Text(plan.about), *map(Text, notes), f"page: {page}"]
    title = {"paper": {"title": paper.title}, "scale": plan.scale, "notes": notes}
    return title | {"table": summary["table"]} | kinds | {"page": str(page)}, shown


# ---- the recipe


def read_plan(
    path: Path,
    scale: Scale | None = None,
    data: Path | None = None,
    changes: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
) -> Plan:
    """A recipe's cells as experiments, or some of them; nothing of data or weights has to be there for that."""
    from wayfare.components import build
    from wayfare.experiment import Experiment, override, read_table

    table = read_table(path)
    small: dict[str, Any] | None = table.pop("small", None)
    if small is None and scale is Scale.small:
        raise ConfigError(f"{path} has no [small]: it cannot be run at small scale")
    chosen = "" if small is None else (scale or (Scale.small if data is None else Scale.paper)).value
    paper = build(Paper, table.pop("paper"), "paper") if "paper" in table else None
    is_small, last = chosen == Scale.small, dict(changes or {})
    if data is not None:
        if not data.exists():  # a folder, or the one file that a data set is
            raise ConfigError(f"--data {data}: there is no such file or folder")
        last |= {"task.path": str(data.resolve())}
    if paper is not None and paper.data and chosen == Scale.paper and "task.path" not in last:
        raise ConfigError(f"--scale paper needs --data DIR, the folder of {paper.data}; --scale small needs nothing")
    if is_small and small is not None:
        table = _over(table, {key: value for key, value in small.items() if key not in ("about", "without_data")})
        table = _over(table, small.get("without_data", {}) if data is None else {})
    tables: dict[str, dict[str, Any]] = table.pop("cells", {})
    for name in only:
        if name not in tables:
            raise unknown("cell", name, tables, str(path))
    cells, experiments = {}, {}
    for name, settings in tables.items():
        if not isinstance(settings, dict):
            raise ConfigError(f"{path}: cells.{name} = {settings!r}: a table is wanted, [cells.{name}]")
        own = {key: value for key, value in settings.items() if key not in (*_OWN, "small")}
        made = _over(table, own)
        if is_small:
            made = _over(made, settings.get("small", {}))
        cells[name] = _cell({key: settings[key] for key in _OWN if key in settings}, f"{path}: cells.{name}")
        if ROUNDS_TO in cells[name].also and not (paper and paper.reach):
            raise ConfigError(f"{path}: cells.{name}.also.{ROUNDS_TO} needs paper.reach, the value of paper.metric")
        if not only or name in only:  # what is changed need not fit the others
            experiments[name] = Experiment.from_table(override(made, last), name)
    about = " ".join(str(table.get("about", "")).split())
    title = (paper.title if paper else "") or str(table.get("name", path.stem))
    words = str((small or {}).get("about", "")) if data is None else f"the recipe's small settings, on {data.name}"
    whole = Experiment.from_table(override(table, last), path.stem) if paper is not None and paper.split else None
    changed = ", ".join(f"{key} = {value}" for key, value in (changes or {}).items())
    return Plan(path.stem, title, about, paper, chosen, words, cells, experiments, whole, changed)


def read_cells(path: Path) -> tuple[Paper, dict[str, Cell]] | None:
    """What the paper has for a recipe's table, without its experiments; None where the recipe is of no paper."""
    from wayfare.components import build
    from wayfare.experiment import read_table

    table = read_table(path)
    if "paper" not in table:
        return None
    cells = {
        name: _cell({key: settings[key] for key in _OWN if key in settings}, f"{path}: cells.{name}")
        for name, settings in table.get("cells", {}).items()
    }
    return build(Paper, table["paper"], "paper"), cells


def _over(table: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    from wayfare.experiment import flatten, override

    return override(table, dict(flatten(dict(settings))))


def _cell(own: dict[str, Any], where: str) -> Cell:
    from wayfare.components import build

    also = own.get("also", {})
    if isinstance(also, dict):
        for name in also:
            if name not in (*MEASURES, *_OF_NETWORKS, ROUNDS_TO) and "/" not in name:
                raise unknown("column", name, (*MEASURES, *_OF_NETWORKS, ROUNDS_TO), f"{where}.also")
        own = own | {"also": {name: tuple(fact) if isinstance(fact, list) else fact for name, fact in also.items()}}
    cell: Cell = build(Cell, own, where)
    return cell


def _choose(plan: Plan, path: Path) -> tuple[list[str], dict[str, str]]:
    """The cells to run, and those that cannot be, with the reason."""
    if not plan.cells:
        raise ConfigError(f"{path} has no [cells.NAME] tables: it is one experiment, for `wayfare run`")
    chosen = list(plan.experiments)
    missing = {name: file for name in chosen if (file := missing_weights(plan.experiments[name]))}
    if missing and (plan.scale != Scale.small or len(missing) == len(chosen)):
        files, first = ", ".join(dict.fromkeys(missing.values())), next(iter(missing.values()))
        converted = f"Bring torchvision's: wayfare data import-weights FILE.pth {first}"
        how = converted if first.endswith(_SAFE) else "Bring it"
        raise ConfigError(f"task.weights: no file {files} here. {how}; another path: --set task.weights=FILE")
    left_out = {name: f"its weights, {file}, are not here" for name, file in missing.items()}
    for name, why in left_out.items():
        err.print(f"[yellow]left out[/yellow] {name}: {why}", highlight=False, soft_wrap=True)
    return [name for name in chosen if name not in missing], left_out


def missing_weights(experiment: Experiment) -> str:
    """The weight file that a task names and that is not there; names such as "auto" have no suffix."""
    weights = str(getattr(experiment.task, "weights", ""))
    return weights if Path(weights).suffix and not Path(weights).is_file() else ""


def seeds_of(plan: Plan, name: str, seeds: int) -> dict[str, Experiment]:
    """The runs of a cell by folder; a paper's can be given more seeds later."""
    experiment = plan.experiments[name]
    if seeds == 1 and plan.paper is None:
        return {name: experiment}
    first = experiment.seed
    return {f"{name}/seed-{seed}": experiment.with_seed(seed) for seed in range(first, first + seeds)}


def _network_facts(experiment: Experiment, cell: Cell) -> dict[str, Fact]:
    """Parameters in millions, where the paper has a column for them."""
    if not set(cell.also) & set(_OF_NETWORKS):
        return {}
    parameters = list(experiment.task.network().parameters())
    counts = sum(p.numel() for p in parameters), sum(p.numel() for p in parameters if p.requires_grad)
    return {name: count / 1e6 for name, count in zip(_OF_NETWORKS, counts)}


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(reproduce)
