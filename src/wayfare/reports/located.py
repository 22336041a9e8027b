"""The page of `wayfare locate`: each photo beside the places it looks like, and a map of where they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wayfare.reports.dataset_parts import Picture
from wayfare.reports.page import Html, details, document, empty, facts, picture, save, section, several, tag, tiles
from wayfare.reports.tables import human_seconds, number

_WIDE, _HIGH, _MARGIN = 480, 330, 22  # of a map, in units of its own
_MOST_IN_MENU = 24
_LEAST = 30.0  # metres to the north and south of the middle
_STEPS = (1, 2, 5)  # of the scale of a map, times a power of ten


@dataclass(frozen=True)
class Sketch:
    """A map in metres from the position: x to the east, y to the north."""

    places: Sequence[tuple[int, Sequence[tuple[float, float]]]]  # a place's number, and where its photographs are
    others: Sequence[tuple[float, float]]  # further photographs of the index


@dataclass(frozen=True)
class Shown:
    """A place that the photo may be of."""

    picture: Picture | None
    file: str
    metres: float  # from the first place; inf where that is not known
    distance: float
    photos: int
    where: str


@dataclass(frozen=True)
class Found:
    """One photo with its answer."""

    name: str
    picture: Picture | None
    unknown: bool | None
    confidence: float | None
    position: str
    link: str  # to a map on the net; "" where degrees are not known
    agreeing: int
    spread: float
    places: Sequence[Shown]
    sketch: Sketch


@dataclass(frozen=True)
class Page:
    """All that the page shows."""

    index: str
    photos: int
    model: str
    radius: float
    threshold: float | None
    learnt: str  # what the threshold was learnt on, or why there is none
    found: Sequence[Found]
    more: int = 0  # photos that were found and have no room here
    skipped: Sequence[tuple[str, str]] = ()
    seconds: dict[str, float] = field(default_factory=dict)


def write_located(page: Page, out: Path) -> Path:
    """Write the page and return where it is."""
    return save(page_of(page), out)


def page_of(page: Page) -> str:
    """The page as HTML."""
    sections = [_photo(page, place, found) for place, found in enumerate(page.found, start=1)]
    if page.skipped:
        listed = [tag("li", tag("b", file), " ", reason) for file, reason in page.skipped]
        sections.append(section("unreadable", "Not readable", tag("ul", *listed, class_="unread")))
    sections.append(_explained(page))
    title = page.found[0].name if len(page.found) == 1 else "Where these photos were taken"
    return document(title, _header(page, title), sections, (), _STYLE)


def _header(page: Page, title: str) -> Html:
    all_ = len(page.found) + page.more
    judged = [found for found in page.found if found.unknown is not None]
    shown = [("photos", number(all_), f"looked for among {number(page.photos)}")]
    if judged:
        unknown = sum(bool(found.unknown) for found in judged)
        shown += [("found", number(len(judged) - unknown), ""), ("unknown", number(unknown), "")]
    if page.skipped:
        shown.append(("not readable", number(len(page.skipped)), "listed below"))
    each = [f"{name} {human_seconds(spent / max(1, all_))}" for name, spent in page.seconds.items()]
    links = [tag("a", found.name, href=f"#photo-{place}") for place, found in enumerate(page.found, start=1)]
    menu = tag("nav", *links, aria_label="Photos") if 1 < len(links) <= _MOST_IN_MENU else None
    rest = f"The first {len(page.found)} are shown." if page.more else ""
    return tag(
        "header",
        tag("p", "Wayfare · locate", class_="eyebrow"),
        tag("h1", title),
        tag("p", tag("span", f"index {page.index}", class_="chip"), tag("span", f"model {page.model}", class_="chip"),
            class_="chips"),
        tag("p", f"For each photo: {', '.join(each)}. {rest}" if each else rest, class_="lead note"),
        tiles(shown) if all_ > 1 or page.skipped else None,
        menu,
    )  # fmt: skip


def _photo(page: Page, place: int, found: Found) -> Html:
    shot = picture(*_parts(found.picture)) if found.picture is not None else empty("The photo cannot be shown.")
    side = tag("div", _verdict(page, found), _position(found), _sketch(found), class_="side")
    strip = tag("div", *(_place(at, shown) for at, shown in enumerate(found.places, start=1)), class_="places")
    look = "photo-card" + (" is-unknown" if found.unknown else "")
    head = "What it looks like most" if found.unknown else "Nearest places"
    tall = found.picture is not None and found.picture.height > found.picture.width
    body = tag("div", tag("div", shot, class_="shot tall" if tall else "shot"), side, class_="pair")
    title = tag("h2", found.name, id=f"photo-{place}-title")
    card = (title, body, tag("h3", head), strip)
    return tag("section", *card, id=f"photo-{place}", class_=look, aria_labelledby=f"photo-{place}-title")


def _verdict(page: Page, found: Found) -> Html:
    if found.confidence is None or page.threshold is None:
        return tag("p", tag("span", "not judged", class_="chip"), class_="verdict")
    words = "unknown" if found.unknown else "found"
    chip = tag("span", words, class_=f"chip {'open' if found.unknown else 'done'}")
    share, limit = (f"{100 * value:.1f}%" for value in (found.confidence, page.threshold))
    bar = tag(
        "span", tag("i", style=f"width:{share}"), tag("b", style=f"left:{limit}"), class_="bar", aria_hidden="true"
    )
    said = tag("span", f"confidence {found.confidence:.2f}, threshold {page.threshold:.2f}", class_="note")
    return tag("div", tag("p", chip, said, class_="verdict"), bar)


def _position(found: Found) -> Html:
    link = tag("a", "open in a map", href=found.link, rel="noreferrer") if found.link else None
    basis = f"the mean of {several(found.agreeing, 'photograph')}, which scatter by {number(round(found.spread, 1))} m"
    if found.agreeing == 1:
        basis = "the position of the nearest photograph"
    doubt = "If it were there: " if found.unknown else ""
    return tag(
        "p", doubt, tag("b", found.position), " ", link, tag("span", basis, class_="note basis"), class_="position"
    )


def _place(at: int, shown: Shown) -> Html:
    image = picture(*_parts(shown.picture)) if shown.picture is not None else tag("div", "no picture", class_="lost")
    away = "nearest" if at == 1 else _away(shown.metres)
    rows = [("descriptor distance", f"{shown.distance:.3f}"), ("photographs", number(shown.photos))]
    head = tag("p", tag("span", at, class_=f"pin p{_colour(at)}"), tag("b", away), class_="pinned")
    caption = tag("figcaption", head, facts(f"Place {at}", rows), tag("p", shown.where, class_="note"),
                  tag("p", shown.file, class_="note file"))  # fmt: skip
    return tag("figure", image, caption, class_="place")


def _explained(page: Page) -> Html:
    texts = (
        f"Photographs of the index at most {number(page.radius)} m from each other are one place. The position is the "
        "mean of those at the first place among the 20 nearest: each counts by how much nearer its descriptor is than "
        "that of the first photograph of another place.",
        "Confidence is the chance that the first place is the right one, if one photo in two is of a place that is not "
        f"in the index. Below the threshold the answer is unknown. {page.learnt}",
    )
    return tag("section", details("How to read this", *(tag("p", text) for text in texts)), id="explained")


# ---- The map


def _sketch(found: Found) -> Html:
    """Grey what is in the index, numbered the places, and the position in the middle of a cross."""
    points = [(0.0, 0.0), *(point for _, members in found.sketch.places for point in members)]
    (west, east), (south, north) = ((min(side), max(side)) for side in zip(*points))
    half = max(_LEAST, (north - south) / 2, (east - west) / 2 * _HIGH / _WIDE)
    scale = (_HIGH / 2 - _MARGIN) / half

    def at(x: float, y: float) -> tuple[float, float]:
        return _WIDE / 2 + scale * (x - (west + east) / 2), _HIGH / 2 - scale * (y - (south + north) / 2)

    inside = [at(x, y) for x, y in found.sketch.others]
    others = [_dot(x, y, 2.2, "other") for x, y in inside if 0 <= x <= _WIDE and 0 <= y <= _HIGH]
    near = [_dot(*at(x, y), 3.2, f"p{_colour(n)}") for n, members in found.sketch.places for x, y in members]
    pins = [_pin(n, *at(*members[0])) for n, members in reversed(found.sketch.places)]
    x, y = at(0, 0)
    ticks = ((x - 19, y, "h8"), (x + 11, y, "h8"), (x, y - 19, "v8"), (x, y + 11, "v8"))
    cross = tag("path", d="".join(f"M{x:.1f} {y:.1f}{line}" for x, y, line in ticks), class_="cross")
    words = f"Map: the position, and {several(len(found.sketch.places), 'place')} around it"
    map_ = tag(
        "svg", tag("rect", width=_WIDE, height=_HIGH, class_="ground"), *others, *near, *pins, cross,
        *_scale_bar(scale),
        viewBox=f"0 0 {_WIDE} {_HIGH}", role="img", aria_label=words, class_="sketch",
    )  # fmt: skip
    elsewhere = len(found.places) - len(found.sketch.places)
    note = tag("p", f"{several(elsewhere, 'place is', 'places are')} too far away for this map.", class_="note")
    return tag("div", map_, note if elsewhere else None)


def _dot(x: float, y: float, size: float, look: str) -> Html:
    return tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=size, class_=look)


def _pin(at: int, x: float, y: float) -> Html:
    text = tag("text", at, x=f"{x:.1f}", y=f"{y + 4:.1f}")
    return tag("g", _dot(x, y, 10, f"p{_colour(at)}"), text, class_="map-pin")


def _scale_bar(scale: float) -> list[Html]:
    wanted = _WIDE / 5 / scale  # metres
    power = 10 ** math.floor(math.log10(wanted))
    length = max(step * power for step in _STEPS if step * power <= wanted)
    text = f"{length:g} m" if length < 1000 else f"{length / 1000:g} km"
    y, end = _HIGH - 12, 12 + scale * length
    return [
        tag("path", d=f"M12 {y - 5}v5H{end:.1f}v-5", class_="scale-bar"),
        tag("text", text, x=12, y=y - 9, class_="scale-text"),
    ]


def _colour(at: int) -> int:
    return (at - 1) % 6 + 1


def _away(metres: float) -> str:
    if not math.isfinite(metres):
        return "in another city"
    return f"{metres:.0f} m from 1" if metres < 10_000 else f"{metres / 1000:,.0f} km from 1"


def _parts(shown: Picture) -> tuple[bytes, str, int, int]:
    return shown.jpeg, shown.words, shown.width, shown.height


_PINS = ("c1", "c2", "c3", "c4", "c5", "c6")
_STYLE = """
img{display:block;width:100%;height:auto;border-radius:8px;background:var(--grid)}
.lead.note{margin:12px 0 14px}
.photo-card h2{margin-bottom:12px}
.pair{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:22px;align-items:start}
.shot.tall img{width:auto;max-width:100%;height:470px}
.is-unknown .shot img{filter:saturate(.45)}
.verdict{display:flex;flex-wrap:wrap;gap:4px 10px;align-items:baseline;margin:0 0 6px}
.verdict .chip{font-size:.95rem;padding:2px 14px;font-weight:600}
.verdict .note{margin:0}
.bar{position:relative;display:block;height:8px;border-radius:99px;background:var(--grid);margin:0 0 14px}
.bar i{display:block;height:100%;border-radius:99px;background:var(--good)}
.is-unknown .bar i{background:var(--warn)}
.bar b{position:absolute;top:-3px;width:2px;height:14px;background:var(--ink)}
.position{margin:0 0 12px}
.position b{font-size:1.1rem;font-variant-numeric:tabular-nums}
.basis{display:block}
.sketch{display:block;width:100%;height:auto;border-radius:8px;border:1px solid var(--line)}
.ground{fill:var(--page)}
.other{fill:var(--muted);opacity:.35}
.map-pin circle{stroke:var(--surface);stroke-width:1.5}
.map-pin text{fill:var(--surface);font:600 11px system-ui,sans-serif;text-anchor:middle}
.cross{stroke:var(--ink);stroke-width:2.4;fill:none;paint-order:stroke}
.scale-bar{stroke:var(--muted);stroke-width:1.5;fill:none}
.scale-text{fill:var(--muted);font:12px system-ui,sans-serif}
.places{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,176px),1fr));gap:16px 14px}
.place img,.lost{aspect-ratio:4/3;object-fit:cover}
.lost{display:grid;place-items:center;border-radius:8px;background:var(--grid);color:var(--muted);font-size:.85rem}
.place figcaption{font-weight:400;padding-top:7px}
.place .facts{display:block;font-size:.85rem;margin:0 0 4px}
.place .facts>div{padding:2px 0}
.place .facts dd{min-width:0}
.place .note{font-size:.8rem;line-height:1.35;margin:0}
.pinned{display:flex;gap:8px;align-items:center;margin:0 0 2px;font-size:.95rem}
.pinned b{font-weight:600}
.pin{flex:none;width:21px;height:21px;border-radius:99px;display:grid;place-items:center;color:var(--surface);
font-size:.78rem;font-weight:700}
.is-unknown .place{opacity:.75}
.unread{margin:0;padding-left:18px;font-size:.9rem}
@media (max-width:760px){.pair{grid-template-columns:1fr;gap:14px}.shot.tall img{height:auto;width:100%}}
@media (max-width:560px){.places{grid-template-columns:1fr 1fr;gap:16px 10px}}
""" + "".join(
    f".pin.p{i}{{background:var(--{token})}}circle.p{i}{{fill:var(--{token})}}\n" for i, token in enumerate(_PINS, 1)
)
