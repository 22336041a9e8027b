"""The page about a data set, as `wayfare data show` writes it: what is there, what it looks like, how it is spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

from wayfare.reports.dataset_figures import bars_figure, map_figure, map_keys
from wayfare.reports.dataset_parts import Bars, Card, Collection, DataSet, Picture, Scene, Strip
from wayfare.reports.figures import Figure
from wayfare.reports.page import (
    Html,
    details,
    document,
    facts,
    legend,
    menu,
    picture,
    plots,
    save,
    section,
    several,
    table,
    tag,
    tiles,
)
from wayfare.reports.tables import number

_MOST_PROBLEMS = 20  # of each data set
_MOST_RELATIONS = 12  # listed below a photograph
_MOST_ROWS = 200  # of a table of numbers
_MOST_WORDS = 24  # below a photograph


def write_dataset(collection: Collection, out: Path) -> Path:
    """Write the page and return where it is."""
    return save(page_of(collection), out)


def page_of(collection: Collection) -> str:
    """The page as HTML."""
    drawn: list[Figure] = []
    parts = {
        "found": _found(collection),
        "problems": _problems(collection),
        "pictures": _pictures(collection),
        "map": _maps(collection, drawn),
        "scenes": _scenes(collection),
        "words": _cards(collection),
        "classes": _classes(collection),
        "distributions": _distributions(collection, drawn),
    }
    there = {name: part for name, part in parts.items() if part is not None}
    return document(collection.title, _header(collection, there), list(there.values()), drawn, _STYLE)


# ---- The parts of the page; each is None where there is nothing for it


def _header(collection: Collection, parts: Iterable[str]) -> Html:
    kinds = dict.fromkeys(found.layout for found in collection.sets)
    return tag(
        "header",
        tag("p", "Wayfare · data", class_="eyebrow"),
        tag("h1", collection.title),
        tag("p", *(tag("span", kind, class_="chip") for kind in kinds), class_="chips"),
        tag("p", _in_words(collection), class_="lead"),
        menu(parts),
    )


def _in_words(collection: Collection) -> str:
    wrong = sum(found.problem_count for found in collection.sets)
    if collection.town:
        made = ", ".join(f"{name} {value}" for name, value in collection.town.items())
        start = f"A synthetic town ({made}), written as {several(len(collection.sets), 'data set')}."
    elif len(collection.sets) == 1:
        start = f"One data set: {collection.sets[0].description}."
    else:
        start = f"{several(len(collection.sets), 'data set')}."
    trouble = f"{several(wrong, 'thing is', 'things are')} wrong with it." if wrong else "Nothing wrong was seen."
    seen = any(found.strips or found.scenes or found.cards or found.classes for found in collection.sets)
    opened = "Of the pictures only those on this page were opened: wayfare data check opens them all." if seen else ""
    return f"{start} {trouble} {opened}".rstrip()


def _found(collection: Collection) -> Html:
    if len(collection.sets) == 1:
        only = collection.sets[0]
        shown = [(name, number(value), "") for name, value in only.counts.items()]
        return section("found", "What is there", tiles(shown), tag("p", collection.path, class_="note"))
    cards = [
        tag("div", tag("h3", found.name), tag("p", found.description, class_="note"), _counts(found), class_="card")
        for found in collection.sets
    ]
    return section("found", "What is there", tag("div", *cards, class_="cards"))


def _counts(found: DataSet) -> Html:
    rows = [(name, number(value)) for name, value in found.counts.items()]
    return facts(f"What is in {found.name}", rows)


def _problems(collection: Collection) -> Html | None:
    parts: list[Html] = []
    for found in collection.sets:
        if not found.problem_count:
            continue
        listed = [tag("li", text) for text in found.problems[:_MOST_PROBLEMS]]
        parts += _heading(collection, found)
        parts.append(tag("ul", *listed, class_="problems"))
        if found.problem_count > len(listed):
            parts.append(tag("p", f"and {number(found.problem_count - len(listed))} more", class_="note"))
    return section("problems", "What is wrong", *parts) if parts else None


def _pictures(collection: Collection) -> Html | None:
    parts = [
        part
        for found in collection.sets
        if found.strips
        for part in (*_heading(collection, found), *map(_strip, found.strips))
    ]
    return section("pictures", "What it looks like", *parts) if parts else None


def _maps(collection: Collection, drawn: list[Figure]) -> Html | None:
    if not collection.maps:
        return None
    keys = map_keys(collection.maps)
    width = 1030 if len(collection.maps) == 1 else 500
    figures = [map_figure(f"map-{place}", shown, keys, width) for place, shown in enumerate(collection.maps)]
    drawn += figures
    notes = [tag("p", note, class_="note") for note in dict.fromkeys(shown.note for shown in collection.maps) if note]
    return section("map", "Where it is", legend(keys.values()), plots(figures), *notes)


def _scenes(collection: Collection) -> Html | None:
    parts = [
        part
        for found in collection.sets
        if found.scenes
        for part in (*_heading(collection, found), tag("div", *map(_scene, found.scenes), class_="scenes"))
    ]
    note = "Each segment has its own colour; an arrow goes from the subject to the object of a relation."
    return section("scenes", "Objects and relations", tag("p", note, class_="note"), *parts) if parts else None


def _cards(collection: Collection) -> Html | None:
    parts = [
        part for found in collection.sets if found.cards for part in (*_heading(collection, found), _cards_of(found))
    ]
    return section("words", "Pictures and words", *parts) if parts else None


def _classes(collection: Collection) -> Html | None:
    parts = [
        part for found in collection.sets if found.classes for part in (*_heading(collection, found), _rows_of(found))
    ]
    return section("classes", "Class by class", *parts) if parts else None


def _distributions(collection: Collection, drawn: list[Figure]) -> Html | None:
    parts: list[Html] = []
    numbers = count()
    for found in collection.sets:
        figures = [bars_figure(f"bars-{next(numbers)}", bars) for bars in found.bars]
        if not figures:
            continue
        drawn += figures
        upright = [figure for figure, bars in zip(figures, found.bars) if bars.ordered]
        flat = [figure for figure, bars in zip(figures, found.bars) if not bars.ordered]
        parts += _heading(collection, found)
        parts += [plots(group) for group in (upright, flat) if group]
        parts.append(details("The numbers", *map(_numbers, found.bars)))
    return section("distributions", "How it is spread", *parts) if parts else None


# ---- Their pieces


def _heading(collection: Collection, found: DataSet) -> list[Html]:
    return [tag("h3", found.name, class_="set")] if len(collection.sets) > 1 else []


def _cards_of(found: DataSet) -> Html:
    shape = _shape(card.picture for card in found.cards)
    return tag("div", *map(_card, found.cards), class_=f"worded {shape}")


def _rows_of(found: DataSet) -> Html:
    shape = _shape(item for strip in found.classes for item in strip.pictures)
    return tag("div", *map(_row, found.classes), class_=f"rows {shape}")


def _shape(items: Iterable[Picture]) -> str:
    """Pictures of many shapes are cut to one, so that they stand in line; those that are all square remain so."""
    return "square" if all(item.width == item.height for item in items) else "wide"


def _strip(strip: Strip) -> Html:
    shown = [_figure(item) for item in strip.pictures]
    if strip.pairs:
        shown = [tag("div", *shown[place : place + 2], class_="pair") for place in range(0, len(shown) - 1, 2)]
    note = tag("p", strip.note, class_="note") if strip.note else None
    return tag("div", tag("h4", strip.title), note, tag("div", *shown, class_="pairs" if strip.pairs else "sheet"))


def _row(strip: Strip) -> Html:
    """A class with its pictures in one line."""
    title = tag("div", tag("b", strip.title), tag("span", strip.note), class_="row-title")
    return tag("div", title, tag("div", *map(_image, strip.pictures), class_="row-pictures"), class_="row")


def _figure(item: Picture) -> Html:
    return tag("figure", _image(item), tag("figcaption", item.caption) if item.caption else None, class_="shot")


def _image(item: Picture) -> Html:
    return picture(item.jpeg, item.words, item.width, item.height)


def _scene(scene: Scene) -> Html:
    listed = [
        tag("li", subject, " ", tag("b", predicate), " ", other)
        for subject, predicate, other in scene.relations[:_MOST_RELATIONS]
    ]
    if len(scene.relations) > _MOST_RELATIONS:
        listed.append(tag("li", f"and {len(scene.relations) - _MOST_RELATIONS} more"))
    below = tag("div", _image(scene.plain), tag("ul", *listed), class_="below")
    return tag("figure", _image(scene.drawn), below, class_="scene")


def _card(card: Card) -> Html:
    words = [tag("span", word, class_="word") for word in card.tags[:_MOST_WORDS]]
    labels = [tag("span", word, class_="word is-label") for word in card.labels[:_MOST_WORDS]]
    nothing = tag("span", "no words", class_="note") if not words and not labels else None
    return tag("figure", _image(card.picture), tag("figcaption", *labels, *words, nothing), class_="with-words")


def _numbers(bars: Bars) -> Html:
    rows = [(name, number(value)) for name, value in _ranked(bars)[:_MOST_ROWS]]
    return tag("div", tag("h4", bars.title), table(bars.title, (bars.axis or "what", bars.unit), rows, class_="tall"))


def _ranked(bars: Bars) -> Sequence[tuple[str, float]]:
    pairs = list(zip(bars.names, bars.counts))
    return pairs if bars.ordered else sorted(pairs, key=lambda pair: -pair[1])


_STYLE = """
h4{font-size:.9rem;margin:18px 0 4px;font-weight:600}
h3.set{font-size:1.02rem;margin:30px 0 2px;padding-top:16px;border-top:1px solid var(--grid)}
h2+h3.set,h2+.note+h3.set{margin-top:0;padding-top:0;border:0}
img{display:block;width:100%;height:auto;border-radius:6px;background:var(--grid)}
.sheet{display:grid;grid-template-columns:repeat(8,1fr);gap:7px}
.pairs{display:grid;grid-template-columns:repeat(auto-fill,minmax(290px,1fr));gap:12px}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:3px}
.pair .shot:first-child img{border-radius:6px 0 0 6px}
.pair .shot:last-child img{border-radius:0 6px 6px 0}
.shot figcaption{font-weight:400;font-size:.76rem;line-height:1.35;color:var(--muted);padding-top:3px;
overflow-wrap:anywhere}
.scenes{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,420px),1fr));gap:26px 24px}
.below{display:grid;grid-template-columns:128px 1fr;gap:14px;align-items:start;padding-top:8px}
.below ul{margin:0;padding:0;list-style:none;font-size:.85rem;line-height:1.5;color:var(--muted)}
.below b{color:var(--ink);font-weight:600}
.worded{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,158px),1fr));gap:20px 14px}
.with-words figcaption{font-weight:400;display:flex;flex-wrap:wrap;gap:4px;padding-top:7px;line-height:1.3}
.word{border:1px solid var(--line);border-radius:99px;padding:1px 8px;font-size:.78rem;color:var(--muted);
max-width:100%;overflow-wrap:anywhere}
.word.is-label{background:var(--accent);border-color:var(--accent);color:var(--surface)}
.rows{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));column-gap:32px}
.row{display:grid;grid-template-columns:118px 1fr;gap:12px;align-items:center;padding:6px 0;
border-bottom:1px solid var(--grid)}
.row-title b{display:block;font-size:.85rem;font-weight:600;line-height:1.25}
.row-title span{color:var(--muted);font-size:.8rem}
.row-pictures{display:grid;grid-template-columns:repeat(5,1fr);gap:4px}
.row-pictures img{border-radius:4px}
.wide img{aspect-ratio:4/3;object-fit:cover}
.problems{margin:0 0 8px;padding-left:18px;font-size:.88rem}
.problems li{margin-bottom:3px}
@media (max-width:860px){.sheet{grid-template-columns:repeat(4,1fr);gap:6px}}
@media (max-width:560px){.pairs{grid-template-columns:1fr}
.worded{grid-template-columns:1fr 1fr;gap:18px 10px}.below{grid-template-columns:96px 1fr}
.row{grid-template-columns:1fr;gap:5px}#map .plot{max-height:98vw}}
"""
