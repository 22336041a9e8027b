"""Random: IID clients of equal size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wayfare.core.protocols import Partition
from wayfare.partition.split import Split, check_labels, check_whole, deal, even, origin


@dataclass(frozen=True)
class Random(Partition):
    """Shuffle and cut into `clients` parts whose sizes differ by at most one; every sample is used."""

    clients: int  # how many devices

    def __post_init__(self) -> None:
        check_whole("clients", self.clients, 1)

    def __call__(self, labels: np.ndarray, rng: np.random.Generator) -> Split:
        labels = check_labels(labels, self.clients)
        owner = np.repeat(np.arange(self.clients), even(len(labels), self.clients))
        return deal(rng.permutation(owner), self.clients, rng, origin(self, labels, rng))
