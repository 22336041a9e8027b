"""Commands that use a trained model: index (for places or hashing), locate and evaluate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from wayfare.cli.console import (
    AllowCode,
    IndexedRun,
    Json,
    MadeIndex,
    answer,
    err,
    index_of,
    interruptible,
    list_notes,
    plain_table,
    progress_bar,
    tell,
)
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.text import printable
from wayfare.pages.page import several
from wayfare.pages.record import Record
from wayfare.pages.tables import human_seconds, number, plain

if TYPE_CHECKING:
    from wayfare.io.pictures import Skipped
    from wayfare.places.index import Facts, Index
    from wayfare.places.indexing import Added
    from wayfare.places.locate import Answer, Located

Indexed = tuple[dict[str, Any], "list[Skipped]", list[str]]  # the result, what was left out, lines to print
_GO_ON = ("the same command again", "what is in the index so far")
_MOST_IN_DETAIL = 5  # photos of which every place is listed


def index(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run of task places or hashing.")],
    photos: Annotated[
        Path | None,
        typer.Option(
            "--photos",
            help="Places: photos with known positions (an MSLS tree, @-names, a CSV table, or EXIF). Hashing: any "
            "folder of photos. Default, without --texts: the run's own data.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The index folder. Default: RUN/index.")] = None,
    database: Annotated[
        bool,
        typer.Option("--database", help="Places: only the database photos of the layout, not its queries."),
    ] = False,
    texts: Annotated[
        Path | None,
        typer.Option("--texts", help="Hashing: one text per line, or a CSV table with columns file and text."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Hashing: where the run's training data is now, if it was moved.")
    ] = None,
    strangers: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=0.999,
            help="Places: the share of photos expected to be of places that are not in the index. Default: 0.2.",
        ),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=0.999,
            help="Places: the share of answers that must be right; other answers are unknown. Default: 0.9.",
        ),
    ] = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Build an index of photos for [bold]wayfare locate[/bold] or [bold]wayfare search[/bold].

    With a run of task places, the index holds photos with known positions. By searching for its own
    photos among the others, it also learns how reliable an answer is and when to call a place unknown. With a run of
    task hashing, it holds photos and texts, to be found by words or by a photo.

    Run the command again with the same --out to add new photos, or to continue after an interruption.
    """
    target = out or run / "index"
    if Record.read(run).component("task") == "hashing":
        if database or strangers is not None or precision is not None:
            raise ConfigError("--database, --strangers and --precision are for runs of task places")
        result, skipped, lines = _index_codes(run, photos, texts, data, target)
    else:
        if texts is not None or data is not None:
            raise ConfigError("--texts and --data are for runs of task hashing")
        from wayfare.places.indexing import index_run

        photos = photos or _own_photos(run)

        with interruptible(*_GO_ON), progress_bar(f"reading {photos}") as show:
            added = index_run(run, photos, target, database, show, strangers=strangers, precision=precision)
        list_notes(added.odd)
        result, skipped, lines = _indexed_places(target, added)
    answer({**result, "skipped_files": _list_skipped(skipped)}, json, *map(Text, lines))


def _index_codes(run: Path, photos: Path | None, texts: Path | None, data: Path | None, target: Path) -> Indexed:
    from wayfare.hashing.indexing import index_run
    from wayfare.hashing.search import SearchIndex

    with interruptible(*_GO_ON), progress_bar(f"reading {photos or run}") as show:
        added = index_run(run, target, photos=photos, texts=texts, data=data, progress=show)
    index = SearchIndex(target)
    for view in index.tells_nothing():
        err.print(
            f"[yellow]warning[/yellow] all {view} have the same code: the model cannot tell them apart. Train it longer"
        )
    model, counts = index.model, index.counts()
    done = {what: added.total(what) for what in ("new", "kept", "replaced")} | {"skipped": len(added.skipped)}
    facts = {"model": model.digest, "run": model.name, "bits": model.bits, "words": len(model.words)}
    held = " and ".join(several(count, name[:-1]) for name, count in counts.items() if count)
    line = f"{target}: {held} ({_counted(done)}), model {model.title}"
    return {"index": str(target), **counts, **done, **facts}, added.skipped, [line]


