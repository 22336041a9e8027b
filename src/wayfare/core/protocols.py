"""The contracts between the parts. `core` knows no task, strategy, topology or engine by name; they know only this.

A *task* knows data, network, loss and metric, and nothing of federation. A *strategy* is both halves of an algorithm.
A *topology* says who talks to whom. An *engine* is the one door between those who ask and the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from torch import Tensor, nn

from wayfare.core.bundle import Bundle, Weights

if TYPE_CHECKING:
    from wayfare.core.device import Device


@dataclass(frozen=True)
class Client:
    """What one device holds: positions in the task's pool of samples."""

    id: str
    train: np.ndarray
    holdout: np.ndarray


@dataclass
class Batch:
    """A step's samples; `labels` are class numbers (B,) or multi-hot rows (B, C), None where a task has none."""

    inputs: Any
    labels: Tensor | None = None
    rows: Tensor | None = None  # places among the client's training samples, where a task says them


@dataclass
class Output:
    """What a network says: one feature tensor per view ("image", "text", ...), and logits where there are classes."""

    features: dict[str, Tensor]
    logits: Tensor | None = None
    extra: Tensor | None = None  # a loss that the network brings itself


Extra = Callable[[Output, Batch], Tensor]
"""A term that a strategy adds to the task's loss."""


class Task(Protocol):
    """Data, network, loss, metric."""

    provides: ClassVar[frozenset[str]]

    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def samples(self) -> int:
        """The size of the pool that partitions deal out."""

    @property
    def labels(self) -> np.ndarray | None:
        """One class per sample of the pool: what partitions go by."""

    def network(self) -> nn.Module: ...
    def views(self, net: nn.Module) -> dict[str, int]:
        """The width of the features of each view."""

    def steps(
        self, net: nn.Module, client: Client, batch_size: int, memo: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[Batch]:
        """One local pass. A generator, so that mining or alternating phases can sit between its yields."""

    def forward(self, net: nn.Module, batch: Batch) -> Output: ...
    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor: ...
    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        """The client's training samples once, in order."""

    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        """Metrics on these samples of the pool, or on the task's own test set."""


class Strategy(Protocol):
    """A federated algorithm: a frozen dataclass of hyper-parameters. `strategies.fedavg` gives every default."""

    requires: ClassVar[frozenset[str]]
    topologies: ClassVar[frozenset[str]]
    personal: ClassVar[bool]  # every device keeps a model of its own: there is no global one to evaluate
    pooled: ClassVar[bool]  # all data is brought to one place first
    ordered: ClassVar[bool]  # merging in another order gives another result (up to rounding it does not)

    # the model
    def prepare(self, task: Task, net: nn.Module) -> nn.Module: ...

    # the server
    def start(self, task: Task, net: nn.Module) -> Bundle: ...
    def choose(self, sizes: Sequence[int] | np.ndarray, count: int, rng: np.random.Generator) -> list[int]: ...
    def send(self, state: Bundle, device: str) -> Bundle: ...
    def expects(self, state: Bundle) -> dict[str, Weights]: ...
    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle: ...

    # the client
    def resume(self, device: Device, message: Bundle) -> Weights: ...
    def extra(self, device: Device, net: nn.Module, message: Bundle) -> Extra | None: ...
    def client(self, device: Device, message: Bundle) -> Bundle: ...

    # a server among servers
    def relay(self) -> Strategy: ...
    def report(self, state: Bundle, examples: int) -> Bundle: ...
    def adopt(self, state: Bundle, message: Bundle) -> Bundle: ...


@dataclass(frozen=True)
class Failure:
    """A device that gave no reply, and why."""

    reason: str
    detail: str = ""  # the traceback from there, if there was one


class Engine(Protocol):
    """The one door between those who ask and the devices."""

    def call(
        self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float
    ) -> Iterator[tuple[str, Bundle | Failure]]:
        """Run a program on each device; replies in the order asked, as they become available."""


class Population(Protocol):
    """Who takes part, without holding a list of them."""

    @property
    def groups(self) -> Sequence[str] | None: ...
    def __len__(self) -> int: ...
    def id(self, position: int) -> str: ...
    def size(self, position: int) -> int: ...
    @property
    def sizes(self) -> np.ndarray: ...


@dataclass(frozen=True)
class Training:
    """How every device trains: the settings of the one training loop."""

    epochs: int = 1
    iterations: int = 0  # if > 0: this many steps whatever the client's size, instead of epochs
    at_most: int = 0  # if > 0: no more steps than this, however many epochs are wanted
    batch_size: int = 32
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: float = 0.05
    decay: float = 1.0  # the learning rate of round t is lr * decay^(t-1)
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float = 0.0  # if > 0: bound on the gradient's L2 norm


@dataclass(frozen=True)
class Policy:
    """What is accepted from devices, and how long they are waited for."""

    quorum: float = 0.5  # a round counts if at least this share of those asked gave a usable reply
    deadline: float = 3600.0  # seconds for one round
    on_error: Literal["skip", "raise"] = "skip"  # a program that fails on a device: leave it out and count it, or stop
    max_void: int = 3  # stop after this many rounds in a row without a quorum
    max_change: float = 100.0  # refuse a model with |reply - sent| > max_change * (1 + |sent|)
    max_norm: float = 1e6  # refuse any other section with a norm above this
    max_examples: int = 10_000_000
