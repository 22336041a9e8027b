"""What every page is built with: one HTML file that needs nothing else and opens offline.

Everything from outside passes `tag`, which escapes it; and a content policy in the page lets no script run but the
two it was written with, and nothing be fetched, so that a mistake in the former is not yet a hole.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from wayfare.errors import StoreError
from wayfare.reports import figures
from wayfare.reports.figures import Figure, Key
from wayfare.reports.tables import (
    number,
    plain,
)

_LONG_WORD = 24
_VOID_TAGS = frozenset({"meta", "link", "input"})
_NONE = "'none'"
_WITHOUT_SCRIPT = "The figures need JavaScript; every number is in the tables too."


class Html(str):
    """Text that is markup already; any other string is escaped when it meets one."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. Strings are escaped, `Html` is kept; `class_` is class, `aria_label` is aria-label."""
    pairs = (
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_line(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    opening = f"<{name}{''.join(pairs)}>"
    return Html(opening if name in _VOID_TAGS else f"{opening}{join(children)}</{name}>")


def join(children: Iterable[object]) -> Html:
    """Children one after the other, escaped where they are not markup."""
    return Html("".join(c if isinstance(c, Html) else html.escape(_line(c)) for c in children if c is not None))


def section(name: str, title: str, *children: object) -> Html:
    """A part of the page that the menu leads to."""
    return tag("section", tag("h2", title, id=f"{name}-title"), *children, id=name, aria_labelledby=f"{name}-title")


def table(
    caption: str, heads: Sequence[object], rows: Iterable[Sequence[object]], words: int = 1, class_: str | None = None
) -> Html:
    """A table that scrolls by itself where it is too wide; the first `words` columns are text, the rest numbers."""

    def cell(index: int, value: object) -> Html:
        kind = _word_kind(value) if index < words else "number"
        return tag("th", value, scope="row", class_=kind) if index == 0 else tag("td", value, class_=kind)

    head = [tag("th", h, scope="col", class_=None if i < words else "number") for i, h in enumerate(heads)]
    body = [tag("tr", *(cell(i, value) for i, value in enumerate(row))) for row in rows]
    inner = tag("table", tag("caption", caption, class_="unseen"), tag("thead", tag("tr", *head)), tag("tbody", *body))
    return tag("div", inner, class_=f"scroll {class_ or ''}".strip(), role="region", tabindex="0", aria_label=caption)


def facts(caption: str, rows: Iterable[tuple[object, object]]) -> Html:
    """Names and values, two columns."""
    pairs = [tag("div", tag("dt", name), tag("dd", value)) for name, value in rows]
    return tag("dl", *pairs, class_="facts", aria_label=caption)


def details(title: object, *children: object, open_: bool = False) -> Html:
    """A part that is folded until asked for."""
    return tag("details", tag("summary", title), *children, **({"open": ""} if open_ else {}))


def empty(text: str) -> Html:
    """What stands where there is nothing to show."""
    return tag("p", text, class_="empty")


def plots(drawn: Sequence[Figure], titles: bool = True) -> Html:
    """Figures beside each other as far as there is room."""
    return tag(
        "div", *(_plot(figure, titles) for figure in drawn), class_="plots" if len(drawn) > 1 else "plots single"
    )


def legend(keys: Iterable[Key]) -> Html:
    """Buttons that name the colours of the figures in a section, and switch them off and on."""
    unique = list({key.group: key for key in keys}.values())
    buttons = [
        tag(
            "button",
            tag("i", class_=f"swatch {k.colour[1:]}"),
            k.name,
            type="button",
            aria_pressed="true",
            data_group=k.group,
        )
        for k in unique
    ]
    return tag("div", *buttons, class_="legend", role="group", aria_label="Shown in the figures")


ROUNDS_OR_BYTES = (("rounds", "rounds"), ("bytes", "bytes sent"))


def axis_choice(options: Sequence[tuple[str, str]] = ROUNDS_OR_BYTES, name: str = "over") -> Html:
    """Curves over rounds, or over what they cost in bytes; `name` tells several choices on a page apart."""
    radios = [
        tag("label", _radio(name, value, first=i == 0), tag("span", words), class_="choice")
        for i, (value, words) in enumerate(options)
    ]
    return tag("fieldset", tag("legend", "Curves over"), *radios, class_="toggle")


def tiles(items: Iterable[tuple[str, str, str]]) -> Html:
    """The few numbers to see first: what, how much, and a remark."""
    made = [
        tag("div", tag("dt", w), tag("dd", tag("b", v), tag("span", remark)), class_="tile") for w, v, remark in items
    ]
    return tag("dl", *made, class_="tiles")


def menu(parts: Iterable[str]) -> Html:
    """Links to the sections of the page."""
    return tag("nav", *(tag("a", part, href=f"#{part}") for part in parts), aria_label="Parts of this page")


def picture(jpeg: bytes, words: str, width: int, height: int) -> Html:
    """A photograph that is part of the page; `words` say what it shows to those who do not see it."""
    data = base64.b64encode(jpeg).decode()  # not through `tag`, which shortens what is long
    shape = f'width="{width:d}" height="{height:d}" decoding="async"'
    return Html(f'<img src="data:image/jpeg;base64,{data}" alt="{html.escape(_line(words))}" {shape}>')


def document(
    title: str, header: Html, sections: Sequence[Html], drawn: Sequence[Figure], style: str = "", script: str = ""
) -> str:
    """The whole page; `style` and `script` are what it has beyond all pages. Without these or figures none runs."""
    scripts = [_library(), figures.SCRIPT] if drawn else []
    scripts += [script] if script else []
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts)) or _NONE}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{plain(title, 80)} · Wayfare"),
        tag("style", Html(STYLE + style)),
    )
    body = tag(
        "body",
        tag("a", "Skip to the result", href="#main", class_="skip"),
        header,
        tag("noscript", tag("p", _WITHOUT_SCRIPT, class_="banner")) if scripts else None,
        tag("main", *sections, id="main"),
        tag("footer", "Written by Wayfare. This page is complete in itself and fetches nothing."),
        tag("script", Html(figures.embed(drawn)), type="application/json", id="figure-data") if drawn else None,
        *(tag("script", Html(script)) for script in scripts),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def save(text: str, out: Path) -> Path:
    """Write a page under a temporary name first: who has the old one open never sees half of the new."""
    out = out / "report.html" if out.is_dir() else out
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(text.encode("utf-8", errors="replace"))
        temporary.replace(out)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise StoreError(f"{out}: the page cannot be written: {error.strerror or error}") from error
    return out


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def setting(value: object) -> str:
    """A setting as it would stand in the recipe, near enough."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(setting(item) for item in value) or "none"
    return "none" if value is None or value == {} else str(value)


def several(count: int, one: str, many: str | None = None) -> str:
    """ "1 reply", "3 replies"."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def _plot(figure: Figure, titles: bool) -> Html:
    plot = tag(
        "div", class_="plot", id=figure.id, role="img", aria_label=figure.description, style=f"height:{figure.height}px"
    )
    return tag("figure", tag("figcaption", figure.title, class_=None if titles else "unseen"), plot)


def _radio(name: str, value: str, first: bool) -> Html:
    return tag("input", type="radio", name=name, value=value, **({"checked": ""} if first else {}))


def _word_kind(value: object) -> str | None:
    """Only words too long for a phone may be broken: a table had better scroll than cut "accuracy" in two."""
    return "long" if isinstance(value, Html) or any(len(word) > _LONG_WORD for word in str(value).split()) else None


def _line(value: object) -> str:
    return plain(value, 2000)


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def _library() -> str:
    """plotly.js, fit to stand in a page: one kind of line end, so that its hash is what the browser computes."""
    from plotly.offline import get_plotlyjs  # here, because it is slow to import and many commands draw nothing

    library: str = get_plotlyjs()
    for found, meant in (("\r\n", "\n"), ("\r", "\n"), ("</script", "<\\/script"), ("<!--", "<\\!--")):
        library = library.replace(found, meant)
    return library


STYLE = """
:root{--page:#f7f6f3;--surface:#ffffff;--ink:#1d2126;--muted:#5b636d;--line:#d9d7d1;--grid:#ebe9e4;--accent:#2a658f;
--warn:#8a4b08;--warn-page:#fdf3e3;--good:#2c6e49;--shade:rgba(0,0,0,.2);
--c1:#2f6f9f;--c2:#d07a2d;--c3:#3f8f5f;--c4:#8a5aa8;--c5:#c14d7e;--c6:#a08a22;--c7:#2a9aa0;--c8:#a3523d;--c9:#6f7884;
--c10:#5566c4;
--c11:#7fa83a;--c12:#d9a5b8}
@media (prefers-color-scheme:dark){:root{--page:#14171b;--surface:#1c2026;--ink:#e9eaec;--muted:#a3abb5;
--line:#363c45;
--grid:#2a2f37;--accent:#86bfe8;--warn:#f0bd7c;--warn-page:#33281a;--good:#86cfa4;--shade:rgba(0,0,0,.65);
--c1:#6fb1e0;--c2:#eb9a5f;--c3:#76c496;--c4:#c198dd;--c5:#ea86b1;--c6:#d3bd5e;--c7:#62c9cf;--c8:#de9480;--c9:#a3abb8;
--c10:#94a2f2;
--c11:#b3d67a;--c12:#f0c9d6}}
*{box-sizing:border-box}
html{color-scheme:light dark;-webkit-text-size-adjust:100%;scroll-behavior:smooth}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--page);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
overflow-wrap:anywhere}
header,main,footer{max-width:1120px;margin:0 auto;padding:0 20px}
header{padding-top:36px}
h1{font-size:clamp(1.6rem,4.5vw,2.3rem);line-height:1.15;margin:2px 0 12px;letter-spacing:-.015em;
unicode-bidi:isolate}
h2{font-size:1.2rem;margin:0 0 14px;letter-spacing:-.005em}
h3{font-size:.95rem;margin:22px 0 6px}
p{margin:0 0 12px}
a{color:var(--accent)}
.eyebrow{color:var(--muted);font-size:.85rem;margin:0}
.lead{font-size:1.08rem;max-width:68ch;margin:14px 0 18px}
.chips{display:flex;flex-wrap:wrap;gap:6px;margin:0}
.chip{border:1px solid var(--line);border-radius:99px;padding:1px 11px;font-size:.85rem;color:var(--muted);
background:var(--surface)}
.chip.done{color:var(--good);border-color:currentColor}
.chip.open{color:var(--warn);border-color:currentColor}
.banner{background:var(--warn-page);color:var(--warn);border:1px solid currentColor;border-radius:10px;
padding:10px 14px;margin:16px 0 0}
nav{display:flex;flex-wrap:wrap;gap:2px 16px;padding:10px 0 18px;font-size:.92rem}
nav a{text-decoration:none;padding:4px 0}
nav a:hover{text-decoration:underline}
section{background:var(--surface);border:1px solid var(--line);border-radius:14px;padding:22px 24px;margin:0 0 18px;
scroll-margin-top:12px}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px;border-radius:4px}
.skip{position:absolute;left:-999px;top:8px;background:var(--surface);padding:8px 14px;border-radius:8px}
.skip:focus{left:12px;z-index:2}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(138px,1fr));gap:10px;margin:0 0 18px}
.tile{border:1px solid var(--line);border-radius:10px;padding:10px 14px}
.tile dt{color:var(--muted);font-size:.85rem}
.tile dd{margin:0}
.tile b{display:block;font-size:1.45rem;font-weight:600;line-height:1.3;font-variant-numeric:tabular-nums;
letter-spacing:-.01em}
.tile span{color:var(--muted);font-size:.85rem}
/* a shade at the edge behind which there is more to scroll to */
.scroll{overflow-x:auto;margin:0 0 10px;max-width:100%;background:
linear-gradient(90deg,var(--surface) 60%,transparent) 0 0/32px 100% local no-repeat,
linear-gradient(270deg,var(--surface) 60%,transparent) 100% 0/32px 100% local no-repeat,
radial-gradient(farthest-side at 0 50%,var(--shade),transparent) 0 0/10px 100% scroll no-repeat,
radial-gradient(farthest-side at 100% 50%,var(--shade),transparent) 100% 0/10px 100% scroll no-repeat}
.scroll.tall{max-height:420px;overflow-y:auto}
.tall thead th{position:sticky;top:0;background:var(--surface)}
table{border-collapse:collapse;width:100%;font-size:.93rem;position:relative}
th,td{text-align:left;padding:7px 14px 7px 0;border-bottom:1px solid var(--grid);vertical-align:top;
unicode-bidi:isolate;
max-width:44ch;min-width:3.2em;overflow-wrap:break-word}
.long{overflow-wrap:anywhere;min-width:9em}
thead th{color:var(--muted);font-weight:500;font-size:.85rem;border-bottom-color:var(--line);overflow-wrap:normal}
tbody th{font-weight:500}
tbody tr:last-child>*{border-bottom:0}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
thead .number{white-space:normal}
th:last-child,td:last-child{padding-right:0}
td b{font-weight:650}
.facts{margin:0 0 10px;display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,300px),1fr));
column-gap:32px;font-size:.93rem}
.facts>div{display:flex;justify-content:space-between;gap:14px;padding:6px 0;border-bottom:1px solid var(--grid)}
.facts dt{color:var(--muted);min-width:6em}
.facts dd{margin:0;min-width:4.5em;text-align:right;font-variant-numeric:tabular-nums;unicode-bidi:isolate}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,300px),1fr));gap:0 32px}
.cards .facts{display:block}
.card h3{margin-top:14px}
.named{display:inline-flex;gap:8px;align-items:baseline}
.empty,.note{color:var(--muted)}
.empty{margin-bottom:4px}
.note{font-size:.9rem}
.controls{display:flex;flex-wrap:wrap;gap:10px 28px;align-items:center;margin-bottom:10px}
.toggle{border:0;padding:0;margin:0;display:flex;align-items:center}
.toggle legend{float:left;color:var(--muted);font-size:.9rem;padding:0 10px 0 0}
.choice{position:relative;display:inline-flex}
.choice input{position:absolute;inset:0;opacity:0;margin:0;cursor:pointer}
.choice span{border:1px solid var(--line);padding:4px 13px;font-size:.9rem}
.choice:first-of-type span{border-radius:99px 0 0 99px}
.choice+.choice span{margin-left:-1px}
.choice:last-of-type span{border-radius:0 99px 99px 0}
.choice input:checked+span{background:var(--ink);color:var(--surface);border-color:var(--ink)}
.choice input:focus-visible+span{outline:2px solid var(--accent);outline-offset:2px}
.legend{display:flex;flex-wrap:wrap;gap:2px 6px;margin-left:-9px}
.legend button{font:inherit;font-size:.88rem;color:var(--ink);background:none;border:1px solid transparent;
border-radius:99px;
padding:2px 9px;cursor:pointer;display:inline-flex;align-items:center;gap:6px;text-align:left;min-height:28px}
.legend button:hover{border-color:var(--line)}
.legend button[aria-pressed=false]{opacity:.45;text-decoration:line-through}
.swatch{width:11px;height:11px;border-radius:3px;flex:none;background:var(--c9)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));gap:18px 28px;
margin-bottom:12px}
.plots.single{grid-template-columns:1fr}
figure{margin:0;min-width:0}
figcaption{font-weight:600;font-size:.95rem}
.plot{width:100%}
details{border-top:1px solid var(--grid);padding-top:10px;margin-top:12px}
h2+details{border:0;margin:0;padding:0}
summary{cursor:pointer;font-weight:500;padding:2px 0;margin-bottom:6px}
pre{background:var(--page);border:1px solid var(--line);border-radius:10px;padding:12px 14px;overflow-x:auto;
margin:0 0 14px;
overflow-wrap:normal}
code{font:.88rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
footer{color:var(--muted);font-size:.85rem;padding-bottom:36px}
@media (max-width:560px){header,main,footer{padding-left:12px;padding-right:12px}header{padding-top:22px}
section{padding:16px 14px;border-radius:12px}.tile{padding:8px 12px}.tile b{font-size:1.25rem}
.tiles{grid-template-columns:repeat(2,1fr)}.tile:first-child{grid-column:1/-1}}
@media print{body{background:#fff}section{break-inside:avoid;border:0;padding:0}nav,.controls .toggle{display:none}}
""" + "".join(f".swatch.c{i}{{background:var(--c{i})}}\n" for i in range(1, figures.COLOURS + 1))
