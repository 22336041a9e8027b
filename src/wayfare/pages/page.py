"""Rendering a page: a Jinja2 template becomes one HTML file that needs nothing else and opens offline.

A page module gathers plain data and calls `render("locate.html", ...)`. Templates lie in `templates/`, one for each
page, with the parts they share in `parts.html`; style sheets and scripts lie in `static/` and are written into the
page. A template names those that it uses: `{% set styles = ["locate.css"] %}`.

Every value is escaped by the template engine. On top of that, a content policy in the page allows only the scripts
that it was written with and forbids all requests, so a mistake in the former is not yet a hole.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from wayfare.core.errors import StoreError
from wayfare.core.text import printable_lines
from wayfare.pages.figures import Figure, embed, in_script
from wayfare.pages.tables import human_bytes, number, plain

_LONG_WORD = 24
_MOST_LETTERS = 2000  # of one value
_MOST_IN_LINES = 200_000  # of a recipe
STATIC = Path(__file__).with_name("static")


def render(template: str, /, *, title: str, figures: Sequence[Figure] = (), **content: object) -> str:
    """The page as HTML. `figures` are all figures of the page; the template says where each one stands."""
    return _environment().get_template(template).render(title=title, figures=figures, **content)


def save(text: str, out: Path) -> Path:
    """Write a page under a temporary name first, so that readers never see half of it."""
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
    """A setting roughly as it is written in a recipe."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(setting(item) for item in value) or "none"
    return "none" if value is None or value == {} else str(value)


def setting_rows(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings as names and values of a list."""
    return [(key, setting(value)) for key, value in settings.items()]


def several(count: int, one: str, many: str | None = None) -> str:
    """ "1 reply", "3 replies"."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def template_engine(package: str) -> Environment:
    """The templates of a package: everything is escaped, and a name that is not given is an error."""
    made = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_one_line,
    )
    made.globals["several"] = several
    made.filters |= {"number": number, "human_bytes": human_bytes}
    return made


@cache
def _environment() -> Environment:
    made = template_engine("wayfare.pages")
    made.globals |= {"static": _static, "scripts_of": _scripts_of, "policy": _policy, "figure_data": _figure_data}
    filters: dict[str, Any] = {
        "jpeg": _jpeg,
        "script_data": _script_data,
        "text": _lines,
        "keys": _keys,
    }
    made.filters |= filters
    made.tests["long"] = _has_long_word
    return made


def _one_line(value: object) -> object:
    """A value as shown in a page: without control characters, and shortened. Markup is kept."""
    return value if isinstance(value, Markup) else "" if value is None else plain(value, _MOST_LETTERS)


def _lines(value: object) -> Markup:
    """Text of several lines, such as a recipe."""
    return escape(printable_lines(value, _MOST_IN_LINES))


@cache
def _static(name: str) -> Markup:
    """A style sheet or script as it stands in a page."""
    return Markup((STATIC / name).read_text(encoding="utf-8"))


def _scripts_of(figures: Sequence[Figure], names: Sequence[str]) -> list[Markup]:
    """The scripts of a page: those that draw its figures, and its own."""
    return [*([_plotly(), _static("figures.js")] if figures else []), *map(_static, names)]


def _policy(scripts: Sequence[str]) -> str:
    """The content policy: these scripts, no other, and no requests."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _plotly() -> Markup:
    """plotly.js, fit to stand in a page: one kind of line end, so that its hash is what the browser computes."""
    library: str = get_plotlyjs()
    for found, meant in (("\r\n", "\n"), ("\r", "\n"), ("</script", "<\\/script"), ("<!--", "<\\!--")):
        library = library.replace(found, meant)
    return Markup(library)


def _figure_data(figures: Sequence[Figure]) -> Markup:
    return Markup(embed(figures))


def _script_data(content: object) -> Markup:
    return Markup(in_script(content))


def _jpeg(data: bytes) -> Markup:
    """A JPEG as an address that holds it."""
    return Markup(f"data:image/jpeg;base64,{base64.b64encode(data).decode()}")


def _keys(figures: Sequence[Figure]) -> list[Any]:
    """The legend of several figures: each group once."""
    return list({key.group: key for figure in figures for key in figure.keys}.values())


def _has_long_word(value: object) -> bool:
    """Allow breaks only in words too long for a phone: a table should scroll rather than break "accuracy"."""
    return any(len(word) > _LONG_WORD for word in str(value).split())
