"""Commands that look: report, compare, list, split."""

from __future__ import annotations

import dataclasses
import re
import sys
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from wayfare.cli.console import AllowCode, Json, Recipe, Settings, answer, err, foreign, list_notes, parse_settings
from wayfare.components import find, names
from wayfare.core import disk
from wayfare.core.errors import WayfareError
from wayfare.pages.compare import compare as compare_runs
from wayfare.pages.compare_page import write_page
from wayfare.pages.partition import write_partition
from wayfare.pages.reach import TargetValue
from wayfare.pages.reach import reach as cost_of
from wayfare.pages.record import Record, find_runs
from wayfare.pages.semantic_split import semantic_tables
from wayfare.pages.tables import compare_table, partition_table, places_tables, run_table, runs_table
from wayfare.papers.files import recipe_path, recipes
from wayfare.report import write_report


class Things(StrEnum):
    """What can be listed."""

    runs = "runs"
    recipes = "recipes"
    tasks = "tasks"
    strategies = "strategies"
    topologies = "topologies"
    exchanges = "exchanges"
    privacy = "privacy"
    robust = "robust"
    attacks = "attacks"
    compressions = "compressions"
    clocks = "clocks"
    partitions = "partitions"
    engines = "engines"


def report(
    folder: Annotated[Path, typer.Argument(help="A run folder, finished or not.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write. Default: report.html in the run folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a report about a run: one HTML file that opens offline."""
    record = Record.read(folder)
    page = write_report(folder, out)
    answer(
        {"run": str(folder), "page": str(page), "metrics": record.final_metrics},
        json,
        run_table(record),
        f"report: {page}",
    )


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, or folders that contain runs.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write a page.")] = None,
    reach: Annotated[
        list[str] | None,
        typer.Option(help="METRIC=VALUE: rounds, megabytes and virtual time until it is reached. Repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Compare runs side by side; runs that differ only in their seed are shown as mean and standard deviation."""
    comparison = compare_runs(folders)
    reached = [cost_of(comparison, TargetValue.parse(text)) for text in reach or ()]
    shown: list[Any] = [compare_table(comparison), *(each.shown() for each in reached)]
    result = comparison.as_dict()
    if reached:
        result["reach"] = [each.as_dict() for each in reached]
    if out is not None:
        result["page"] = str(write_page(comparison, out, reach=[each.as_table() for each in reached]))
        shown.append(f"page: {out}")
    answer(result, json, *shown)


def list_(
    what: Annotated[Things, typer.Argument(help="What to list.")] = Things.runs,
    folder: Annotated[Path, typer.Option("--in", help="Where to look for runs.")] = Path("runs"),
    json: Json = False,
) -> None:
    """List the runs in a folder, the recipes, or the available strategies, tasks, ... with their settings."""
    if what is Things.runs:
        records, broken = [], []
        for path in find_runs(folder):
            try:
                records.append(Record.read(path))
            except WayfareError as error:
                broken.append({"run": str(path), "error": str(error)})
        rows = [
            {"run": str(r.path), "rounds": r.done, "finished": r.finished, "metrics": r.final_metrics} for r in records
        ]
        empty = [f"no runs in {folder}: start one with `wayfare run quickstart`"] if not rows else []
        answer({"runs": rows, "broken": broken}, json, runs_table(records), *empty, *(b["error"] for b in broken))
    elif what is Things.recipes:
        found = recipes()
        about = {name: {"path": str(path), "about": _about(path)} for name, path in found.items()}
        table = Table(title="recipes", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("recipe", no_wrap=True)
        table.add_column("about", overflow="fold")
        for name, recipe in sorted(about.items(), key=lambda item: ("/" in item[0], item[0])):
            table.add_row(foreign(name), foreign(_first_sentence(recipe["about"])))
        answer({"recipes": about}, json, table, "wayfare list recipes --json says more of each.")
    else:
        kind = {"strategies": "strategy", "topologies": "topology"}.get(what.value, what.value.rstrip("s"))
        described = {name: describe(kind, name) for name in names(kind)}
        table = Table("name", "what it is", "settings and defaults", title=what.value)
        for name, row in described.items():
            table.add_row(name, row["about"], ", ".join(f"{k} = {v}" for k, v in row["settings"].items()))
        answer({what.value: described}, json, table)


def split(
    recipe: Recipe,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write a page about it.")] = None,
    save: Annotated[
        Path | None, typer.Option(help="Also save it: FILE, FILE.csv; scenes: ids to FILE.json, or a folder.")
    ] = None,
    set_: Settings = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Make a recipe's partition and show how the data of its clients differ, or where their photographs were taken.

    A semantic partition also shows what its clusters contain, and how clients differ at each level.
    """
    from wayfare.experiment import Experiment
    from wayfare.partition.summary import summarise_split

    experiment = Experiment.read(recipe_path(recipe), parse_settings(set_))
    with err.status("reading and dividing the data"):
        drawn = experiment.split()
    summary = summarise_split(drawn, experiment.task)
    unable = experiment.able(drawn)[1]
    if unable:
        summary["cannot_train"] = unable
        list_notes([f"{id} can never train, and takes no part in a run: {why}" for id, why in unable.items()])
    owners = summary["provenance"].get("owners", [])
    if owners:
        named = [(drawn.id(at), owner, drawn.size(at)) for at, owner in enumerate(owners)]
        list_notes([f"{id}: {'' if id == owner else owner + ', '}{size} samples" for id, owner, size in named])
    if absent := summary["provenance"].get("left_out"):
        list_notes([f"{absent} of the listed samples are not among those to train on, and are left out"])
    shown: list[Any] = places_tables(summary) if "places" in summary else [partition_table(summary["table"])]
    if "semantics" in summary:
        shown += semantic_tables(summary["semantics"])
    if save is not None:
        if save.suffix.lower() == ".csv":
            from wayfare.partition.column import as_csv

            files = experiment.task.source("files") if "files" in experiment.task.sources else None
            disk.write(save, as_csv(drawn, files))
        elif not experiment.task.save_split(drawn, save):
            disk.write(save, drawn.pack())
        summary["file"] = str(save)
        shown.append(f"saved: {foreign(save)}")
    if out is not None:
        from wayfare.pages.thumbnails import PictureSource, Thumbnails

        thumbnails = Thumbnails()
        summary["page"] = str(
            write_partition(summary, out, lambda f, side: thumbnails.picture(PictureSource(Path(f), ""), side))
        )
        shown.append(f"page: {out}")
    answer(summary, json, *shown)


def describe(kind: str, name: str) -> dict[str, Any]:
    """A component's first line of documentation and its settings."""
    cls = find(kind, name)
    settings = {}
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            if field.init:
                settings[field.name] = _default(field)
    is_alone = not any(find(kind, other).__module__ == cls.__module__ for other in names(kind) if other != name)
    about = (is_alone and sys.modules[cls.__module__].__doc__) or cls.__doc__ or ""
    return {"about": about.strip().splitlines()[0], "settings": settings, "where": f"{cls.__module__}:{cls.__name__}"}


def _default(field: dataclasses.Field[Any]) -> Any:
    part = field.metadata.get("part")
    if part is not None:
        others = [name for name in part.known if name != part.default]
        return f"{part.default} (or {', '.join(others)})" if others else part.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return "(required)" if field.default is dataclasses.MISSING else field.default


def _first_sentence(text: str) -> str:
    """The first sentence: "Tab. 3" or "Sect. IV" does not end one."""
    words = " ".join(text.split())
    return re.split(r"(?<=[a-z0-9)]{3}[.?])\s(?=[A-Z])", words, maxsplit=1)[0]


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
