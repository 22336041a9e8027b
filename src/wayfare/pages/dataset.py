"""The page about a data set, as `wayfare data show` writes it: contents, sample pictures and distributions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from wayfare.pages.dataset_figures import bars_figure, map_figure, map_keys
from wayfare.pages.dataset_parts import Bars, Collection
from wayfare.pages.figures import Figure
from wayfare.pages.page import render, save, several
from wayfare.pages.tables import number

_MOST_PROBLEMS = 20  # of each data set
_MOST_RELATIONS = 12  # listed below a photograph
_MOST_ROWS = 200  # of a table of numbers
_MOST_WORDS = 24  # below a photograph
_Numbers = tuple[str, str, str, list[tuple[str, str]]]  # title, two heads, and rows of a table


def write_dataset(collection: Collection, out: Path) -> Path:
    """Write the page and return where it is."""
    return save(page_of(collection), out)


def page_of(collection: Collection) -> str:
    """The page as HTML."""
    maps, keys = _maps(collection)
    bars = _distributions(collection)
    return render(
        "dataset.html",
        title=collection.title,
        figures=[*maps, *(figure for groups, _ in bars for group in groups for figure in group)],
        collection=collection,
        kinds=list(dict.fromkeys(found.layout for found in collection.sets)),
        words=_in_words(collection),
        menu=_sections(collection),
        maps=maps,
        map_keys=list(keys.values()),
        map_notes=[note for note in dict.fromkeys(shown.note for shown in collection.maps) if note],
        bars=bars,
        most_problems=_MOST_PROBLEMS,
        most_relations=_MOST_RELATIONS,
        most_words=_MOST_WORDS,
    )


def _sections(collection: Collection) -> list[str]:
    """The sections for which there is something to show."""
    sets = collection.sets
    there = {
        "found": True,
        "problems": any(found.problem_count for found in sets),
        "pictures": any(found.strips for found in sets),
        "map": bool(collection.maps),
        "scenes": any(found.scenes for found in sets),
        "words": any(found.cards for found in sets),
        "classes": any(found.classes for found in sets),
        "distributions": any(found.bars for found in sets),
    }
    return [name for name, shown in there.items() if shown]


def _in_words(collection: Collection) -> str:
    wrong = sum(found.problem_count for found in collection.sets)
    if collection.town:
        made = ", ".join(f"{name} {value}" for name, value in collection.town.items())
        start = f"A synthetic town ({made}), written as {several(len(collection.sets), 'data set')}."
    elif len(collection.sets) == 1:
        start = f"One data set: {collection.sets[0].description}."
    else:
        start = f"{several(len(collection.sets), 'data set')}."
    trouble = f"{several(wrong, 'problem was', 'problems were')} found." if wrong else "No problems were found."
    seen = any(found.strips or found.scenes or found.cards or found.classes for found in collection.sets)
    opened = "Only the pictures on this page were opened: wayfare data check opens all of them." if seen else ""
    return f"{start} {trouble} {opened}".rstrip()


def _maps(collection: Collection) -> tuple[list[Figure], dict[str, Any]]:
    """Figures, and the legend that they share."""
    keys = map_keys(collection.maps)
    width = 1030 if len(collection.maps) == 1 else 500
    return [map_figure(f"map-{place}", shown, keys, width) for place, shown in enumerate(collection.maps)], keys


def _distributions(collection: Collection) -> list[tuple[list[list[Figure]], list[_Numbers]]]:
    """Of each data set its figures, upright ones apart from others, and their numbers."""
    numbers = count()
    made = []
    for found in collection.sets:
        figures = [bars_figure(f"bars-{next(numbers)}", bars) for bars in found.bars]
        upright = [figure for figure, bars in zip(figures, found.bars) if bars.ordered]
        flat = [figure for figure, bars in zip(figures, found.bars) if not bars.ordered]
        made.append(([group for group in (upright, flat) if group], [_numbers(bars) for bars in found.bars]))
    return made


def _numbers(bars: Bars) -> _Numbers:
    rows = [(name, number(value)) for name, value in _ranked(bars)[:_MOST_ROWS]]
    return bars.title, bars.axis or "what", bars.unit, rows


def _ranked(bars: Bars) -> Sequence[tuple[str, float]]:
    pairs = list(zip(bars.names, bars.counts))
    return pairs if bars.ordered else sorted(pairs, key=lambda pair: -pair[1])
