"""FedAdam over two rounds by hand: no bias correction, tau outside the root."""

from __future__ import annotations

import math

import pytest

from toy import reply, weight
from wayfare.core.bundle import Bundle
from wayfare.strategies.fedadam import FedAdam


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


def test_defaults_by_hand() -> None:
    state = Bundle({"model": reply(0)["model"], "first": reply(0)["model"], "second": reply(0)["model"]})
    state = FedAdam().merge(state, [("a", reply(1))])
    # m = 0.1, v = 0.01, sqrt(v) = 0.1; w = 0.01 * 0.1/(0.1 + 0.001)
    assert weight(state) == pytest.approx(0.01 * 0.1 / 0.101, rel=1e-6)


def test_where_nothing_changes_nothing_moves() -> None:
    state = Bundle({"model": reply(3)["model"], "first": reply(0)["model"], "second": reply(0)["model"]})
    assert weight(FedAdam().merge(state, [("a", reply(3))])) == 3
