"""FedAdam (Reddi et al., 2021, Algorithm 2): no bias correction; tau stands outside the root, or in it if asked."""

from dataclasses import dataclass

from torch import Tensor

from wayfare.strategies.fedopt import FedOpt


@dataclass(frozen=True)
class FedAdam(FedOpt):
    """Adam on the server."""

    server_lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    tau_in_root: bool = False  # sqrt(v + tau), as the federated scene-graph benchmark writes it, not sqrt(v) + tau

    @property
    def least(self) -> float:
        return self.tau**2

    def step(self, d: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m = self.beta1 * m + (1 - self.beta1) * d
        v = self.beta2 * v + (1 - self.beta2) * d * d
        root = (v + self.tau).sqrt() if self.tau_in_root else v.sqrt() + self.tau
        return m, v, self.server_lr * m / root
