"""The command that uses a trained relation head: graph."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import MofNCompleteColumn
from rich.text import Text

from wayfare.cli.console import AllowCode, Json, answer, list_notes, plain_table, progress_bar
from wayfare.pages.tables import number, plain

if TYPE_CHECKING:
    from wayfare.scenes.graph import PredictedGraph

_MOST_IN_DETAIL = 5  # pictures of which every relation is printed


def graph(
    pictures: Annotated[
        list[Path],
        typer.Argument(help="Photos, folders of photos, or a psg.json.", metavar="PHOTO|ANNOTATION|FOLDER..."),
    ],
    run: Annotated[Path, typer.Option("--run", help="The folder of a finished run of task scenes.")],
    boxes: Annotated[
        Path | None,
        typer.Option("--boxes", help="The objects in the photos, as JSON or CSV: see docs/graph.md."),
    ] = None,
    image: Annotated[
        list[str] | None, typer.Option("--image", help="Only this picture of a psg.json, by id or name. Repeatable.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Relations per picture.")] = 10,
    most: Annotated[int, typer.Option("--most", min=1, help="At most this many pictures of a psg.json.")] = 100,
    score: Annotated[
        float, typer.Option("--score", min=0, max=1, help="Least confidence of a detected object.")
    ] = 0.45,
    data: Annotated[
        Path | None, typer.Option("--data", help="Where the run's training data is now, if it was moved.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for pictures, JSON files and a page of all graphs.")
    ] = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Make scene graphs of pictures with a trained model: as JSON, as pictures and as a page.

    Objects come from the annotation, from --boxes, or else from a detector, which is an optional extra. Pictures that
    cannot be read are listed and skipped; exit status 1 if none is left.
    """
    from wayfare.scenes.boxes import read_boxes
    from wayfare.scenes.graph import GraphReport, as_table, graphs
    from wayfare.scenes.graph_files import GraphFiles
    from wayfare.scenes.scene_model import load_scene_model

    if out is not None and out.exists() and not out.is_dir():
        raise typer.BadParameter(f"{out} is a file: give a folder", param_hint="--out")
    given = None if boxes is None else read_boxes(boxes)
    with progress_bar(f"reading {run}", MofNCompleteColumn(), transient=True) as show:
        model = load_scene_model(run, data)
        files = None if out is None else GraphFiles(out, model)
        report = GraphReport()
        tables: list[dict[str, Any]] = []
        first: list[PredictedGraph] = []
        for made in graphs(
            model, pictures, boxes=given, images=image or (), top=top, most=most, score=score, report=report,
            progress=lambda done, total: show("pictures", done, total),
        ):  # fmt: skip
            tables.append(as_table(made) | ({} if files is None else {"files": files.add(made)}))
            first += [made] if len(first) < _MOST_IN_DETAIL + 1 else []
    list_notes([f"skipped {item.file}: {item.reason}" for item in report.skipped])
    list_notes(report.notes)
    if report.unknown:
        from wayfare.scenes.graph import listed

        list_notes([f"left out, no class of the model: {listed(report.unknown)}"])
    result: dict[str, Any] = {
        "run": str(run), "model": model.digest, "top": top, "graphs": tables, "unknown_labels": dict(report.unknown),
        "skipped": [item._asdict() for item in report.skipped], "notes": report.notes,
    }  # fmt: skip
    shown = list(_tables(tables, first)) if not json else []
    if files is not None and tables:
        result["page"] = str(files.close(str(run), report))
        shown.append(Text(f"page: {result['page']}"))
    elif tables:
        shown.append(Text("--out DIR writes pictures, JSON files and a page", style="dim"))
    answer(result, json, *shown)
    if not tables:
        raise typer.Exit(1)


def _tables(tables: list[dict[str, Any]], first: list[PredictedGraph]) -> Iterable[Any]:
    if len(tables) > _MOST_IN_DETAIL:
        table = plain_table(f"{number(len(tables))} pictures")
        table.add_column("picture", overflow="fold")
        table.add_column("objects", justify="right")
        table.add_column("surest relation")
        for row in tables:
            name = {one["id"]: one["label"] for one in row["objects"]}
            best = next((f"{name[r['subject']]} {r['predicate']} {name[r['object']]}" for r in row["relations"]), "–")
            table.add_row(*(Text(plain(cell)) for cell in (Path(row["file"]).name, len(row["objects"]), best)))
        yield table
        return
    for made in first:
        table = plain_table(made.picture.file.name)
        for column in ("subject", "predicate", "object"):
            table.add_column(column)
        table.add_column("score", justify="right")
        for one in made.relations:
            cells = (made.names[one.subject], one.predicate, made.names[one.object], f"{one.score:.3f}")
            table.add_row(*(Text(plain(cell)) for cell in cells))
        yield table
        if not made.relations:
            yield Text(f"{len(made.picture.labels)} objects of known classes: no relation")


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(graph)
