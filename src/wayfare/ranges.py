"""The values that the settings of an experiment may have, for the check of a recipe and for forms."""

from __future__ import annotations

import math
from typing import NamedTuple


class Range(NamedTuple):
    """From `low` to `high`; `open_low` and `open_high`: without these themselves."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def holds(self, value: float) -> bool:
        """Whether a value is in it."""
        above = value > self.low if self.open_low else value >= self.low
        return above and (value < self.high if self.open_high else value <= self.high)

    def __str__(self) -> str:
        low = f"{'above' if self.open_low else 'at least'} {self.low:g}"
        high = f"{'below' if self.open_high else 'at most'} {self.high:g}"
        if math.isinf(self.high):
            return low
        return high if math.isinf(self.low) else f"{low}, {high}"


_SHARE = Range(0, 1, open_high=True)
RANGES = {
    "rounds": Range(1),
    "seed": Range(0),
    "training.epochs": Range(1),
    "training.iterations": Range(0),
    "training.at_most": Range(0),
    "training.batch_size": Range(1),
    "training.lr": Range(0, open_low=True),
    "training.decay": Range(0, 1, open_low=True),
    "training.momentum": _SHARE,
    "training.beta1": _SHARE,
    "training.beta2": _SHARE,
    "training.weight_decay": Range(0),
    "training.clip": Range(0),
    "evaluation.every": Range(0),
    "evaluation.clients": Range(0),
    "evaluation.holdout": _SHARE,
    "evaluation.validation_clients": Range(0),
    "evaluation.patience": Range(0),
    "policy.quorum": Range(0, 1),
    "policy.deadline": Range(0, open_low=True),
    "policy.max_void": Range(1),
    "policy.max_ratio": Range(0),
    "policy.max_change": Range(0, open_low=True),
    "policy.max_norm": Range(0, open_low=True),
    "policy.max_examples": Range(1),
}
EVERY_ROUND = Range(0)  # rounds where devices meet: 0 is all of them
NO_FRACTION = Range(0, 1, open_low=True, open_high=True)  # what policy.max_ratio may not be
