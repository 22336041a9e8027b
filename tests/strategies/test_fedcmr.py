"""FedCMR's aggregation factor and its correction by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from toy import Lab, Toy, bits, cloud, weight
from toy_pairs import Drawn, pairs
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Training
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedcmr import FedCMR, classes_held


def reply(value: float, n: int, classes: int, loss: float, steps: int = 1) -> Bundle:
    model = {"image.hash.weight": torch.full((1, 1), value), "image.first.weight": torch.full((1, 1), value)}
    return Bundle({"model": model}, {"n": n, "classes": classes, "loss": loss, "steps": steps})


# n |classes|: 10 * 3 and 30 * 1, so w = 1/2 and 1/2; 20 * 2 and 40 * 1 likewise
# losses 0.9 and 1.1, their mean 1: 100 exp(-exp(0.9)) = 8.5464, 100 exp(-exp(1.1)) = 4.9588: the first has
# e^(8.5464 - 4.9588) = 36 times the weight of the second
FIRST, SECOND = 100 * math.exp(-math.exp(0.9)), 100 * math.exp(-math.exp(1.1))


@pytest.mark.parametrize(
    ("settings", "replies", "share"),  # of the second client, whose weights are 1 beside the first one's 0
    [
        ({}, [(10, 3, 0.9), (30, 1, 1.1)], 1 / (1 + math.exp(FIRST - SECOND))),  # 0.0269
        ({"sharpness": 0.0}, [(10, 3, 0.9), (30, 1, 1.1)], 1 / 2),
        ({}, [(10, 3, 1.0), (90, 1, 1.0)], 1 / (1 + math.exp(0.25 - 0.75))),  # 30 and 90: w = 1/4 and 3/4
        ({}, [(10, 3, 0.0), (90, 1, 0.0)], 1 / (1 + math.exp(0.25 - 0.75))),  # nobody has a loss
        ({}, [(5, 0, 1.0), (5, 0, 1.0)], 1 / 2),  # nobody has a class
        ({"loss": "mean"}, [(10, 3, 1.0, 2), (90, 1, 1.0, 6)], 1 / (1 + math.exp(0.25 - 0.75))),
        # sums 2 and 6, their mean 4: 100 (exp(-exp(0.5)) - exp(-exp(1.5))) = 18.09 and half a w the other way
        ({}, [(10, 3, 1.0, 2), (90, 1, 1.0, 6)],
         1 / (1 + math.exp(100 * (math.exp(-math.exp(0.5)) - math.exp(-math.exp(1.5))) - 0.5))),
    ],
)  # fmt: skip
def test_the_factor_by_hand(settings: dict[str, Any], replies: list[Any], share: float) -> None:
    given = [(f"c{i}", reply(float(i), *numbers)) for i, numbers in enumerate(replies)]
    merged = FedCMR(**settings).merge(reply(9.0, 1, 1, 1.0), iter(given))["model"]
    assert merged["image.hash.weight"].item() == pytest.approx(share, abs=1e-6)
    assert merged["image.first.weight"].item() == pytest.approx(share, abs=1e-6)
    part = FedCMR(scope="hash_layer", **settings).merge(reply(9.0, 1, 1, 1.0), iter(given))["model"]
    assert part["image.hash.weight"].item() == pytest.approx(share, abs=1e-6)
    n = [numbers[0] for numbers in replies]
    assert part["image.first.weight"].item() == pytest.approx(n[1] / sum(n))  # as FedAvg has it


def test_a_loss_far_above_the_mean_does_not_overflow() -> None:
    replies = [reply(float(i == 0), 1, 1, 1e29 if i == 0 else 0.0) for i in range(1000)]
    factors = FedCMR().factors(replies)
    assert factors[0] == pytest.approx(0) and sum(factors) == pytest.approx(1)


def test_the_correction_by_hand(tmp_path: Path) -> None:
    # one client, w from 0 towards 4 with lr 1/2. Round 1: 0 -> 2, a step of 2, and the server has 2.
    # Round 2 begins at 2 - 0.5 * 2 = 1, goes half of the way to 4: 2.5, a step of 1.5.  Round 3 at 2.5 - 0.75 = 1.75.
    toy = Toy(torch.ones(2, 1), torch.full((2, 1), 4.0), torch.zeros(1, 1), torch.tensor([0, 1])), [np.arange(2)]
    lab = Lab(toy, FedCMR(), tmp_path / "half")
    rounds = lab.play(rounds=3)
    assert [weight(r.state) for r in rounds] == [2, 2.5, 2.875]
    assert float(lab.memory("c0", 2)["step"]["weight"]) == 1.5
    assert lab.strategy.resume(lab.device(round=3), rounds[1].state.only("model"))["weight"].item() == 1.75
    plain = Lab(toy, FedCMR(correction=0.0), tmp_path / "none").play(rounds=3)
    assert [weight(r.state) for r in plain] == [2, 3, 3.5]  # half of what is left each time


def test_buffers_are_not_corrected_and_a_share_of_the_samples_is_trained_on(tmp_path: Path) -> None:
    lab = Lab(cloud(10, 6, norm=True), FedCMR(share=0.6), tmp_path, Training(lr=0.05, batch_size=2))
    state = lab.play(rounds=2)[-1].state
    assert lab.memory("c0", 2)["step"].keys() == {"weight"}
    device = lab.device("c0", round=3)
    reply = lab.strategy.client(device, lab.strategy.send(state, "c0"))
    assert (reply.values["steps"], reply.values["n"]) == (
        3,
        10,
    )  # 6 of 10 in batches of 2; its weight is of all that it holds


def test_the_classes_a_device_holds(tmp_path: Path) -> None:
    hot = [[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    lab = Lab(pairs([(1, 0)] * 4, [(1, 0)] * 4, hot, 3, 1), FedCMR(), tmp_path)
    assert [classes_held(lab.device(id), lab.bench.net(0)) for id in ("c0", "c1")] == [2, 1]


def test_of_hash_layers_alone_only_they_are_corrected(tmp_path: Path) -> None:
    task = Drawn()
    lab = Lab((task, task.parts), FedCMR(scope="hash_layer"), tmp_path)
    lab.play()
    assert lab.memory("c0", 1)["step"].keys() == {"image.hash.weight", "text.hash.weight"}


def test_without_losses_classes_and_correction_it_is_near_fedavg(tmp_path: Path) -> None:
    """Equal clients: factors are equal, so the mean is FedAvg's."""
    strategies = [FedAvg(), FedCMR(sharpness=0.0, correction=0.0), FedCMR()]
    labs = [Lab(cloud(8, 8), s, tmp_path / str(i), Training(lr=0.05)) for i, s in enumerate(strategies)]
    ends = [lab.play(rounds=2)[-1].state for lab in labs]
    torch.testing.assert_close(ends[0]["model"], ends[1]["model"])
    assert bits(ends[0]) != bits(ends[2])


def test_what_is_refused(tmp_path: Path) -> None:
    for settings in ({"share": 0.0}, {"share": 1.5}, {"sharpness": -1.0}):
        with pytest.raises(ConfigError, match=f"strategy.{next(iter(settings))} = .* expected"):
            replace(FedCMR(), **settings)
    with pytest.raises(ConfigError, match="no layer called 'hash'"):
        Lab(cloud(4), FedCMR(scope="hash_layer"), tmp_path)
