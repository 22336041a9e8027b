"""FedAdagrad (Reddi et al., 2021, Algorithm 2): the second moment only grows."""

from dataclasses import dataclass

from torch import Tensor

from wayfare.strategies.fedopt import FedOpt


@dataclass(frozen=True)
class FedAdagrad(FedOpt):
    """AdaGrad on the server."""

    server_lr: float = 0.01
    beta1: float = 0.0
    tau: float = 1e-3

    @property
    def least(self) -> float:
        return self.tau**2

    def step(self, d: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m = self.beta1 * m + (1 - self.beta1) * d
        v = v + d * d
        return m, v, self.server_lr * m / (v.sqrt() + self.tau)
