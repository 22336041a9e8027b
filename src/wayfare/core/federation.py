"""What a topology works with, and what it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from wayfare.core.bundle import Bundle
from wayfare.core.protocols import Engine, Policy, Population, Strategy
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
