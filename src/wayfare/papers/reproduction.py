"""A paper's table beside the measured one: values, their differences, and whether they come in the same order.

With other data or another network the values say nothing about the paper's, but their order may: the pairs of cells
whose values in the paper are further apart than their spread there are counted, and each that does not come out in the
same order is named. Spread of a difference: sqrt(sd_a^2 + sd_b^2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from wayfare.pages import page
from wayfare.pages.compare import Comparison, RunGroup, Spread
from wayfare.pages.compare_page import PaperTable
from wayfare.pages.reach import TargetValue
from wayfare.pages.tables import NOTHING, human_seconds, number, plain
from wayfare.papers.paper import REACHED, Cell, Fact, Paper


@dataclass(frozen=True)
class Row:
    """A cell and what was measured."""

    name: str
    cell: Cell
    measured: Spread | None  # in the paper's unit
    also: Mapping[str, Fact | str | None]

    @property
    def label(self) -> str:
        return self.cell.label or self.name

    @property
    def published(self) -> Spread | None:
        """The paper's value."""
        return None if self.cell.paper is None else Spread(self.cell.paper, self.cell.paper_sd, ())

    @property
    def difference(self) -> float | None:
        """Measured - paper."""
        if self.measured is None or self.cell.paper is None or not math.isfinite(self.measured.mean):
            return None
        return self.measured.mean - self.cell.paper


@dataclass(frozen=True)
class Ordering:
    """Two cells of which the paper has one clearly above the other."""

    above: Row
    below: Row
    gap: float  # by how much the first was measured above the second
    noise: float | None  # the spread of that difference over seeds; None for single runs

    @property
    def same(self) -> bool:
        return self.gap > 0

    @property
    def clear(self) -> bool:
        """Whether the seeds tell the two apart."""
        return self.noise is not None and abs(self.gap) > self.noise


