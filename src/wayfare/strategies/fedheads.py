"""Weak devices train the heads only (partially trainable networks: Sidahmed et al., 2021; Yang et al., 2022).

    w_j <- sum_(k trained j) n_k w_(k,j) / sum_(k trained j) n_k       for each tensor j; it stays if nobody trained it

Weak are the devices that `clock.weak` says are: they receive the whole model, train and send the tensors whose names
begin with `heads`, and save the way back through the others. With no weak device this is FedAvg, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from wayfare.core.bundle import Bundle, Weights, travelling
from wayfare.core.device import Device
from wayfare.core.errors import ConfigError
from wayfare.core.ranges import Range, check_ranges
from wayfare.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class FedHeads(FedAvg):
    """FedAvg in which weak devices train a part of the model."""

    heads: str = "head"  # how the names of the tensors begin that weak devices train
    share: float = 0.34  # what a step costs them, of a whole step: without the way back, about a third

    def __post_init__(self) -> None:
        check_ranges("strategy", self, {"share": Range(0, 1, open_low=True)})

    def effort(self, weak: bool) -> float:
        return self.share if weak else 1.0

    def expects_of(self, state: Bundle, message: Bundle) -> dict[str, Weights]:
        whole = self.expects(state)
        if not message.values.get("weak"):
            return whole
        part = {name: w for name, w in whole["model"].items() if name.startswith(self.heads)}
        if not part:
            names = ", ".join(list(whole["model"])[-4:])
            raise ConfigError(f"strategy.heads = {self.heads!r}: no tensor's name begins so; the last ones are {names}")
        return {"model": part}

    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle:
        sums, totals = dict[str, Tensor](), dict[str, float]()
        for _, reply in replies:
            weight = self.weight(reply.number("n"))
            for name, tensor in reply["model"].items():
                wide, totals[name] = tensor.to(torch.float64, copy=True), totals.get(name, 0.0) + weight
                sums[name] = sums[name].add_(wide, alpha=weight) if name in sums else wide.mul_(weight)
        old = state["model"]
        return state.with_(model={n: (sums[n] / totals[n]).to(w.dtype) if n in sums else w for n, w in old.items()})

    def client(self, device: Device, message: Bundle) -> Bundle:
        if not message.values.get("weak"):
            return super().client(device, message)
        net = device.network(self.resume(device, message))
        frozen = [p for name, p in net.named_parameters() if p.requires_grad and not name.startswith(self.heads)]
        for parameter in frozen:
            parameter.requires_grad_(False)
        try:
            result = device.train(net, message, self.extra(device, net, message))
        finally:  # the network is that of every device
            for parameter in frozen:
                parameter.requires_grad_(True)
        trained = {name: w.detach().clone() for name, w in travelling(net).items() if name.startswith(self.heads)}
        return Bundle({"model": trained}, result)
