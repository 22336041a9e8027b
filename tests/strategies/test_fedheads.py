"""Weak devices train the heads: what they send, how parts are merged, and that nobody else's network is touched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from wayfare.clock.drawn import Drawn
from wayfare.clock.measured import Measured
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Engine, Evaluation, Training
from wayfare.experiment import Experiment
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.partition.shards import Shards
from wayfare.runner import run
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedheads import FedHeads
from wayfare.topologies.buffered import Buffered
from wayfare.topologies.server import Server


def reply(n: int, **model: float) -> tuple[str, Bundle]:
    return "", Bundle({"model": {name: torch.tensor([value]) for name, value in model.items()}}, {"n": n})


def test_a_tensor_is_the_mean_over_those_who_trained_it() -> None:
    state = Bundle({"model": {name: torch.tensor([9.0]) for name in ("body", "head", "other")}})
    replies = [reply(1, body=2.0, head=4.0), reply(3, head=8.0)]
    model = FedHeads().merge(state, replies)["model"]
    # body: only the first, 2; head: (1 x 4 + 3 x 8) / 4 = 7; nobody trained other
    assert {name: float(w) for name, w in model.items()} == {"body": 2.0, "head": 7.0, "other": 9.0}


TINY = Experiment(
    task=Objects(model=CnnClassifier(width=4, hidden=8, norm="batch")),
    partition=Shards(4, classes_per_client=4),
    strategy=FedHeads(),
    topology=Server(),
    training=Training(iterations=2, batch_size=8),
    evaluation=Evaluation(every=0, clients=0, holdout=0.0),
    rounds=1,
)


def table(path: Path, *speeds: float) -> Measured:
    rows = [f"c{number},{speed},8,8" for number, speed in enumerate(speeds)]
    path.write_text("\n".join(["client,speed,up,down", *rows]) + "\n")
    return Measured(path=str(path), weak=5.0)


def model_of(folder: Path) -> dict[str, Any]:
    return Bundle.unpack((folder / "model.safetensors").read_bytes())["model"]


def test_weak_devices_change_the_heads_only(tmp_path: Path) -> None:
    clock = table(tmp_path / "devices.csv", 1.0, 1.0, 1.0, 1.0)
    run(replace(TINY, clock=clock, rounds=2), tmp_path / "weak", "local")
    run(replace(TINY, rounds=1), tmp_path / "strong", "local")
    start = TINY.bench(tmp_path).initial
    weak, strong = model_of(tmp_path / "weak"), model_of(tmp_path / "strong")
    assert {name for name in weak if not torch.equal(weak[name], start[name])} == {"head.weight", "head.bias"}
    # a bias before a normalisation has no gradient
    assert {name for name in strong if torch.equal(strong[name], start[name])} <= {"blocks.0.0.bias"}


def test_bytes_and_time_of_a_weak_device(tmp_path: Path) -> None:
    run(replace(TINY, clock=table(tmp_path / "devices.csv", 1.0, 10.0, 10.0, 10.0)), tmp_path / "run", "local")
    line = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()][1]
    model = model_of(tmp_path / "run")
    whole, heads = (sum(w.nbytes for name, w in model.items() if name.startswith(part)) for part in ("", "head"))
    values = 6 * 8  # n, steps, loss, round, cold, kept
    assert line["bytes_up"] == 3 * whole + heads + 4 * values
    # c0: two steps at a third of the cost; 8 megabits a second are 1e6 bytes a second; its message says that it is weak
    assert line["metrics"]["clock/seconds"] == pytest.approx(2 * 0.34 + (whole + 8 + heads) / 1e6)


@pytest.mark.parametrize("topology", [Server(3), Buffered(concurrency=4, buffer=2)], ids=["server", "buffered"])
def test_one_result_on_every_engine(topology: Any, pool: Engine, tmp_path: Path) -> None:
    clock = table(tmp_path / "devices.csv", 1.0, 2.0, 10.0, 20.0)
    experiment = replace(TINY, topology=topology, clock=clock, rounds=4)
    one, two = (run(experiment, tmp_path / str(engine), engine) for engine in ("local", pool))
    assert one["model_sha256"] == two["model_sha256"] and one["refused"] == 0


def test_without_weak_devices_it_is_fedavg(tmp_path: Path) -> None:
    clock = Drawn(speed_spread=0.0, weak=1.0)
    runs = [
        run(replace(TINY, clock=clock), tmp_path / "heads", "local"),
        run(replace(TINY, strategy=FedAvg()), tmp_path / "fedavg", "local"),
    ]
    assert runs[0]["model_sha256"] == runs[1]["model_sha256"]


def test_a_part_that_is_not_there(tmp_path: Path) -> None:
    clock = table(tmp_path / "devices.csv", 1.0, 1.0, 1.0, 1.0)
    with pytest.raises(ConfigError, match=r"strategy.heads = 'had': no tensor's name begins so; .*head\.bias"):
        run(replace(TINY, strategy=FedHeads(heads="had"), clock=clock), tmp_path / "run", "local")
