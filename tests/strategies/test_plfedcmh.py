"""PLFedCMH's mixtures, the step of its hypernetworks in both signs, and its terms, by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from toy import Lab, cloud, line, weight
from toy_pairs import Drawn, pairs
from wayfare.core.bundle import Bundle, Weights, digest
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Training
from wayfare.strategies.plfedcmh import PLFedCMH, layer_shares
from wayfare.topologies.server import Server

PLAIN = PLFedCMH(beta=0.0, lam=0.0, width=1, lr=0.125)


def hyper(first: float, second: float) -> Weights:
    """A hypernetwork of width 1 that lets its embedding of 1 through: alpha = (first, second) for the only layer."""
    return {
        "/embedding": torch.ones(1),
        "/weight": torch.ones(3, 1, 1),
        "/bias": torch.zeros(3, 1),
        "/last weight": torch.tensor([[[first], [second]]]),
        "/last bias": torch.zeros(1, 2),
    }


def state(lab: Lab, first: float, second: float, own: float = 0.0, other: float = 4.0) -> Bundle:
    """c0 and c1 have sent the weights `own` and `other`; c0's hypernetwork says alpha = (first, second)."""
    begun = lab.start().with_(
        **{"client:c0": {"weight": torch.tensor([[own]])}, "client:c1": {"weight": torch.tensor([[other]])}},
        **{"hyper:c0": hyper(first, second), "hyper:c1": hyper(first, second)},
    )
    return Bundle(begun.tensors, {**begun.values, "population": 2, "column:c0": 0, "column:c1": 1})


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Two clients on a line, drawn to 0 and to 4."""
    return Lab(labelled([0.0], [4.0]), PLAIN, tmp_path)


def labelled(*targets: list[float]) -> tuple:
    toy, parts = line(*targets)
    return replace(toy, labels_=torch.zeros(toy.samples, dtype=torch.long)), parts


# ---- the server


def test_a_mixture_by_hand(lab: Lab) -> None:
    # alpha = (1, 3): W = 0 * 1/4 + 4 * 3/4
    assert weight(lab.strategy.send(state(lab, 1.0, 3.0), "c0")) == 3
    assert weight(lab.strategy.send(state(lab, 1.0, -3.0), "c0")) == 0  # the ReLU: a share is never below 0
    # all alpha are 0: c0 keeps its own model, and c1 its own
    assert weight(lab.strategy.send(state(lab, -1.0, -3.0, own=2.5), "c0")) == 2.5
    assert weight(lab.strategy.send(state(lab, -1.0, -3.0, own=2.5), "c1")) == 4


def test_one_step_by_hand_moves_towards_what_the_client_has_learned(lab: Lab) -> None:
    # alpha = (1, 3) = (a, b), W = 4 b/(a + b) = 3 was sent, and c0 comes back with 1: sent - trained = 2.
    # dW/da = -4 b/(a + b)^2 = -3/4, dW/db = 4 a/(a + b)^2 = 1/4, and a = u x with x = 1 the hidden number:
    # u_a <- 1 - lr 2 (-3/4) = 1 + 3/16, u_b <- 3 - lr 2 (1/4) = 3 - 1/16 with lr = 1/8; the biases take the same steps;
    # dW/dx = -3/4 * 1 + 1/4 * 3 = 0: scaling all alpha changes nothing
    before = state(lab, 1.0, 3.0)
    after = lab.strategy.updated(before, "c0", {"weight": torch.tensor([[1.0]])})
    assert after["/last weight"].flatten().tolist() == pytest.approx([1 + 3 / 16, 3 - 1 / 16], abs=1e-6)
    assert after["/last bias"].flatten().tolist() == pytest.approx([3 / 16, -1 / 16], abs=1e-6)
    assert after["/embedding"].item() == 1 and after["/weight"].flatten().tolist() == [1, 1, 1]
    # alpha = (22/16, 46/16): W = 4 * 46/68 = 2.7059, nearer to 1 than 3 was
    moved = lab.strategy.send(before.with_(**{"hyper:c0": after}), "c0")
    assert weight(moved) == pytest.approx(4 * 46 / 68, abs=1e-6)


@pytest.mark.parametrize(("compat", "end"), [(False, 0.0), (True, 4.0)])
def test_steps_go_to_the_optimum_and_with_the_published_sign_away_from_it(lab: Lab, compat: bool, end: float) -> None:
    strategy, now = replace(PLAIN, compat_sign=compat), state(lab, 1.0, 1.0)
    gaps = []
    for _ in range(40):  # c0 is always drawn to 0, where its own model is
        gaps.append(weight(strategy.send(now, "c0")))
        now = now.with_(**{"hyper:c0": strategy.updated(now, "c0", {"weight": torch.zeros(1, 1)})})
    assert gaps[0] == 2 and gaps[-1] == pytest.approx(end, abs=0.1)
    assert all(b >= a if compat else b <= a for a, b in pairwise(gaps))


def test_only_those_who_took_part_are_updated(lab: Lab) -> None:
    before = state(lab, 1.0, 3.0)
    told = {name: before[name] for name in ("prototypes", "counts")}
    after = lab.strategy.merge(before, [("c1", Bundle({"model": {"weight": torch.tensor([[8.0]])}, **told}, {"n": 1}))])
    assert digest(after["hyper:c0"]) == digest(before["hyper:c0"]) and weight(after, "client:c0") == 0
    assert digest(after["hyper:c1"]) != digest(before["hyper:c1"]) and weight(after, "client:c1") == 8
    assert before["client:c1"]["weight"].item() == 4  # the old state stays what it was


def test_newcomers_get_the_mean_and_then_a_column(tmp_path: Path) -> None:
    lab = Lab(labelled([2.0], [4.0], [6.0]), PLAIN, tmp_path)
    one, two, three = lab.play(rounds=3, topology=Server(per_round=2))
    asked = [sorted(r.gate.clients) for r in (one, two, three)]
    assert set(asked[0]) != {"c0", "c1", "c2"} and {c for r in asked for c in r} == {"c0", "c1", "c2"}
    assert [one.state.values[f"column:{c}"] for c in asked[0]] == [0, 1]  # in the order of their names
    (late,) = {"c0", "c1", "c2"} - set(asked[0])
    assert three.state.values[f"column:{late}"] == 2
    assert weight(lab.strategy.send(one.state, late)) == weight(one.state)  # the mean of the first two
    shares = layer_shares(three.state, late, three.state[f"hyper:{late}"])[""]
    assert shares.shape == (3,) and float(shares.detach().sum()) == pytest.approx(1)


def test_a_hypernetwork_for_each_view(tmp_path: Path) -> None:
    task = Drawn()
    lab = Lab((task, task.parts), PLFedCMH(), tmp_path, Training(lr=0.01, batch_size=16))
    first, second = lab.play(rounds=2)
    made = first.state["hyper:c0"]
    assert made["image/last weight"].shape == made["text/last weight"].shape == (1, 3, 32)
    assert made["image/embedding"].tolist() != made["text/embedding"].tolist()
    assert made["image/embedding"].tolist() != first.state["hyper:c1"]["image/embedding"].tolist()
    assert float(made["image/last weight"].min()) >= 0 and float(made["image/last weight"].max()) <= 1
    # what c0 is sent: its image layer mixed by the image's shares
    shares = layer_shares(second.state, "c0", second.state["hyper:c0"])
    mixed = sum(s * second.state[f"client:c{k}"]["image.hash.weight"] for k, s in enumerate(shares["image.hash"]))
    torch.testing.assert_close(lab.strategy.send(second.state, "c0")["model"]["image.hash.weight"], mixed)


def test_too_many_clients_are_refused_before_anybody_trains(tmp_path: Path) -> None:
    lab = Lab(cloud(2, 2, 2), PLFedCMH(most=2), tmp_path)
    with pytest.raises(ConfigError, match=r"each of the 3 clients on the server, but the limit is strategy.most = 2"):
        lab.play()
    with pytest.raises(ConfigError, match=r"strategy.width = 0: expected at least 1"):
        PLFedCMH(width=0)


# ---- the client


def term(lab: Lab, prototypes: list[list[float]], counts: list[float]) -> Tensor:
    known = {view: torch.tensor(prototypes) for view in ("image", "text")}
    message = Bundle({"prototypes": known, "counts": {"counts": torch.tensor(counts)}})
    device = lab.device()
    net = device.network(device.initial)
    batch = lab.task.batch(device.client, torch.arange(2).numpy(), "image")
    found = lab.strategy.extra(device, net, message)
    assert found is not None
    value = found(lab.task.forward(net, batch), batch)
    assert torch.autograd.grad(value, [net.image.hash.weight])[0].norm() > 0
    return value


def test_the_terms_by_hand(tmp_path: Path) -> None:
    # images (1,0) of class a and (0,2) of a and b; prototypes a (1,1), b (3,0), c unknown; n = B = 2, r = 2
    toy = pairs([(1, 0), (0, 2)], [(1, 0), (0, 2)], [[1, 0, 0], [1, 1, 0]], 2)
    # MSE: first ((1-1)^2 + (0-1)^2)/2 = 1/2; second to a ((0-1)^2 + (2-1)^2)/2 = 1, to b (9 + 4)/2, mean 15/4
    near = Lab(toy, PLFedCMH(beta=0.0, lam=8.0), tmp_path / "near")
    assert term(near, [[1, 1], [3, 0], [50, 50]], [1, 1, 0]).item() == pytest.approx(8 * (1 / 2 + 15 / 4) / 2 / 4)
    # r L - tanh(h) P': first t = tanh(1): (2 - t, 0 - 3 t); second u = tanh(2): (2 - u, 2 - 0)
    t, u = math.tanh(1), math.tanh(2)
    answers = Lab(toy, PLFedCMH(beta=0.5, lam=0.0), tmp_path / "answers")
    expected = 0.5 * ((2 - t) ** 2 + (3 * t) ** 2 + (2 - u) ** 2 + 2**2) / 4
    assert term(answers, [[1, 1], [3, 0], [50, 50]], [1, 1, 0]).item() == pytest.approx(expected, rel=1e-6)


def test_no_terms_in_the_first_round_and_prototypes_after_it(tmp_path: Path) -> None:
    toy = pairs([(1, 0), (3, 0)], [(1, 0), (0, 2)], [[1, 0], [1, 1]], 2)
    lab = Lab(toy, PLFedCMH(), tmp_path)
    device, message = lab.device(), lab.strategy.send(lab.start(), "c0")
    assert lab.strategy.extra(device, device.network(device.initial), message) is None
    reply = lab.strategy.client(device, message)  # nothing moves: images a (2,0), b (3,0); texts a (0.5,1), b (0,2)
    assert reply["prototypes"]["image"].tolist() == [[2, 0], [3, 0]]
    assert reply["prototypes"]["text"].tolist() == [[0.5, 1], [0, 2]]
    assert reply["counts"]["counts"].tolist() == [2, 1]
