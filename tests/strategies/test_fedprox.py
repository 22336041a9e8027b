"""FedProx by hand. An anchor that moves, or a norm that is not squared, gives other numbers."""

from __future__ import annotations

from pathlib import Path

import torch

from source_metrics import SRC, code_lines, mentions
from toy import ONE_BATCH, Lab, bits, cloud, line, scalar, weight
from wayfare.core.bundle import Bundle
from wayfare.core.protocols import Batch, Output, Training
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedprox import FedProx

TWO_STEPS = Training(lr=0.25, epochs=2, batch_size=ONE_BATCH)


def test_two_local_steps_in_two_rounds_by_hand(tmp_path: Path) -> None:
    # a = 4, mu = 1, lr = 1/4; the gradient is (w - 4) + (w - anchor)
    first, second = Lab(line([4.0]), FedProx(mu=1.0), tmp_path, TWO_STEPS).play(rounds=2)
    # round 1, anchor 0: g = -4 + 0 -> w = 1; g = -3 + 1 = -2 -> w = 1.5
    assert weight(first.state) == 1.5
    # round 2, anchor 1.5: g = -2.5 + 0 -> w = 2.125; g = -1.875 + 0.625 = -1.25 -> w = 2.4375
    assert weight(second.state) == 2.4375


def test_without_the_term_the_numbers_are_others(tmp_path: Path) -> None:
    # g = -4 -> 1; g = -3 -> 1.75
    assert weight(Lab(line([4.0]), FedAvg(), tmp_path, TWO_STEPS).play()[0].state) == 1.75


def test_value_and_gradient_of_the_term(tmp_path: Path) -> None:
    lab = Lab(line([4.0]), FedProx(mu=0.5), tmp_path)
    device, message = lab.device(), Bundle({"model": scalar(1)})
    net = device.network(message["model"])
    term = lab.strategy.extra(device, net, message)
    nothing = (Output({}), Batch(None))
    assert term(*nothing).item() == 0
    with torch.no_grad():
        net.weight.add_(2)  # w = 3, the anchor is 1
    value = term(*nothing)
    assert value.item() == 0.5 / 2 * (3 - 1) ** 2
    (gradient,) = torch.autograd.grad(value, net.parameters())
    assert gradient.item() == 0.5 * (3 - 1)


def test_buffers_are_not_held(tmp_path: Path) -> None:
    lab = Lab(cloud(8), FedProx(mu=1.0), tmp_path)
    device, message = lab.device(), lab.strategy.send(lab.start(), "c0")
    net = device.network(message["model"])
    term = lab.strategy.extra(device, net, message)
    net.norm.running_mean += 5
    assert term(Output({}), Batch(None)).item() == 0


def test_mu_zero_is_the_plain_mean_to_the_bit(tmp_path: Path) -> None:
    training = Training(lr=0.05, epochs=2, batch_size=4)
    ends = [
        bits(Lab(cloud(10, 6, 14), strategy, tmp_path / str(i), training).play(rounds=3)[-1].state)
        for i, strategy in enumerate([FedAvg(), FedProx(mu=0.0), FedProx(mu=0.3)])
    ]
    assert ends[0] == ends[1]
    assert ends[0] != ends[2]


def test_it_is_as_short_as_its_formula() -> None:
    """If it needs more than 20 lines of code, or another file that knows of it, the interface is wrong."""
    assert code_lines((SRC / "strategies/fedprox.py").read_text()) <= 20
    assert mentions("fedprox") == ["strategies/fedprox.py"]


def test_the_counter_counts() -> None:
    text = '"""Doc\nstring."""\n\n# comment\nimport a  # more\n\ndef f():\n    """Doc."""\n    return (\n    1\n    )\n'
    assert code_lines(text) == 5  # import, def, and the return of three lines
    assert len(mentions("FEDAVG")) > 5
