"""MOON's contrastive term by hand, on features of two dimensions."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from toy import ONE_BATCH, Lab, Toy, bits, cloud
from wayfare.core.bundle import Bundle, digest
from wayfare.core.protocols import Training
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.moon import Moon

SIGMOID = 1 / (1 + math.exp(2))  # of -2: 0.1192029


def here(*w: float) -> dict[str, torch.Tensor]:
    return {"weight": torch.tensor(w, dtype=torch.float32).view(2, 1)}


def point(*target: float) -> tuple[Toy, list[np.ndarray]]:
    """The features are the two weights themselves (x = 1), pulled to a target; they begin at (1, 0)."""
    return Toy(torch.ones(3, 1), torch.tensor([target] * 3, dtype=torch.float32), torch.tensor([[1.0], [0.0]])), [
        np.arange(3)
    ]


def test_contrast_by_hand() -> None:
    moon = Moon(temperature=0.5)
    # cos(z, near) = 1, cos(z, far) = 0: -log(e^2/(e^2 + e^0)) = log(1 + e^-2)
    z, near, far = torch.tensor([[2.0, 0.0]]), torch.tensor([[5.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    assert moon.contrast(z, near, far).item() == pytest.approx(math.log(1 + math.exp(-2)), abs=1e-6)
    assert moon.contrast(z, far, near).item() == pytest.approx(math.log(1 + math.exp(2)), abs=1e-6)
    assert moon.contrast(z, near, near).item() == pytest.approx(math.log(2), abs=1e-6)
    # the mean over a batch
    both = moon.contrast(z.repeat(2, 1), torch.cat([near, far]), torch.cat([far, near]))
    assert both.item() == pytest.approx((math.log(1 + math.exp(-2)) + math.log(1 + math.exp(2))) / 2, abs=1e-6)


def test_one_step_by_hand(tmp_path: Path) -> None:
    # Received (1, 0), previous (0, 1); the task's own gradient is 0, for the target is (1, 0).
    # With s = cos/T, T = 1/2: l = log(1 + e^(s_far - s_near)), s_far - s_near = 0 - 2.
    # dcos(z, u)/dz = (u - cos z)/|z| for unit u, z: (0, 0) for near, (0, 1) for far.
    # dl/dz = sigmoid(-2) * ((0, 1) - (0, 0))/T = (0, 2 sigmoid(-2)) = (0, 0.2384058)
    # w = (1, 0) - lr mu dl/dz = (1, -0.5 * 3 * 0.2384058)
    lab = Lab(point(1, 0), Moon(mu=3.0, temperature=0.5), tmp_path)
    device = lab.device()
    device.memory = Bundle({"previous": here(0, 1)})
    w = lab.strategy.client(device, Bundle({"model": here(1, 0)}))["model"]["weight"].flatten()
    assert w[0].item() == pytest.approx(1, abs=1e-6)
    assert w[1].item() == pytest.approx(-0.5 * 3 * 2 * SIGMOID, abs=1e-6)
    assert w[1].item() == pytest.approx(-0.3576088, abs=1e-6)


def test_the_term_changes_the_gradient_and_the_companions_have_none(tmp_path: Path) -> None:
    lab = Lab(point(1, 0), Moon(mu=1.0), tmp_path)
    device = lab.device()
    device.memory = Bundle({"previous": here(0, 1)})
    message = Bundle({"model": here(1, 0)})
    net = device.network(message["model"])
    batch = lab.task.batch(np.arange(3))
    output = lab.task.forward(net, batch)
    (plain,) = torch.autograd.grad(lab.task.loss(output, batch, {}), net.parameters())
    assert plain.abs().sum() == 0
    term = lab.strategy.extra(device, net, message)
    (pulled,) = torch.autograd.grad(term(lab.task.forward(net, batch), batch), net.parameters())
    torch.testing.assert_close(pulled.flatten(), torch.tensor([0.0, 2 * SIGMOID]), atol=1e-6, rtol=0)
    assert all(p.grad is None for slot in (1, 2) for p in lab.bench.net(slot).parameters())
    # the received model is not the one in training: it stays where it was
    with torch.no_grad():
        net.weight.add_(1)
    assert digest(lab.bench.net(1).state_dict()) == digest(here(1, 0))
    assert digest(lab.bench.net(2).state_dict()) == digest(here(0, 1))


def test_no_term_in_the_first_round(tmp_path: Path) -> None:
    lab = Lab(point(1, 2), Moon(mu=5.0), tmp_path / "moon")
    message = Bundle({"model": here(1, 0)})
    device = lab.device()
    assert lab.strategy.extra(device, device.network(message["model"]), message) is None
    labs = [Lab(cloud(10, 6), s, tmp_path / type(s).__name__) for s in (FedAvg(), Moon(mu=5.0))]
    plain, contrasted = ([bits(r.state) for r in lab.play(rounds=2)] for lab in labs)
    assert plain[0] == contrasted[0]
    assert plain[1] != contrasted[1]


def test_previous_is_the_model_after_training(tmp_path: Path) -> None:
    # pulled half of the way to (1, 2): (1, 0) -> (1, 1)
    lab = Lab(point(1, 2), Moon(), tmp_path)
    device = lab.device()
    reply = lab.strategy.client(device, Bundle({"model": here(1, 0)}))
    assert reply["model"]["weight"].flatten().tolist() == [1, 1]
    assert device.memory["previous"]["weight"].flatten().tolist() == [1, 1]


def test_previous_is_the_own_model_not_the_mean(tmp_path: Path) -> None:
    toy = Toy(torch.ones(2, 1), torch.tensor([[1.0, 2.0], [1.0, -6.0]]), torch.tensor([[1.0], [0.0]]))
    lab = Lab((toy, [np.array([0]), np.array([1])]), Moon(), tmp_path)
    state = lab.play()[0].state
    # c0 goes to (1, 1), c1 to (1, -3), and the mean is (1, -1)
    assert state["model"]["weight"].flatten().tolist() == [1, -1]
    assert lab.memory("c0", 1)["previous"]["weight"].flatten().tolist() == [1, 1]
    assert lab.memory("c1", 1)["previous"]["weight"].flatten().tolist() == [1, -3]


def test_mu_zero_is_the_plain_mean_to_the_bit(tmp_path: Path) -> None:
    training = Training(lr=0.05, epochs=2, batch_size=4)
    ends = [
        bits(Lab(cloud(10, 6, 14), s, tmp_path / str(i), training).play(rounds=3)[-1].state)
        for i, s in enumerate([FedAvg(), Moon(mu=0.0), Moon(mu=1.0)])
    ]
    assert ends[0] == ends[1]
    assert ends[0] != ends[2]


def test_companions_do_not_learn_the_statistics_of_the_batches(tmp_path: Path) -> None:
    """They are in evaluation mode: their running statistics are those they came with."""
    lab = Lab(cloud(10), Moon(), tmp_path, Training(lr=0.05, batch_size=ONE_BATCH))
    rounds = lab.play(rounds=2)
    assert digest(lab.bench.net(1).state_dict()) == digest(
        rounds[0].state["model"] | {"norm.num_batches_tracked": torch.tensor(0)}
    )
