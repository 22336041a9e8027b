"""Pages of the web application: templates with everything escaped, and the names that all of them use."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from wayfare.core.text import printable_lines
from wayfare.pages.page import several
from wayfare.pages.tables import human_bytes, human_seconds, number, plain

_MOST_LETTERS = 2000


@cache
def environment() -> Environment:
    """The template engine."""
    made = Environment(
        loader=PackageLoader("wayfare.serve"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_one_line,
    )
    made.globals["several"] = several
    filters: dict[str, Any] = {
        "number": number, "human_bytes": human_bytes, "human_seconds": human_seconds, "percent": _percent,
    }  # fmt: skip
    made.filters |= filters
    return made


def page(request: Request, template: str, *, status: int = 200, **content: object) -> HTMLResponse:
    """A whole page, or a part that a page asks for."""
    text = environment().get_template(template).render(csrf=request.scope.get("wayfare.csrf", ""), **content)
    return HTMLResponse(text, status)


def _one_line(value: object) -> object:
    """Without control characters, and not endless. Markup is kept."""
    return value if isinstance(value, Markup) else "" if value is None else plain(value, _MOST_LETTERS)


def lines(text: str) -> str:
    """Text of several lines, such as the end of a log."""
    return printable_lines(text)


def _percent(share: float) -> str:
    """ "87 %"; never certain, and never impossible."""
    return "over 99 %" if share > 0.99 else "under 1 %" if share < 0.01 else f"{100 * share:.0f} %"
