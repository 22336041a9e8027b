"""FedAvgM over two rounds by hand."""

from __future__ import annotations

from pathlib import Path

from toy import Lab, bits, cloud, reply, weight
from wayfare.core.bundle import Bundle
from wayfare.core.protocols import Training
from wayfare.strategies.fedavgm import FedAvgM
from wayfare.strategies.fedopt import FedOpt


def test_two_rounds_by_hand() -> None:
    strategy = FedAvgM(server_lr=0.25, beta=0.5)
    state = Bundle({"model": reply(1)["model"], "first": reply(0)["model"], "second": reply(0)["model"]})
    state = strategy.merge(state, [("a", reply(3))])
    # d = 3 - 1 = 2; m = 0.5*0 + 2 = 2; w = 1 + 0.25*2 = 1.5
    assert (weight(state, "first"), weight(state)) == (2, 1.5)
    state = strategy.merge(state, [("a", reply(1.5, n=1)), ("b", reply(3.5, n=1))])
    # mean 2.5, d = 1; m = 0.5*2 + 1 = 2 (an average, 0.5 m + 0.5 d, would give 1.5); w = 1.5 + 0.25*2 = 2
    assert (weight(state, "first"), weight(state)) == (2, 2)
    assert weight(state, "second") == 0  # it has no second moment


def test_without_momentum_it_is_the_server_learning_rate(tmp_path: Path) -> None:
    training = Training(lr=0.05, batch_size=4)
    ends = [
        bits(Lab(cloud(10, 6, 14), strategy, tmp_path / str(i), training).play(rounds=3)[-1].state)["model"]
        for i, strategy in enumerate(
            [FedOpt(server_lr=0.7), FedAvgM(server_lr=0.7, beta=0.0), FedAvgM(server_lr=0.7, beta=0.5)]
        )
    ]
    assert ends[0] == ends[1]
    assert ends[0] != ends[2]
