"""Centralised: one client that has it all, in the same loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from toy import Lab, bits, line, weight
from wayfare.clients import POOLED, Clients
from wayfare.core.protocols import Training
from wayfare.experiment import Evaluation, Experiment
from wayfare.partition.split import Split
from wayfare.strategies.centralised import Centralised
from wayfare.strategies.fedavg import FedAvg


def pooled(lab: Lab, crowd: Clients) -> Lab:
    """The lab with the experiment's own crowd in it, which has one member."""
    lab.people = crowd.population
    lab.people.size_of = crowd.size_of
    lab.bench.clients = crowd.client
    return lab


def test_two_rounds_by_hand(tmp_path: Path) -> None:
    # all targets 4, 1, 1, 2 have the mean 2: w <- (w + 2)/2 gives 1, then 1.5, whoever had which
    toy, parts = line([4.0], [1.0, 1.0], [2.0])
    experiment = Experiment(strategy=Centralised(), evaluation=Evaluation(holdout=0.0))
    crowd = experiment.clients(Split.from_parts(parts))
    first, second = pooled(Lab((toy, parts), Centralised(), tmp_path), crowd).play(rounds=2)
    assert (weight(first.state), weight(second.state)) == (1, 1.5)
    assert first.gate.clients == [POOLED]
    assert first.gate.examples == 4
    # FedAvg takes the same first step here, the mean over clients weighted by examples being the mean over samples
    assert weight(Lab((toy, parts), FedAvg(), tmp_path / "fedavg").play()[0].state) == 1


def test_held_out_and_validation_samples_are_not_pooled() -> None:
    parts = [np.arange(10 * i, 10 * i + 10) for i in range(5)]
    experiment = Experiment(strategy=Centralised(), evaluation=Evaluation(holdout=0.2, validation_clients=1))
    crowd = experiment.clients(Split.from_parts(parts))
    everyone = crowd.client(POOLED)
    held_out = {int(i) for id in crowd.evaluation_clients() for i in crowd.client(id).holdout}
    aside = {int(i) for id in crowd.validation for i in crowd.client(id).train}
    assert len(held_out) == 4 * 2 and len(aside) == 10
    assert set(everyone.train.tolist()) == set(range(50)) - held_out - aside


def test_it_is_the_mean_of_one(tmp_path: Path) -> None:
    training = Training(lr=0.05, epochs=2, batch_size=3)
    toy, _ = line([4.0, 1.0, 1.0, 2.0])
    everything = [np.arange(4)]
    ends = [
        bits(Lab((toy, everything), s, tmp_path / str(i), training).play(rounds=3)[-1].state)
        for i, s in enumerate([FedAvg(), Centralised()])
    ]
    assert ends[0] == ends[1]
