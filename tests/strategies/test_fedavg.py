"""FedAvg by hand: who trains, what travels, and the mean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from toy import Lab, cloud, line, reply, weight
from wayfare.core.bundle import Bundle
from wayfare.core.seeds import rng_for
from wayfare.strategies.fedavg import FedAvg


def test_two_rounds_by_hand_weighted_by_examples(tmp_path: Path) -> None:
    # c0 has one sample with a = 4, c1 three with a = 1; lr 1/2, one step: w - (w - a)/2 = (w + a)/2
    lab = Lab(line([4.0], [1.0, 1.0, 1.0]), FedAvg(), tmp_path)
    first, second = lab.play(rounds=2)
    # round 1: c0 (0+4)/2 = 2, c1 (0+1)/2 = 1/2; mean (1*2 + 3*0.5)/4 = 0.875
    assert weight(first.state) == 0.875
    # round 2: c0 (0.875+4)/2 = 2.4375, c1 (0.875+1)/2 = 0.9375; mean (2.4375 + 3*0.9375)/4 = 1.3125
    assert weight(second.state) == 1.3125
    # the losses before the step: (0-4)^2/2 = 8 over 1 example, (0-1)^2/2 = 0.5 over 3
    assert first.gate.loss == 1 * 8 + 3 * 0.5
    assert first.gate.examples == 4
    # one float32 each way and per client, and the values n, steps, loss, round, cold, kept of 8 bytes going up
    assert first.gate.bytes_down == 2 * 4
    assert first.gate.bytes_up == 2 * (4 + 6 * 8)


def test_one_round_by_hand_weighted_alike(tmp_path: Path) -> None:
    lab = Lab(line([4.0], [1.0, 1.0, 1.0]), FedAvg("uniform"), tmp_path)
    assert weight(lab.play()[0].state) == (2 + 0.5) / 2


@pytest.mark.parametrize(("weighting", "expected"), [("examples", 0.9), ("uniform", 0.5)])
def test_merge_by_hand(weighting: str, expected: float) -> None:
    state = Bundle({"model": reply(7)["model"], "other": reply(3)["model"]}, {"population": 2})
    merged = FedAvg(weighting).merge(state, [("a", reply(0, n=1)), ("b", reply(1, n=9))])
    assert merged["model"]["weight"].item() == pytest.approx(expected, abs=1e-7)
    assert merged["model"]["weight"].dtype == torch.float32
    assert weight(merged, "other") == 3  # what is not averaged stays
    assert merged.values == state.values
    assert weight(state) == 7  # the state it was given is as it was


def test_replies_are_taken_one_at_a_time() -> None:
    alive = []

    def replies() -> Iterator[tuple[str, Bundle]]:
        for i in range(5):
            alive.append(i)
            yield str(i), reply(i)
            assert alive == list(range(i + 1))  # the next one is not asked for before this one is used

    assert weight(FedAvg().merge(reply(0), replies())) == 2


def test_buffers_travel_and_counters_do_not(tmp_path: Path) -> None:
    lab = Lab(cloud(4, 6), FedAvg(), tmp_path)
    net = lab.bench.net(0)
    assert "norm.num_batches_tracked" in net.state_dict()
    state = lab.play()[0].state
    assert state["model"].keys() == {"weight", "norm.running_mean", "norm.running_var"}
    # every device counts from the same number of batches, whoever used the network before it
    before = int(net.norm.num_batches_tracked)
    assert before > 0
    assert int(lab.device("c0").network(state["model"]).norm.num_batches_tracked) == 0


def test_running_statistics_take_the_mean_by_hand(tmp_path: Path) -> None:
    # BatchNorm: running <- 0.9 running + 0.1 batch, the variance unbiased. Samples z of c0: 1, 3 (mean 2, var 2),
    # of c1: 4 and 8 twice over (mean 6, var 4*4/3). W = 1, and y = z, so the weight does not move.
    from toy import Toy

    z = torch.tensor([[1.0], [3.0], [4.0], [8.0], [4.0], [8.0]])
    toy = Toy(z, z.clone(), torch.ones(1, 1), norm=True)
    state = Lab((toy, [np.arange(2), np.arange(2, 6)]), FedAvg(), tmp_path).play()[0].state["model"]
    assert state["weight"].item() == 1
    # mean: (2 * 0.1*2 + 4 * 0.1*6)/6 = 2.8/6; variance: (2 * (0.9 + 0.2) + 4 * (0.9 + 0.1*16/3))/6
    assert state["norm.running_mean"].item() == pytest.approx(2.8 / 6, abs=1e-6)
    assert state["norm.running_var"].item() == pytest.approx((2 * 1.1 + 4 * (0.9 + 1.6 / 3)) / 6, abs=1e-6)


def test_choose_is_without_repetition_and_from_the_generator_alone() -> None:
    sizes = np.array([5, 1, 9, 2])
    assert sorted(FedAvg().choose(sizes, 4, rng_for(1))) == [0, 1, 2, 3]
    assert sorted(FedAvg().choose(sizes, 99, rng_for(1))) == [0, 1, 2, 3]
    assert FedAvg().choose(sizes, 2, rng_for(1)) == FedAvg().choose(sizes * 7, 2, rng_for(1))
    drawn = [tuple(FedAvg().choose(sizes, 2, rng_for(i))) for i in range(200)]
    assert all(a != b for a, b in drawn)
    assert len(set(drawn)) == 12  # every ordered pair of four


def test_a_group_server_reports_its_model_and_adopts_another() -> None:
    state = Bundle({"model": reply(2)["model"], "mine": reply(5)["model"]}, {"population": 3})
    report = FedAvg().report(state, 40)
    assert (weight(report), report.values, set(report.tensors)) == (2, {"n": 40}, {"model"})
    adopted = FedAvg().adopt(state, reply(9))
    assert (weight(adopted), weight(adopted, "mine"), adopted.values) == (9, 5, {"population": 3})


def test_no_term_of_its_own(tmp_path: Path) -> None:
    lab = Lab(line([4.0]), FedAvg(), tmp_path)
    assert FedAvg().extra(lab.device(), lab.bench.net(0), Bundle()) is None
