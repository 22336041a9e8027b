"""FedProto (Tan et al., 2022): only class prototypes travel, never weights.

A prototype is the mean feature of a client's samples with that label (a multi-label sample counts for each label).
Client: loss + lambda * MSE(feature, global prototype of its class), a class without one adding 0   (Eq. 8)
Server: the mean over the clients that hold the class, weighted by their counts                      (Eq. 6)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from wayfare.core.bundle import Bundle, Weights
from wayfare.core.device import Device
from wayfare.core.protocols import Batch, Extra, Output, Task
from wayfare.strategies.local import Local


@dataclass(frozen=True)
class FedProto(Local):
    """Personal models that agree on what each class looks like."""

    lam: float = 1.0
    mean: Literal["counts", "clients"] = "counts"  # weighted as in Eq. 6, or equally as in the authors' code

    requires: ClassVar[frozenset[str]] = frozenset({"features", "classes"})
    topologies: ClassVar[frozenset[str]] = frozenset({"server", "encounters"})

    def start(self, task: Task, net: nn.Module) -> Bundle:
        classes = len(task.classes)
        prototypes = {view: torch.zeros(classes, width) for view, width in task.views(net).items()}
        return super().start(task, net).with_(prototypes=prototypes, counts={"counts": torch.zeros(classes)})

    def send(self, state: Bundle, device: str) -> Bundle:
        return state.only("prototypes", "counts")

    def expects(self, state: Bundle) -> dict[str, Weights]:
        return {"prototypes": state["prototypes"], "counts": state["counts"]}

    def report(self, state: Bundle, examples: int) -> Bundle:
        return Bundle({"prototypes": state["prototypes"], "counts": state["counts"]}, {"n": examples})

    def extra(self, device: Device, net: nn.Module, message: Bundle) -> Extra:
        known = (message["counts"]["counts"] > 0).float()

        def term(output: Output, batch: Batch) -> Tensor:
            labels = multi_hot(batch, len(known)) * known.to(output.features[next(iter(output.features))].device)
            share = labels / labels.sum(1, keepdim=True).clamp(min=1)  # a sample's labels weigh the same
            total = torch.zeros((), device=labels.device)
            for view, z in output.features.items():
                distance = (z[:, None] - message["prototypes"][view].to(z.device)).square().mean(2)  # B x C
                total = total + (share * distance).sum() / len(z)
            return self.lam * total / len(output.features)

        return term

    def client(self, device: Device, message: Bundle) -> Bundle:
        reply = super().client(device, message)
        net = device.network(device.memory["model"]).eval()
        return Bundle(prototypes(device.task, net, device, message), reply.values)

    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle:
        sums = {view: torch.zeros_like(p, dtype=torch.float64) for view, p in state["prototypes"].items()}
        weight, counts = (torch.zeros_like(state["counts"]["counts"], dtype=torch.float64) for _ in range(2))
        for _, reply in replies:
            held = reply["counts"]["counts"].double().clamp(0, reply.number("n"))  # n is bounded by the gate
            share = held if self.mean == "counts" else (held > 0).double()
            weight += share
            counts += held
            for view, p in reply["prototypes"].items():
                sums[view] += share[:, None] * p
        fresh = weight > 0  # a class that no client reported keeps its prototype
        merged = {
            view: torch.where(fresh[:, None], sums[view] / weight.clamp(min=1)[:, None], p.double()).to(p.dtype)
            for view, p in state["prototypes"].items()
        }
        old = state["counts"]["counts"]
        return state.with_(prototypes=merged, counts={"counts": torch.where(fresh, counts, old.double()).to(old.dtype)})


def multi_hot(batch: Batch, classes: int) -> Tensor:
    """Labels as rows of 0 and 1."""
    labels = batch.labels
    if labels is None:
        raise TypeError("this task's batches have no labels")
    return (one_hot(labels, classes) if labels.ndim == 1 else labels).float()


def prototypes(task: Task, net: nn.Module, device: Device, message: Bundle) -> dict[str, Weights]:
    """The device's class means, from a pass over its samples in evaluation mode with the trained model."""
    sums = {view: torch.zeros_like(p, dtype=torch.float64) for view, p in message["prototypes"].items()}
    counts = torch.zeros_like(message["counts"]["counts"], dtype=torch.float64)
    for labels, features in _features(task, net, device, len(counts)):
        counts += labels.sum(0)
        for view, z in features.items():
            sums[view] += labels.T @ z
    means = {view: (s / counts.clamp(min=1)[:, None]).float() for view, s in sums.items()}
    return {"prototypes": means, "counts": {"counts": counts.float()}}


@torch.no_grad()
def _features(task: Task, net: nn.Module, device: Device, classes: int) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    for batch in task.scan(net, device.client):
        output = task.forward(net, batch)
        yield multi_hot(batch, classes).double().cpu(), {v: z.double().cpu() for v, z in output.features.items()}
