"""Verdicts to look at: a table for the terminal, and sections of a Markdown file.

A file has one section for each paper, data and selection of claims. Writing one again replaces it and leaves the
others, so that one file shows the town and real data. Sections begin with a comment by which they are found again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from wayfare.pages.tables import NOTHING, human_seconds, number, plain
from wayfare.papers.claims import Claim
from wayfare.papers.verdicts import CONFIDENCE, Verdict

_WORDS = ("holds", "does not hold", "undecided", "untested")
_COLOURS = {"holds": "green", "does not hold": "red", "undecided": "yellow", "untested": "dim"}
_SECTION = re.compile(r"^<!-- claims: (.*) -->$", re.MULTILINE)
_HEAD = f"""# Claims of the papers, tested

Written by `wayfare claims --docs FILE`; do not edit. `wayfare claims --list` shows how each claim is decided. The
claims themselves are in `claims/*.toml`. Settings have the names that they had on the date of the runs.

An effect is a mean over seeds, paired by seed, with Student's interval at {CONFIDENCE:.0%}. A claim *holds* if the
whole interval lies where the claim says, *does not hold* if all of it lies elsewhere, and is *undecided* otherwise. At
small scale the size of an effect cannot be compared with the paper's; its direction can. For a claim about every pair
of cells, the table shows the pair that contradicts it most; with k pairs, a contradiction must be clear at 1 - 5 %/k.
"""


@dataclass(frozen=True)
class Setting:
    """What verdicts rest on."""

    publication: str
    title: str
    date: str
    scale: str
    data: str
    settings: str  # in words
    runs: int
    seconds: float  # of all runs together
    only: str = ""  # of the paper's claims; "" for all

    @property
    def key(self) -> str:
        return f"{self.publication}, {self.scale}, {self.data}" + (f", only {self.only}" if self.only else "")


def effect_words(verdict: Verdict) -> str:
    """+1.2 [0.3, 2.1] points."""
    effect = verdict.effect
    if effect is None:
        return NOTHING
    digits = decimals(verdict.unit)
    interval = "" if effect.low is None else f" [{effect.low:.{digits}f}, {effect.high:.{digits}f}]"
    return f"{effect.mean:+.{digits}f}{interval} {verdict.unit}".rstrip()


def paper_words(value: float | None, unit: str) -> str:
    """The paper's effect, in the same unit."""
    return NOTHING if value is None else f"{value:+.{decimals(unit)}f}"


def decimals(unit: str) -> int:
    """As many as differences of this unit need; MAP has none."""
    return {"": 4, "points": 2, "%": 2, "s": 2, "h": 2}.get(unit, 1)


def counts(verdicts: Sequence[Verdict]) -> str:
    """12 hold, 3 do not, ..."""
    found: Counter[str] = Counter(verdict.word for verdict in verdicts)
    return ", ".join(f"{word}: {found[word]}" for word in _WORDS if found[word])


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """For the terminal."""
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("claim", "verdict", "effect", "paper", "why, or which pair"):
        result.add_column(head, overflow="fold", justify="right" if head == "paper" else "left")
    for verdict in verdicts:
        word = Text(verdict.word, style=_COLOURS[verdict.word])
        cells = effect_words(verdict), paper_words(verdict.paper, verdict.unit), remark(verdict)
        result.add_row(Text(verdict.claim.id), word, *(Text(plain(cell)) for cell in cells))
    return result


def remark(verdict: Verdict) -> str:
    """The pair that is shown, how many pairs hold, and why nothing is decided."""
    held = "" if verdict.holding is None else "{} of {} pairs hold".format(*verdict.holding)
    return "; ".join(filter(None, (verdict.shown, held, verdict.reason)))


def list_table(claims: Sequence[Claim], papers: Sequence[float | None], units: Sequence[str]) -> Table:
    """The claims themselves, with the paper's effects."""
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("claim", "source", "in words", "decided by", "paper"):
        result.add_column(head, overflow="fold", justify="right" if head == "paper" else "left")
    for claim, paper, unit in zip(claims, papers, units):
        cells = claim.id, claim.source, claim.claim, decided_by(claim), paper_words(paper, unit)
        result.add_row(*(Text(cell) for cell in cells))
    return result


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


# ---- the file


def write_section(file: Path, setting: Setting, verdicts: Sequence[Verdict]) -> None:
    """Put a section into the file, in place of the one of the same paper, scale and data."""
    sections: dict[str, str] = {}
    if file.is_file():
        parts = _SECTION.split(file.read_text(encoding="utf-8"))[1:]
        sections = dict(zip(parts[::2], parts[1::2]))
    sections[setting.key] = _section(setting, verdicts)
    text = _HEAD + "".join(f"\n<!-- claims: {key} -->\n\n{body.strip()}\n" for key, body in sorted(sections.items()))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _section(setting: Setting, verdicts: Sequence[Verdict]) -> str:
    cost = f"{number(setting.runs)} runs, {human_seconds(setting.seconds)} in all"
    rows = [_row(verdict) for word in _WORDS for verdict in verdicts if verdict.word == word]
    return "\n".join(
        [
            f"## {setting.publication}, {setting.scale} scale: {setting.data}"
            + (f" (only `{setting.only}`)" if setting.only else ""),
            "",
            f"{setting.title}.",
            "",
            f"{counts(verdicts)}.",
            "",
            f"Date: {setting.date}. Data: {setting.data}. Settings: {setting.settings}. Cost: {cost}.",
            "",
            "| verdict | claim | source | effect | paper | seeds | remarks |",
            "|---|---|---|---|---|---|---|",
            *rows,
        ]
    )


def _row(verdict: Verdict) -> str:
    claim, seeds = verdict.claim, verdict.effect.n if verdict.effect else 0
    word = f"**{verdict.word}**" if verdict.word in _WORDS[:2] else verdict.word
    found = effect_words(verdict), paper_words(verdict.paper, verdict.unit), str(seeds), _remarks(verdict)
    return f"| {' | '.join((word, _cell(claim.claim), _cell(claim.source), *found))} |"


def _remarks(verdict: Verdict) -> str:
    own = f"the paper's own numbers: {verdict.claim.paper_disagrees}" if verdict.claim.paper_disagrees else ""
    return _cell("; ".join(filter(None, (remark(verdict), verdict.claim.note.rstrip("."), own))))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
