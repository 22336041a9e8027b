"""What it takes until a metric is as good as a given value: rounds, megabytes, virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from wayfare.core.errors import ConfigError, suggestion
from wayfare.pages.compare import Comparison, RunGroup, Spread
from wayfare.pages.compare_page import PaperTable
from wayfare.pages.record import Record, less_is_better
from wayfare.pages.tables import number, spread

# what a run has cost up to the end of a round; None where that is not known
COSTS: Mapping[str, Callable[[Record, int], float | None]] = {
    "rounds": lambda record, round: float(round),
    "megabytes": lambda record, round: record.sent()[round] / 1e6,
    "seconds": lambda record, round: record.elapsed().get(round),
}
_WORDS = {"rounds": "rounds", "megabytes": "MB sent", "seconds": "virtual time, s"}


@dataclass(frozen=True)
class TargetValue:
    """A value of a metric that is to be reached."""

    metric: str
    value: float

    @classmethod
    def parse(cls, text: str) -> TargetValue:
        """From "test/R@1=0.4"."""
        metric, _, value = text.rpartition("=")
        try:
            found = cls(metric.strip(), float(value))
        except ValueError:
            found = cls("", 0.0)
        if not found.metric:
            raise ConfigError(f"--reach {text}: expected METRIC=VALUE, such as test/accuracy=0.9")
        return found

    def __str__(self) -> str:
        return f"{self.metric} = {self.value:g}"

    def first_round(self, record: Record) -> int | None:
        """The first evaluated round in which it was as good as that: as exact as evaluations are frequent."""
        sign = -1 if less_is_better(self.metric) else 1
        return next((r for r, v in zip(*record.series(self.metric)) if sign * v >= sign * self.value), None)

    def cost(self, group: RunGroup, cost: str) -> Spread | None:
        """What it took, over those runs of a group that got there; None if none did."""
        firsts = [(record, self.first_round(record)) for record in group.records]
        found = [COSTS[cost](record, first) for record, first in firsts if first is not None]
        known = [each for each in found if each is not None]
        return Spread.of(known) if known else None


@dataclass(frozen=True)
class Reach:
    """What it took each group of a comparison."""

    level: TargetValue
    groups: tuple[RunGroup, ...]
    costs: Mapping[str, Sequence[Spread | None]]  # for each group, in their order

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        rows = [
            {"label": group.label, **{cost: value and value.as_dict() for cost, value in zip(self.costs, values)}}
            for group, values in zip(self.groups, zip(*self.costs.values()))
        ]
        return {"metric": self.level.metric, "value": self.level.value, "groups": rows}

    def as_table(self) -> PaperTable:
        """For a page."""
        rows = [
            (group.label, *(_cell(value, group.n) for value in values))
            for group, values in zip(self.groups, zip(*self.costs.values()))
        ]
        note = f"Up to the first evaluated round with {self.level} or better; mean and sd over seeds."
        return PaperTable(f"Cost of {self.level}", ("group", *(_WORDS[cost] for cost in self.costs)), rows, [note])

    def shown(self) -> Table:
        """For the terminal."""
        made = self.as_table()
        table = Table(title=Text(made.title), box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
        for head in made.heads:
            table.add_column(head, justify="left" if head == "group" else "right")
        for row in made.rows:
            table.add_row(*map(Text, row))
        return table


def reach(comparison: Comparison, level: TargetValue) -> Reach:
    """What it took each group until a metric was as good as that."""
    if level.metric not in comparison.metrics:
        near = suggestion(level.metric, comparison.metrics) or "."
        raise ConfigError(f"no run measured {level.metric!r}{near} Metrics: {', '.join(comparison.metrics)}")
    timed = any(record.elapsed() for group in comparison.groups for record in group.records)
    costs = [cost for cost in COSTS if timed or cost != "seconds"]
    found = {cost: [level.cost(group, cost) for group in comparison.groups] for cost in costs}
    return Reach(level, comparison.groups, found)


def _cell(value: Spread | None, runs: int) -> str:
    if value is None:
        return "not reached"
    return spread(value) if value.n == runs else f"{number(value.mean)} (in {value.n} of {runs})"