def _indexed_places(target: Path, added: Added) -> Indexed:
    from wayfare.places.calibration import in_words
    from wayfare.places.locate import calibrated

    facts = added.facts
    done = {"new": added.new, "kept": added.kept, "replaced": added.replaced, "skipped": len(added.skipped)}
    result = {"index": str(target), "photos": added.photographs, **done, "model": facts.model, "run": facts.run}
    model = f"{facts.model[:12]} ({facts.run})"
    line = f"{target}: {number(added.photographs)} photographs ({_counted(done)}), model {model}"
    return {**result, **calibrated(facts)}, added.skipped, [line, *in_words(facts.calibration, facts.uncalibrated)]


def _own_photos(run: Path) -> Path:
    from wayfare.finished import load
    from wayfare.places.finished import PlacesRun

    model = load(run)
    if not isinstance(model, PlacesRun):
        model.refuse("index")
    return model.own_photos()


def _counted(done: dict[str, int]) -> str:
    return ", ".join(f"{number(count)} {name}" for name, count in done.items())


def locate(
    photos: Annotated[list[Path], typer.Argument(help="Photos, or folders of them.", metavar="PHOTO...")],
    index: MadeIndex = None,
    run: IndexedRun = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="How many places to list per photo.")] = 5,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Confidence below which a place is unknown. Default: as calibrated."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write a page with pictures and maps.")] = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Find out where photos were taken: the nearest places in an index, a position, and its confidence.

    Photos that cannot be read are listed and skipped; exit status 1 if none is left.
    """
    from wayfare.places.locate import as_result
    from wayfare.places.locate import locate as find

    opened = _opened(index_of(index, run))
    for line in _doubtful(opened.facts):
        tell(Text.assemble(("warning ", "yellow"), printable(line)))
    located = find(opened, photos, k, threshold)
    _list_skipped(located.skipped)
    result = as_result(opened, located, k)
    shown = [] if json else list(_tables(opened, located))
    if out is not None and located.answers:
        from wayfare.places.page_data import write_page

        result["page"] = str(write_page(opened, located, out))
        shown.append(Text(f"page: {result['page']}"))
    answer(result, json, *shown)
    if not located.answers:
        raise typer.Exit(1)


def _opened(index: Path) -> Index:
    from wayfare.places.index import Index

    if any((index / view / "codes.json").exists() for view in ("photos", "texts")):
        raise ConfigError(f"{index} is an index for search: use `wayfare search --photo PHOTO --index {index}`")
    opened = Index(index)
    if opened.facts.waiting:
        err.print(
            f"[yellow]warning[/yellow] {number(opened.facts.waiting)} photos are missing from this index, because "
            "making it was interrupted: run `wayfare index` again to add them"
        )
    return opened


def evaluate(
    folder: Annotated[Path, typer.Argument(help="A finished run, or what [bold]wayfare index[/bold] made.")],
    photos: Annotated[
        Path | None,
        typer.Option(
            "--photos",
            help="A folder in the layout of the run's data. For an index: photos with known positions.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="For an index: also write a page.")] = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Measure how good a trained model is, on its own test set or on your photos; or how good an index is.

    An index of places is searched for photos whose positions are known. Photos that are in the index themselves are
    left out; unreadable ones are skipped.
    """
    if (folder / "experiment.toml").exists():
        if out is not None:
            raise ConfigError("--out is for an index: `wayfare report RUN` writes a page about a run")
        _evaluate_run(folder, photos, json)
    elif photos is None:
        raise ConfigError(f"--photos is missing: photos with known positions, to look for in the index {folder}")
    else:
        _evaluate_index(folder, photos, out, json)


def _evaluate_run(run: Path, data: Path | None, json: bool) -> None:
    from wayfare.finished import load

    model = load(run)
    metrics = model.evaluate(data)
    if not metrics:
        raise DataError("too few samples to measure anything", data or run)
    where = "its own test set" if data is None else str(data)
    table = plain_table(f"{run} on {where}")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name, value in metrics.items():
        table.add_row(Text(plain(name)), f"{value:.4g}")
    notes = [Text(model.task.protocol)] if data is None and model.task.protocol else []
    answer({"run": str(run), "data": data and str(data), "metrics": metrics}, json, table, *notes)


