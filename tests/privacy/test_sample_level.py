"""DP-SGD in a client: a step by hand, who is drawn, what it costs, what is recorded, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from faults import outcome, tiny
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import MergeContext, Training
from wayfare.experiment import Evaluation, Experiment
from wayfare.hashing.task import Hashing
from wayfare.privacy.accounting import epsilon
from wayfare.privacy.sample_level import SampleLevel, clipped, plan, plans
from wayfare.privacy.secrets import FILE
from wayfare.runner import resume, run
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedcmr import FedCMR
from wayfare.strategies.scaffold import Scaffold

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def private(clients: int = 4, **rest: Any) -> Experiment:
    return replace(tiny(FedAvg(), clients, 2), **{"privacy": SampleLevel(), **rest})


def test_a_gradient_is_clipped_by_hand() -> None:
    layer = nn.Linear(2, 1, bias=False)
    layer.weight.grad = torch.tensor([[3.0, 4.0]])
    assert clipped([layer.weight], 1.0).tolist() == pytest.approx([0.6, 0.8])  # of length 5
    assert clipped([layer.weight], 6.0).tolist() == [3, 4]
    layer.weight.grad = torch.tensor([[float("inf"), 1.0]])
    assert clipped([layer.weight], 1.0).tolist() == [0, 0]


def test_without_noise_and_clipping_a_step_is_that_of_sgd(tmp_path: Path) -> None:
    """All samples in each batch: the sum of their gradients over their number is the gradient of the batch."""
    training = Training(iterations=2, batch_size=10_000, lr=0.1)
    quiet = SampleLevel(noise=1e-9, clip=1e3)
    models = []
    for privacy in (None, quiet):
        experiment = replace(private(clients=50), privacy=privacy, training=training, rounds=1)
        bench = experiment.bench(tmp_path / str(privacy is None))
        device = bench.device("c1", 1, 0)
        net = device.network(bench.initial)
        found = device.train(net, experiment.strategy.send(experiment.strategy.start(experiment.task, net), "c1"))
        assert found["steps"] == 2 and (found["loss"] == 0) == (privacy is not None), "a loss would have no noise"
        models.append(torch.cat([p.detach().flatten() for p in net.parameters()]))
    assert torch.allclose(*models, atol=1e-5)


def test_samples_are_drawn_with_the_rate_and_the_noise_is_as_large_as_said(tmp_path: Path) -> None:
    experiment = private(clients=4, training=Training(iterations=1, batch_size=50, lr=1.0))
    experiment = replace(experiment, privacy=SampleLevel(noise=3.0, clip=1e-3))
    bench = experiment.bench(tmp_path)
    device = bench.device("c0", 1, 0)
    net, held = device.network(bench.initial), len(device.client.train)
    assert bench.guard is not None
    drawn = [len(batches) for batches in bench.guard.steps(device, net, 200)]
    assert np.mean(drawn) == pytest.approx(50, abs=5 * np.sqrt(50 * (1 - 50 / held) / 200))
    assert np.var(drawn) == pytest.approx(50 * (1 - 50 / held), rel=0.6), "not a fixed number"
    noises = []
    for step in range(30):
        bench.guard.fill(device, net, step, [], lambda batch: torch.zeros(()))  # an empty sample is lawful
        noises.append(torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None]))
    assert not torch.equal(*noises[:2]), "the same noise in two steps would give away their difference"
    spread, numbers = 3.0 * 1e-3 / 50, torch.cat(noises)
    assert float(numbers.std()) == pytest.approx(spread, rel=5 / np.sqrt(2 * len(numbers))), len(numbers)


def test_what_it_costs() -> None:
    training = Training(epochs=2, batch_size=10)
    assert plan(95, training) == (10 / 95, 20) and plan(5, training) == (1.0, 2)
    assert plan(95, replace(training, iterations=7)) == (10 / 95, 7)
    assert plan(95, replace(training, at_most=7)) == (10 / 95, 7)
    context = MergeContext(3, sizes=(40, 95), training=training)
    worst = max(epsilon({(10 / 40, 1.0): 8 * 3}, 1e-5), epsilon({(10 / 95, 1.0): 20 * 3}, 1e-5))
    assert SampleLevel().spent(context)["epsilon"] == worst
    many = plans(range(1, 100), training)
    assert len(many) <= 12 and all(
        any(rate >= q and steps >= t for rate, steps in many) for q, t in (plan(n, training) for n in range(1, 100))
    )


def test_runs_record_no_losses_and_resume_to_the_same_bits(tmp_path: Path, pool: Any) -> None:
    budget = SampleLevel(noise=2.0, epsilon=0.15)
    experiment = private(privacy=budget, rounds=9, evaluation=Evaluation(every=1, clients=2))
    whole = tmp_path / "whole"
    summary = run(experiment, whole, "local")
    assert 0 < summary["rounds"] < 9 and summary["privacy"]["unit"] == "sample"
    assert summary["privacy"]["epsilon"] <= 0.15
    for line in map(json.loads, (whole / "rounds.jsonl").read_text().splitlines()):
        assert not any(name.startswith(("train/", "clients/")) for name in line["metrics"]) and not line["clients"]
    other = tmp_path / "pool"
    other.mkdir()
    (other / FILE).write_bytes((whole / FILE).read_bytes())
    run(experiment, other, pool)
    assert outcome(other) == outcome(whole)
    record = other / "rounds.jsonl"
    record.write_text("".join(record.read_text().splitlines(keepends=True)[:2]))
    resume(other, "local")
    assert outcome(other) == outcome(whole)


def test_misfits_are_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="its loss is not a mean over single samples"):
        private(task=Hashing.example())
    with pytest.raises(ConfigError, match="its clients use or send more than noised gradients"):
        replace(private(), strategy=FedCMR())
    assert replace(private(), strategy=Scaffold()).privacy == SampleLevel()
