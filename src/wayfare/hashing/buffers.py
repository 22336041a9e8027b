"""What a device stores about all its pairs while it trains: F, G and B of the papers, and the class codes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from wayfare.hashing.nets import signs


@dataclass
class Buffers:
    """One row for each of the n training pairs of a client, in the order of its samples.

    `features` holds what codes are the signs of (`net.enhance`), before any tanh. The sums over its rows are kept
    beside it, so that a step need not add up all rows that are not in its batch.
    """

    net: Any  # the encoders, as a strategy may have wrapped them
    features: dict[str, Tensor]  # of each view, float32 (n, bits)
    labels: tuple[Tensor, ...]  # of each level, float32 (n, C)
    codes: Tensor = field(default_factory=lambda: torch.empty(0))  # float32 (n, bits), once they are known
    classes: tuple[Tensor, ...] = ()  # codes of the classes of each level, float64 (bits, C), where a method has them

    asked: Tensor = field(default_factory=lambda: torch.empty(0))  # labels that a text is the names of, (n, C) of 0, 1

    def __post_init__(self) -> None:
        if self.labels:
            self.asked = torch.zeros_like(self.labels[-1])
        self._sums = {view: features.double().sum(0) for view, features in self.features.items()}

    def __len__(self) -> int:
        return len(next(iter(self.features.values())))

    @torch.no_grad()
    def write(self, view: str, rows: Tensor, raw: Tensor) -> None:
        """Store the outputs just computed for these rows."""
        fresh = self.net.enhance(view, raw.detach())
        self._sums[view] = self.rest(view, rows) + fresh.double().sum(0)
        self.features[view][rows] = fresh

    def rest(self, view: str, rows: Tensor) -> Tensor:
        """The sum over all other rows, float64 (bits,)."""
        return self._sums[view] - self.features[view][rows].double().sum(0)


def joint_codes(image: Tensor, text: Tensor) -> Tensor:
    """B = sign(F + G): one code for both views of a pair."""
    return signs(image + text)
