"""What a device can be asked to do. Engines call programs by name, in this process or in another."""

from __future__ import annotations

import contextlib
import ctypes
import math
import time
import traceback
from collections.abc import Callable

from wayfare.core.bundle import Bundle
from wayfare.core.device import Bench, Device
from wayfare.core.protocols import Failure

Program = Callable[[Device, Bundle], Bundle]


def train(device: Device, message: Bundle) -> Bundle:
    """The client's half of a round."""
    return device.strategy.client(device, message)


def evaluate(device: Device, message: Bundle) -> Bundle:
    """Metrics of the model this device would use, on its own held-out samples, all its samples, or the test set."""
    net = device.network(device.strategy.resume(device, message)).eval()
    client, split = device.client, message.values.get("split", "holdout")
    samples = {"holdout": client.holdout, "all": client.train, "test": None}[str(split)]
    n = len(client.train) if samples is None else len(samples)
    metrics = device.task.evaluate(net, samples) if n else {}
    return Bundle({}, {"n": max(n, 1), **{f"metric/{name}": float(value) for name, value in metrics.items()}})


def keep_freed_memory() -> None:
    """Tell glibc not to hand freed memory back: otherwise every step maps its activations anew."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
        library.mallopt(-3, 32 * 2**20)  # M_MMAP_THRESHOLD, its largest


PROGRAMS: dict[str, Program] = {"train": train, "evaluate": evaluate}
REMEMBERING = frozenset({"train"})  # programs after which a device's memory is kept


def perform(bench: Bench, program: str, id: str, message: Bundle, deadline: float = math.inf) -> Bundle | Failure:
    """Be that device for the length of one program."""
    if time.monotonic() > deadline:
        return Failure("late: not started before the round's deadline")
    round = int(message.number("round"))
    keeps = program in REMEMBERING
    # What fails outside the program is the disk, not the device: a StoreError stops the run.
    # A program that writes memory reads what was before its round, so doing it again gives the same bits.
    device = bench.device(id, round, round - 1 if keeps else round, deadline)
    cold = not device.memory
    try:
        reply = PROGRAMS[program](device, message)
    except Exception as error:  # whatever goes wrong on a device must not take the others along
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())
    if keeps and device.memory:
        bench.memories.save(id, round, device.memory)
    return Bundle(reply.tensors, {**reply.values, "round": round, "cold": cold, "kept": keeps and bool(device.memory)})
