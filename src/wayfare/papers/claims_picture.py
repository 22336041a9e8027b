"""A picture of verdicts: a row for each claim, with its effect and interval beside the paper's effect.

Each row has a scale of its own, so that effects of several units stand below each other. Its middle is the threshold of
the claim, and what the claim says is on the right and shaded; a claim of equality is shaded around zero.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

from wayfare.core.text import printable
from wayfare.papers.claims_document import WORDS, effect_words, paper_words

_COLOURS = {"holds": "#15803d", "does not hold": "#b91c1c", "undecided": "#a16207"}
_HEADS = {"holds": "Holds", "does not hold": "Does not hold", "undecided": "Undecided"}
_WIDTH, _ROW, _HEAD = 1000, 40, 34
_TEXT, _LEFT, _RIGHT, _NUMBERS = 34, 480, 760, 776
_LETTERS, _LINES = 68, 2
_LEGEND = "Shaded: what the claim says. Dot and bar: our effect and its interval. Diamond: the paper's effect."
_MORE = "Arrow: beyond the edge. Each row has its own scale."
_EARLIER = " Ring: by the earlier rule."


def picture(title: str, verdicts: Sequence[Mapping[str, Any]], earlier: Collection[str] = ()) -> str:
    """As SVG, of all verdicts that are not "untested"; `earlier` are the claims that another rule decided."""
    parts, y = list[str](), 74
    for word in WORDS[:3]:
        rows = [verdict for verdict in verdicts if verdict["verdict"] == word]
        if rows:
            parts.append(_text(16, y + 21, f"{_HEADS[word]}: {len(rows)}", 15, _COLOURS[word], bold=True))
            y += _HEAD
        for verdict in rows:
            parts += _row(verdict, y, _COLOURS[word], verdict["id"] in earlier)
            y += _ROW
    head = [
        _text(16, 26, title, 17, "#111827", bold=True),
        _text(16, 46, _LEGEND, 12, "#4b5563"),
        _text(16, 62, _MORE + (_EARLIER if earlier else ""), 12, "#4b5563"),
    ]
    frame = f'<rect width="{_WIDTH}" height="{y + 10}" fill="#ffffff" rx="6"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 10}" role="img" '
        f'font-family="system-ui, sans-serif"><title>{escape(printable(title))}</title>'
        f"{frame}{''.join(head + parts)}</svg>\n"
    )


def _row(verdict: Mapping[str, Any], y: int, colour: str, earlier: bool) -> list[str]:
    middle, lines = y + _ROW / 2, textwrap.wrap(verdict["claim"], _LETTERS, max_lines=_LINES, placeholder=" ...")
    first = middle + 4 - 7 * (len(lines) - 1)
    fill = "#ffffff" if earlier else colour
    parts = [f'<circle cx="22" cy="{middle}" r="5" fill="{fill}" stroke="{colour}" stroke-width="2"/>']
    parts += [_text(_TEXT, first + 14 * line, words, 12, "#111827") for line, words in enumerate(lines)]
    if verdict["effect"] is None:
        return [*parts, _text(_LEFT, middle + 4, "not measured", 12, "#6b7280")]
    low, high = verdict["interval"] or (verdict["effect"], verdict["effect"])
    parts.append(_text(_NUMBERS, middle - 3, effect_words(verdict["effect"], None, verdict["unit"]), 12, colour))
    if verdict["paper"] is not None:
        parts.append(
            _text(_NUMBERS, middle + 12, f"paper {paper_words(verdict['paper'], verdict['unit'])}", 11, "#6b7280")
        )
    return parts + _plot(verdict, (low, high), middle, colour)


def _plot(verdict: Mapping[str, Any], interval: tuple[float, float], y: float, colour: str) -> list[str]:
    """The track, what the claim says, the paper's effect, and ours with its interval."""
    places = [_place(verdict, value) for value in (*interval, verdict["effect"])]
    paper = None if verdict["paper"] is None else _place(verdict, verdict["paper"])
    equal, reach = verdict["direction"] == "equal", max(map(abs, places))
    reach = max(reach, verdict["margin"]) if equal else reach
    reach = 1.15 * max(reach, min(abs(paper or 0.0), 2 * reach)) or 1.0

    def x(place: float) -> float:
        inside = max(-1.0, min(1.0, place / reach))
        return round((_LEFT + _RIGHT) / 2 + inside * (_RIGHT - _LEFT) / 2, 1)

    start, end = (x(-verdict["margin"]), x(verdict["margin"])) if equal else (x(0.0), _RIGHT)
    left, right, dot = sorted(places[:2])[0], sorted(places[:2])[1], places[2]
    parts = [
        f'<rect x="{_LEFT}" y="{y - 9}" width="{_RIGHT - _LEFT}" height="18" fill="#f3f4f6"/>',
        f'<rect x="{start}" y="{y - 9}" width="{round(end - start, 1)}" height="18" fill="#d1fae5"/>',
        f'<line x1="{x(0.0)}" x2="{x(0.0)}" y1="{y - 12}" y2="{y + 12}" stroke="#9ca3af"/>',
        f'<line x1="{x(left)}" x2="{x(right)}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"/>',
        f'<circle cx="{x(dot)}" cy="{y}" r="4.5" fill="{colour}"/>',
    ]
    if paper is not None:
        at = x(paper)
        shape = f"M{at} {y - 6}l6 6l-6 6l-6 -6z" if abs(paper) <= reach else _arrow(at, y, 1 if paper > 0 else -1)
        parts.append(f'<path d="{shape}" fill="#ffffff" stroke="#111827" stroke-width="1.5"/>')
    return parts


def _arrow(x: float, y: float, way: int) -> str:
    """Beyond the edge."""
    return f"M{x - 9 * way} {y - 6}L{x} {y}L{x - 9 * way} {y + 6}z"


def _place(verdict: Mapping[str, Any], value: float) -> float:
    """How far an effect is on the side that the claim names; of a claim of equality, the effect."""
    margin: float = verdict["margin"]
    if verdict["direction"] == "equal":
        return value
    return value - margin if verdict["direction"] == "greater" else margin - value


def _text(x: float, y: float, words: str, size: int, colour: str, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}"{weight}>{escape(printable(words, 500))}</text>'
