"""Server optimisers (Reddi et al., Adaptive Federated Optimization, 2021), without bias correction.

The mean change of the clients, d = mean - w, replaces the negative gradient. Trained weights go through the optimiser;
buffers take the plain mean, because momentum on a running variance can make it negative. The second moment starts at
tau^2, the least that Algorithm 2 allows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from wayfare.core.bundle import Bundle, zeros_like
from wayfare.core.protocols import Strategy, Task
from wayfare.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class FedOpt(FedAvg):
    """The mean change as a direction: w <- w + step(d, m, v). By itself it is a server learning rate."""

    server_lr: float = 1.0

    linear: ClassVar[bool] = True

    def step(self, d: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The first moment, the second moment and the change of the weights."""
        return m, v, self.server_lr * d

    @property
    def least(self) -> float:
        """Where the second moment starts."""
        return 0.0

    def start(self, task: Task, net: nn.Module) -> Bundle:
        state = super().start(task, net)
        trained = {name: p.detach() for name, p in net.named_parameters() if p.requires_grad}
        second = {name: torch.full_like(p, self.least) for name, p in trained.items()}
        return state.with_(first=zeros_like(trained), second=second)

    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle:
        model, first, second = self.average(replies), dict[str, Tensor](), dict[str, Tensor]()
        for name, w in state["model"].items():
            if name in state["first"]:
                d = model[name] - w
                first[name], second[name], change = self.step(d, state["first"][name], state["second"][name])
                model[name] = w + change
        return state.with_(model=model, first=first, second=second)

    def relay(self) -> Strategy:
        return FedAvg(self.weighting)
