"""Virtual: any number of clients from any data, by a rule instead of a table.

Each client draws `size` samples of the whole without replacement, from its own seed; two clients may share samples. It
is meant for scalability tests: a million clients need no memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wayfare.core.protocols import Partition
from wayfare.partition.split import VirtualSplit, check_labels, check_whole, origin


@dataclass(frozen=True)
class Virtual(Partition):
    """`clients` clients of `size` samples each."""

    clients: int
    size: int

    def __post_init__(self) -> None:
        check_whole("clients", self.clients, 1)
        check_whole("size", self.size, 1)

    def __call__(self, labels: np.ndarray, rng: np.random.Generator) -> VirtualSplit:
        labels = check_labels(labels, 0)
        seed = int(rng.integers(2**63))
        return VirtualSplit(self.clients, self.size, len(labels), seed, origin(self, labels, rng))
