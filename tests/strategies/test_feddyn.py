"""FedDyn by hand: where FedAvg stops between the clients' steps, it finds the optimum of all data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from toy import Lab, line, scalar, weight
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Batch, Output
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.feddyn import FedDyn


def test_two_rounds_of_two_clients_by_hand(tmp_path: Path) -> None:
    toy = line([4.0], [0.0])
    lab = Lab(toy, FedDyn(alpha=1.0), tmp_path)
    first, second = lab.play(rounds=2)
    # round 1, w = 0, lr 1/2: w_0 = 2, w_1 = 0; h = -1/2 (2 + 0) = -1; w = 1 + 1
    assert weight(first.state) == 2.0 and weight(first.state, "drift") == -1.0
    assert [weight(lab.memory(f"c{k}", 1), "drift") for k in (0, 1)] == [-2.0, 0.0]
    # round 2: gradients (2 - 4) + 2 = 0 and (2 - 0) - 0 = 2: w_0 = 2, w_1 = 1
    # h = -1 - 1/2 (0 - 1) = -1/2; w = 3/2 + 1/2
    assert weight(second.state) == 2.0 and weight(second.state, "drift") == -0.5
    assert [weight(lab.memory(f"c{k}", 2), "drift") for k in (0, 1)] == [-2.0, 1.0]
    assert weight(Lab(toy, FedAvg(), tmp_path / "avg").play()[0].state) == 1.0


def test_the_term_and_its_gradient(tmp_path: Path) -> None:
    lab = Lab(line([4.0]), FedDyn(alpha=0.5), tmp_path)
    device = lab.device()
    device.memory = Bundle({"drift": scalar(3.0)})
    net = device.network(scalar(1.0))
    term = lab.strategy.extra(device, net, Bundle({"model": scalar(1.0)}))
    with torch.no_grad():
        net.weight.add_(2)  # w = 3, the anchor is 1
    value = term(Output({}), Batch(None))
    assert value.item() == 0.5 / 2 * 4 - 3 * 3
    (gradient,) = torch.autograd.grad(value, net.parameters())
    assert gradient.item() == 0.5 * 2 - 3


def test_alpha_must_be_above_zero() -> None:
    with pytest.raises(ConfigError, match=r"strategy.alpha = 0"):
        FedDyn(alpha=0)
