"""A recipe's table as experiments, one for each cell, at one of its scales.

A recipe's cells say in which settings each differs from the recipe, and what the paper has for it:

    [paper]                     what the table is; see `wayfare.papers.paper.Paper`
    [small]                     settings that replace the recipe's at small scale; `about` describes them in words
    [small.without_data]        more of them, for the data that stands in where no data set is given
    [cells.NAME]                settings, and beside them label, paper, paper_sd and also
    [cells.NAME.small]          settings of the cell at small scale

These are layers, each over those before it: the recipe, [small], [small.without_data], the cell, its own small, --set
and --data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from wayfare.components import build
from wayfare.core.errors import ConfigError, unknown
from wayfare.experiment import Experiment
from wayfare.papers.paper import REACHED, Cell, Paper, Scale
from wayfare.papers.reproduction import MEASURES
from wayfare.recipe import flatten, override, read_table, with_data

OF_NETWORKS = ("parameters_M", "trained_M")  # columns that no run folder has
_COLUMNS = (*MEASURES, *OF_NETWORKS, *REACHED)
_OF_CELL = ("label", "paper", "paper_sd", "also")  # beside the settings

Layer = Mapping[str, Any]  # nested tables, or dotted keys


@dataclass(frozen=True)
class Plan:
    """A recipe at one scale."""

    name: str
    title: str
    about: str
    paper: Paper | None
    scale: str  # "" where the recipe has only one
    small: str  # what small scale means, in words
    cells: dict[str, Cell]
    experiments: dict[str, Experiment]
    whole: Experiment | None  # of a figure about the split, which has no cells
    changed: str  # by `changes`, in words

    @property
    def folder(self) -> Path:
        """Where its runs go by default; recipes of one paper share a folder."""
        shared = self.paper.runs if self.paper is not None else ""
        return Path("runs") / (shared or self.name) / self.scale

    @property
    def page(self) -> str:
        """The page's name: each of several recipes in one folder has its own."""
        return f"{self.name}.html" if self.paper is not None else "index.html"

    def runs_of(self, cell: str, seeds: int) -> dict[str, Experiment]:
        """The runs of a cell by folder. A paper's cells always have a folder per seed: seeds can be added later."""
        experiment = self.experiments[cell]
        if seeds == 1 and self.paper is None:
            return {cell: experiment}
        first = experiment.seed
        return {f"{cell}/seed-{seed}": experiment.with_seed(seed) for seed in range(first, first + seeds)}


def read_plan(
    path: Path,
    scale: Scale | None = None,
    data: Path | None = None,
    changes: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
) -> Plan:
    """A recipe's cells as experiments, or those named in `only`. Neither data nor weights have to be there for that.

    `data` is the folder or file of the data set, `changes` are dotted keys ("training.lr") that replace settings. The
    default scale is small without `data` and paper with it.
    """
    recipe, changes = _Recipe.read(path), dict(changes or {})
    chosen = recipe.scale(scale, data)
    _check_data(recipe, chosen, data, changes)
    for name in only:
        if name not in recipe.cells:
            raise unknown("cell", name, recipe.cells, str(path))
    chosen_cells = [name for name in recipe.cells if not only or name in only]  # `changes` need not fit the others
    shared = recipe.layers(chosen, data)

    def experiment(name: str, *own: Layer) -> Experiment:
        return Experiment.from_table(_on_data(fold([*shared, *own, changes]), data), name)

    return Plan(
        name=path.stem,
        title=recipe.title,
        about=recipe.about,
        paper=recipe.paper,
        scale=chosen,
        small=recipe.small_words(data),
        cells=recipe.facts(),
        experiments={name: experiment(name, *recipe.cell_layers(name, chosen)) for name in chosen_cells},
        whole=experiment(path.stem) if recipe.paper is not None and recipe.paper.split else None,
        changed=", ".join(f"{key} = {value}" for key, value in changes.items()),
    )


def read_cells(path: Path) -> tuple[Paper, dict[str, Cell]] | None:
    """What the paper has for a recipe's table, without its experiments; None where the recipe is of no paper."""
    recipe = _Recipe.read(path)
    return None if recipe.paper is None else (recipe.paper, recipe.facts())


def read_experiment(path: Path, changes: Mapping[str, Any] | None = None, data: Path | None = None) -> Experiment:
    """A recipe without cells, on this data set."""
    return Experiment.from_table(_on_data(fold([read_table(path), changes or {}]), data), path.stem)


