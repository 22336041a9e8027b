"""Sample-level differential privacy: DP-SGD in each client (Abadi et al., 2016), for clients with many people's data.

A step of the training loop draws each of a client's n samples by itself with probability q = batch_size / n, clips the
gradient of each sample to length S, and steps along

    gradient = (sum_i clip(gradient_i, S) + noise * S * N(0, I)) / (q n)

So what a client sends says little of any one of its samples, whoever reads it: the server, too. Gradients of single
samples are taken one after the other, which costs time and nothing else. How many samples a client has is public.

Epsilon is that of the client for which it is largest, if it was asked in every round: each has steps with its own q.
Who is drawn, and the noise, come from the key in the folder of the process that trains: on a real device its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.core.bundle import Weights
from wayfare.core.device import Device, GradientGuard
from wayfare.core.protocols import Batch, MergeContext, MergeRule, Strategy, Task, Topology, Training
from wayfare.core.ranges import check_ranges
from wayfare.privacy.accounting import RANGES, check_budget, epsilon
from wayfare.privacy.ledger import Ledger, Release, check_key
from wayfare.privacy.networks import check_buffers
from wayfare.privacy.secrets import Secret

_MOST_SIZES = 12  # different numbers of samples that are accounted for one by one


@dataclass(frozen=True)
class SampleLevel(MergeRule):
    """Clipping and Gaussian noise in every step of training on a device."""

    noise: float = 1.0  # standard deviation over the clip
    clip: float = 1.0  # the longest gradient of one sample
    delta: float = 1e-5  # probability that epsilon does not hold; below 1 / samples of a client
    epsilon: float = 0.0  # the budget: the run ends before it would be exceeded; 0: none

    private: ClassVar[bool] = True
    unit: ClassVar[str] = "sample"

    def __post_init__(self) -> None:
        check_ranges("privacy", self, RANGES)

    def misfit(self, strategy: Strategy, topology: Topology) -> str:
        if type(topology).__name__ != "Server":
            return f"needs the topology 'server'; this is {type(topology).__name__.lower()!r}"
        if strategy.personal or not strategy.linear:
            return f"cannot be used with {type(strategy).__name__}: its clients use or send more than noised gradients"
        return ""

    def task_misfit(self, task: Task) -> str:
        if task.by_sample:
            return ""
        return (
            f"cannot be used with {type(task).__name__}: its loss is not a mean over single samples, and the gradient "
            'of one sample cannot be clipped. Use name = "clientlevel"'
        )

    def check_network(self, net: nn.Module) -> None:
        check_buffers(net)

    def guard(self, folder: Path) -> GradientGuard:
        return SampleGuard(self, folder)

    # ---- what it cost

    def choose(self, ids: Sequence[str], context: MergeContext) -> None:
        """Leave that to the strategy; the round is written down before anybody is asked."""
        Ledger(context.folder).add(Release(context.round, 1.0, self.noise, "round", str(context.round)))

    def check_continued(self, context: MergeContext, rounds: Collection[int]) -> None:
        ledger = Ledger(context.folder)
        ledger.check(rounds)
        check_key(ledger)
        Secret(context.folder)  # before workers need it

    def warnings(self, like: Mapping[str, Weights], context: MergeContext) -> list[str]:
        found, most = list[str](), max(context.sizes, default=0)
        if self.delta * most >= 1:
            found.append(
                f"privacy.delta = {self.delta:g} is not below 1 / {most} samples of a client: one of them could be "
                "published and epsilon would still hold. Set it lower"
            )
        if self.epsilon:
            found += check_budget(self.epsilon, context.rounds, lambda n: self.epsilon_after(n, context))
        return found

    def spent(self, context: MergeContext) -> dict[str, float]:
        return {"epsilon": self.epsilon_after(context.round, context), "delta": self.delta}

    def is_spent(self, context: MergeContext) -> bool:
        return bool(self.epsilon) and self.epsilon_after(context.round, context) > self.epsilon

    def epsilon_after(self, rounds: int, context: MergeContext) -> float:
        """Of the client for which it is largest, after so many rounds."""
        if not rounds:
            return 0.0
        found = (
            epsilon({(rate, self.noise): steps * rounds}, self.delta)
            for rate, steps in plans(context.sizes, context.training)
        )
        return max(found, default=0.0)


def plans(sizes: Sequence[int], training: Training) -> list[tuple[float, int]]:
    """Rate and steps of a round with so many samples; of similar numbers the larger of each, an upper bound."""
    each = [plan(size, training) for size in sorted(size for size in set(sizes) if size)]
    group = math.ceil(len(each) / _MOST_SIZES) or 1
    parts = (each[start : start + group] for start in range(0, len(each), group))
    return sorted({(max(rate for rate, _ in some), max(steps for _, steps in some)) for some in parts})


def plan(size: int, training: Training, iterations: int = 0) -> tuple[float, int]:
    """The rate of sampling, and how many steps a round has, with so many samples."""
    batch = min(training.batch_size, size)
    steps = iterations or training.iterations
    if not steps:
        steps = training.epochs * math.ceil(size / batch)
        steps = min(steps, training.at_most) if training.at_most else steps
    return batch / size, steps


class SampleGuard(GradientGuard):
    """Steps of private training on a device."""

    def __init__(self, settings: SampleLevel, folder: Path) -> None:
        self.settings, self.folder = settings, folder

    def steps(self, device: Device, net: nn.Module, iterations: int) -> Iterator[list[Batch]]:
        held = device.client.train
        rate, count = plan(len(held), device.training, iterations)
        secret = Secret(self.folder)
        for step in range(count):
            drawn = secret.uniform(len(held), "samples", device.id, device.round, step)
            yield list(_singles(device, net, held[drawn < rate], step))

    def fill(
        self, device: Device, net: nn.Module, step: int, batches: list[Batch], gradient: Callable[[Batch], Tensor]
    ) -> None:
        """Put the clipped and noised gradient where the optimiser expects it."""
        parameters = [p for p in net.parameters() if p.requires_grad]
        total = np.zeros(sum(p.numel() for p in parameters))
        for batch in batches:
            gradient(batch)
            total += clipped(parameters, self.settings.clip)
        where = (device.id, device.round, step)  # no two steps have the same noise
        drawn = Secret(self.folder).normal(len(total), "gradient", *where, total.tobytes())
        expected = min(device.training.batch_size, len(device.client.train))
        found = torch.from_numpy((total + self.settings.noise * self.settings.clip * drawn) / expected)
        for p, piece in zip(parameters, torch.split(found, [p.numel() for p in parameters])):
            p.grad = piece.view_as(p).to(p)


def _singles(device: Device, net: nn.Module, samples: np.ndarray, step: int) -> Iterator[Batch]:
    for place, sample in enumerate(samples):
        alone = replace(device.client, train=np.array([sample]))
        rng = device.rng(f"sample {step} {place}")
        yield from itertools.islice(device.task.steps(net, alone, 1, {}, rng), 1)


def clipped(parameters: Sequence[nn.Parameter], clip: float) -> np.ndarray:
    """The gradient as one vector, at most that long; nothing of one that is not finite."""
    pieces = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    whole: np.ndarray = torch.cat([piece.detach().reshape(-1).double().cpu() for piece in pieces]).numpy()
    length = float(np.linalg.norm(whole))
    if not math.isfinite(length):
        return np.zeros_like(whole)
    return whole * min(1.0, clip / length) if length else whole
