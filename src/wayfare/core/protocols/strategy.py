"""A federated algorithm, and what may stand before its merge."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from torch import nn

from wayfare.core.bundle import Bundle, Weights
from wayfare.core.protocols.settings import Training
from wayfare.core.protocols.task import Extra, Task
from wayfare.core.values import Kind

if TYPE_CHECKING:
    from wayfare.core.device import Device, GradientGuard
    from wayfare.core.protocols.topology import Topology


class Strategy(Protocol):
    """A federated algorithm: a frozen dataclass of hyper-parameters. `strategies.fedavg` gives every default."""

    requires: ClassVar[frozenset[str]]
    topologies: ClassVar[frozenset[str]]
    personal: ClassVar[bool]  # every device keeps a model of its own: there is no global one to evaluate
    pooled: ClassVar[bool]  # all data is brought to one place first
    ordered: ClassVar[bool]  # merging in another order gives another result (up to rounding it does not)
    linear: ClassVar[bool]  # `merge` uses nothing of the replies but means or sums of their sections

    @property
    def averages(self) -> bool:
        """Whether `merge` is the plain weighted mean of the models."""

    # the model
    def prepare(self, task: Task, net: nn.Module) -> nn.Module: ...

    # the server
    def start(self, task: Task, net: nn.Module) -> Bundle: ...
    def choose(self, sizes: Sequence[int] | np.ndarray, count: int, rng: np.random.Generator) -> list[int]: ...
    def send(self, state: Bundle, device: str) -> Bundle: ...
    def expects(self, state: Bundle) -> dict[str, Weights]: ...
    def expects_of(self, state: Bundle, message: Bundle) -> dict[str, Weights]: ...
    def values(self, state: Bundle) -> Mapping[str, Kind]: ...
    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle: ...

    # the client
    def steps(self, training: Training, one_pass: int) -> int: ...
    def effort(self, weak: bool) -> float: ...
    def resume(self, device: Device, message: Bundle) -> Weights: ...
    def extra(self, device: Device, net: nn.Module, message: Bundle) -> Extra | None: ...
    def client(self, device: Device, message: Bundle) -> Bundle: ...

    # a server among servers
    def relay(self) -> Strategy: ...
    def report(self, state: Bundle, examples: int) -> Bundle: ...
    def adopt(self, state: Bundle, message: Bundle) -> Bundle: ...


@dataclass(frozen=True)
class MergeContext:
    """What an aggregation knows beside the state and the replies."""

    round: int
    seed: int = 0
    folder: Path = Path()  # of the run
    clients: int = 0  # who could be asked
    expected: int = 0  # how many of them are, on average
    sizes: tuple[int, ...] = ()  # how many samples clients train on, each number once
    training: Training = field(default_factory=lambda: Training())
    rounds: int = 0  # of the whole run


class MergeRule:
    """What stands between the gate and a strategy's merge: a robust rule, or clipping and noise.

    By default nothing does, and the strategy merges the replies themselves. A frozen dataclass of settings.
    """

    private: ClassVar[bool] = False
    """Single replies leave no trace but through the noise: no metric, count or name of theirs is recorded."""
    unit: ClassVar[str] = ""
    """What the privacy is that of, in words."""

    def misfit(self, strategy: Strategy, topology: Topology) -> str:
        """Why it cannot stand before this strategy; "" if it can."""
        return ""

    def task_misfit(self, task: Task) -> str:
        """Why it cannot be used with this task; "" if it can."""
        return ""

    def check_network(self, net: nn.Module) -> None:
        """Refuse a network that it cannot handle."""

    def guard(self, folder: Path) -> GradientGuard | None:
        """What devices do with the gradients of single samples; `folder` is of the process that trains."""
        return None

    def choose(self, ids: Sequence[str], context: MergeContext) -> list[str] | None:
        """Who is asked in a round; None leaves it to the strategy."""
        return None

    def merge(
        self, strategy: Strategy, state: Bundle, replies: Iterable[tuple[str, Bundle]], context: MergeContext
    ) -> Bundle:
        """The next state."""
        return strategy.merge(state, replies)

    def spent(self, context: MergeContext) -> dict[str, float]:
        """What the rounds so far have cost: epsilon and delta, where there is noise."""
        return {}

    def is_spent(self, context: MergeContext) -> bool:
        """Whether the round of this context, the next one, would cost more than is allowed."""
        return False

    def warnings(self, like: Mapping[str, Weights], context: MergeContext) -> list[str]:
        """What speaks against these settings, of replies like this: told when a run begins."""
        return []

    def check_continued(self, context: MergeContext, rounds: Collection[int]) -> None:
        """Refuse to continue a run of which these rounds are committed and what it keeps of its own is lost."""
