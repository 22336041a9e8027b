"""What liars send, by hand, and what they do to whole runs with and without a robust rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from faults import tiny
from wayfare.core.bundle import Bundle
from wayfare.core.device import flipped
from wayfare.core.errors import ConfigError, WayfareError
from wayfare.core.protocols import Batch
from wayfare.experiment import Evaluation, Experiment, Training
from wayfare.partition.random import Random
from wayfare.partition.split import Split
from wayfare.privacy.attacks import (
    Alie,
    Attack,
    Ipm,
    LabelFlip,
    Mimic,
    Noise,
    SignFlip,
)
from wayfare.privacy.robust import Median
from wayfare.runner import run
from wayfare.strategies.fedavg import FedAvg

SENT = Bundle({"model": {"w": torch.tensor([1.0, 1.0])}})


def reply(*change: float) -> Bundle:
    return Bundle({"model": {"w": SENT["model"]["w"] + torch.tensor(change)}}, {"n": 3})


def forged(attack: Attack, own: Bundle, *honest: Bundle) -> list[float]:
    made = attack.forge(own, honest, SENT, np.random.default_rng(0))
    assert made.values == own.values
    return [float(value) for value in made["model"]["w"] - SENT["model"]["w"]]


def test_changes_by_hand() -> None:
    own, honest = reply(2, -1), (reply(1, 0), reply(3, 4))
    assert forged(SignFlip(scale=2.0), own, *honest) == [-4, 2]
    assert forged(Ipm(scale=0.5), own, *honest) == [-1, -1]  # the mean is (2, 2)
    assert forged(Mimic(), own, *honest) == [1, 0]
    assert forged(LabelFlip(), own, *honest) == [2, -1]  # it lies while it trains
    length = np.hypot(*forged(Noise(ratio=2.0), own, *honest))
    assert length == pytest.approx(2 * (1 + 5) / 2, rel=1e-6)  # the median of the lengths 1 and 5 is 3


def test_a_little_is_enough_by_hand() -> None:
    # ten devices, two lie: s = 6 - 2 = 4 supporters, z is the quantile of (8 - 4) / 8 = 0.5, which is 0
    assert Alie.deviations(8, 2) == pytest.approx(0.0)
    # of 50, 24 lie: s = 26 - 24 = 2, (26 - 2) / 26 = 0.923: z = 1.4261
    assert Alie.deviations(26, 24) == pytest.approx(1.4261, abs=1e-4)
    honest = [reply(0, 0), reply(2, 4)]
    z = Alie.deviations(2, 1)
    assert forged(Alie(share=1 / 3), reply(0, 0), *honest) == pytest.approx([1 - z, 2 - 2 * z])


def test_labels_are_turned_around() -> None:
    batch = flipped(Batch(None, torch.tensor([0, 2, 9])), 10)
    assert batch.labels is not None and batch.labels.tolist() == [9, 7, 0]
    with pytest.raises(WayfareError, match="each sample has one class"):
        flipped(Batch(None, torch.zeros(2, 3)), 3)


def test_liars_are_the_same_for_a_whole_run_and_as_many_as_asked_for() -> None:
    split = Split.from_parts([np.array([i]) for i in range(10)])
    assert len(SignFlip(0.2).liars(split, 0)) == 2
    assert SignFlip(0.2).liars(split, 0) == SignFlip(0.2).liars(split, 0) != SignFlip(0.2).liars(split, 1)
    with pytest.raises(ConfigError, match=r"attack.share = 1.5"):
        SignFlip(1.5)


def test_labels_flipped_on_a_device_give_another_model(tmp_path: Path) -> None:
    honest, lying = (
        run(tiny(FedAvg(), rounds=1, attack=attack), tmp_path / name, "local")["model_sha256"]
        for name, attack in (("honest", None), ("lying", LabelFlip(0.5)))
    )
    assert honest != lying


def test_liars_ruin_the_mean_and_not_the_median(tmp_path: Path) -> None:
    """Three of ten send the opposite of what they learnt, four times as long."""
    accuracy = {}
    for name, settings in (
        ("alone", {}),
        ("attacked", {"attack": SignFlip(0.3, scale=4.0)}),
        ("defended", {"attack": SignFlip(0.3, scale=4.0), "robust": Median(0.3)}),
    ):
        experiment = Experiment(
            partition=Random(10), training=Training(epochs=2, lr=0.1), rounds=6,
            evaluation=Evaluation(every=6, clients=0), **settings,
        )  # fmt: skip
        accuracy[name] = run(experiment, tmp_path / name, "local")["metrics"]["test/accuracy"]
    assert accuracy["alone"] > 0.6 and accuracy["attacked"] < 0.3
    assert accuracy["defended"] > accuracy["attacked"] + 0.25
