"""Any strategy with any privacy, robust rule and engine: it runs, with the same bits, or is refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faults import tiny
from wayfare.components import find, names
from wayfare.core.errors import ConfigError
from wayfare.experiment import Experiment
from wayfare.privacy.secrets import FILE
from wayfare.runner import run
from wayfare.strategies.fedavg import FedAvg
from wayfare.testing import task_for
from wayfare.topologies.hierarchy import Hierarchy
from wayfare.topologies.server import Server

RULES = [*(("privacy", name) for name in names("privacy")), *(("robust", name) for name in names("robust"))]
# what uses single replies, or has all data in one place; FedVC chooses clients by their size
REFUSED = {name for name in names("strategy") if not find("strategy", name).linear or find("strategy", name).pooled}
BY_RULE = {"clientlevel": REFUSED | {"fedvc"}, "samplelevel": REFUSED - {"centralised"}}
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def made(strategy: str, kind: str, name: str, **rest: Any) -> Experiment:
    found = find("strategy", strategy)()
    topology = rest.pop("topology", Server())
    experiment = tiny(FedAvg(), clients=5, rounds=1)
    if found.requires - experiment.task.provides:
        rest["task"] = task_for(found)
    return replace(experiment, strategy=found, topology=topology, **{kind: find(kind, name)()}, **rest)


@pytest.mark.parametrize(("kind", "name"), RULES, ids=[name for _, name in RULES])
def test_every_strategy_runs_or_is_refused_with_the_reason(kind: str, name: str, tmp_path: Path) -> None:
    refused = set()
    for strategy in names("strategy"):
        try:
            experiment = made(strategy, kind, name)
        except ConfigError as error:
            assert str(error).startswith(f"[{kind}] ") and find("strategy", strategy).__name__ in str(error)
            refused.add(strategy)
            continue
        assert run(experiment, tmp_path / strategy, "local")["rounds"] == 1
    assert refused == BY_RULE.get(name, REFUSED)


@pytest.mark.parametrize(("kind", "name"), RULES, ids=[name for _, name in RULES])
def test_the_same_bits_in_worker_processes(kind: str, name: str, tmp_path: Path, pool: Any) -> None:
    attack = find("attack", "signflip")(share=0.2)
    for folder in ("local", "pool"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / FILE).write_bytes(bytes(32))
    experiment = made("scaffold", kind, name, attack=attack)
    engines = {"local": "local", "pool": pool}
    one, two = (run(experiment, tmp_path / at, engine)["model_sha256"] for at, engine in engines.items())
    assert one == two


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    for kind, name in RULES[2:]:
        with pytest.raises(ConfigError, match=r"\[privacy\] and \[robust\] do not go together"):
            made("fedavg", kind, name, privacy=find("privacy", "clientlevel")())
    with pytest.raises(ConfigError, match="needs the topology 'server'"):
        made("fedavg", "privacy", "clientlevel", topology=Hierarchy(2))
    hierarchy = made("fedavg", "robust", "trimmed", topology=Hierarchy(2))
    assert run(hierarchy, tmp_path, "local")["rounds"] == 1
