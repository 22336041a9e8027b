"""SCAFFOLD (option II) over two rounds with two clients by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from toy import ONE_BATCH, Lab, bits, cloud, line, reply, scalar, weight
from wayfare.core.bundle import Bundle
from wayfare.core.protocols import Batch, Output, Training
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.scaffold import Scaffold

TWO_STEPS = Training(lr=0.25, epochs=2, batch_size=ONE_BATCH)  # K lr = 1/2


def test_two_rounds_with_two_clients_by_hand(tmp_path: Path) -> None:
    lab = Lab(line([4.0], [-8.0]), Scaffold(), tmp_path, TWO_STEPS)
    first, second = lab.play(rounds=2)
    # Round 1: x = 0, c = c0 = c1 = 0, so the steps are w - (w - a)/4.
    #   c0: 0 -> 1 -> 1.75      change (0 - 1.75)/(1/2) - 0 = -3.5      c0 = -3.5
    #   c1: 0 -> -2 -> -3.5     change (0 + 3.5)/(1/2) - 0 = 7          c1 = 7
    #   x = (1.75 - 3.5)/2      c = 0 + (-3.5 + 7)/2
    assert weight(first.state) == -0.875
    assert weight(first.state, "control") == 1.75
    assert weight(lab.memory("c0", 1), "control") == -3.5
    assert weight(lab.memory("c1", 1), "control") == 7
    # Round 2: x = -0.875, c = 1.75.
    #   c0: c - c0 = 5.25:   g = -4.875 + 5.25 = 0.375        w = -0.96875
    #                        g = -4.96875 + 5.25 = 0.28125    w = -1.0390625
    #       change (-0.875 + 1.0390625) * 2 - 1.75 = -1.421875      c0 = -4.921875
    #   c1: c - c1 = -5.25:  g = 7.125 - 5.25 = 1.875         w = -1.34375
    #                        g = 6.65625 - 5.25 = 1.40625     w = -1.6953125
    #       change (-0.875 + 1.6953125) * 2 - 1.75 = -0.109375      c1 = 6.890625
    #   x = (-1.0390625 - 1.6953125)/2          c = 1.75 + (-1.421875 - 0.109375)/2, the mean of c0 and c1
    assert weight(second.state) == -1.3671875
    assert weight(second.state, "control") == 0.984375 == (-4.921875 + 6.890625) / 2
    assert weight(lab.memory("c0", 2), "control") == -4.921875
    assert weight(lab.memory("c1", 2), "control") == 6.890625


def test_without_control_the_second_round_is_another(tmp_path: Path) -> None:
    # FedAvg from -0.875: c0 0.34375 -> 1.2578125, c1 -2.65625 -> -3.9921875; mean -1.3671875. For quadratics of equal
    # curvature the corrections cancel in the mean, so the difference is in each client.
    lab = Lab(line([4.0], [-8.0]), FedAvg(), tmp_path, TWO_STEPS)
    assert weight(lab.strategy.client(lab.device(), Bundle({"model": scalar(-0.875)}))) == 1.2578125


def test_clients_of_other_sizes_do_not_cancel(tmp_path: Path) -> None:
    # c0 takes 2 steps over its 1 sample, c1 takes 4 over its 2 samples: the drift differs, and so does the mean
    training = Training(lr=0.25, epochs=2, batch_size=1)
    ends = [
        weight(Lab(line([4.0], [-8.0, -8.0]), s, tmp_path / str(i), training).play(rounds=2)[-1].state)
        for i, s in enumerate([FedAvg(), Scaffold()])
    ]
    assert ends[0] != ends[1]


def test_the_term_is_the_correction_of_the_gradient(tmp_path: Path) -> None:
    lab = Lab(line([4.0]), Scaffold(), tmp_path)
    device = lab.device()
    device.memory = Bundle({"control": scalar(3)})
    net = device.network(scalar(10))
    term = lab.strategy.extra(device, net, Bundle({"model": scalar(10), "control": scalar(5)}))
    value = term(Output({}), Batch(None))
    assert value.item() == 10 * (5 - 3)
    (gradient,) = torch.autograd.grad(value, net.parameters())
    assert gradient.item() == 5 - 3


def test_the_control_moves_by_the_share_of_those_asked() -> None:
    # 2 of 8 clients reply: c = 1 + (4 - 2)/8; the models are weighted by examples, the controls are not
    state = Bundle({"model": scalar(0), "control": scalar(1), "gain": scalar(0)}, {"population": 8})
    merged = Scaffold().merge(state, [("a", reply(4, n=3, control=4)), ("b", reply(8, n=1, control=-2))])
    assert weight(merged) == (3 * 4 + 8) / 4
    assert weight(merged, "control") == 1.25
    assert weight(merged, "gain") == 2


def test_a_group_reports_the_gain_and_forgets_it(tmp_path: Path) -> None:
    lab = Lab(line([4.0]), Scaffold(), tmp_path)
    state = lab.start()
    state.values["population"] = 2
    for _ in range(2):
        state = Scaffold().merge(state, [("a", reply(1, n=1, control=3)), ("b", reply(1, n=1, control=-1))])
    report = Scaffold().report(state, 7)
    # two rounds of +2: the server above must hear 4, not this group's own control, which is 2
    assert (weight(report, "control"), weight(state, "control"), report.values["n"]) == (4, 2, 7)
    adopted = Scaffold().adopt(state, Bundle({"model": scalar(9), "control": scalar(6)}))
    assert [weight(adopted, s) for s in ("model", "control", "gain")] == [9, 6, 0]


def test_one_client_alone_is_the_plain_mean_to_the_bit(tmp_path: Path) -> None:
    """With one client c is always c_i, so that nothing is corrected."""
    training = Training(lr=0.05, epochs=2, batch_size=4)
    ends = [
        Lab(cloud(14), s, tmp_path / str(i), training).play(rounds=4)[-1].state
        for i, s in enumerate([FedAvg(), Scaffold()])
    ]
    assert bits(ends[0])["model"] == bits(ends[1])["model"]
    assert float(ends[1]["control"]["weight"].abs().sum()) > 0


def test_only_what_is_trained_has_a_control(tmp_path: Path) -> None:
    state = Lab(cloud(4), Scaffold(), tmp_path).start()
    assert state["control"].keys() == state["gain"].keys() == {"weight"}
    assert set(state["model"]) > {"weight"}


@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_the_learning_rate_of_the_round_is_divided_out(tmp_path: Path, decay: float) -> None:
    """For a constant gradient, far from the optimum, c_i is that gradient whatever the learning rate."""
    training = Training(lr=1e-6, epochs=3, batch_size=ONE_BATCH, decay=decay)
    lab = Lab(line([1000.0]), Scaffold(), tmp_path, training)
    lab.play(rounds=3)
    for round in (1, 2, 3):
        assert weight(lab.memory("c0", round), "control") == pytest.approx(-1000, rel=1e-3)
