"""The page of `wayfare graph`: each picture with its objects, its graph beside it, and the relations in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wayfare.reports.dataset_parts import Picture
from wayfare.reports.page import Html, details, document, empty, picture, save, section, several, table, tag, tiles
from wayfare.reports.tables import number

_MOST_IN_MENU = 24


@dataclass(frozen=True)
class Shown:
    """One picture with its graph."""

    name: str
    about: str  # its size, and how many objects it has
    picture: Picture
    graph: Html | None  # None where no relation is drawn
    relations: Sequence[tuple[str, str, str, float]]  # subject, predicate, object, score
    objects: Sequence[tuple[str, str, float]]  # name, box, score
    unknown: str  # labels that the model does not know


@dataclass(frozen=True)
class Page:
    """All that the page shows."""

    run: str
    model: str
    shown: Sequence[Shown]
    more: int = 0  # pictures that have a graph and no room here
    skipped: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()


def write_graphs(page: Page, out: Path) -> Path:
    """Write the page and return where it is."""
    return save(page_of(page), out)


def page_of(page: Page) -> str:
    """The page as HTML."""
    sections = [_picture(place, shown) for place, shown in enumerate(page.shown, start=1)]
    if page.skipped:
        listed = [tag("li", tag("b", file), " ", reason) for file, reason in page.skipped]
        sections.append(section("skipped", "Left out", tag("ul", *listed, class_="plain-list")))
    if page.notes:
        sections.append(section("notes", "Notes", tag("ul", *(tag("li", note) for note in page.notes))))
    sections.append(section("explained", "What is shown", *(tag("p", text) for text in _EXPLAINED)))
    title = page.shown[0].name if len(page.shown) == 1 else "Scene graphs"
    return document(title, _header(page, title), sections, (), STYLE)


def _header(page: Page, title: str) -> Html:
    links = [tag("a", shown.name, href=f"#picture-{place}") for place, shown in enumerate(page.shown, start=1)]
    count = len(page.shown) + page.more
    counts = [("pictures", number(count), f"the first {len(page.shown)} are shown" if page.more else "")]
    counts += [("left out", number(len(page.skipped)), "listed below")] if page.skipped else []
    return tag(
        "header",
        tag("p", "Wayfare · graph", class_="eyebrow"),
        tag("h1", title),
        tag("p", tag("span", f"run {page.run}", class_="chip"), tag("span", f"model {page.model}", class_="chip"),
            class_="chips"),
        tiles(counts) if count > 1 or page.skipped else None,
        tag("nav", *links, aria_label="Pictures") if 1 < len(links) <= _MOST_IN_MENU else None,
    )  # fmt: skip


def _picture(place: int, shown: Shown) -> Html:
    shot = shown.picture
    left = tag("div", picture(shot.jpeg, shot.words, shot.width, shot.height), class_="shot")
    right = shown.graph if shown.graph is not None else empty("No relation: there are fewer than two known objects.")
    rows = [(tag("b", at), s, tag("i", word), o, f"{score:.3f}") for at, (s, word, o, score) in
            enumerate(shown.relations, start=1)]  # fmt: skip
    objects = [(name, box, f"{score:.2f}") for name, box, score in shown.objects]
    title = tag("h2", shown.name, id=f"picture-{place}-title")
    return tag(
        "section",
        title,
        tag("p", shown.about, class_="note about"),
        tag("div", left, tag("div", right, class_="beside"), class_="pair"),
        tag("p", f"Not known to the model, and left out: {shown.unknown}.", class_="note") if shown.unknown else None,
        details(several(len(rows), "relation"),
                table("Relations", ("", "subject", "predicate", "object", "score"), rows, 4)) if rows else None,
        details(several(len(objects), "object"),
                table("Objects", ("object", "box: x1, y1, x2, y2", "score"), objects, 2)) if objects else None,
        id=f"picture-{place}",
        aria_labelledby=f"picture-{place}-title",
    )  # fmt: skip


_EXPLAINED = (
    "Boxes and names of the objects are given, by an annotation, by hand or by a detector; the model says how they "
    "relate. An arrow goes from subject to object. Each ordered pair has at most one predicate.",
    "A score is the probability of the predicate, times the scores of both objects where these are uncertain. It also "
    "weighs that a pair is not related at all, as most are not: 0.2 may be the best there is.",
    "Objects that take part in no relation among those drawn have no box and no name; the tables have them all.",
)
STYLE = """
.chips{margin-bottom:16px}
.about{margin:-10px 0 12px}
.pair{display:grid;grid-template-columns:minmax(0,1.25fr) minmax(0,1fr);gap:22px;align-items:center}
.shot img{display:block;max-width:100%;height:auto;border-radius:8px;background:var(--grid);margin:0 auto}
.graph{display:block;width:100%;height:auto;max-width:560px;margin:0 auto}
.graph .edge{fill:none;stroke:var(--muted);stroke-width:1.5}
.graph .head{fill:var(--muted)}
.graph .word-box{fill:var(--surface)}
.graph text{text-anchor:middle;font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.graph .word{fill:var(--ink);font-size:13px}
.graph .node{font-size:15px;font-weight:500}
.plain-list{margin:0;padding-left:18px;font-size:.9rem}
@media (max-width:760px){.pair{grid-template-columns:1fr;gap:16px}}
"""
