"""MOON (Li et al., 2021): pull a client's features towards the received model's, away from its own previous model's.

l = -log( e^{cos(z, z_received)/T} / (e^{cos(z, z_received)/T} + e^{cos(z, z_previous)/T}) )      (Eq. 3)
`previous` is the device's model at the end of its last round; in its first round there is none and the term is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from wayfare.core.bundle import Bundle, add
from wayfare.core.device import Device
from wayfare.core.protocols import Batch, Extra, Output
from wayfare.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Moon(FedAvg):
    """FedAvg with a model-contrastive term."""

    mu: float = 1.0
    temperature: float = 0.5

    requires: ClassVar[frozenset[str]] = frozenset({"features"})

    def extra(self, device: Device, net: nn.Module, message: Bundle) -> Extra | None:
        if "previous" not in device.memory:
            return None
        received, previous = device.frozen(message["model"]), device.frozen(device.memory["previous"])

        def term(output: Output, batch: Batch) -> Tensor:
            with torch.no_grad():
                near = device.task.forward(received, batch).features
                far = device.task.forward(previous, batch).features
            return self.mu * add(self.contrast(z, near[v], far[v]) for v, z in output.features.items()) / len(near)

        return term

    def contrast(self, z: Tensor, near: Tensor, far: Tensor) -> Tensor:
        """Eq. 3, the mean over a batch."""
        logits = torch.stack([cosine_similarity(z, near), cosine_similarity(z, far)], dim=1) / self.temperature
        return cross_entropy(logits, torch.zeros(len(z), dtype=torch.long, device=z.device))

    def client(self, device: Device, message: Bundle) -> Bundle:
        reply = super().client(device, message)
        device.memory = device.memory.with_(previous=reply["model"])  # after training, not on receipt
        return reply
