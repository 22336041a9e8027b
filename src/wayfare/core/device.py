"""Device: the place where the data lives, as a strategy sees it, and the one training loop of the whole system."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.core import tuning
from wayfare.core.bundle import Bundle, Value, Weights, load_into, snapshot
from wayfare.core.errors import WayfareError
from wayfare.core.memory import Memories
from wayfare.core.protocols import AS_IS, Batch, Client, Compression, Extra, Population, Strategy, Task, Training
from wayfare.core.seeds import rng_for, seed_for

Around = Callable[[Callable[[], Tensor]], Tensor]  # of a function that puts the gradient in place: returns the loss


class GradientGuard:
    """What a device does instead of plain steps, so that they say little of single samples."""

    def steps(self, device: Device, net: nn.Module, iterations: int) -> Iterator[list[Batch]]:
        """The samples of each step, one by one."""
        raise NotImplementedError

    def fill(
        self, device: Device, net: nn.Module, step: int, batches: list[Batch], gradient: Callable[[Batch], Tensor]
    ) -> None:
        """Put the gradient of this step into the parameters; `gradient` puts that of a batch there."""
        raise NotImplementedError


class Bench:
    """What one process needs to act as any device: task, strategy, and a few resident networks.

    Networks are built once and weights are copied into them; nothing is rebuilt per client.
    """

    def __init__(
        self,
        task: Task,
        strategy: Strategy,
        training: Training,
        population: Population,
        clients: Callable[[str], Client],
        seed: int,
        memories: Memories,
        where: str = "cpu",
        compression: Compression = AS_IS,
        guard: GradientGuard | None = None,
    ) -> None:
        self.task, self.strategy, self.training, self.population = task, strategy, training, population
        self.clients, self.seed, self.memories, self.where = clients, seed, memories, torch.device(where)
        self.compression, self.guard = compression, guard
        self._nets: list[nn.Module] = []
        net = self.net(0)
        self.initial: Weights = snapshot(net)
        self._counters = {name: b.clone() for name, b in net.named_buffers() if not b.is_floating_point()}

    def net(self, slot: int) -> nn.Module:
        """A resident network; slot 0 trains, the others are frozen companions."""
        while len(self._nets) <= slot:
            torch.manual_seed(seed_for(self.seed, "network"))
            net = self.strategy.prepare(self.task, self.task.network()).to(self.where)
            if any(isinstance(module, nn.Conv2d) for module in net.modules()):
                # up to twice as fast for convolutions on CPUs
                net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self._nets.append(net)
        return self._nets[slot]

    def loaded(self, slot: int, weights: Weights) -> nn.Module:
        """A resident network with these weights, and its counters as new: they do not travel."""
        net = self.net(slot)
        load_into(net, weights)
        if self._counters:
            for name, buffer in net.named_buffers():
                if name in self._counters:
                    buffer.copy_(self._counters[name])
        return net

    def device(self, id: str, round: int, remember: int, deadline: float = math.inf) -> Device:
        """Step into the shoes of one device that remembers everything up to round `remember`."""
        return Device(self, id, round, self.memories.load(id, remember) or Bundle(), deadline)


class Device:
    """One device in one round. `memory` survives between calls and never leaves the device."""

    def __init__(self, bench: Bench, id: str, round: int, memory: Bundle, deadline: float = math.inf) -> None:
        self.id, self.round, self.memory, self.deadline = id, round, memory, deadline
        self.task, self.strategy, self.training = bench.task, bench.strategy, bench.training
        self.seed, self.initial = bench.seed, bench.initial
        self._bench, self._companions = bench, itertools.count(1)
        self._client: Client | None = None
        self.flips = False  # trains on wrong labels: an attack that is tried

    @property
    def client(self) -> Client:
        """The samples this device holds."""
        if self._client is None:
            self._client = self._bench.clients(self.id)
        return self._client

    def hold(self, train: np.ndarray) -> None:
        """For the rest of this call, train on these samples instead."""
        self._client = replace(self.client, train=train)

    def borrow(self, train: np.ndarray) -> None:
        """For the rest of this call, hold these samples and no others; the device need not be one of the population."""
        self._client = Client(self.id, train, np.empty(0, np.int64))

    def alone(self) -> Weights:
        """The untrained network's weights, with this device's own counts where the task begins with counts."""
        if not self.task.counted:
            return self.initial
        net = self.network(self.initial)
        self.task.adopt_counts(net, self.task.counts(self.client))
        return snapshot(net)

    def rng(self, purpose: str) -> np.random.Generator:
        """Random numbers that depend on run, round, device and purpose only."""
        return rng_for(self.seed, self.round, self.id, purpose)

    def network(self, weights: Weights) -> nn.Module:
        """The network to train, holding these weights."""
        return self._bench.loaded(0, weights)

    def frozen(self, weights: Weights) -> nn.Module:
        """A companion in evaluation mode, holding these weights; call it under torch.no_grad()."""
        return self._bench.loaded(next(self._companions), weights).eval()

    @property
    def lr(self) -> float:
        """This round's learning rate."""
        dropped = sum(after < self.round for after in self.training.drops)
        rate = self.training.lr * self.training.decay ** (self.round - 1)
        return rate / 10**dropped if dropped else rate

    def _warm_up(self, optimizer: torch.optim.Optimizer, steps: int) -> None:
        """The learning rate of the step after this many: from a third up to all of it, in a straight line."""
        many = self.training.warmup
        if steps <= many and (not self.training.warmup_rounds or self.round <= self.training.warmup_rounds):
            for group in optimizer.param_groups:
                group["lr"] = self.lr * (1 + 2 * steps / many) / 3

    def train(
        self,
        net: nn.Module,
        message: Bundle,
        extra: Extra | None = None,
        iterations: int = 0,
        *,
        around: Around | None = None,
    ) -> dict[str, Value]:
        """THE training loop. Returns n (examples held), steps taken and the mean task loss.

        `around` is called in each step with what puts the gradient into the parameters, for strategies that take it
        at another point.
        """
        if not len(self.client.train):
            raise WayfareError(f"device {self.id!r} holds no training samples")
        torch.manual_seed(seed_for(self.seed, self.round, self.id, "torch"))  # dropout
        net.train()
        parameters = [p for p in net.parameters() if p.requires_grad]
        if not parameters:
            raise WayfareError("no part of this network is trained: choose one, for instance with model.train")
        optimizer = _optimizer(self.training, parameters, self.lr)
        memo: dict[str, Any] = {}
        total, steps, guard = torch.zeros((), device=self._bench.where), 0, self._bench.guard
        for batches in self._steps(net, memo, iterations or int(message.number("iterations"))):
            if guard is None:
                fill = partial(self._fill, net, batches[0], memo, extra)
                total += fill() if around is None else around(fill)
            else:
                guard.fill(self, net, steps, batches, lambda batch: self._fill(net, batch, {}, extra))
            if self.training.clip > 0:
                nn.utils.clip_grad_norm_(parameters, self.training.clip)
            if self.training.warmup:
                self._warm_up(optimizer, steps)
            tuning.step(optimizer)
            steps += 1
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"the round's deadline passed after {steps} local steps")
        mean_loss = float(total) / max(steps, 1)
        if not math.isfinite(mean_loss):
            raise WayfareError(f"the loss is not finite after {steps} steps: lower training.lr or set training.clip")
        return {"n": len(self.client.train), "steps": steps, "loss": mean_loss}

    def _fill(self, net: nn.Module, batch: Batch, memo: dict[str, Any], extra: Extra | None) -> Tensor:
        """Put the gradient of a batch into the parameters; returns the task's loss."""
        output = self.task.forward(net, batch)
        found = self.task.loss(output, batch, memo)
        loss = found if extra is None else found + extra(output, batch)
        net.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        return found.detach()

    def _steps(self, net: nn.Module, memo: dict[str, Any], iterations: int) -> Iterator[list[Batch]]:
        """The batches of each step: one, or with a guard one for each sample."""
        guard = self._bench.guard
        plain = ([batch] for batch in self._batches(net, memo, iterations))
        for batches in plain if guard is None else guard.steps(self, net, iterations):
            yield [flipped(batch, len(self.task.classes)) if self.flips else batch for batch in batches]

    def _batches(self, net: nn.Module, memo: dict[str, Any], iterations: int) -> Iterator[Batch]:
        """`epochs` passes over the data (`at_most` so many steps), or passes until `iterations` steps are made."""
        wanted = iterations or self.training.iterations
        last = wanted or self.training.at_most
        passes = itertools.count() if wanted else range(self.training.epochs)
        made = 0
        for number in passes:
            before = made
            rng = self.rng(f"pass {number}")
            for batch in self.task.steps(net, self.client, self.training.batch_size, memo, rng):
                yield batch
                made += 1
                if made == last:
                    return
            if made == before:
                raise WayfareError(f"device {self.id!r}: a pass over its data has no step to train on")


def flipped(batch: Batch, classes: int) -> Batch:
    """The same samples, with class c called C - 1 - c."""
    if batch.labels is None or batch.labels.ndim != 1:
        raise WayfareError("labels can be flipped only where each sample has one class")
    return replace(batch, labels=classes - 1 - batch.labels)


def _optimizer(training: Training, parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    if training.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr, momentum=training.momentum, weight_decay=training.weight_decay)
    kind = torch.optim.Adam if training.optimizer == "adam" else torch.optim.AdamW
    fused = all(parameter.device.type in _FUSED for parameter in parameters)  # one pass over the weights instead of ten
    betas = training.beta1, training.beta2
    return kind(parameters, lr, betas, weight_decay=training.weight_decay, fused=fused)


_FUSED = ("cpu", "cuda", "mps")