@dataclass(frozen=True)
class Reproduction:
    """A table of a paper, run again."""

    paper: Paper
    rows: tuple[Row, ...]
    scale: str  # "paper", "small", or "" where the recipe has but one
    small: str = ""  # what is other than in the paper at small scale
    protocols: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)  # cell -> why
    changed: str = ""  # settings that are not the recipe's
    floor: Mapping[str, float] = field(default_factory=dict)  # metric -> what the baseline has, in the paper's unit

    @cached_property
    def orderings(self) -> tuple[Ordering, ...]:
        """The pairs that are clear in the paper and were measured."""
        return tuple(pair for a, b in combinations(self.rows, 2) if (pair := _ordering(a, b)) is not None)

    @property
    def notes(self) -> list[str]:
        """What must be known before numbers are compared."""
        notes = [f"Protocol: {protocol}." for protocol in self.protocols]
        if self.scale == "small":
            notes.append(f"{small_scale(self.small)} The numbers cannot be compared with the paper's; their order can.")
        elif self.scale == "paper":
            notes.append("The paper's settings, as far as it gives them.")
        notes += [f"Changed for these runs: {self.changed}."] if self.changed else []
        if self.floor:
            told = ", ".join(f"{name} {value:.{self._decimals}f}" for name, value in self.floor.items())
            notes.append(f"The {self.paper.floor} baseline, with nothing trained: {told}.")
        notes += [f"Left out: {name}: {why}." for name, why in self.left_out.items()]
        unmeasured = [row.label for row in self.rows if row.cell.paper is not None and row.difference is None]
        notes += [f"Without a finite {self.paper.metric}, so compared with nothing: {label}." for label in unmeasured]
        if self.orderings:
            same = sum(pair.same for pair in self.orderings)
            notes.append(
                f"Of {page.several(len(self.orderings), 'pair')} that the paper tells apart by more than its own "
                f"spread, {same} {'comes' if same == 1 else 'come'} out in the same order{self._clearly}."
            )
            notes += [f"Not so: {self._words(pair)}." for pair in self.orderings if not pair.same]
        return notes

    @property
    def _clearly(self) -> str:
        """How many of them are also told apart here."""
        if any(pair.noise is None for pair in self.orderings):
            return ""
        return f", {sum(pair.same and pair.clear for pair in self.orderings)} of them by more than the seeds' spread"

    def _words(self, pair: Ordering) -> str:
        above, below = pair.above, pair.below
        doubt = "" if pair.noise is None or pair.clear else ", within the seeds' spread"
        return (
            f"{above.label} ({self._value(above.published)}) over {below.label} ({self._value(below.published)}): "
            f"here {self._value(above.measured)} and {self._value(below.measured)}{doubt}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "paper": {"title": self.paper.title, "metric": self.paper.metric, "unit": self.paper.unit},
            "scale": self.scale,
            "protocols": list(self.protocols),
            "cells": {row.name: _row_dict(row, self.scale) for row in self.rows},
            "left_out": dict(self.left_out),
            "floor": dict(self.floor),
            "orderings": {
                "clear_in_the_paper": len(self.orderings),
                "same_here": sum(pair.same for pair in self.orderings),
                "not_so": [[pair.above.name, pair.below.name] for pair in self.orderings if not pair.same],
            },
            "notes": self.notes,
        }

    # ---- to look at

    @cached_property
    def _heads(self) -> list[str]:
        return ["paper", "here", *(["difference"] if self.scale != "small" else []), "seeds", *self._further, "time"]

    @cached_property
    def _further(self) -> dict[str, str]:
        """Further columns that the paper has, and what they are called."""
        names = dict.fromkeys(name for row in self.rows for name in row.cell.also)
        level = f"{self.paper.reach:g} {self.paper.unit}".rstrip()
        words = {name: name.replace("_", " ") + (f" {level}" if name in REACHED else "") for name in names}
        return {f"{words[name]}, paper / here": name for name in names}

    def _cells(self, row: Row, seconds: float) -> list[str]:
        change = row.difference
        return [
            self._value(row.published),
            self._value(row.measured),
            *([] if self.scale == "small" else [NOTHING if change is None else f"{change:+.{self._decimals}f}"]),
            number(row.measured.n if row.measured else 0),
            *(f"{_fact(row.cell.also.get(name))} / {_fact(row.also.get(name))}" for name in self._further.values()),
            human_seconds(seconds),
        ]

    def table(self, comparison: Comparison) -> Table:
        """For the terminal; the notes are not in it."""
        result = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", title_style="bold")
        result.title = Text(plain(self._headline))
        words = [len(word) for row in self.rows for word in plain(row.label).split()]
        result.add_column("cell", overflow="fold", min_width=min(16, max(words, default=0)))  # no word is torn
        for head in self._heads:
            result.add_column(head, justify="right", no_wrap=head in ("paper", "here", "difference"))
        for row, group in zip(self.rows, comparison.groups):
            result.add_row(*map(Text, (plain(row.label), *self._cells(row, group.seconds.mean))))
        return result

    def page_table(self, comparison: Comparison) -> PaperTable:
        """For the page."""
        rows = [[row.label, *self._cells(row, g.seconds.mean)] for row, g in zip(self.rows, comparison.groups)]
        return PaperTable(self._headline, ("cell", *self._heads), rows, self.notes)

    @property
    def _decimals(self) -> int:
        return 1 if self.paper.unit == "%" else 3

    def _value(self, value: Spread | None) -> str:
        """As papers have it."""
        if value is None:
            return NOTHING
        if not math.isfinite(value.mean):
            return number(value.mean)
        parts = (value.mean,) if value.sd is None else (value.mean, value.sd)
        return " ± ".join(f"{part:.{self._decimals}f}" for part in parts)

    @property
    def _headline(self) -> str:
        unit = f" ({self.paper.unit})" if self.paper.unit else ""
        return f"{self.paper.title}: {self.paper.metric}{unit}"


