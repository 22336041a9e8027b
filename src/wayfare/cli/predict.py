"""The command that says what is in photos, by a run of a task with classes: predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from wayfare.cli.console import AllowCode, Json, answer, list_notes, plain_table
from wayfare.pages.tables import plain

if TYPE_CHECKING:
    from wayfare.finished import Prediction


def predict(
    photos: Annotated[list[Path], typer.Argument(help="Photos, or folders of them.", metavar="PHOTO...")],
    run: Annotated[Path, typer.Option("--run", help="The folder of a finished run of task objects or attributes.")],
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="How many classes to list per photo.")] = 3,
    data: Annotated[
        Path | None, typer.Option("--data", help="Where the run's training data is now, if it was moved.")
    ] = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Classify photos: the most probable classes of each.

    Photos that cannot be read are listed and skipped; exit status 1 if none is left.
    """
    from wayfare.finished import ClassifierRun, load
    from wayfare.io.folders import photo_files

    model = load(run, data)
    if not isinstance(model, ClassifierRun):
        model.refuse("predict")
    found, skipped = model.predict_files(list(dict.fromkeys(photo_files(photos))))
    list_notes([f"skipped {item.file}: {item.reason}" for item in skipped])
    result = {
        "run": str(run),
        "answers": [_as_dict(each, k) for each in found],
        "skipped": [item._asdict() for item in skipped],
    }
    answer(result, json, *([_table(found, k)] if found else []))
    if not found:
        raise typer.Exit(1)


def _as_dict(found: Prediction, k: int) -> dict[str, Any]:
    return {"photo": str(found.photo), "label": found.label, "scores": dict(list(found.scores.items())[:k])}


def _table(found: list[Prediction], k: int) -> Table:
    table = plain_table(f"{len(found)} photos" if len(found) > 1 else str(found[0].photo))
    for name in ("photo", "answer", "others"):
        table.add_column(name, overflow="fold")
    for each in found:
        first, *others = [f"{label} ({score:.2f})" for label, score in list(each.scores.items())[:k]]
        table.add_row(*(Text(plain(cell)) for cell in (each.photo.name, first, ", ".join(others))))
    return table


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(predict)
