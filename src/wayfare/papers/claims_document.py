"""Verdicts as a table for the terminal, and the words in which tables, pages and pictures put them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wayfare.pages.tables import NOTHING, plain
from wayfare.papers.claims import Claim
from wayfare.papers.verdicts import Verdict

WORDS = ("holds", "does not hold", "undecided", "untested")
_COLOURS = {"holds": "green", "does not hold": "red", "undecided": "yellow", "untested": "dim"}


def effect_words(mean: float | None, interval: Sequence[float] | None, unit: str) -> str:
    """+1.2 [0.3, 2.1] points."""
    if mean is None:
        return NOTHING
    digits = decimals(unit)
    span = "" if interval is None else f" [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"
    return f"{mean:+.{digits}f}{span} {unit}".rstrip()


def paper_words(value: float | None, unit: str) -> str:
    """The paper's effect, in the same unit."""
    return NOTHING if value is None else f"{value:+.{decimals(unit)}f}"


def decimals(unit: str) -> int:
    """As many as differences of this unit need; MAP has none."""
    return {"": 4, "points": 2, "%": 2, "s": 2, "h": 2}.get(unit, 1)


def counts(words: Iterable[str]) -> str:
    """holds: 12, does not hold: 3, ..."""
    found = Counter(words)
    return ", ".join(f"{word}: {found[word]}" for word in WORDS if found[word])


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """For the terminal."""
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("claim", "verdict", "effect", "paper", "why, or which pair"):
        result.add_column(head, overflow="fold", justify="right" if head == "paper" else "left")
    for verdict in verdicts:
        word = Text(verdict.word, style=_COLOURS[verdict.word])
        found = verdict.as_dict()
        effect = effect_words(found["effect"], found["interval"], verdict.unit)
        cells = effect, paper_words(verdict.paper, verdict.unit), remark(found)
        result.add_row(Text(verdict.claim.id), word, *(Text(plain(cell)) for cell in cells))
    return result


def remark(verdict: Mapping[str, Any]) -> str:
    """The pair that is shown, how many pairs hold, and why nothing is decided."""
    held = "" if verdict["pairs_holding"] is None else "{} of {} pairs hold".format(*verdict["pairs_holding"])
    return "; ".join(filter(None, (verdict["pair"], held, verdict["reason"])))


def claim_lines(claims: Sequence[Claim], papers: Sequence[float | None], units: Sequence[str]) -> Group:
    """The claims themselves, with the paper's effects: names are not broken, so that they can be copied."""
    shown: list[RenderableType] = []
    for claim, paper, unit in zip(claims, papers, units):
        effect = "" if paper is None else f"; the paper's effect: {paper_words(paper, unit)} {unit}".rstrip()
        shown.append(Text(claim.id, style="bold", no_wrap=True).append(f"  {claim.source}", style="not bold dim"))
        shown.append(Padding(Text(f"{claim.claim}\n{decided_by(claim)}{effect}"), (0, 0, 1, 2)))
    return Group(*shown)


def decided_by(claim: Claim) -> str:
    """The statistic in words."""
    if claim.untested:
        return f"untested: {claim.untested}"
    if claim.statistic == "difference":  # of means, which need not be of as many cells
        cells = f"of {len(claim.above)} and {len(claim.below)} cells" if claim.below else "of one cell"
    else:
        cells = f"along {len(claim.along)} cells" if claim.along else f"{len(claim.pairs)} pairs"
    than = "within ±" if claim.direction == "equal" else f"{claim.direction} than "
    return f"{claim.recipe}: {claim.statistic} {cells}, {than}{claim.margin:g}"
