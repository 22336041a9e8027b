"""FedDyn (Acar et al., 2021): a term that changes every round leads clients to the optimum of all data.

    client:  loss - <h_k, w_k> + alpha/2 |w_k - w|^2,   then  h_k <- h_k - alpha (w_k - w)
    server:  h <- h - alpha/N sum_k (w_k - w)           N: all clients; the sum is over those that replied
             w <- mean_k w_k - h / alpha

h has no part in running statistics, which take the plain mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from wayfare.core.bundle import Bundle, add, zeros_like
from wayfare.core.device import Device
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Extra, Task
from wayfare.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class FedDyn(FedAvg):
    """Dynamic regularisation; clients should train with plain SGD. All weigh the same, as in the paper."""

    weighting: Literal["examples", "uniform"] = "uniform"
    alpha: float = 0.01

    topologies: ClassVar[frozenset[str]] = frozenset({"server"})

    def __post_init__(self) -> None:
        if self.alpha <= 0:
            raise ConfigError(f"strategy.alpha = {self.alpha}: expected a number above 0")

    def start(self, task: Task, net: nn.Module) -> Bundle:
        trained = {name: p.detach() for name, p in net.named_parameters() if p.requires_grad}
        return super().start(task, net).with_(drift=zeros_like(trained))

    def extra(self, device: Device, net: nn.Module, message: Bundle) -> Extra:
        drift = device.memory.tensors.get("drift", {})
        terms = [(p, p.detach().clone(), drift.get(name)) for name, p in net.named_parameters() if p.requires_grad]
        return lambda output, batch: add(
            self.alpha / 2 * (p - anchor).square().sum() - (0.0 if h is None else (h * p).sum())
            for p, anchor, h in terms
        )

    def client(self, device: Device, message: Bundle) -> Bundle:
        reply = super().client(device, message)
        trained = [name for name, p in device.network(reply["model"]).named_parameters() if p.requires_grad]
        before = device.memory.tensors.get("drift", {})
        drift = {name: -self.alpha * (reply["model"][name] - message["model"][name]) for name in trained}
        device.memory = device.memory.with_(drift={n: h + before[n] if n in before else h for n, h in drift.items()})
        return reply

    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle:
        old, drift = state["model"], state["drift"]
        moved = {name: torch.zeros_like(h, dtype=torch.float64) for name, h in drift.items()}

        def noted() -> Iterator[tuple[str, Bundle]]:
            for device, reply in replies:
                for name in moved:
                    moved[name] += reply["model"][name].double() - old[name].double()
                yield device, reply

        model, scale = self.average(noted()), self.alpha / state.number("population")
        drift = {name: h - (scale * moved[name]).to(h.dtype) for name, h in drift.items()}
        model |= {name: model[name] - h / self.alpha for name, h in drift.items()}
        return state.with_(model=model, drift=drift)
