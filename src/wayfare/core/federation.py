"""What a topology works with, and what it yields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.bundle import Bundle
from wayfare.core.clock import Timetable
from wayfare.core.exchange import Exchange
from wayfare.core.gate import Gate
from wayfare.core.protocols import (
    Client,
    Engine,
    MergeContext,
    MergeRule,
    Policy,
    Population,
    Progress,
    Strategy,
    Task,
    Training,
)


@dataclass
class Round:
    """One committed step of a federation: the state after it, and what it took."""

    number: int
    state: Bundle
    gate: Gate
    void: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    per_client: dict[str, dict[str, float]] = field(default_factory=dict)
    medians: dict[str, float] = field(default_factory=dict)  # of metrics that devices reported: what `monitor` watches
    milestone: bool = False  # judged whatever evaluation.every says
    events: dict[str, Any] = field(default_factory=dict)  # what else happened, for the run's log
    warnings: list[str] = field(default_factory=list)  # what a reader of its figures must know


@dataclass(frozen=True, kw_only=True)
class Federation:
    """The parts that a topology brings together."""

    strategy: Strategy
    population: Population
    engine: Engine
    policy: Policy
    seed: int
    rounds: int
    size_of: Callable[[str], int]
    on_reply: Callable[[str], None] = lambda device: None  # called for every admitted reply
    aggregation: MergeRule = MergeRule()  # between the gate and the strategy's merge
    # for a topology in which devices have models of their own
    task: Task | None = None
    client: Callable[[str], Client] | None = None  # what a device holds
    initial: Callable[[], Bundle] | None = None  # the strategy's state with the untrained network
    reserved: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # samples of the pool dealt to nobody
    exchange: Exchange | None = None
    about: str = ""  # how devices train, in words: names what a laboratory's result depends on
    folder: Path = Path()
    training: Training = Training()
    sizes: tuple[int, ...] = ()  # how many samples clients train on, each number once
    timetable: Timetable | None = None  # how long devices take, with a [clock]
    progress: Progress = lambda text, done, total: None  # of long work before a round

    def gate(self, round: int, expected: int = 0) -> Gate:
        """The door to the devices in one round."""
        return Gate(
            self.engine,
            self.policy,
            round,
            size_of=self.size_of,
            on_reply=self.on_reply,
            aggregation=self.aggregation,
            context=self.context(round, expected),
        )

    def context(self, round: int, expected: int = 0) -> MergeContext:
        """What an aggregation knows of a round in which so many clients are asked, on average."""
        return MergeContext(
            round, self.seed, self.folder, clients=len(self.population), expected=expected, sizes=self.sizes,
            training=self.training, rounds=self.rounds,
        )  # fmt: skip