def reproduction(
    paper: Paper,
    cells: Mapping[str, Cell],
    comparison: Comparison,
    scale: str,
    *,
    small: str = "",
    left_out: Mapping[str, str] | None = None,
    facts: Mapping[str, Mapping[str, Fact]] | None = None,
    changed: str = "",
) -> Reproduction:
    """From the runs of each cell; the comparison's groups are the cells, in their order.

    `facts` are further measurements of a cell that its run folders do not have.
    """
    factor = 100.0 if paper.unit == "%" else 1.0
    rows = []
    for (name, cell), group in zip(cells.items(), comparison.groups):
        value = group.metric(paper.metric)
        known: dict[str, Fact | str | None] = dict((facts or {}).get(name, {}))
        measured = None if value is None else Spread.of(factor * v for v in value.values)
        if paper.reach:
            level = TargetValue(paper.metric, paper.reach / factor)
            known |= {what: cost_to(group, level, cost) for what, cost in REACHED.items() if what in cell.also}
        found = {what: known.get(what) or _measure(what, group, factor) for what in cell.also}
        rows.append(Row(name, cell, measured, found))
    protocols = [str((r.summary or {}).get("protocol", "")) for g in comparison.groups for r in g.records]
    unique = tuple(dict.fromkeys(filter(None, protocols)))
    floor = _floor(paper, cells, comparison.groups[0], factor) if paper.floor and comparison.groups else {}
    return Reproduction(
        paper,
        tuple(rows),
        scale,
        small=small,
        protocols=unique,
        left_out=left_out or {},
        changed=changed,
        floor=floor,
    )


def _floor(paper: Paper, cells: Mapping[str, Cell], group: RunGroup, factor: float) -> dict[str, float]:
    """The baseline's values of the table's metrics: "test/frequency R@20" for "test/R@20"; "test/random MAP" for both
    "test/MAP i2t" and "test/MAP t2i" where there is but one for all directions."""
    found: dict[str, float] = {}
    for name in (paper.metric, *(what for cell in cells.values() for what in cell.also if "/" in what)):
        for measured in (name, name.rpartition(" ")[0]):
            spread = group.metric(measured.replace("/", f"/{paper.floor} ", 1)) if measured else None
            if spread is not None:
                found[measured] = factor * spread.mean
                break
    return found


# Further columns that are in a run's folder


def _of_partition(name: str) -> Callable[[RunGroup], Fact | None]:
    def measure(group: RunGroup) -> Fact | None:
        table = group.records[0].partition.get("table") or {}
        if name == "clients":
            return table.get("clients")
        mean, sd = (table.get(key) for key in (("mean", "sd") if name == "images" else (f"{name}_mean", f"{name}_sd")))
        return None if mean is None else mean if sd is None else (mean, sd)

    return measure


def _of_best(measure: str) -> Callable[[RunGroup], Fact | None]:
    """The mean over clients of the best that each has had, over seeds."""

    def measured(group: RunGroup) -> Fact | None:
        bests = [list(record.best_of_clients(measure).values()) for record in group.records]
        means = [sum(best) / len(best) for best in bests if best]
        if not means:
            return None
        found = Spread.of(means)
        return found.mean if found.sd is None else (found.mean, found.sd)

    return measured


MEASURES: Mapping[str, Callable[[RunGroup], Fact | None]] = {
    "clients": _of_partition("clients"),
    "images": _of_partition("images"),
    "sequences": _of_partition("sequences"),
    "epochs": lambda group: group.over(lambda record: record.done).mean,
    "rounds": lambda group: group.over(lambda record: record.done).mean,
    "hours": lambda group: group.seconds.mean / 3600,
    "clients_per_round": lambda group: group.over(_asked).mean,
    # of devices with models of their own: the best of them, and transmissions and receptions of each on average
    "best_percent": lambda group: _final_sum(group, "test/accuracy_max", factor=100.0),
    "exchanges": lambda group: _final_sum(group, "tour/sent", "tour/taken"),
    # of clients that are judged one by one, each by its best round
    "clients_best_i2t": _of_best("MAP i2t"),
    "clients_best_t2i": _of_best("MAP t2i"),
}


