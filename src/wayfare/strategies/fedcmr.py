"""FedCMR (SIGIR 2021): clients with more examples, more classes and less loss weigh more in the mean.

    a_k = softmax_k( w_k + 100 exp(-exp(l_k / l)) )     w_k: n_k |classes_k|, as shares; l the mean of the losses l_k
    W   = sum_k a_k W_k
A loss 10 % below the mean gives about 7 times the weight. A client starts from W minus half of its own last step,
W - 0.5 (W_k after - W_k before), as in the authors' code, so that its own update does not carry it too far.

The authors share one layer between image and text and exchange only that layer. Hashing networks have no such layer:
here the factor applies to all layers or, with `scope`, only to the hash layers; the others are averaged as in FedAvg.
The authors also train on a last fifth of the data after the exchange. That does not affect the shared model and is left
out.
The factor needs every loss: the server keeps the models of one round until all have arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from wayfare.core.bundle import Bundle, Weights, mean, snapshot
from wayfare.core.device import Device
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Task
from wayfare.core.values import LARGEST, Kind, Number
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedproto import multi_hot


@dataclass(frozen=True)
class FedCMR(FedAvg):
    """A mean weighted by examples, classes and losses."""

    sharpness: float = 100.0  # of the losses; 0 leaves them out
    loss: Literal["sum", "mean"] = "sum"  # over a client's steps: the sum as published, or the mean
    correction: float = 0.5  # share of its own last step that a client subtracts from W
    share: float = 1.0  # share of its samples that a client trains on, drawn again each round; 0.8 as published
    scope: Literal["all", "hash_layer"] = "all"  # the layers that factor and correction apply to

    requires: ClassVar[frozenset[str]] = frozenset({"classes"})
    topologies: ClassVar[frozenset[str]] = frozenset({"server"})

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(f"strategy.share = {self.share}: expected a share of the samples, above 0 and at most 1")
        if not self.sharpness >= 0:
            raise ConfigError(f"strategy.sharpness = {self.sharpness}: expected at least 0")

    def prepare(self, task: Task, net: nn.Module) -> nn.Module:
        if self.scope == "hash_layer" and not any(map(self.concerns, dict(net.named_parameters()))):
            raise ConfigError("strategy.scope = 'hash_layer': this network has no layer called 'hash'; use 'all'")
        return net

    def concerns(self, name: str) -> bool:
        """Whether factor and correction apply to this weight."""
        return self.scope == "all" or "hash" in name.split(".")

    # ---- the client

    def resume(self, device: Device, message: Bundle) -> Weights:
        step = device.memory.tensors.get("step", {})
        start = message["model"]
        return {name: w - self.correction * step[name] if name in step else w for name, w in start.items()}

    def client(self, device: Device, message: Bundle) -> Bundle:
        held, start = device.client.train, self.resume(device, message)
        if self.share < 1:
            some = max(1, round(self.share * len(held)))
            device.hold(held[device.rng("share").permutation(len(held))[:some]])
        net = device.network(start)
        result = device.train(net, message, self.extra(device, net, message))
        model = snapshot(net)
        if self.correction:  # trained weights only: a buffer such as a variance must not become negative
            trained = [name for name, p in net.named_parameters() if p.requires_grad and self.concerns(name)]
            device.memory = device.memory.with_(step={name: model[name] - start[name] for name in trained})
        return Bundle({"model": model}, {**result, "n": len(held), "classes": classes_held(device, net)})

    # ---- the server

    def start(self, task: Task, net: nn.Module) -> Bundle:
        state = super().start(task, net)
        return Bundle(state.tensors, {**state.values, "classes": len(task.classes)})

    def values(self, state: Bundle) -> Mapping[str, Kind]:
        return {"classes": Number(0, state.number("classes", LARGEST), integer=True)}

    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle:
        held = [reply for _, reply in replies]
        if self.scope == "all":
            return state.with_(model=self.factored(held))
        factored = self.factored(held)
        plain = self.average(("", reply) for reply in held)
        return state.with_(model={name: (factored if self.concerns(name) else plain)[name] for name in plain})

    def factored(self, replies: Sequence[Bundle]) -> Weights:
        """sum_k a_k W_k."""
        return mean(zip(self.factors(replies), (reply["model"] for reply in replies)))

    def factors(self, replies: Sequence[Bundle]) -> list[float]:
        """a_k of each reply."""
        steps = [reply.number("steps", 1.0) if self.loss == "sum" else 1.0 for reply in replies]
        losses = torch.tensor([reply.number("loss") * s for reply, s in zip(replies, steps)], dtype=torch.float64)
        losses = losses.clamp(min=0)
        ratios = losses / losses.mean() if losses.any() else torch.ones_like(losses)
        sizes = torch.tensor([reply.number("n") * reply.number("classes") for reply in replies], dtype=torch.float64)
        weights = sizes / sizes.sum().clamp(min=1)  # if no client has a class, only the losses count
        factors: list[float] = torch.softmax(weights + self.sharpness * (-ratios.exp()).exp(), 0).tolist()
        return factors


def classes_held(device: Device, net: nn.Module) -> int:
    """How many classes the device's samples have."""
    total = len(device.task.classes)
    seen = torch.zeros(total)
    for batch in device.task.scan(net, device.client):
        seen += multi_hot(batch, total).sum(0).cpu()
    return int((seen > 0).sum())
