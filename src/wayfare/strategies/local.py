"""No federation: every device trains alone on its own data, from the common start. The lower reference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from wayfare.core.bundle import Bundle, Weights
from wayfare.core.device import Device
from wayfare.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class Local(FedAvg):
    """Every device trains alone; it only reports that it has trained."""

    topologies: ClassVar[frozenset[str]] = frozenset({"server"})
    personal: ClassVar[bool] = True
    linear: ClassVar[bool] = False

    def send(self, state: Bundle, device: str) -> Bundle:
        return Bundle()

    def expects(self, state: Bundle) -> dict[str, Weights]:
        return {}

    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle:
        for _ in replies:
            pass
        return state

    def resume(self, device: Device, message: Bundle) -> Weights:
        return device.memory.tensors.get("model") or device.alone()

    def client(self, device: Device, message: Bundle) -> Bundle:
        reply = super().client(device, message)
        device.memory = device.memory.with_(model=reply["model"])
        return Bundle({}, reply.values)
