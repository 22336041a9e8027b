"""FedNova by hand: the changes are divided by the steps that made them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from toy import Lab, cloud, line, reply, scalar, weight
from wayfare.core.bundle import Bundle
from wayfare.core.protocols import Training
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fednova import FedNova


def test_the_example_of_the_docs_by_hand() -> None:
    replies = [("a", reply(1.0, n=3)), ("b", reply(-4.0, n=1))]
    replies[0][1].values["steps"], replies[1][1].values["steps"] = 1, 4
    state = Bundle({"model": scalar(0.0)})
    # per step 1 and -1, their mean 3/4 - 1/4 = 0.5; 3/4 * 1 + 1/4 * 4 = 1.75 steps
    assert weight(FedNova().merge(state, replies)) == 0.875
    assert weight(FedAvg().merge(state, replies)) == -0.25


def test_a_round_by_hand(tmp_path: Path) -> None:
    # batches of one, lr 1/2: c0 (a = 4) takes one step to 2, c1 (a = -4, three samples) -2, -3, -3.5 in three
    toy = line([4.0], [-4.0, -4.0, -4.0])
    (end,) = Lab(toy, FedNova(), tmp_path, Training(lr=0.5, batch_size=1)).play()
    # tau_eff = 1/4 * 1 + 3/4 * 3 = 2.5; 1/4 * 2 + 3/4 * -3.5 / 3 = -0.375
    assert weight(end.state) == pytest.approx(2.5 * -0.375)


def test_with_equal_steps_it_is_fedavg_and_statistics_take_the_mean(tmp_path: Path) -> None:
    toy, training = cloud(8, 8), Training(lr=0.1, batch_size=4)
    ends = [Lab(toy, s, tmp_path / str(i), training).play()[0].state for i, s in enumerate((FedNova(), FedAvg()))]
    for name, tensor in ends[0]["model"].items():
        assert torch.allclose(tensor, ends[1]["model"][name], atol=1e-6), name
    toy = cloud(4, 12)
    ends = [Lab(toy, s, tmp_path / f"u{i}", training).play()[0].state for i, s in enumerate((FedNova(), FedAvg()))]
    assert not torch.allclose(ends[0]["model"]["weight"], ends[1]["model"]["weight"], atol=1e-4)
    assert torch.equal(ends[0]["model"]["norm.running_var"], ends[1]["model"]["norm.running_var"])