def _asked(record: Any) -> float:
    lines = [line.clients for line in record.rounds if line.round > 0]
    return sum(lines) / len(lines) if lines else math.nan


def _final_sum(group: RunGroup, *metrics: str, factor: float = 1.0) -> float | None:
    found = [group.metric(name) for name in metrics]
    means = [spread.mean for spread in found if spread is not None]
    return factor * sum(means) if len(means) == len(metrics) else None


def cost_to(group: RunGroup, level: TargetValue, cost: str) -> Fact | str | None:
    """What it took, over seeds, until the metric was as good as that; in words where some never were.

    A metric that was never measured, and virtual time of runs without a clock, give None.
    """
    reached = sum(level.first_round(record) is not None for record in group.records)
    if not any(record.series(level.metric)[0] for record in group.records):
        return None
    if not reached:
        return f"not in {max(record.done for record in group.records)}"
    found = level.cost(group, cost)
    if found is None:
        return None
    if reached < group.n:
        return f"{_rounded(found.mean)} ({reached} of {page.several(group.n, 'seed')})"
    return found.mean if found.sd is None else (found.mean, found.sd)


def _measure(what: str, group: RunGroup, factor: float) -> Fact | None:
    if "/" not in what:
        return MEASURES[what](group) if what in MEASURES else None
    found = group.metric(what)
    if found is None:
        return None
    return factor * found.mean if found.sd is None else (factor * found.mean, factor * found.sd)


def places_table(paper: Paper, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Cities or continents, the largest first: a figure of a split as a table."""
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    result.add_column("where", overflow="fold")
    for head in (paper.split, "share"):
        result.add_column(head, justify="right")
    total = sum(row[paper.split] for row in rows) or 1
    for row in sorted(rows, key=lambda row: (-row[paper.split], row["name"])):
        count = row[paper.split]
        result.add_row(*map(Text, (plain(row["name"]), number(count), f"{count / total:.1%}")))
    return result


# Words and numbers


def small_scale(about: str) -> str:
    """What has to be said of every number that is not at the paper's scale."""
    return f"Small scale, not the paper's: {about or 'other settings'}."


def _ordering(a: Row, b: Row) -> Ordering | None:
    """None unless both were measured and the paper tells them apart."""
    if a.cell.paper is None or b.cell.paper is None or a.measured is None or b.measured is None:
        return None
    if not math.isfinite(a.measured.mean + b.measured.mean):
        return None
    apart, spread = a.cell.paper - b.cell.paper, math.hypot(a.cell.paper_sd or 0.0, b.cell.paper_sd or 0.0)
    if round(abs(apart), 6) <= round(spread, 6):  # rounded, because 61.6 - 61.0 is 0.6000000000000014
        return None
    noise = None if a.measured.sd is None or b.measured.sd is None else math.hypot(a.measured.sd, b.measured.sd)
    gap = a.measured.mean - b.measured.mean
    return Ordering(a, b, gap, noise) if apart > 0 else Ordering(b, a, -gap, noise)


def _row_dict(row: Row, scale: str) -> dict[str, Any]:
    return {
        "label": row.label,
        "paper": row.cell.paper,
        "paper_sd": row.cell.paper_sd,
        "measured": None if row.measured is None else row.measured.as_dict(),
        "difference": None if scale == "small" else row.difference,
        "also": {n: {"paper": _known(fact), "measured": row.also.get(n)} for n, fact in row.cell.also.items()},
    }


def _known(fact: Fact | str | None) -> Fact | str | None:
    """What the paper has; a recipe says NaN where it has nothing."""
    return None if isinstance(fact, float) and math.isnan(fact) else fact


def _fact(fact: Fact | str | None) -> str:
    if (fact := _known(fact)) is None:
        return NOTHING
    if isinstance(fact, str):
        return fact
    return " ± ".join(_rounded(part) for part in (fact if isinstance(fact, tuple) else (fact,)))


def _rounded(value: float) -> str:
    return number(round(value)) if abs(value) >= 100 or float(value).is_integer() else f"{value:.3g}"
