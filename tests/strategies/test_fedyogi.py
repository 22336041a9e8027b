"""FedYogi over three rounds by hand: the second moment goes up and down by d^2, whatever its own size."""

from __future__ import annotations

import math

import pytest

from toy import reply, weight
from wayfare.core.bundle import Bundle
from wayfare.strategies.fedyogi import FedYogi


def test_three_rounds_by_hand() -> None:
    strategy = FedYogi(server_lr=1.0, beta1=0.5, beta2=0.75, tau=1.0)
    state = Bundle({"model": reply(0)["model"], "first": reply(0)["model"], "second": reply(0)["model"]})
    state = strategy.merge(state, [("a", reply(2))])
    # d = 2; m = 1; v = 0 - 0.25*4*sign(0 - 4) = 1; w = 1/(1 + 1) = 0.5
    assert (weight(state, "first"), weight(state, "second"), weight(state)) == (1, 1, 0.5)
    state = strategy.merge(state, [("a", reply(2.5))])
    # d = 2; m = 1.5; v = 1 - 0.25*4*sign(1 - 4) = 2 (Adam's would be 1.75); w = 0.5 + 1.5/(sqrt(2) + 1)
    w = 0.5 + 1.5 / (math.sqrt(2) + 1)
    assert (weight(state, "first"), weight(state, "second")) == (1.5, 2)
    assert weight(state) == pytest.approx(w, abs=1e-7)
    state = strategy.merge(state, [("a", reply(weight(state) + 1))])
    # d = 1; m = 1.25; v = 2 - 0.25*1*sign(2 - 1) = 1.75; w += 1.25/(sqrt(1.75) + 1)
    assert weight(state, "first") == pytest.approx(1.25, abs=1e-6)
    assert weight(state, "second") == pytest.approx(1.75, abs=1e-6)
    assert weight(state) == pytest.approx(w + 1.25 / (math.sqrt(1.75) + 1), abs=1e-6)
