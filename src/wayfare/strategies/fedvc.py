"""FedVC (Hsu et al., 2020): virtual clients of equal size.

A client is chosen with a probability proportional to its size and always trains on `examples` of its samples: small
clients repeat theirs, large ones use a part. All replies have the same weight. With `examples` = 0 a client takes
`training.iterations` steps over all of its data instead, for tasks whose samples belong together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from wayfare.core.bundle import Bundle, snapshot
from wayfare.core.device import Device
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Training
from wayfare.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class FedVC(FedAvg):
    """FedAvg over virtual clients of equal size."""

    weighting: Literal["examples", "uniform"] = field(default="uniform")
    examples: int = 256  # N_VC, the size of a virtual client; 0: as many as `training.iterations` steps take

    def __post_init__(self) -> None:
        if self.examples < 0:
            raise ConfigError(f"strategy.examples = {self.examples}: expected at least 0")

    def choose(self, sizes: Sequence[int] | np.ndarray, count: int, rng: np.random.Generator) -> list[int]:
        shares = np.asarray(sizes, dtype=np.float64)
        count = min(count, int((shares > 0).sum()))
        return [int(i) for i in rng.choice(len(sizes), count, replace=False, p=shares / shares.sum())]

    def steps(self, training: Training, one_pass: int) -> int:
        return math.ceil(self.examples / training.batch_size) if self.examples else training.iterations

    def client(self, device: Device, message: Bundle) -> Bundle:
        if not self.examples:
            if not device.training.iterations:
                raise ConfigError(
                    "strategy.examples = 0 needs training.iterations, the number of steps of every client"
                )
            return super().client(device, message)
        held = len(device.client.train)
        device.hold(self.virtual(device.client.train, device.rng("virtual")))
        net = device.network(self.resume(device, message))
        steps = self.steps(device.training, 0)  # one pass
        steps = min(steps, int(message.number("iterations")) or steps)
        result = device.train(net, message, self.extra(device, net, message), iterations=steps)
        return Bundle({"model": snapshot(net)}, {**result, "n": held})

    def virtual(self, samples: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Exactly `examples` samples: the whole set as often as it fits, then a random part of it."""
        whole, rest = divmod(self.examples, len(samples))
        return np.concatenate([np.tile(samples, whole), rng.permutation(samples)[:rest]])
