"""FedGF by hand: where the gradient is taken, and what the server says about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from toy import ONE_BATCH, Lab, bits, cloud, line, weight
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Training
from wayfare.privacy.sample_level import SampleLevel
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedgf import FedGF
from wayfare.topologies.server import Server

ONE_STEP = Training(lr=0.5, epochs=1, batch_size=ONE_BATCH)


def test_two_rounds_of_two_clients_by_hand(tmp_path: Path) -> None:
    strategy = FedGF(rho=1.0, rho_server=2.0, far=1.5, window=2)
    first, second, third = Lab(line([4.0], [-2.0]), strategy, tmp_path, ONE_STEP).play(rounds=3)
    # round 1, w = 0, c = 0: gradients -4 and 2, points further up -1 and 1, gradients there -5 and 3
    # w_0 = 2.5, w_1 = -1.5, w = 0.5; the change was 0.5, so ahead is 0.5 - 2
    assert weight(first.state) == 0.5 and weight(first.state, "ahead") == -1.5
    # distances 2.5 and 1.5: 2 on average, above 1.5
    assert float(first.state["pull"]["c"]) == 1.0
    # round 2, c = 1: both gradients are taken at -1.5: -5.5 and 0.5; w_0 = 3.25, w_1 = 0.25, w = 1.75
    assert weight(second.state) == 1.75 and weight(second.state, "ahead") == -0.25
    # distances 2.75 and 0.25: 1.5, which is not above 1.5; of the last two rounds one was far
    assert float(second.state["pull"]["c"]) == 0.5
    # round 3, c = 1/2: gradients -2.25 and 3.75, points further up 0.75 and 2.75; half way to -0.25: 0.25 and 1.25
    # gradients there -3.75 and 3.25: w_0 = 3.625, w_1 = 0.125; distances 1.875 and 1.625: far; window of two
    assert weight(third.state) == 1.875 and float(third.state["pull"]["c"]) == 0.5


def test_without_perturbations_it_is_the_plain_mean_to_the_bit(tmp_path: Path) -> None:
    training = Training(lr=0.05, epochs=2, batch_size=4)
    never = FedGF(rho=0.0, far=1e9)
    ends = [
        bits(replaced(Lab(cloud(10, 6, 14), strategy, tmp_path / str(i), training).play(rounds=3)[-1].state))
        for i, strategy in enumerate([FedAvg(), never, replace(never, rho=0.1)])
    ]
    # a step at another point looks twice at its batch, so running statistics differ: weights are compared
    assert ends[0] == ends[1] != ends[2]


def replaced(state):  # type: ignore[no-untyped-def]
    return state.only("model").with_(model={"weight": state["model"]["weight"]})


def test_what_would_leave_the_second_gradient_out_is_refused() -> None:
    assert "FedGF" in SampleLevel().misfit(FedGF(), Server())
    with pytest.raises(ConfigError, match=r"strategy.rho = -1"):
        FedGF(rho=-1)
