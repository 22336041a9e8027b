"""FedAvg that writes down when what happens, for one device: each moment of a round is a line of a file of its name."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from wayfare.strategies.fedavg import FedAvg


def process_start():
    """When this process began, as time.time() counts."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


@dataclass(frozen=True)
class Watched(FedAvg):
    """FedAvg; `notes` is a folder."""

    notes: str = ""

    def note(self, moment, value=None):
        with (Path(self.notes) / moment).open("a") as file:
            file.write(f"{time.time() if value is None else value}\n")

    def send(self, state, device):
        self.note("asked")
        return super().send(state, device)

    def client(self, device, message):
        self.note("process", process_start())
        self.note("began")
        reply = super().client(device, message)
        self.note("ended")
        self.note("cpu", sum(os.times()[:2]))
        return reply

    def merge(self, state, replies):
        merged = super().merge(state, replies)
        self.note("merged")
        return merged
