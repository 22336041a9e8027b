"""Pages of the web application: templates with everything escaped, and the names that all of them use."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse

from wayfare.core.text import printable_lines
from wayfare.pages.page import template_engine
from wayfare.pages.tables import human_seconds


@cache
def environment() -> Environment:
    """The template engine."""
    made = template_engine("wayfare.serve")
    made.filters |= {"human_seconds": human_seconds, "percent": _percent}
    return made


def page(request: Request, template: str, *, status: int = 200, **content: object) -> HTMLResponse:
    """A whole page, or a part that a page asks for."""
    text = environment().get_template(template).render(csrf=request.scope.get("wayfare.csrf", ""), **content)
    return HTMLResponse(text, status)


def lines(text: str) -> str:
    """Text of several lines, such as the end of a log."""
    return printable_lines(text)


def _percent(share: float) -> str:
    """ "87 %"; never certain, and never impossible."""
    return "over 99 %" if share > 0.99 else "under 1 %" if share < 0.01 else f"{100 * share:.0f} %"
