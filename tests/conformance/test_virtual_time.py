"""Any strategy with a clock, in any topology, packed or not: it runs, or is refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faults import tiny
from wayfare.clock.drawn import Drawn
from wayfare.components import find, names
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Policy, Topology
from wayfare.runner import run
from wayfare.strategies.fedavg import FedAvg
from wayfare.testing import task_for
from wayfare.topologies.asynchronous import Async
from wayfare.topologies.buffered import Buffered
from wayfare.topologies.server import Server

CLOCK = Drawn(law="pareto", speed_spread=1.0, online=0.8, deadline=30.0)
# control terms of a round, prototypes, codes, models that stay on the devices, all data in one place
UNLIKE = {"centralised", "fedcafe", "fedcmr", "feddyn", "fedgf", "fedproto", "local", "plfedcmh", "scaffold"}


@pytest.mark.parametrize(
    ("topology", "packed", "refused"),
    [
        (Server(3), False, {"centralised"}),
        (Buffered(concurrency=4, buffer=2), True, UNLIKE),
        (Async(), False, UNLIKE | {"fednova"}),  # which compares the steps of several replies
    ],
    ids=["server", "buffered, packed", "async"],
)
def test_every_strategy_runs_or_is_refused(topology: Topology, packed: bool, refused: set[str], tmp_path: Path) -> None:
    found = set()
    for name in names("strategy"):
        strategy = find("strategy", name)()
        experiment = tiny(FedAvg(), clients=5, rounds=2)
        rest: dict[str, Any] = {"policy": Policy(quorum=0.1), "clock": CLOCK, "topology": topology}
        if strategy.requires - experiment.task.provides:
            rest["task"] = task_for(strategy)
        if packed:
            rest["compression"] = find("compression", "quantise")()
        try:
            experiment = replace(experiment, strategy=strategy, **rest)
        except ConfigError as error:
            assert type(strategy).__name__ in str(error)
            found.add(name)
            continue
        summary = run(experiment, tmp_path / name, "local")
        assert summary["rounds"] == 2 and summary["void"] == 0 and summary["metrics"]["clock/seconds"] > 0
    assert found == refused
