"""Shards: each client has data of p of the n classes.

p = 1 is the strictest label skew, p = n makes every client a small copy of the whole (the non-IID and IID shard
splits of the federated scene-graph benchmark). Every sample is used. Each class is held by a number of clients in
proportion to its samples (with classes of equal size: by equally many), so that clients come out equally large as
far as whole classes allow; the odd samples of a class go to its holders that have least.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Partition
from wayfare.partition.split import Split, check_labels, check_whole, deal, even, origin, owners


@dataclass(frozen=True)
class Shards(Partition):
    """Deal p classes to each client, then each class's samples evenly to its holders."""

    clients: int  # how many devices
    classes_per_client: int = 2

    def __post_init__(self) -> None:
        check_whole("clients", self.clients, 1)
        check_whole("classes_per_client", self.classes_per_client, 1)

    def __call__(self, labels: np.ndarray, rng: np.random.Generator) -> Split:
        labels = check_labels(labels, self.clients)
        supply = np.unique(labels, return_counts=True)[1]
        owner = owners(labels, _amounts(self.held(supply, rng), supply, rng), rng)
        return deal(owner, self.clients, rng, origin(self, labels, rng))

    def held(self, supply: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(clients, n) bool: which classes each client has, where there are supply[k] samples of the k-th."""
        self._check(supply)
        holders = _holders(supply, self.clients, self.classes_per_client)
        return _deal_classes(holders, self.clients, self.classes_per_client, rng)

    def _check(self, supply: np.ndarray) -> None:
        slots, p, n = self.clients * self.classes_per_client, self.classes_per_client, len(supply)
        what = f"shards with {self.clients} clients and classes_per_client {p}"
        if p > n:
            raise ConfigError(f"{what}: only {n} classes occur; lower classes_per_client to {n} or less")
        if slots < n:
            raise ConfigError(
                f"{what} leave {n - slots} of {n} classes without clients; the product must be at least {n}"
            )
        if np.minimum(supply, self.clients).sum() < slots:
            raise ConfigError(
                f"{what}: the classes are too small to give every client a sample of {p} of them "
                f"(the rarest has {supply.min()}); lower clients or classes_per_client"
            )


def _holders(supply: np.ndarray, clients: int, p: int) -> np.ndarray:
    """How many clients hold each class: clients * p in all, always one more where holders have most each."""
    holders = np.ones(len(supply), np.int64)
    most = np.minimum(supply, clients)  # a class cannot be held twice by a client, nor a sample by two
    queue = [(-float(supply[k]), k) for k in range(len(supply)) if most[k] > 1]
    heapify(queue)
    for _ in range(clients * p - len(supply)):
        k = queue[0][1]
        holders[k] += 1
        share = supply[k] / holders[k] if holders[k] < most[k] else -1.0  # a full class goes to the end of the queue
        heapreplace(queue, (-share, k))
    return holders


def _deal_classes(holders: np.ndarray, clients: int, p: int, rng: np.random.Generator) -> np.ndarray:
    """(clients, n) bool, p per row and holders[k] per column.

    Each client takes the p classes that have most places left, chance deciding among equals. Taking the fullest
    first never ends in a dead end: with c clients to come, at most p classes can have c places left.
    """
    left = holders.copy()
    held = np.zeros((clients, len(holders)), bool)
    for client in rng.permutation(clients):
        chosen = np.lexsort((rng.random(len(left)), -left))[:p]
        held[client, chosen] = True
        left[chosen] -= 1
    return held


def _amounts(held: np.ndarray, supply: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(clients, n): each class in even parts, the larger parts to the holders that have least so far."""
    amounts = np.zeros(held.shape, np.int64)
    sizes = np.zeros(len(held), np.int64)
    for k in range(len(supply)):
        who = np.flatnonzero(held[:, k])
        who = who[np.lexsort((rng.random(len(who)), sizes[who]))]
        amounts[who, k] = even(int(supply[k]), len(who))
        sizes[who] += amounts[who, k]
    return amounts
