"""Dirichlet: label skew in one number. Small alpha: few classes per client; large alpha: all alike.

Two rules go by this name, and they give different populations:

- "client" (Acar et al., FedDyn; the federated scene-graph benchmark): clients of equal size, each with its own class
  mix p_u ~ Dir(alpha * 1_n), draw samples without replacement; a class that is used up falls away and the mixes are
  renormalised over the rest.
- "label" (Yurochkin et al.; NIID-Bench): each class's samples are dealt to the clients by a Dir(alpha * 1_clients);
  sizes come out unequal. Redrawn until every client has `min_size` samples.

Every sample is used in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from wayfare.core.errors import ConfigError, unknown
from wayfare.core.protocols import Partition
from wayfare.partition.split import Split, check_labels, check_whole, deal, even, origin, owners

_REDRAWS = 200


@dataclass(frozen=True)
class Dirichlet(Partition):
    """Class mixes from a symmetric Dirichlet."""

    clients: int  # how many devices
    alpha: float  # 0.1: most clients have few classes; 100: nearly all have the same mix
    variant: Literal["client", "label"] = "client"  # client: equal sizes, own mixes; label: each class is dealt out
    min_size: int = 1  # of the variant label: samples that every client has at least

    def __post_init__(self) -> None:
        check_whole("clients", self.clients, 1)
        check_whole("min_size", self.min_size, 0)
        if not 1e-4 <= self.alpha <= 1e6:  # outside, floats cannot represent the draw
            raise ConfigError(
                f"alpha must be above 0 (from 0.0001 to 1000000), not {self.alpha!r}; 0.1 is strong skew, 100 little"
            )
        if self.variant not in ("client", "label"):
            raise unknown("variant", str(self.variant), ("client", "label"), "dirichlet")

    def __call__(self, labels: np.ndarray, rng: np.random.Generator) -> Split:
        labels = check_labels(labels, self.clients)
        if self.clients * self.min_size > len(labels):
            raise ConfigError(
                f"{self.clients} clients of at least {self.min_size} samples need {self.clients * self.min_size}, "
                f"there are {len(labels)}; lower clients or min_size"
            )
        supply = np.unique(labels, return_counts=True)[1]
        draw = self._equal_clients if self.variant == "client" else self._dealt_labels
        owner = owners(labels, draw(supply, rng), rng)
        return deal(owner, self.clients, rng, origin(self, labels, rng))

    def _equal_clients(self, supply: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(clients, n) amounts of the "client" variant.

        All clients draw at once. If a class is drawn more often than it occurs, chance decides which draws are served,
        as if they had come in random order; the others are drawn again from the remaining classes. Each turn uses up
        a class or ends the drawing, so there are at most n turns.
        """
        mix = rng.dirichlet(np.full(len(supply), self.alpha), self.clients)
        amounts = np.zeros(mix.shape, np.int64)
        left, wanted = supply.copy(), even(int(supply.sum()), self.clients)
        while wanted.any():
            who, what = np.flatnonzero(wanted), np.flatnonzero(left)
            drawn = rng.multinomial(wanted[who], _renormalised(mix[np.ix_(who, what)], left[what]))
            for k in np.flatnonzero(drawn.sum(axis=0) > left[what]):
                drawn[:, k] = rng.multivariate_hypergeometric(drawn[:, k], left[what[k]], method="marginals")
            amounts[np.ix_(who, what)] += drawn
            left[what] -= drawn.sum(axis=0)
            wanted[who] -= drawn.sum(axis=1)
        return amounts

    def _dealt_labels(self, supply: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(clients, n) amounts of the "label" variant."""
        concentration = np.full(self.clients, self.alpha)
        for _ in range(_REDRAWS):
            amounts = np.stack([_cut(int(n), rng.dirichlet(concentration)) for n in supply], axis=1)
            if amounts.sum(axis=1).min() >= self.min_size:
                return amounts
        raise ConfigError(
            f"dirichlet 'label' with alpha {self.alpha}: in {_REDRAWS} draws some of the {self.clients} clients always "
            f"had fewer than {self.min_size} samples; raise alpha, lower clients or min_size, or use variant 'client'"
        )


def _renormalised(mix: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Mixes over the remaining classes; a client whose mix has none of them draws in proportion to what remains."""
    empty = mix.sum(axis=1) < 1e-200
    mix = np.where(empty[:, None], left / left.sum(), mix)
    normalised: np.ndarray = mix / mix.sum(axis=1, keepdims=True)
    return normalised


def _cut(total: int, shares: np.ndarray) -> np.ndarray:
    """`total` cut by shares that sum to one; rounded on the cumulative sum, so that nothing is lost."""
    edges = np.rint(np.cumsum(shares) * total).astype(np.int64)
    edges[-1] = total
    return np.diff(edges, prepend=0)
