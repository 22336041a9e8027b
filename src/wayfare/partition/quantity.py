"""Quantity: long-tailed client sizes with IID labels. A few clients have many samples, many have few.

Weights are, by `distribution`: "zipf" rank^-exponent (sizes the same in every draw, only who has them varies);
"pareto" with tail index `exponent` (smaller is heavier); "lognormal" with standard deviation `exponent` of the log.
Each client gets `min_size` samples, and the rest is shared in proportion to the weights. Every sample is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from wayfare.core.errors import ConfigError, unknown
from wayfare.core.protocols import Partition
from wayfare.partition.split import Split, check_labels, check_whole, deal, origin

Distribution = Literal["zipf", "pareto", "lognormal"]


@dataclass(frozen=True)
class Quantity(Partition):
    """Sizes from a long-tailed distribution, labels at random."""

    clients: int  # how many devices
    distribution: Distribution = "zipf"  # of the clients' sizes
    exponent: float = 1.0  # how fast sizes fall; of pareto, smaller is more unequal
    min_size: int = 1  # samples that every client has at least

    def __post_init__(self) -> None:
        check_whole("clients", self.clients, 1)
        check_whole("min_size", self.min_size, 0)
        if self.distribution not in get_args(Distribution):
            raise unknown("distribution", str(self.distribution), get_args(Distribution), "quantity")
        if not (self.exponent > 0 and math.isfinite(self.exponent)):
            raise ConfigError(f"exponent must be above 0, not {self.exponent!r}; for equal sizes use the rule 'random'")

    def __call__(self, labels: np.ndarray, rng: np.random.Generator) -> Split:
        labels = check_labels(labels, self.clients)
        spare = len(labels) - self.clients * self.min_size
        if spare < 0:
            raise ConfigError(
                f"{self.clients} clients of at least {self.min_size} samples need {self.clients * self.min_size}, "
                f"there are {len(labels)}; lower clients or min_size"
            )
        sizes = self.min_size + _apportion(spare, self._log_weights(rng))
        owner = rng.permutation(np.repeat(np.arange(self.clients), sizes))
        return deal(owner, self.clients, rng, origin(self, labels, rng))

    def _log_weights(self, rng: np.random.Generator) -> np.ndarray:
        if self.distribution == "zipf":
            return rng.permutation(-self.exponent * np.log(np.arange(1, self.clients + 1)))
        if self.distribution == "pareto":
            return rng.standard_exponential(self.clients) / self.exponent  # the log of a Pareto is exponential
        return self.exponent * rng.standard_normal(self.clients)


def _apportion(total: int, log_weights: np.ndarray) -> np.ndarray:
    """Whole parts of `total` in proportion to the weights (largest remainders), summing to it exactly."""
    weights = np.exp(log_weights - log_weights.max())  # in logs until here: a heavy tail must not overflow
    ideal = total * weights / weights.sum()
    parts: np.ndarray = np.floor(ideal).astype(np.int64)
    missing = total - int(parts.sum())
    parts[np.argsort(parts - ideal, kind="stable")[:missing]] += 1
    return parts