def missing_weights(experiment: Experiment) -> str:
    """The first file that a task names and that does not exist, such as weights."""
    return next(iter(experiment.task.missing_files()), "")


# ---- layers


def fold(layers: Iterable[Layer]) -> dict[str, Any]:
    """One table of all layers, each over those before it."""
    return reduce(lambda table, layer: override(table, dict(flatten(dict(layer)))), layers, {})


def _on_data(table: dict[str, Any], data: Path | None) -> dict[str, Any]:
    """A recipe's table with the data set that was given."""
    if data is None:
        return table
    if not data.exists():  # a folder, or the one file that a data set is
        raise ConfigError(f"--data {data}: there is no such file or folder")
    return with_data(table, data.resolve())


def _check_data(recipe: _Recipe, scale: str, data: Path | None, changes: Layer) -> None:
    needed = recipe.paper.data if recipe.paper is not None and scale == Scale.paper else ""
    if needed and data is None and "data.path" not in changes:
        raise ConfigError(f"--scale paper needs --data DIR, the folder of {needed}; --scale small needs nothing")


# ---- the file


@dataclass(frozen=True)
class _Recipe:
    """A recipe's file in its parts."""

    path: Path
    settings: dict[str, Any]  # what all cells have in common
    paper: Paper | None
    small: dict[str, Any] | None
    cells: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> _Recipe:
        table = read_table(path)
        paper, small, cells = table.pop("paper", None), table.pop("small", None), table.pop("cells", {})
        for name, settings in cells.items():
            if not isinstance(settings, dict):
                raise ConfigError(f"{path}: cells.{name} = {settings!r}: expected a table, [cells.{name}]")
        return cls(path, table, None if paper is None else build(Paper, paper, "paper"), small, cells)

    @property
    def about(self) -> str:
        return " ".join(str(self.settings.get("about", "")).split())

    @property
    def title(self) -> str:
        return (self.paper.title if self.paper else "") or str(self.settings.get("name", self.path.stem))

    def scale(self, wanted: Scale | None, data: Path | None) -> str:
        """The scale to run at; "" for a recipe that has only one."""
        if self.small is not None:
            return (wanted or default_scale(data)).value
        if wanted is Scale.small:
            raise ConfigError(f"{self.path} has no [small]: it cannot be run at small scale")
        return ""

    def layers(self, scale: str, data: Path | None) -> list[Layer]:
        """Settings of all cells, the lowest first."""
        if scale != Scale.small or self.small is None:
            return [self.settings]
        own = {key: value for key, value in self.small.items() if key not in ("about", "without_data")}
        return [self.settings, own, self.small.get("without_data", {}) if data is None else {}]

    def cell_layers(self, name: str, scale: str) -> list[Layer]:
        """Settings of one cell, which go over those."""
        settings = self.cells[name]
        own = {key: value for key, value in settings.items() if key not in (*_OF_CELL, "small")}
        return [own, settings.get("small", {}) if scale == Scale.small else {}]

    def small_words(self, data: Path | None) -> str:
        """What is different at small scale."""
        return f"the recipe's small settings, on {data.name}" if data else str((self.small or {}).get("about", ""))

    def facts(self) -> dict[str, Cell]:
        """What the paper has for each cell."""
        return {name: self._cell(name, settings) for name, settings in self.cells.items()}

    def _cell(self, name: str, settings: Mapping[str, Any]) -> Cell:
        where = f"{self.path}: cells.{name}"
        own = {key: settings[key] for key in _OF_CELL if key in settings}
        also = own.get("also", {})
        if isinstance(also, dict):
            for column in also:
                if column not in _COLUMNS and "/" not in column:
                    raise unknown("column", column, _COLUMNS, f"{where}.also")
            own["also"] = {column: tuple(fact) if isinstance(fact, list) else fact for column, fact in also.items()}
        cell: Cell = build(Cell, own, where)
        if (counted := REACHED.keys() & cell.also.keys()) and not (self.paper and self.paper.reach):
            raise ConfigError(f"{where}.also.{min(counted)} needs paper.reach, the value of paper.metric")
        return cell


def default_scale(data: Path | None) -> Scale:
    """The paper's settings are for the paper's data."""
    return Scale.small if data is None else Scale.paper
