"""FedAdagrad over two rounds by hand."""

from __future__ import annotations

import pytest

from toy import reply, weight
from wayfare.core.bundle import Bundle
from wayfare.strategies.fedadagrad import FedAdagrad


def begin() -> Bundle:
    return Bundle({"model": reply(0)["model"], "first": reply(0)["model"], "second": reply(0)["model"]})


def test_two_rounds_by_hand() -> None:
    strategy = FedAdagrad(server_lr=1.0, beta1=0.0, tau=2.0)
    state = strategy.merge(begin(), [("a", reply(2))])
    # d = 2; m = 2; v = 4; w = 2/(2 + 2) = 0.5
    assert (weight(state, "first"), weight(state, "second"), weight(state)) == (2, 4, 0.5)
    state = strategy.merge(state, [("a", reply(2))])
    # d = 1.5; m = 1.5; v = 4 + 2.25 = 6.25; w = 0.5 + 1.5/(2.5 + 2) = 0.5 + 1/3
    assert (weight(state, "first"), weight(state, "second")) == (1.5, 6.25)
    assert weight(state) == pytest.approx(0.5 + 1 / 3, abs=1e-7)


def test_with_a_first_moment_by_hand() -> None:
    strategy = FedAdagrad(server_lr=1.0, beta1=0.5, tau=2.0)
    state = strategy.merge(begin(), [("a", reply(2))])
    # m = 0.5*2 = 1; w = 1/(2 + 2)
    assert (weight(state, "first"), weight(state)) == (1, 0.25)
    state = strategy.merge(state, [("a", reply(1.75))])
    # d = 1.5; m = 0.5*1 + 0.5*1.5 = 1.25; v = 6.25; w = 0.25 + 1.25/4.5
    assert weight(state, "first") == 1.25
    assert weight(state) == pytest.approx(0.25 + 1.25 / 4.5, abs=1e-7)
