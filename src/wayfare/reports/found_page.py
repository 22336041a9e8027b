"""The page of `wayfare search`: for each query the photos or texts that were found, nearest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wayfare.reports.dataset_parts import Picture
from wayfare.reports.page import Html, details, document, empty, picture, save, section, several, tag, tiles
from wayfare.reports.tables import human_seconds, number

_MOST_IN_MENU = 40
_MOST_LABELS = 6


@dataclass(frozen=True)
class Result:
    """A photo or a text that was found."""

    name: str
    picture: Picture | None
    text: str  # "" where none is known
    labels: Sequence[str]
    distance: int  # bits
    score: float


@dataclass(frozen=True)
class Asked:
    """A query with what was found."""

    title: str
    picture: Picture | None  # of the photo that asks
    by_photo: bool
    find: str  # "photos" or "texts"
    results: Sequence[Result]
    unknown: Sequence[str] = ()
    nearest: Sequence[str] = ()


@dataclass(frozen=True)
class Page:
    """All that the page shows."""

    index: str
    model: str
    bits: int
    counts: dict[str, int]  # photos and texts in the index
    asked: Sequence[Asked]
    more: int = 0  # queries that were answered and have no room here
    refused: Sequence[tuple[str, str]] = ()
    seconds: dict[str, float] = field(default_factory=dict)


def write_found(page: Page, out: Path) -> Path:
    """Write the page and return where it is."""
    return save(page_of(page), out)


def page_of(page: Page) -> str:
    """The page as HTML."""
    sections = [_query(page, place, asked) for place, asked in enumerate(page.asked, start=1)]
    if page.refused:
        listed = [tag("li", tag("b", query), " ", reason) for query, reason in page.refused]
        sections.append(section("refused", "Not answered", tag("ul", *listed, class_="refused")))
    sections.append(_explained(page))
    title = page.asked[0].title if len(page.asked) == 1 else "What was found"
    return document(title, _header(page, title), sections, (), _STYLE)


def _header(page: Page, title: str) -> Html:
    all_ = len(page.asked) + page.more
    held = " and ".join(several(count, name[:-1]) for name, count in page.counts.items() if count)
    each = [f"{name} {human_seconds(spent / max(1, all_))}" for name, spent in page.seconds.items()]
    rest = f" The first {len(page.asked)} are shown." if page.more else ""
    links = [tag("a", asked.title, href=f"#query-{place}") for place, asked in enumerate(page.asked, start=1)]
    menu = tag("nav", *links, aria_label="Queries") if 1 < len(links) <= _MOST_IN_MENU else None
    shown = [("answered", number(all_), "queries")]
    if page.refused:
        shown.append(("not answered", number(len(page.refused)), "listed below"))
    return tag(
        "header",
        tag("p", "Wayfare · search", class_="eyebrow"),
        tag("h1", title),
        tag("p", *(tag("span", words, class_="chip") for words in (f"index {page.index}", f"model {page.model}",
            f"{page.bits} bits")), class_="chips"),
        tag("p", f"Among {held}. For each query: {', '.join(each)}.{rest}", class_="lead note"),
        tiles(shown) if all_ > 1 or page.refused else None,
        menu,
    )  # fmt: skip


def _query(page: Page, place: int, asked: Asked) -> Html:
    words = f"{'Photos like' if asked.find == 'photos' else 'Texts for'} this photo" if asked.by_photo else None
    if not asked.by_photo:
        words = "Photos for these words" if asked.find == "photos" else "Texts like these words"
    head: list[object] = [tag("h2", asked.title, id=f"query-{place}-title"), tag("p", words, class_="note")]
    if asked.by_photo:
        shot = _image(asked.picture) if asked.picture is not None else empty("The photo cannot be shown.")
        head.append(tag("div", shot, class_="asking"))
    if asked.unknown:
        near = f" Known words like these: {', '.join(asked.nearest)}." if asked.nearest else ""
        head.append(tag("p", f"Not known, and left out: {', '.join(asked.unknown)}.{near}", class_="note odd"))
    cards = [_card(page, rank, result, asked.find) for rank, result in enumerate(asked.results, start=1)]
    return tag(
        "section", *head, tag("ol", *cards, class_="found"), id=f"query-{place}",
        aria_labelledby=f"query-{place}-title",
    )  # fmt: skip


def _card(page: Page, rank: int, result: Result, find: str) -> Html:
    image = _image(result.picture) if result.picture is not None else None
    if image is None and find == "photos":
        image = tag("div", "no picture", class_="lost")
    text = tag("p", result.text, class_="said") if result.text else None
    labels = [tag("span", label, class_="chip") for label in result.labels[:_MOST_LABELS]]
    share = 100 * (1 - result.distance / page.bits)
    bar = tag("span", tag("i", style=f"width:{share:.1f}%"), class_="near", aria_hidden="true")
    far = "the same code" if not result.distance else f"{several(result.distance, 'bit')} of {page.bits} differ"
    name = tag("p", result.name, class_="note file") if result.name != result.text else None
    first = (text, image) if find == "texts" else (image, text)
    return tag(
        "li", *first, tag("p", *labels, class_="chips") if labels else None,
        tag("p", tag("b", rank), tag("span", far, title=f"score {result.score:.3f}"), class_="rank"), bar, name,
    )  # fmt: skip


def _explained(page: Page) -> Html:
    texts = (
        f"Photos and texts have codes of {page.bits} bits, made by one model that learnt from pairs of both. The fewer "
        "bits of its code differ from the query's, the nearer an item is, and the bar is the share of bits that agree. "
        "Among items that are equally far, those come first whose codes agree in the bits that the query is surest of.",
        "There is no threshold: something is always nearest, however little it has to do with the query.",
    )
    return tag("section", details("How to read this", *(tag("p", text) for text in texts)), id="explained")


def _image(shown: Picture) -> Html:
    return picture(shown.jpeg, shown.words, shown.width, shown.height)


_STYLE = """
img{display:block;max-width:100%;height:auto;border-radius:8px;background:var(--grid)}
.lead.note{margin:12px 0 14px}
section>h2+.note{margin:0 0 12px}
.asking img{max-height:260px;width:auto;margin-bottom:14px}
.odd{border-left:3px solid var(--warn);padding-left:10px}
.found{list-style:none;margin:0;padding:0;display:grid;gap:20px 14px;
grid-template-columns:repeat(auto-fill,minmax(min(100%,168px),1fr))}
.found li{min-width:0;display:flex;flex-direction:column;gap:5px}
.found img,.lost{width:100%;aspect-ratio:1;object-fit:contain;background:#fff;border:1px solid var(--line)}
.lost{display:grid;place-items:center;border-radius:8px;background:var(--grid);color:var(--muted);font-size:.85rem}
.found p{margin:0}
.said{font-size:.92rem;line-height:1.35}
.found .chips{display:flex;flex-wrap:wrap;gap:4px}
.found .chip{font-size:.75rem;padding:1px 8px;margin:0}
.found .rank{display:flex;gap:8px;align-items:baseline;font-size:.85rem;color:var(--muted);margin-top:auto}
.rank b{color:var(--ink);font-size:1rem;font-variant-numeric:tabular-nums}
.near{display:block;height:5px;border-radius:99px;background:var(--grid)}
.near i{display:block;height:100%;border-radius:99px;background:var(--c1)}
.file{font-size:.78rem;line-height:1.3;overflow-wrap:anywhere}
.refused{margin:0;padding-left:18px;font-size:.9rem}
@media (max-width:560px){.found{grid-template-columns:1fr 1fr;gap:18px 10px}}
"""
