"""Whole runs with one device that lies: in values, in metrics, in its model, or by making the merge fail.

`benchmarks/gate.py --runs` does every strategy with every kind of lie; here each strategy meets some of them, and every
kind is refused at the gate.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from amount import FULL
from faults import Poisons, tiny
from wayfare.core.bundle import Bundle
from wayfare.core.errors import MergeError
from wayfare.core.gate import Gate
from wayfare.core.protocols import Engine, Evaluation, Failure, Policy, Strategy, Training
from wayfare.core.values import metric_values
from wayfare.engines.local import Local
from wayfare.experiment import Experiment
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.partition.dirichlet import Dirichlet
from wayfare.runner import resume, run
from wayfare.strategies.fedadam import FedAdam
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedprox import FedProx
from wayfare.strategies.scaffold import Scaffold


def _benchmark() -> Any:
    path = Path(__file__).parents[2] / "benchmarks" / "gate_runs.py"
    spec = importlib.util.spec_from_file_location("gate_runs", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


lies = _benchmark()
RUNS = lies.all_runs()
STRATEGIES = sorted({strategy for strategy, _, _ in RUNS})
EACH = 4  # kinds per strategy; each strategy gets others


def test_there_are_enough_runs() -> None:
    assert len(RUNS) >= 735 and len(STRATEGIES) >= 15
    assert {program for _, program, _ in RUNS} == {"train", "evaluate"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_lie_changes_nothing(strategy: str) -> None:
    """It is refused, and the run ends as if its device had not answered."""
    kinds, place = [(program, kind) for s, program, kind in RUNS if s == strategy], STRATEGIES.index(strategy)
    chosen = kinds[place :: len(kinds) // EACH + 1]
    assert {program for program, _ in chosen} == {"train", "evaluate"}
    assert {kind: lies.fault(strategy, *kind) for kind in chosen} == dict.fromkeys(chosen, "")


@pytest.mark.parametrize("value", [*lies.ANYTHING.values(), 11, -1, True], ids=lambda value: repr(value)[:20])
def test_fedcmr_bounds_the_classes_that_a_device_claims(value: Any) -> None:
    strategy = lies.experiment("fedcmr").strategy
    state = Bundle({"model": {"w": torch.zeros(1)}}, {"classes": 10})
    lie = Bundle({"model": {"w": torch.zeros(1)}}, {"n": 1, "round": 1, "classes": value})
    assert len(_refused("train", lie, strategy.expects(state), strategy.values(state))) == 1


@pytest.mark.parametrize(("program", "kind"), list(lies.KINDS))
def test_every_lie_is_refused_at_the_gate(program: str, kind: str) -> None:
    task = Objects()
    honest: dict[str, Any] = {"n": 5, "round": 1, "cold": False, "kept": False}
    honest |= {"metric/accuracy": 0.5, "metric/loss": 0.5} if program == "evaluate" else {"loss": 0.5, "steps": 1}
    declared = metric_values(task.metrics) if program == "evaluate" else {}
    assert _refused(program, Bundle({}, honest), {}, declared) == []
    [refused] = _refused(program, lies.KINDS[program, kind](Bundle({}, honest)), {}, declared)
    assert refused["reason"].isprintable() and len(refused["reason"]) <= 500


def _refused(program: str, reply: Bundle, expects: Any, declared: Any) -> list[dict[str, str]]:
    class Answering(Engine):
        def call(self, program: str, requests: Any, deadline: float) -> Iterator[tuple[str, Bundle]]:
            for device, _ in requests:
                yield device, reply

    gate = Gate(Answering(), Policy(), 1, lambda device: 10)
    list(gate.run(program, [("d", Bundle())], expects, declared))
    return gate.refused


# ---- a metric that is watched


class Boasting(Local):
    """c1 says that the untrained model is perfect, and every later one is bad."""

    def call(self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float) -> Iterator[Any]:
        for device, reply in super().call(program, requests, deadline):
            if device == "c1" and program == "evaluate" and isinstance(reply, Bundle):
                accuracy = 1.0 if reply.values["round"] == 0 else 0.0
                reply = Bundle({}, {**reply.values, "metric/accuracy": accuracy})
            yield device, reply


def test_one_liar_does_not_choose_the_round(tmp_path: Path) -> None:
    watched = Evaluation(clients=10, holdout=0.3, monitor="clients/accuracy", patience=2, test=False)
    experiment = replace(digits(FedAvg()), rounds=4, evaluation=watched)
    honest = run(experiment, tmp_path / "honest", "local")
    lied = run(experiment, tmp_path / "lied", Boasting())
    assert lied["best_round"] == honest["best_round"] > 0
    assert lied["model_sha256"] == honest["model_sha256"]
    line = json.loads((tmp_path / "lied" / "rounds.jsonl").read_text().splitlines()[0])
    by_client = sorted(line["per_client"]["accuracy"].values())
    assert line["monitored"] == (by_client[4] + by_client[5]) / 2  # the median, while the mean is reported
    assert line["monitored"] < line["metrics"]["clients/accuracy"]


def test_without_monitor_there_is_no_median(tmp_path: Path) -> None:
    run(tiny(FedAvg(), rounds=1, evaluation=Evaluation(clients=4)), tmp_path / "run", "local")
    assert "monitored" not in (tmp_path / "run" / "rounds.jsonl").read_text()


# ---- a poisoned model


class Poisoning(Local):
    """One of ten sends the opposite of what it learnt, at 99 % of what the constant bounds allow."""

    def call(self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float) -> Iterator[Any]:
        sent: dict[str, Bundle] = {}

        def noted() -> Iterator[tuple[str, Bundle]]:
            for device, message in requests:
                sent[device] = message
                yield device, message

        for device, reply in super().call(program, noted(), deadline):
            poisons = device == "c3" and program == "train" and isinstance(reply, Bundle)
            yield device, _poisoned(reply, sent[device]) if poisons else reply


def _poisoned(reply: Bundle, message: Bundle) -> Bundle:
    sections = {}
    for section, weights in reply.tensors.items():
        start = message[section] if section == "model" else {n: torch.zeros_like(t) for n, t in weights.items()}
        most = 100 * (1 + _norm(start.values())) if section == "model" else 1e6
        change = {name: start[name] - tensor for name, tensor in weights.items()}
        scale = 0.99 * most / (_norm(change.values()) or 1.0)
        sections[section] = {name: start[name] + scale * change[name] for name in weights}
    return Bundle(sections, reply.values)


def _norm(tensors: Iterable[torch.Tensor]) -> float:
    return math.hypot(*(float(t.double().norm()) for t in tensors))


def digits(strategy: Strategy, **policy: Any) -> Experiment:
    judged = Evaluation(every=12, clients=0, holdout=0)
    made = tiny(strategy, rounds=12, evaluation=judged, policy=Policy(**policy))
    task = Objects(model=CnnClassifier(width=4, hidden=16))
    return replace(made, task=task, training=Training(epochs=2, batch_size=16), partition=Dirichlet(10, alpha=1.0))


AVERAGING = [FedAvg(), Scaffold(), FedProx(), FedAdam(server_lr=0.03)]


@pytest.mark.parametrize("strategy", AVERAGING if FULL else AVERAGING[:2], ids=lambda strategy: type(strategy).__name__)
def test_one_poisoner_of_ten_neither_ends_a_run_nor_ruins_it(strategy: Strategy, tmp_path: Path) -> None:
    alone = run(digits(strategy), tmp_path / "honest", "local")["metrics"]["test/accuracy"]
    poisoned = run(digits(strategy), tmp_path / "poisoned", Poisoning())
    assert poisoned["void"] == poisoned["refused"] == 0
    assert poisoned["metrics"]["test/accuracy"] > 0.5 * alone > 0.4
    lines = [json.loads(line) for line in (tmp_path / "poisoned" / "rounds.jsonl").read_text().splitlines()]
    assert all({note["device"] for note in line["shortened"]} == {"c3"} for line in lines[1:])
    assert "shortened" not in (tmp_path / "honest" / "rounds.jsonl").read_text()


def test_without_the_bound_it_does(tmp_path: Path) -> None:
    """So that the test above can fail."""
    try:
        found = run(digits(FedAvg(), max_ratio=0.0), tmp_path / "run", Poisoning())["metrics"]["test/accuracy"]
    except Exception as error:
        assert "quorum" in str(error)
    else:
        assert found < 0.2


def test_shortening_does_not_depend_on_engine_or_interruption(pool: Any, tmp_path: Path) -> None:
    poisoned = tiny(Poisons(), clients=6)
    whole = run(poisoned, tmp_path / "whole", "local")
    run(replace(poisoned, rounds=2), tmp_path / "parts", "local")
    assert resume(tmp_path / "parts", "local", rounds=3)["model_sha256"] == whole["model_sha256"]
    assert run(poisoned, tmp_path / "pool", pool)["model_sha256"] == whole["model_sha256"]
    assert whole["model_sha256"] != run(tiny(FedAvg(), clients=6), tmp_path / "honest", "local")["model_sha256"]
    assert '"shortened":' in (tmp_path / "whole" / "rounds.jsonl").read_text()


# ---- a merge that fails


class Touchy(FedAvg):
    """A strategy with a fault: it cannot merge a reply that took an odd number of steps, or none at all."""

    never: bool = False

    def merge(self, state: Bundle, replies: Any) -> Bundle:
        held = list(replies)
        if any(reply.number("steps") % 2 or self.never for _, reply in held):
            raise ZeroDivisionError("odd")
        return super().merge(state, held)


class Odd(Local):
    """c1 says that it took three steps."""

    def call(self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float) -> Iterator[Any]:
        for device, reply in super().call(program, requests, deadline):
            if device == "c1" and isinstance(reply, Bundle):
                reply = Bundle(reply.tensors, {**reply.values, "steps": 3})
            yield device, reply


class Away(Local):
    """c1 does not answer."""

    def call(self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float) -> Iterator[Any]:
        for device, reply in super().call(program, requests, deadline):
            yield device, Failure("away") if device == "c1" else reply


def test_a_reply_that_cannot_be_merged_costs_its_device(tmp_path: Path) -> None:
    found = run(tiny(Touchy()), tmp_path / "run", Odd())
    assert found["refused"] == 3 and found["void"] == 0
    assert "merge: ZeroDivisionError: odd" in (tmp_path / "run" / "rounds.jsonl").read_text()
    assert found["model_sha256"] == run(tiny(FedAvg()), tmp_path / "away", Away())["model_sha256"]


def test_a_strategy_that_cannot_merge_at_all_ends_the_run_with_its_own_error(tmp_path: Path) -> None:
    class Never(Touchy):
        never = True

    with pytest.raises(MergeError, match=r"round 3: Never.merge failed: ZeroDivisionError: odd"):
        run(replace(tiny(FedAvg()), strategy=Never()), tmp_path / "run", Local())
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [line["void"] for line in lines] == [False, True, True, True]
    assert "ZeroDivisionError" in lines[1]["warnings"][0]
