"""Counts before the first round: each device counts once what it holds, and the server adds up.

A task that begins with such counts says so (`Task.counted`). They come through the gate like everything else, so they
are refused where they cannot be, their bytes are counted, and below the quorum the run does not begin. The sums go into
the untrained network, whose weights are the state that is committed as round 0: resuming needs nothing else.
"""

from __future__ import annotations

import numpy as np
import torch

from wayfare.core.bundle import Bundle, Weights
from wayfare.core.federation import Federation
from wayfare.core.gate import Gate, Refusal
from wayfare.core.protocols import Client, Task

SECTION = "counts"


def counted(federation: Federation, gate: Gate) -> Weights:
    """The sums over the training clients; {} if the task counts nothing, or every device has a model of its own."""
    task, population = federation.task, federation.population
    if task is None or not task.counted or federation.strategy.personal:
        return {}
    ids = [population.id(position) for position in range(len(population))]
    like = form(task)

    def test(device: str, reply: Bundle) -> None:
        if fault := task.counts_fault(reply[SECTION], int(reply.number("n"))):
            raise Refusal(f"counts: {fault}")

    sums = {name: torch.zeros(tensor.shape, dtype=torch.int64) for name, tensor in like.items()}
    for _, reply in gate.ask("count", ((id, Bundle()) for id in ids), {SECTION: like}, test=test):
        for name, total in sums.items():
            total += reply[SECTION][name]
    gate.clients, gate.losses, gate.loss, gate.examples = [], [], 0.0, 0  # nobody has trained
    return sums


def form(task: Task) -> Weights:
    """Names, shapes and types of a device's counts."""
    nothing = np.empty(0, np.int64)
    return task.counts(Client("", nothing, nothing))
