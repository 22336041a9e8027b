"""The page of `wayfare search`: for each query the photos or texts that were found, nearest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wayfare.pages.dataset_parts import Picture
from wayfare.pages.page import render, save, several
from wayfare.pages.tables import human_seconds


@dataclass(frozen=True)
class ResultShown:
    """A photo or a text that was found."""

    name: str
    picture: Picture | None
    text: str  # "" where none is known
    labels: Sequence[str]
    distance: int  # bits
    score: float


@dataclass(frozen=True)
class QueryShown:
    """A query with what was found."""

    title: str
    picture: Picture | None  # of the photo that is the query
    by_photo: bool
    find: str  # "photos" or "texts"
    results: Sequence[ResultShown]
    unknown: Sequence[str] = ()
    nearest: Sequence[str] = ()
    read_as: Sequence[tuple[str, str]] = ()
    close: bool = True


@dataclass(frozen=True)
class SearchPage:
    """All that the page shows."""

    index: str
    model: str
    bits: int
    counts: dict[str, int]  # photos and texts in the index
    queries: Sequence[QueryShown]
    more: int = 0  # queries that were answered and have no room here
    refused: Sequence[tuple[str, str]] = ()
    seconds: dict[str, float] = field(default_factory=dict)


def write_found(page: SearchPage, out: Path) -> Path:
    """Write the page and return where it is."""
    return save(page_of(page), out)


def page_of(page: SearchPage) -> str:
    """The page as HTML."""
    count = len(page.queries) + page.more
    return render(
        "search.html",
        title=page.queries[0].title if len(page.queries) == 1 else "What was found",
        page=page,
        count=count,
        searched=" and ".join(several(held, name[:-1]) for name, held in page.counts.items() if held),
        each=", ".join(f"{name} {human_seconds(spent / max(1, count))}" for name, spent in page.seconds.items()),
    )
