"""Commands that look: report, compare, list, split."""

from __future__ import annotations

import dataclasses
import sys
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from wayfare.cli.console import Json, Recipe, Settings, answer, err, parse_settings, recipe_path, recipes
from wayfare.core import disk
from wayfare.errors import WayfareError
from wayfare.reports.compare import compare as compare_runs
from wayfare.reports.compare import write_page
from wayfare.reports.partition import write_partition
from wayfare.reports.record import Record, find_runs
from wayfare.reports.report import write_report
from wayfare.reports.semantic_split import semantic_tables
from wayfare.reports.tables import compare_table, partition_table, places_tables, run_table, runs_table


class Things(StrEnum):
    """What can be listed."""

    runs = "runs"
    recipes = "recipes"
    tasks = "tasks"
    strategies = "strategies"
    topologies = "topologies"
    exchanges = "exchanges"
    partitions = "partitions"
    engines = "engines"


def report(
    folder: Annotated[Path, typer.Argument(help="A run folder, finished or not.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; by default report.html in the folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a run's page: one HTML file that opens offline."""
    record = Record.read(folder)
    page = write_report(folder, out)
    answer(
        {"run": str(folder), "page": str(page), "metrics": final_metrics(record)},
        json,
        run_table(record),
        f"report: {page}",
    )


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, or folders of runs.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write a page.")] = None,
    json: Json = False,
) -> None:
    """Put runs side by side; runs that differ only in their seed become mean and standard deviation."""
    comparison = compare_runs(folders)
    shown: list[Any] = [compare_table(comparison)]
    result = comparison.as_dict()
    if out is not None:
        result["page"] = str(write_page(comparison, out))
        shown.append(f"page: {out}")
    answer(result, json, *shown)


def list_(
    what: Annotated[Things, typer.Argument(help="What to list.")] = Things.runs,
    folder: Annotated[Path, typer.Option("--in", help="Where to look for runs.")] = Path("runs"),
    json: Json = False,
) -> None:
    """List the runs of a folder, or the recipes, strategies, tasks, ... there are, with their settings."""
    if what is Things.runs:
        records, broken = [], []
        for path in find_runs(folder):
            try:
                records.append(Record.read(path))
            except WayfareError as error:
                broken.append({"run": str(path), "error": str(error)})
        rows = [
            {"run": str(r.path), "rounds": r.done, "finished": r.finished, "metrics": final_metrics(r)} for r in records
        ]
        empty = [f"no runs in {folder}: begin one with `wayfare run quickstart`"] if not rows else []
        answer({"runs": rows, "broken": broken}, json, runs_table(records), *empty, *(b["error"] for b in broken))
    elif what is Things.recipes:
        found = recipes()
        about = {name: {"path": str(path), "about": _about(path)} for name, path in found.items()}
        table = Table("recipe", "about", "path", title="recipes")
        for name, recipe in about.items():
            table.add_row(name, recipe["about"], recipe["path"])
        answer({"recipes": about}, json, table)
    else:
        from wayfare.components import names

        kind = {"strategies": "strategy", "topologies": "topology"}.get(what.value, what.value.rstrip("s"))
        described = {name: describe(kind, name) for name in names(kind)}
        table = Table("name", "what it is", "settings and defaults", title=what.value)
        for name, row in described.items():
            table.add_row(name, row["about"], ", ".join(f"{k} = {v}" for k, v in row["settings"].items()))
        answer({what.value: described}, json, table)


def split(
    recipe: Recipe,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also draw it on a page.")] = None,
    save: Annotated[Path | None, typer.Option(help="Also write the partition itself to this file.")] = None,
    set_: Settings = None,
    json: Json = False,
) -> None:
    """Draw a recipe's partition and print how different its clients are, or where their photographs are.

    Of a semantic partition also what its clusters are about, and how different clients are at each level.
    """
    from wayfare.experiment import Experiment
    from wayfare.runner import partition_summary

    experiment = Experiment.read(recipe_path(recipe), parse_settings(set_))
    with err.status("reading the data and dealing it out"):
        drawn = experiment.split()
    summary = partition_summary(drawn, experiment)
    shown: list[Any] = places_tables(summary) if "places" in summary else [partition_table(summary["table"])]
    if "semantics" in summary:
        shown += semantic_tables(summary["semantics"])
    if save is not None:
        disk.write(save, drawn.pack())
        summary["file"] = str(save)
    if out is not None:
        from wayfare.gallery.album import Album, Wanted

        album = Album()
        summary["page"] = str(write_partition(summary, out, lambda f, side: album.picture(Wanted(Path(f), ""), side)))
        shown.append(f"page: {out}")
    answer(summary, json, *shown)


def final_metrics(record: Record) -> dict[str, float | None]:
    """Every metric as last measured."""
    return {name: record.final(name) for name in record.metrics}


def describe(kind: str, name: str) -> dict[str, Any]:
    """A component's first line of documentation and its settings."""
    from wayfare.components import find

    cls = find(kind, name)
    settings = {}
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            if field.init:
                settings[field.name] = "(required)" if field.default is dataclasses.MISSING else field.default
    module = sys.modules[cls.__module__].__doc__ or cls.__doc__ or ""
    return {"about": module.strip().splitlines()[0], "settings": settings, "where": f"{cls.__module__}:{cls.__name__}"}


def _about(path: Path) -> str:
    try:
        return str(tomllib.loads(path.read_text(encoding="utf-8")).get("about", ""))
    except (tomllib.TOMLDecodeError, OSError) as error:
        return f"unreadable: {error}"


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    app.command()(report)
    app.command()(compare)
    app.command("list")(list_)
    app.command()(split)
