"""The clients of an experiment: those that train, those set aside for validation, and what each one holds."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Client, Evaluation, Population
from wayfare.core.seeds import rng_for
from wayfare.partition.split import ClientSplit

POOLED = "everyone"  # the one client of a pooled strategy


def hold_out(id: str, samples: np.ndarray, share: float, seed: int) -> Client:
    """A client that keeps a share of its samples from training; nothing if it has only a few."""
    kept = held_out(len(samples), share)
    if not kept:
        return Client(id, np.sort(samples), np.empty(0, np.int64))
    order = rng_for(seed, "holdout", id).permutation(samples)
    return Client(id, np.sort(order[kept:]), np.sort(order[:kept]))


def held_out(size: int, share: float) -> int:
    """How many of a client's samples it never trains on."""
    return 0 if share == 0 or size < 5 else max(1, round(share * size))


class Clients:
    """The clients of an experiment: those that train, those set aside for validation, and what each one holds."""

    def __init__(
        self, split: Population, evaluation: Evaluation, seed: int, pooled: bool, guests: bool = False
    ) -> None:
        self._split, self._evaluation, self._seed, self._pooled = split, evaluation, seed, pooled
        self._guests = guests
        aside = evaluation.validation_clients
        if aside:
            if aside >= len(split):
                raise ConfigError(
                    f"evaluation.validation_clients = {aside} leaves none of the {len(split)} clients to train"
                )
            order = rng_for(seed, "validation clients").permutation(len(split))
            self.validation = [split.id(int(i)) for i in order[:aside]]
            self.trained: Population = split.select(np.sort(order[aside:]))
        else:
            self.validation, self.trained = [], split

    @cached_property
    def population(self) -> Population:
        """Those that the topology asks."""
        return _AllClients(self) if self._pooled else self.trained

    def evaluation_clients(self) -> list[str]:
        """The clients that evaluate the model, the same ones every time."""
        count = min(self._evaluation.clients, len(self.trained))
        chosen = rng_for(self._seed, "judges").choice(len(self.trained), count, replace=False)
        return [self.trained.id(int(i)) for i in np.sort(chosen)]

    def training_sizes(self) -> tuple[int, ...]:
        """How many samples clients train on, each number once."""
        if self._pooled:
            return (len(self._everyone.train),)
        share = self._evaluation.holdout
        return tuple(sorted({size - held_out(int(size), share) for size in np.unique(self.trained.sizes).tolist()}))

    def held(self) -> np.ndarray:
        """The samples that clients train on, each once."""
        parts = [self.client(self.trained.id(i)).train for i in range(len(self.trained))]
        return np.unique(np.concatenate(parts))

    def client(self, id: str) -> Client:
        """What this client holds, and which part of it is kept from training."""
        if self._pooled and id == POOLED:
            return self._everyone
        if self._is_guest(id):
            return Client(id, np.empty(0, np.int64), np.empty(0, np.int64))
        samples = self._split[self._split.position(id)]
        if id in self.validation:
            return Client(id, samples, samples)
        return hold_out(id, samples, self._evaluation.holdout, self._seed)

    @cached_property
    def _everyone(self) -> Client:
        return Client(POOLED, self.held(), np.empty(0, np.int64))

    def size_of(self, id: str) -> int:
        """How many samples this client can have trained or judged on."""
        if self._pooled and id == POOLED:
            return int(self.trained.sizes.sum())
        return 0 if self._is_guest(id) else self._split.size(self._split.position(id))

    def _is_guest(self, id: str) -> bool:
        """A device of the topology's own, signage say, holds nothing."""
        return self._guests and self._split.find(id) is None


class _AllClients(ClientSplit):
    """A population of one that has everybody's data."""

    def __init__(self, clients: Clients) -> None:
        super().__init__(1, {"rule": "pooled"}, None, None)
        self._clients = clients

    def __getitem__(self, position: int) -> np.ndarray:
        return self.pool()

    @property
    def sizes(self) -> np.ndarray:
        return np.array([self._clients.size_of(POOLED)])

    def pool(self) -> np.ndarray:
        return self._clients.client(POOLED).train

    def id(self, position: int) -> str:
        return POOLED

    def select(self, positions: Any) -> Population:
        return self

    def _body(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"kind": "pooled"}, {}
