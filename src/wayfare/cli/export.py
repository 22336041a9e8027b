"""The command that writes a run for other programs: export."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from wayfare.cli.console import AllowCode, Json, answer, progress_bar
from wayfare.core.text import printable
from wayfare.pages.tables import human_bytes


class Targets(StrEnum):
    """What can be written."""

    onnx = "onnx"
    executorch = "executorch"
    web = "web"
    weights = "weights"


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    to: Annotated[Targets, typer.Option("--to", help="What to write.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to write to. Default: RUN/export-onnx, ...")
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="For onnx and web: weights in 8 bits. Measures what it costs.")
    ] = False,
    index: Annotated[Path | None, typer.Option("--index", help="For web: the index. Default: RUN/index.")] = None,
    pictures: Annotated[
        int, typer.Option("--pictures", min=0, max=1024, help="For web: pixels of the index's small pictures; 0: none.")
    ] = 128,
    data: Annotated[
        Path | None, typer.Option("--data", help="Where the run's training data is now, if it was moved.")
    ] = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Write a trained model for other programs: an ONNX file, an ExecuTorch program, or a page that answers by itself.

    model.json beside the model says how inputs are prepared, what the outputs mean, and how near they are to the run's
    own. web is a folder for any static file server: the model runs in the browser, and photos are sent to nobody. The
    folder contains the index: positions, names and small pictures of its photos. Whoever gets the folder gets these.
    """
    from wayfare.exporting.exporter import export as write

    with progress_bar("reading the run", transient=True) as progress:
        made = write(
            run, to.value, out, int8=int8, index=index, pictures=pictures, data=data, progress=progress,
        )  # fmt: skip
    size = f"{len(made.files)} files, {human_bytes(made.bytes)}"
    lines = [*made.notes, f"{printable(made.folder, 1000)}: {size}"]
    if to is Targets.web:
        lines.append(f"To open it: python -m http.server --directory {printable(made.folder, 1000)}")
    result = {"folder": str(made.folder), "to": to.value, "files": list(made.files), "bytes": made.bytes}
    answer(result | {"manifest": made.manifest}, json, *lines)


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(export)
