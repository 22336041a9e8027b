"""The commands that make scene graphs of photos: detect finds the objects, graph says how they relate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import MofNCompleteColumn
from rich.text import Text

from wayfare.cli.console import AllowCode, Json, answer, list_notes, plain_table, progress_bar
from wayfare.core.errors import DataError
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
    head: Annotated[
        Path | None,
        typer.Option("--head", help="Also find surfaces and masks, with the layer that `wayfare detect` trained."),
    ] = None,
    image: Annotated[
        list[str] | None, typer.Option("--image", help="Only this picture of a psg.json, by id or name. Repeatable.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Relations per picture.")] = 10,
    most: Annotated[int, typer.Option("--most", min=1, help="At most this many pictures of a psg.json.")] = 100,
    score: Annotated[
        float, typer.Option("--score", min=0, max=1, help="Minimum confidence of a detected object.")
    ] = 0.45,
    least: Annotated[
        float, typer.Option("--least", min=0, max=1, help="Minimum score of a relation; others are left out.")
    ] = 0.05,
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

    Objects come from the annotation, from --boxes, from --head, or else from a detector, which is an optional extra.
    Pictures that cannot be read are listed and skipped; exit status 1 if none is left.
    """
    from wayfare.scenes.boxes import read_boxes
    from wayfare.scenes.graph import GraphReport, as_result, as_table, graphs
    from wayfare.scenes.graph_files import GraphFiles
    from wayfare.scenes.scene_model import load_scene_model

    if out is not None and out.exists() and not out.is_dir():
        raise typer.BadParameter(f"{out} is a file: give a folder", param_hint="--out")
    if boxes is not None and head is not None:
        raise typer.BadParameter("--boxes already gives the objects: give one of the two", param_hint="--head")
    given = None if boxes is None else read_boxes(boxes)
    with progress_bar(f"reading {run}", MofNCompleteColumn(), transient=True) as show:
        model = load_scene_model(run, data)
        files = None if out is None else GraphFiles(out, model)
        report = GraphReport()
        tables: list[dict[str, Any]] = []
        first: list[PredictedGraph] = []
        for made in graphs(
            model, pictures, boxes=given, images=image or (), top=top, most=most, score=score, least=least,
            head=head, report=report,
            progress=lambda done, total: show("pictures", done, total),
        ):  # fmt: skip
            tables.append(as_table(made) | ({} if files is None else {"files": files.add(made)}))
            first += [made] if len(first) < _MOST_IN_DETAIL + 1 else []
    list_notes([f"skipped {item.file}: {item.reason}" for item in report.skipped])
    list_notes(report.notes)
    if report.unknown:
        from wayfare.scenes.graph import listed

        list_notes([f"left out, no class of the model: {listed(report.unknown)}"])
    result = as_result(run, model, top, tables, report)
    shown = list(_tables(tables, first, least)) if not json else []
    if files is not None and tables:
        result["page"] = str(files.close(str(run), report))
        shown.append(Text(f"page: {result['page']}"))
    elif tables:
        shown.append(Text("--out DIR writes pictures, JSON files and a page", style="dim"))
    answer(result, json, *shown)
    if not tables:
        raise typer.Exit(1)


def detect(
    photos: Annotated[list[Path], typer.Argument(help="Photos, or folders of photos.", metavar="PHOTO|FOLDER...")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A new folder for psg.json, detections.json and masks.")],
    head: Annotated[Path, typer.Option("--head", help="The trained layer; --learn makes it if it does not exist.")],
    learn: Annotated[
        Path | None, typer.Option("--learn", help="A psg.json with photos and panoptic pictures to learn --head from.")
    ] = None,
    boxes: Annotated[
        bool, typer.Option("--boxes/--no-boxes", help="Use the detector of things, if it is installed.")
    ] = True,
    score: Annotated[
        float, typer.Option("--score", min=0, max=1, help="Minimum confidence of a detected thing.")
    ] = 0.45,
    json: Json = False,
) -> None:
    """Find things and surfaces in photos, with masks, using DINOv2 features and a linear layer.

    Weights: `wayfare data get dinov2-s`. The layer is trained on your annotated pictures (--learn), in about a
    second for each, and saved in --head.
    """
    from wayfare.io.folders import pictures_below
    from wayfare.io.images import decode
    from wayfare.scenes.data import psg
    from wayfare.scenes.detector import INSTALL, Detector, is_installed
    from wayfare.scenes.patches import DinoPatches
    from wayfare.scenes.segment_files import SegmentFiles
    from wayfare.scenes.segmenting import PanopticFinder, SegmentHead, learn_head

    if not head.exists() and learn is None:
        raise typer.BadParameter(f"{head} does not exist: learn it with --learn PSG", param_hint="--head")
    if out.exists():
        raise typer.BadParameter(f"{out} already exists: choose a new folder", param_hint="--out")
    maps = DinoPatches()
    with progress_bar("looking at photos", MofNCompleteColumn(), transient=True) as show:
        if not head.exists() and learn is not None:
            learn_head(psg.load(learn), maps, lambda done, total: show("learning", done, total)).save(head)
        learnt = SegmentHead.load(head)
        things = Detector(score).find if boxes and is_installed() else None
        finder, files = PanopticFinder(learnt, maps, things), SegmentFiles(out, learnt)
        paths = [file for path in photos for file in _photos(path, pictures_below)]
        skipped, counts = [], []
        for done, photo in enumerate(paths):
            show("photos", done, len(paths))
            try:
                found = finder.find(decode(photo))
            except DataError as error:
                skipped.append(str(error))
                continue
            files.add(photo, found)
            counts.append(len(found.labels))
        files.finish()
    list_notes([f"skipped: {reason}" for reason in skipped])
    if boxes and things is None:
        list_notes([f"without the detector of things each connected region of a class is one thing: {INSTALL}"])
    result = {"out": str(out), "photos": len(counts), "objects": sum(counts), "detector": things is not None}
    result["skipped"] = skipped
    answer(result, json, Text(f"{number(sum(counts))} objects in {number(len(counts))} photos: {out / 'psg.json'}"))
    if not counts:
        raise typer.Exit(1)


def _photos(path: Path, below: Callable[[Path], Iterable[str]]) -> list[Path]:
    return [path / name for name in below(path)] if path.is_dir() else [path]


def _tables(tables: list[dict[str, Any]], first: list[PredictedGraph], least: float) -> Iterable[Any]:
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
            count = len(made.picture.labels)
            why = f"no relation has a score of {least:g} (--least)" if count > 1 else "a relation needs two"
            yield Text(f"{count} object{'s' * (count != 1)} of known classes; {why}")


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    app.command()(graph)
    app.command()(detect)
