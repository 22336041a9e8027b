"""FedAvgM (Hsu et al., 2019): server SGD with momentum, m <- beta m + d, w <- w + lr m."""

from dataclasses import dataclass

from torch import Tensor

from wayfare.strategies.fedopt import FedOpt


@dataclass(frozen=True)
class FedAvgM(FedOpt):
    """Server SGD with momentum."""

    beta: float = 0.9

    def step(self, d: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m = self.beta * m + d
        return m, v, self.server_lr * m
