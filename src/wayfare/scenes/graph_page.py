"""The page of `wayfare graph`: each picture with its objects, its graph beside it, and the relations in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wayfare.pages.dataset_parts import Picture
from wayfare.pages.page import render, save
from wayfare.scenes.graph_picture import GraphDrawing


@dataclass(frozen=True)
class GraphShown:
    """One picture with its graph."""

    name: str
    about: str  # its size, and how many objects it has
    picture: Picture
    graph: GraphDrawing | None  # None where no relation is drawn
    relations: Sequence[tuple[str, str, str, float]]  # subject, predicate, object, score
    objects: Sequence[tuple[str, str, float]]  # name, box, score
    unknown: str  # labels that the model does not know


@dataclass(frozen=True)
class GraphPage:
    """All that the page shows."""

    run: str
    model: str
    shown: Sequence[GraphShown]
    more: int = 0  # pictures that have a graph and no room here
    skipped: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()


def write_graphs(page: GraphPage, out: Path) -> Path:
    """Write the page and return where it is."""
    return save(page_of(page), out)


def page_of(page: GraphPage) -> str:
    """The page as HTML."""
    return render("graph.html", title=page.shown[0].name if len(page.shown) == 1 else "Scene graphs", page=page)
