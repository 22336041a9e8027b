"""The command that searches photos and texts by words or by a photo."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from wayfare.cli.console import AllowCode, IndexedRun, Json, MadeIndex, answer, index_of, list_notes, plain_table
from wayfare.core.errors import ConfigError
from wayfare.pages.tables import human_seconds, number, plain

if TYPE_CHECKING:
    from wayfare.hashing.search import Query, SearchAnswer, Searched, SearchIndex, View

_LINE = 44  # characters of a text in a table 80 wide; --full has all
_MOST_IN_DETAIL = 5  # queries of which every result is listed


def search(
    words: Annotated[list[str] | None, typer.Argument(help="The words of one query.", metavar="[WORDS...]")] = None,
    index: MadeIndex = None,
    run: IndexedRun = None,
    photo: Annotated[
        list[Path] | None, typer.Option("--photo", help="Search by this photo instead of words. Repeatable.")
    ] = None,
    queries: Annotated[Path | None, typer.Option("--queries", help="A text file with one query per line.")] = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Results per query.")] = 10,
    find: Annotated[
        str | None,
        typer.Option("--find", help="What to find: photos or texts. Default: photos for words, texts for a photo."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", "--out", "-o", help="Also write a page with thumbnails.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print whole texts, not only their first line.")] = False,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Search an index for photos by words, or for texts by a photo. The index comes from a run of task hashing.

    Give the words of one query, --photo, or --queries. A misspelt word is read as the known word it resembles, and
    this is reported. Unknown words are listed and ignored; exit status 1 if no query could be answered.
    """
    from wayfare.hashing.search import SearchIndex, as_result
    from wayfare.hashing.search import search as look

    opened = SearchIndex(index_of(index, run))
    found = look(opened, _queries(words, photo, queries), k, _view(find))
    _say(found)
    result = as_result(opened, found, k)
    shown = [] if json else list(_tables(opened, found, None if full else _LINE))
    if page is not None and found.answers:
        from wayfare.hashing.page_data import write_page

        result["page"] = str(write_page(opened, found, page))
        shown.append(Text(f"page: {result['page']}"))
    answer(result, json, *shown)
    if not found.answers:
        raise typer.Exit(1)


def _queries(words: list[str] | None, photos: list[Path] | None, file: Path | None) -> list[Query]:
    """What was asked, in one of the three ways."""
    from wayfare.hashing.search import Query
    from wayfare.io.tables import read_text

    if sum(given is not None and given != [] for given in (words, photos, file)) != 1:
        raise ConfigError('give the words of a query, --photo, or --queries: `wayfare search "red shirt" --index DIR`')
    if photos:
        return [Query(photo=path) for path in photos]
    if file is not None:
        queries = [Query(line.strip()) for line in read_text(file).splitlines() if line.strip()]
        if not queries:
            raise ConfigError(f"--queries {file}: it is empty; expected one query per line")
        return queries
    return [Query(" ".join(words or ()))]


def _view(find: str | None) -> View | None:
    from wayfare.hashing.search import VIEWS

    if find is None:
        return None
    for view in VIEWS:
        if find == view:
            return view
    raise ConfigError(f"--find {find!r}: expected photos or texts")


def _say(found: Searched) -> None:
    lines = [f"not asked: {item.reason}" for item in found.refused]
    for each in found.answers:
        if each.read_as:
            read = ", ".join(f"{word!r} as {known!r}" for word, known in each.read_as.items())
            lines.append(f"{each.query.title}: read {read}")
        if not each.close:
            lines.append(f"{each.query.title}: nothing in the index is close to it; these are the nearest")
        if each.unknown:
            near = f"; known words like these: {', '.join(each.nearest)}" if each.nearest else ""
            lines.append(f"{each.query.title}: left out, not known to the model: {', '.join(each.unknown)}{near}")
    list_notes(lines)


def _tables(opened: SearchIndex, found: Searched, most: int | None) -> Iterable[Any]:
    if not found.answers:
        return
    if len(found.answers) > _MOST_IN_DETAIL:
        table = plain_table(f"{number(len(found.answers))} queries")
        for name in ("query", "nearest"):
            table.add_column(name, overflow="fold")
        table.add_column("bits", justify="right")
        for each in found.answers:
            first = each.hits[0]
            table.add_row(*(Text(plain(cell)) for cell in (each.query.title, cut(_label(first), most), first.distance)))
        yield table
    else:
        for each in found.answers:
            yield _results(opened, each, most)
    count = len(found.answers)
    spent = ", ".join(f"{name} {human_seconds(seconds / count)}" for name, seconds in found.seconds.items())
    yield Text(f"{spent}{' for each query' if count > 1 else ''}")


def _results(opened: SearchIndex, each: SearchAnswer, most: int | None) -> Table:
    table = plain_table(f"{each.query.title}: {each.find} of {number(opened.counts()[each.find])}")
    by_words = any(hit.words for hit in each.hits)  # the order is that of score and words together
    for name in ("", "score", "words" if by_words else "bits"):
        table.add_column(name, justify="right")
    table.add_column("photo" if each.find == "photos" else "text", overflow="fold")
    table.add_column("text" if each.find == "photos" else "photo", overflow="fold")
    for rank, hit in enumerate(each.hits, start=1):
        file, text = (hit.files[0].name if hit.files else hit.name), cut(" · ".join(hit.texts), most)
        cells = (file, text) if each.find == "photos" else (text or cut(hit.name, most), file if hit.files else "")
        table.add_row(
            *(
                Text(plain(cell))
                for cell in (rank, f"{hit.score:.3f}", f"{hit.words:.2f}" if by_words else hit.distance, *cells)
            )
        )
    return table


def cut(text: str, most: int | None) -> str:
    """The first line of a text, and of that no more than fits a line of the terminal; None: all of it."""
    if most is None:
        return text
    first = text.strip().partition("\n")[0]
    short = first if len(first) <= most else first[: most - 1].rstrip()
    return short if short == text.strip() else f"{short}…"


def _label(hit: Any) -> str:
    return " · ".join(hit.texts) or hit.name


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(search)