def _evaluate_index(index: Path, photos: Path, out: Path | None, json: bool) -> None:
    from wayfare.places.evaluation import evaluate_index
    from wayfare.places.evaluation_page import ground_in_words, threshold_rows, write_evaluation

    found = evaluate_index(_opened(index), photos)
    _list_skipped(found.skipped)
    result: dict[str, Any] = {"index": str(index), **found.as_table()}
    away = f"{found.photos} photos ({len(found.skipped)} skipped, {found.left_out} in the index themselves)"
    lines = [
        f"searched: {ground_in_words(found)}",
        f"{away}; the places of {found.known} are in the index, within {found.radius:g} m",
        "  ".join(_figure(name, value) for name, value in found.metrics.items()),
        "  ".join(f"{name} {value:.3f}" for name, value in found.figures.items()),
        f"confidence is {found.trust}" if found.trust else "",
        *(f"about confidence: {doubt}" for doubt in found.doubts),
    ]
    shown: list[Any] = [Text(line) for line in lines if line]
    if rows := threshold_rows(found):
        table = plain_table("answers accepted at or above a confidence")
        for name in ("threshold", "precision", "recall", "share answered"):
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        shown.append(table)
    if out is not None:
        result["page"] = str(write_evaluation(found, index, photos, out))
        shown.append(Text(f"page: {result['page']}"))
    answer(result, json, *shown)


def _figure(name: str, value: float) -> str:
    return f"{name} {100 * value:.1f}" if name.startswith("R@") else f"{name} {value:,.1f}"


def _list_skipped(skipped: Sequence[Skipped]) -> list[dict[str, str]]:
    """Print which files were left out and why; return the same for JSON."""
    list_notes([f"skipped {item.file}: {item.reason.removeprefix(item.file).lstrip(': ')}" for item in skipped])
    return [item._asdict() for item in skipped]


def _doubtful(facts: Facts) -> list[str]:
    """What is said about confidence where it is missing, judges nothing, or may be wrong."""
    from wayfare.places.calibration import in_words

    found = facts.calibration
    lines = in_words(found, facts.uncalibrated)
    return lines if found is None or found.threshold is None else lines[1:]


def _tables(opened: Index, located: Located) -> Iterable[Any]:
    from wayfare.places.page_data import position_text

    if not located.answers:
        return
    table = plain_table(f"among {number(len(opened))} photographs")
    for name in ("photo", "answer", "position"):
        table.add_column(name, overflow="fold")
    for name in ("agreeing", "spread, m", "nearest"):
        table.add_column(name, justify="right")
    for found in located.answers:
        cells = (found.photo.name, _verdict(found), position_text(found.position), number(found.agreeing))
        far = (f"{found.spread:.1f}", f"{found.scores['nearest']:.3f}")
        table.add_row(*(Text(plain(cell)) for cell in (*cells, *far)), style="yellow" if found.unknown else "")
    yield table
    for found in located.answers if len(located.answers) <= _MOST_IN_DETAIL else []:
        yield _places(found)
    count = len(located.answers)
    each = ", ".join(f"{name} {human_seconds(spent / count)}" for name, spent in located.seconds.items())
    yield Text(f"{each}{' for each photo' if count > 1 else ''}")


def _places(found: Answer) -> Table:
    from wayfare.places.page_data import position_text

    table = plain_table(found.photo.name)
    for name in ("place", "m from 1", "distance", "photos"):
        table.add_column(name, justify="right")
    table.add_column("position")
    table.add_column("nearest photograph", overflow="fold")
    for rank, place in enumerate(found.places, start=1):
        first = place.first
        cells = (rank, f"{first.metres:,.0f}", f"{first.distance:.3f}", len(place.matches), position_text(first.spot))
        table.add_row(*(Text(plain(cell)) for cell in (*cells, first.file.name)))
    return table


def _verdict(found: Answer) -> str:
    if found.confidence is None:
        return "not judged"
    word = "not judged" if found.unknown is None else "unknown" if found.unknown else "found"
    return f"{word} ({found.confidence:.2f})"


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    app.command()(index)
    app.command()(locate)
    app.command()(evaluate)
