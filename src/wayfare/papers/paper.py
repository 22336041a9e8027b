"""What a recipe says about its paper: the table, and the published value of each cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Fact = float | tuple[float, float]  # a value, or mean and sd
# columns: the first round in which the metric was as good as [paper]'s `reach`, and what it had cost by then
REACHED = {"rounds_to": "rounds", "megabytes_to": "megabytes", "seconds_to": "seconds"}


class Scale(StrEnum):
    """How large a reproduction is."""

    small = "small"
    paper = "paper"


@dataclass(frozen=True)
class Paper:
    """A recipe's [paper]: what its cells are in the publication."""

    title: str = ""
    metric: str = ""  # of a run: "test/R@1"
    unit: str = ""  # "%": the metric is a share, and shown times 100
    data: str = ""  # what --data must be to run at the paper's scale
    reach: float = 0.0  # in that unit: what rounds_to, megabytes_to and seconds_to (virtual) count to; 0: nothing
    runs: str = ""  # recipes with the same `runs` share the runs of cells of the same name
    split: Literal["", "clients", "images"] = ""  # a figure of how many are in each city: nothing is trained
    floor: str = ""  # a baseline that every run measures beside its metrics: "frequency", with test/frequency R@20


@dataclass(frozen=True)
class Cell:
    """A cell's own facts: what it is called, and what the paper has for it."""

    label: str = ""
    paper: float | None = None
    paper_sd: float | None = None
    # further columns: measures of a run, or metrics such as the paper's own ("test/R@50"); NaN: the paper has none
    also: Mapping[str, Fact] = field(default_factory=dict)
