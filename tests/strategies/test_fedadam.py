"""FedAdam over two rounds by hand: no bias correction, tau outside the root."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from toy import line, reply, weight
from wayfare.core.bundle import Bundle
from wayfare.strategies.fedadagrad import FedAdagrad
from wayfare.strategies.fedadam import FedAdam
from wayfare.strategies.fedyogi import FedYogi


def test_two_rounds_by_hand() -> None:
    strategy = FedAdam(server_lr=1.0, beta1=0.5, beta2=0.75, tau=1.0)
    state = Bundle({"model": reply(0)["model"], "first": reply(0)["model"], "second": reply(0)["model"]})
    state = strategy.merge(state, [("a", reply(2))])
    # d = 2; m = 0.5*2 = 1; v = 0.25*4 = 1; w = 0 + 1/(1 + 1) = 0.5
    # (with bias correction m and v were 2 and 4, and w 2/3; with tau in the root w were 1/sqrt(2))
    assert (weight(state, "first"), weight(state, "second"), weight(state)) == (1, 1, 0.5)
    state = strategy.merge(state, [("a", reply(2.5))])
    # d = 2; m = 0.5*1 + 0.5*2 = 1.5; v = 0.75*1 + 0.25*4 = 1.75; w = 0.5 + 1.5/(sqrt(1.75) + 1) = 1.1457513
    assert (weight(state, "first"), weight(state, "second")) == (1.5, 1.75)
    assert weight(state) == pytest.approx(0.5 + 1.5 / (math.sqrt(1.75) + 1), abs=1e-7)
    assert weight(state) == pytest.approx(1.1457513, abs=1e-6)


def test_tau_in_the_root_by_hand() -> None:
    strategy = FedAdam(server_lr=1.0, beta1=0.5, beta2=0.75, tau=1.0, tau_in_root=True)
    state = Bundle({"model": reply(0)["model"], "first": reply(0)["model"], "second": reply(0)["model"]})
    # m = 1, v = 1 as above; w = 1/sqrt(1 + 1)
    assert weight(strategy.merge(state, [("a", reply(2))])) == pytest.approx(0.5**0.5)


def test_defaults_by_hand() -> None:
    state = Bundle({"model": reply(0)["model"], "first": reply(0)["model"], "second": reply(0)["model"]})
    state = FedAdam().merge(state, [("a", reply(1))])
    # m = 0.1, v = 0.01, sqrt(v) = 0.1; w = 0.01 * 0.1/(0.1 + 0.001)
    assert weight(state) == pytest.approx(0.01 * 0.1 / 0.101, rel=1e-6)


def test_where_nothing_changes_nothing_moves() -> None:
    state = Bundle({"model": reply(3)["model"], "first": reply(0)["model"], "second": reply(0)["model"]})
    assert weight(FedAdam().merge(state, [("a", reply(3))])) == 3


@pytest.mark.parametrize("strategy", [FedAdam(tau=0.5), FedAdagrad(tau=0.5), FedYogi(tau=0.5)])
def test_the_second_moment_starts_at_tau_squared(strategy) -> None:
    state = strategy.start(line([0.0])[0], nn.Linear(1, 1))
    assert {float(value) for tensor in state["second"].values() for value in tensor.flatten()} == {0.25}
    assert not any(tensor.any() for tensor in state["first"].values())


def test_the_first_round_by_hand() -> None:
    strategy = FedAdam(server_lr=1.0, beta1=0.5, beta2=0.75, tau=2.0)
    net = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(net.weight)
    state = strategy.start(line([0.0])[0], net)
    state = strategy.merge(state, [("a", Bundle({"model": {"weight": torch.full((1, 1), 4.0)}}, {"n": 1}))])
    # d = 4; m = 2; v = 0.75*2^2 + 0.25*4^2 = 7; w = 2/(sqrt(7) + 2); from v = 0 it were 2/(2 + 2)
    assert float(state["second"]["weight"]) == 7
    assert float(state["model"]["weight"]) == pytest.approx(2 / (math.sqrt(7) + 2), abs=1e-6)
