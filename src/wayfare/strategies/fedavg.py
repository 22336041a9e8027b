"""FedAvg (McMahan et al., 2017): clients train, the server takes the mean weighted by their examples.

It has the default of every hook, so that other strategies contain only what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import nn

from wayfare.core.bundle import Bundle, Weights, mean, snapshot
from wayfare.core.device import Device
from wayfare.core.protocols import Extra, Strategy, Task, Training
from wayfare.core.values import Kind


@dataclass(frozen=True)
class FedAvg:
    """The mean of the clients' models."""

    weighting: Literal["examples", "uniform"] = "examples"  # N_k / N, or 1 / K

    requires: ClassVar[frozenset[str]] = frozenset()
    topologies: ClassVar[frozenset[str]] = frozenset({"server", "hierarchy", "encounters", "buffered", "async"})
    personal: ClassVar[bool] = False
    pooled: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    linear: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        """A subclass that merges in its own way is linear only if it says so."""
        if {"merge", "average", "weight"} & vars(cls).keys() and "linear" not in vars(cls):
            cls.linear = False

    # ---- the model

    def prepare(self, task: Task, net: nn.Module) -> nn.Module:
        """Wrap the network where the algorithm needs more of it."""
        return net

    # ---- the server

    def start(self, task: Task, net: nn.Module) -> Bundle:
        """The state before the first round."""
        return Bundle({"model": snapshot(net)})

    def choose(self, sizes: Sequence[int] | np.ndarray, count: int, rng: np.random.Generator) -> list[int]:
        """Indices of this round's clients, in the order in which they are asked."""
        return [int(i) for i in rng.choice(len(sizes), min(count, len(sizes)), replace=False)]

    def send(self, state: Bundle, device: str) -> Bundle:
        """The message to this device."""
        return state.only("model")

    def expects(self, state: Bundle) -> dict[str, Weights]:
        """Sections, names, shapes and types of a valid reply."""
        return {"model": state["model"]}

    def expects_of(self, state: Bundle, message: Bundle) -> dict[str, Weights]:
        """The same of a reply to this message, where not all devices are asked for the same."""
        return self.expects(state)

    def values(self, state: Bundle) -> Mapping[str, Kind]:
        """Names, types and ranges of what a reply says beside n, loss and steps."""
        return {}

    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle:
        """The next state from the replies, which arrive as a stream in a fixed order."""
        return state.with_(model=self.average(replies))

    def average(self, replies: Iterable[tuple[str, Bundle]]) -> Weights:
        """sum_k (N_k / N) w_k, or the plain mean."""
        return mean((self.weight(reply.number("n")), reply["model"]) for _, reply in replies)

    def weight(self, examples: float) -> float:
        """The weight of a model in the mean."""
        return 1.0 if self.weighting == "uniform" else examples

    @property
    def averages(self) -> bool:
        """Whether `merge` is exactly this mean of the models, so that it may be computed elsewhere."""
        return all(getattr(type(self), n) is getattr(FedAvg, n) for n in ("merge", "average", "weight", "report"))

    # ---- the client

    def steps(self, training: Training, one_pass: int) -> int:
        """How many steps a device takes whose pass over its data takes `one_pass`: a [clock] plans with it."""
        steps = training.iterations or training.epochs * one_pass
        return steps if training.iterations else min(steps, training.at_most or steps)

    def effort(self, weak: bool) -> float:
        """What a step costs a device, of a whole step, if it is weak or not: a [clock] plans with it."""
        return 1.0

    def resume(self, device: Device, message: Bundle) -> Weights:
        """The weights to train from."""
        return message["model"]

    def extra(self, device: Device, net: nn.Module, message: Bundle) -> Extra | None:
        """A term added to the task's loss."""
        return None

    def client(self, device: Device, message: Bundle) -> Bundle:
        """One device's part of a round."""
        net = device.network(self.resume(device, message))
        result = device.train(net, message, self.extra(device, net, message))
        return Bundle({"model": snapshot(net)}, result)

    # ---- a server among servers

    def relay(self) -> Strategy:
        """How a group's server merges its own clients; the top server always uses the strategy itself."""
        return self

    def report(self, state: Bundle, examples: int) -> Bundle:
        """A group server's state as a reply to the server above."""
        return Bundle({"model": state["model"]}, {"n": examples})

    def adopt(self, state: Bundle, message: Bundle) -> Bundle:
        """A group server's state after a message from the server above."""
        return state.with_(**message.tensors)
