"""SCAFFOLD on devices in trouble: what goes wrong is said as DEVICE@ROUND, so that it can be had on any engine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from wayfare.core.bundle import Bundle
from wayfare.core.device import Device
from wayfare.strategies.scaffold import Scaffold


@dataclass(frozen=True)
class Troubled(Scaffold):
    """Scaffold, but for these devices in these rounds."""

    nan: tuple[str, ...] = ()  # send what is no number
    away: tuple[str, ...] = ()  # do nothing
    pause: tuple[str, ...] = ()  # say so in a folder, then wait: somebody may do something to them meanwhile
    seconds: float = 10.0  # the first time; when asked again they do not wait
    marks: str = ""

    def client(self, device: Device, message: Bundle) -> Bundle:
        now = f"{device.id}@{int(message.number('round'))}"
        if now in self.away:
            raise RuntimeError("away")
        if now in self.pause and not (mark := Path(self.marks) / now).exists():
            mark.touch()
            time.sleep(self.seconds)
        reply = super().client(device, message)
        if now in self.nan:
            return reply.with_(model={name: tensor * float("nan") for name, tensor in reply["model"].items()})
        return reply
