"""What a topology works with, and what it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from wayfare.core.bundle import Bundle
from wayfare.core.exchange import Exchange
from wayfare.core.protocols import Client, Engine, Policy, Population, Strategy, Task
from wayfare.core.traffic import Traffic


@dataclass
class Round:
    """One committed step of a federation: the state after it, and what it took."""

    number: int
    state: Bundle
    traffic: Traffic
    void: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    per_client: dict[str, dict[str, float]] = field(default_factory=dict)
    milestone: bool = False  # judged whatever evaluation.every says
    events: dict[str, Any] = field(default_factory=dict)  # what else happened, for the run's log
    warnings: list[str] = field(default_factory=list)  # what a reader of its figures must know


@dataclass(frozen=True)
class Federation:
    """The parts that a topology brings together."""

    strategy: Strategy
    population: Population
    engine: Engine
    policy: Policy
    seed: int
    rounds: int
    size_of: Callable[[str], int]
    heard: Callable[[str], None] = lambda device: None  # told of every admitted reply
    # for a topology in which devices have models of their own
    task: Task | None = None
    client: Callable[[str], Client] | None = None  # what a device holds
    initial: Callable[[], Bundle] | None = None  # the strategy's state with the untrained network
    reserved: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # samples of the pool dealt to nobody
    exchange: Exchange | None = None
    about: str = ""  # how devices train, in words: names what a laboratory's result depends on
    folder: Path = Path()
    say: Callable[[str, int, int], None] = lambda text, done, total: None  # progress of long work before a round

    def traffic(self, round: int) -> Traffic:
        """The exchange of one round."""
        return Traffic(self.engine, self.policy, round, self.size_of, self.heard)


class Topology(Protocol):
    """Who talks to whom: a generator of rounds that continues from any state."""

    def check(self, clients: int) -> None:
        """Refuse what cannot be done with this many clients."""

    def start(self, federation: Federation, state: Bundle) -> Bundle:
        """The topology's own state around the strategy's."""

    def play(self, federation: Federation, state: Bundle, first: int) -> Iterator[Round]:
        """The rounds from `first` on."""
