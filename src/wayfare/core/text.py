"""Text from elsewhere: what devices, files and folders are called, and what they say went wrong.

All of it passes `printable` before it is printed, logged or shown. A page escapes it besides (Jinja2 does), and the
console takes it as text, not as markup (`cli/console.py`).
"""

from __future__ import annotations

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def printable(value: object, limit: int = 300) -> str:
    """The text on one line, at most `limit` characters of it.

    Control characters, which begin a terminal's commands, and marks that reverse the direction of writing are replaced.
    """
    text = "".join(_harmless(c) for c in str(value)[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable_lines(value: object, limit: int = 20_000) -> str:
    """The same for text of several lines, such as a traceback: line ends stay."""
    text = "".join(c if c == "\n" else _harmless(c) for c in str(value)[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _harmless(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else _UNKNOWN
