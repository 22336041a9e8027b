"""What was measured, for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wayfare.pages.tables import plain

_SECTIONS = ("classes", "membership", "reconstruction")


def leakage_page(found: dict[str, Any]) -> RenderableType:
    """Each attack with its figures beside their baselines."""
    heard = f"{found['replies']} replies in {found['rounds']} rounds"
    head = f"{found['strategy']} on the topology {found['topology']}: {heard}"
    parts: list[RenderableType] = [Text(head, style="bold")]
    for name in _SECTIONS:
        parts += ["", *_section(name, found[name])]
    return Group(*parts, "", *map(Text, found["caution"]))


def _section(name: str, finding: dict[str, Any]) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(f"{name}  {finding['attack']}".rstrip(), style="bold")]
    if finding["figures"]:
        parts += [_table(finding["figures"]), Text(f"  baseline: {finding['baseline']}")]
    return parts + [Text(f"  not measured: {plain(why)}") for why in finding["not_measured"]]


def _table(figures: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=True)
    spread = any(figure["low"] is not None for figure in figures)
    for head in ("figure", "measured", *(("95 %",) if spread else ()), "baseline"):
        table.add_column(head, justify="left" if head == "figure" else "right")
    for figure in figures:
        between = [f"{figure['low']:.2f} to {figure['high']:.2f}"] if figure["low"] is not None else [""] * spread
        value, baseline = (number(figure[key], figure["of"]) for key in ("value", "baseline"))
        table.add_row(plain(figure["name"], 100), value, *between, baseline)
    return table


def number(value: float, of: int) -> str:
    """A figure as it is printed."""
    if of:
        return f"{int(value)} of {of}"
    return f"{value:.2f}" if abs(value) >= 0.005 or value == 0 else f"{value:.0e}"
