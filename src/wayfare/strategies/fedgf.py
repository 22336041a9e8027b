"""FedGF (Lee and Yoon, 2024): sharpness-aware steps that look for flat minima of the global model, too.

    client:  w^ = w_k + rho g / |g|                 g the gradient at w_k
             w_k <- w_k - lr (gradient at  c w_ahead + (1 - c) w^)
    server:  w_ahead = w + rho_server (w_old - w) / |w_old - w|
             c = the share of the last `window` rounds in which the mean of |w_k - w_old| was above `far`

So clients that drift far apart step against the sharpness around the global model, others against their own.
Nothing of this concerns running statistics, which take the plain mean. Written after the authors' code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from wayfare.core.bundle import Bundle, Weights, snapshot
from wayfare.core.device import Device
from wayfare.core.protocols import Task
from wayfare.core.ranges import Range, check_ranges
from wayfare.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class FedGF(FedAvg):
    """FedAvg with steps along the gradient at a point further up. A step costs twice as much."""

    rho: float = 0.05  # how far up on the client
    rho_server: float = 0.05  # how far up from the global model, against its last change
    far: float = 0.2  # mean distance of the clients' models from the one they received
    window: int = 30  # rounds

    topologies: ClassVar[frozenset[str]] = frozenset({"server"})

    def __post_init__(self) -> None:
        check_ranges("strategy", self, {"rho": Range(0), "rho_server": Range(0), "far": Range(0), "window": Range(1)})

    def start(self, task: Task, net: nn.Module) -> Bundle:
        trained = {name: p.detach().clone() for name, p in net.named_parameters() if p.requires_grad}
        return super().start(task, net).with_(ahead=trained, pull={"c": torch.zeros(())}, drift={"far": torch.zeros(0)})

    def send(self, state: Bundle, device: str) -> Bundle:
        return state.only("model", "ahead", "pull")

    def effort(self, weak: bool) -> float:
        return 2.0

    def client(self, device: Device, message: Bundle) -> Bundle:
        net = device.network(self.resume(device, message))
        parameters = {name: p for name, p in net.named_parameters() if p.requires_grad}
        ahead, c = message["ahead"], float(message["pull"]["c"])

        def at_a_point_further_up(fill: Callable[[], Tensor]) -> Tensor:
            loss = fill()
            before = {name: p.detach().clone() for name, p in parameters.items()}
            with torch.no_grad():
                scale = self.rho / (_length(p.grad for p in parameters.values()) + 1e-16)
                for name, p in parameters.items():
                    if p.grad is not None:
                        p.add_(p.grad, alpha=scale)
                    p.lerp_(ahead[name].to(p.device), c)
            fill()
            with torch.no_grad():
                for name, p in parameters.items():
                    p.copy_(before[name])
            return loss

        result = device.train(net, message, self.extra(device, net, message), around=at_a_point_further_up)
        return Bundle({"model": snapshot(net)}, result)

    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle:
        old, names, lengths = state["model"], list(state["ahead"]), list[float]()

        def measured() -> Iterator[tuple[str, Bundle]]:
            for device, reply in replies:
                lengths.append(_length(reply["model"][name] - old[name] for name in names))
                yield device, reply

        model = self.average(measured())
        back: Weights = {name: old[name] - model[name] for name in names}
        scale = self.rho_server / (_length(back.values()) + 1e-16)
        is_far = torch.tensor([float(math.fsum(lengths) / len(lengths) > self.far)])
        far = torch.cat([state["drift"]["far"], is_far])[-self.window :]
        ahead = {name: model[name] + scale * change for name, change in back.items()}
        return state.with_(model=model, ahead=ahead, pull={"c": far.mean()}, drift={"far": far})


def _length(tensors: Iterable[Tensor | None]) -> float:
    """Of all of them as one vector."""
    return math.sqrt(math.fsum(float(t.double().square().sum()) for t in tensors if t is not None))
