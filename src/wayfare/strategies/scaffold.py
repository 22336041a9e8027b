"""SCAFFOLD (Karimireddy et al., 2020), option II: control variates correct the drift of the clients.

A local step is w <- w - lr (g - c_i + c); the correction is the gradient of the linear term <c - c_i, w>.
After K steps: c_i+ = c_i - c + (w_received - w) / (K lr). The server: c <- c + sum_i (c_i+ - c_i) / N.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from wayfare.core.bundle import Bundle, Weights, add, zeros_like
from wayfare.core.device import Device
from wayfare.core.protocols import Extra, Task
from wayfare.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Scaffold(FedAvg):
    """FedAvg with control variates; clients should train with plain SGD."""

    topologies: ClassVar[frozenset[str]] = frozenset({"server", "hierarchy"})
    linear: ClassVar[bool] = True

    def start(self, task: Task, net: nn.Module) -> Bundle:
        zero = zeros_like({name: p.detach() for name, p in net.named_parameters() if p.requires_grad})
        return super().start(task, net).with_(control=zero, gain=zero)  # gain: sum of changes since the last report

    def send(self, state: Bundle, device: str) -> Bundle:
        return state.only("model", "control")

    def expects(self, state: Bundle) -> dict[str, Weights]:
        return {"model": state["model"], "control": state["control"]}

    def extra(self, device: Device, net: nn.Module, message: Bundle) -> Extra:
        own = device.memory.tensors.get("control") or zeros_like(message["control"])
        terms = [(p, message["control"][name] - own[name]) for name, p in net.named_parameters() if p.requires_grad]
        return lambda output, batch: add((p * c).sum() for p, c in terms)

    def client(self, device: Device, message: Bundle) -> Bundle:
        reply = super().client(device, message)
        own = device.memory.tensors.get("control") or zeros_like(message["control"])
        scale = 1 / (reply.number("steps") * device.lr)
        change = {
            name: (message["model"][name] - reply["model"][name]) * scale - c for name, c in message["control"].items()
        }
        device.memory = device.memory.with_(control={name: own[name] + change[name] for name in own})
        return reply.with_(control=change)

    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle:
        gain = {name: torch.zeros_like(c, dtype=torch.float64) for name, c in state["control"].items()}

        def add_gains() -> Iterator[tuple[str, Bundle]]:
            for device, reply in replies:
                for name, change in reply["control"].items():
                    gain[name] += change
                yield device, reply

        model = self.average(add_gains())
        total = {n: gain[n].to(c.dtype) for n, c in state["control"].items()}  # as a report rounds it
        control = {n: c + total[n] / state.number("population") for n, c in state["control"].items()}
        return state.with_(model=model, control=control, gain={n: g + total[n] for n, g in state["gain"].items()})

    def report(self, state: Bundle, examples: int) -> Bundle:
        return super().report(state, examples).with_(control=state["gain"])

    def adopt(self, state: Bundle, message: Bundle) -> Bundle:
        return super().adopt(state, message).with_(gain=zeros_like(state["gain"]))
