"""Who takes part, and who gets which samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np


class Population:
    """Who takes part, and which samples of the pool each client has. `partition/split.py` has the two forms of it.

    A position, from 0 to len - 1, is a place in this object; an id outlives `select`.
    """

    provenance: dict[str, Any]
    """Where it comes from: rule, settings, seed, number of samples."""
    groups: tuple[str, ...] | None
    """The group of each client, where there are groups."""
    numbers: np.ndarray | None
    """The k of each id "ck"; None stands for 0 to len - 1."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, position: int) -> np.ndarray:
        """The samples of the client at this position, as an array of the caller's own."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[position] for position in range(len(self)))

    def id(self, position: int) -> str:
        raise NotImplementedError

    def find(self, id: str) -> int | None:
        """The position of an id, or None."""
        raise NotImplementedError

    def position(self, id: str) -> int:
        """The position of an id; ConfigError if there is no such client."""
        raise NotImplementedError

    def size(self, position: int) -> int:
        raise NotImplementedError

    @property
    def sizes(self) -> np.ndarray:
        """Samples per client, (N,) int64."""
        raise NotImplementedError

    def pool(self) -> np.ndarray:
        """The samples that all clients together have, or draw from."""
        raise NotImplementedError

    def select(self, positions: Sequence[int] | np.ndarray) -> Population:
        """The clients at these positions, in this order; they keep their ids, samples and groups."""
        raise NotImplementedError

    def pack(self) -> bytes:
        """Bytes that `partition.split.load_split` reads; equal populations give equal bytes."""
        raise NotImplementedError


class Partition:
    """Who gets which samples: a frozen dataclass of settings, called with what it divides the samples by."""

    source: ClassVar[str] = "labels"

    def __call__(self, dealt: Any, rng: np.random.Generator) -> Population:
        raise NotImplementedError
