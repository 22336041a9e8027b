"""FedProto's prototypes, their mean, and the term, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from toy import Lab, bits, cloud, plane
from wayfare.core.bundle import Bundle, digest
from wayfare.core.protocols import Training
from wayfare.strategies.fedproto import FedProto, multi_hot
from wayfare.strategies.local import Local

# c0: class a twice, class b once; c1: class a once; nobody has class c. W = I, so the features are the samples.
SINGLE = plane([(1, 0), (3, 0), (0, 2), (6, 0)], [0, 0, 1, 0], 3, 1)
# c0: a sample that is a and b, and one that is b
MULTI = plane([(2, 0), (0, 4)], [[1, 1, 0], [0, 1, 0]], 2)


def told(prototypes: list[list[float]], counts: list[float], n: int = 3) -> Bundle:
    """A message to a device, or a reply from one."""
    tensors = {"z": torch.tensor(prototypes, dtype=torch.float32)}
    return Bundle({"prototypes": tensors, "counts": {"counts": torch.tensor(counts, dtype=torch.float32)}}, {"n": n})


def test_prototypes_by_hand(tmp_path: Path) -> None:
    lab = Lab(SINGLE, FedProto(), tmp_path)
    reply = lab.strategy.client(lab.device("c0"), lab.strategy.send(lab.start(), "c0"))
    # a: ((1,0) + (3,0))/2; b: (0,2); c: none
    assert reply["prototypes"]["z"].tolist() == [[2, 0], [0, 2], [0, 0]]
    assert reply["counts"]["counts"].tolist() == [2, 1, 0]
    assert reply.tensors.keys() == {"prototypes", "counts"}  # weights never travel


def test_prototypes_of_several_labels_by_hand(tmp_path: Path) -> None:
    lab = Lab(MULTI, FedProto(), tmp_path)
    reply = lab.strategy.client(lab.device("c0"), lab.strategy.send(lab.start(), "c0"))
    # a: (2,0); b: ((2,0) + (0,4))/2
    assert reply["prototypes"]["z"].tolist() == [[2, 0], [1, 2], [0, 0]]
    assert reply["counts"]["counts"].tolist() == [1, 2, 0]


@pytest.mark.parametrize(("mean", "a"), [("counts", (2 * 2 + 1 * 6) / 3), ("clients", (2 + 6) / 2)])
def test_the_mean_of_prototypes_by_hand(tmp_path: Path, mean: str, a: float) -> None:
    lab = Lab(SINGLE, FedProto(mean=mean), tmp_path)
    state = lab.play()[0].state
    # a: c0 brings (2,0) from 2 samples, c1 (6,0) from 1; b: only c0 has it; c: nobody, so nothing is said of it
    assert state["prototypes"]["z"].tolist() == [[pytest.approx(a), 0], [0, 2], [0, 0]]
    assert state["counts"]["counts"].tolist() == [3, 1, 0]


def test_a_class_that_nobody_brings_keeps_its_prototype(tmp_path: Path) -> None:
    lab = Lab(SINGLE, FedProto(), tmp_path)
    state = lab.start().with_(**told([[9, 9], [9, 9], [5, 7]], [8, 8, 4]).tensors)
    merged = lab.strategy.merge(state, [("c0", told([[2, 0], [0, 2], [0, 0]], [2, 1, 0]))])
    assert merged["prototypes"]["z"].tolist() == [[2, 0], [0, 2], [5, 7]]
    assert merged["counts"]["counts"].tolist() == [2, 1, 4]


def test_the_term_by_hand(tmp_path: Path) -> None:
    # c1's one sample z = x = (6,0) of class a, whose prototype is (4,0):
    # MSE ((6-4)^2 + 0)/2 = 2; d/dz = (z - p) = (2,0); d/dW = (2,0)^T (6,0), times lambda
    # W = I - lr lambda [[12, 0], [0, 0]] with lr = 1/2, lambda = 1/8: W[0,0] = 1 - 0.75
    lab = Lab(SINGLE, FedProto(lam=0.125), tmp_path)
    message = told([[4, 0], [0, 2], [0, 0]], [2, 1, 0])
    device = lab.device("c1")
    net = device.network(device.initial)
    batch = lab.task.batch(device.client.train)
    value = lab.strategy.extra(device, net, message)(lab.task.forward(net, batch), batch)
    assert value.item() == 0.125 * 2
    (gradient,) = torch.autograd.grad(value, net.parameters())
    assert gradient.tolist() == [[0.125 * 12, 0], [0, 0]]
    (plain,) = torch.autograd.grad(lab.task.loss(lab.task.forward(net, batch), batch, {}), net.parameters())
    assert plain.abs().sum() == 0  # without the term nothing would move
    reply = lab.strategy.client(device, message)
    assert device.memory["model"]["weight"].tolist() == [[0.25, 0], [0, 1]]
    assert reply["prototypes"]["z"][0].tolist() == [1.5, 0]  # of the trained model: 0.25 * 6


def test_the_term_of_several_labels_by_hand(tmp_path: Path) -> None:
    # prototypes a (0,0), b (2,2), c unknown; a sample's labels weigh the same
    # (2,0) is a and b: MSE to a (4+0)/2 = 2, to b (0+4)/2 = 2, mean 2;  (0,4) is b: (4+4)/2 = 4;  the batch: (2+4)/2
    lab = Lab(MULTI, FedProto(lam=1.0), tmp_path)
    message = told([[0, 0], [2, 2], [50, 50]], [1, 2, 0])
    device = lab.device("c0")
    net = device.network(device.initial)
    batch = lab.task.batch(device.client.train)
    value = lab.strategy.extra(device, net, message)(lab.task.forward(net, batch), batch)
    assert value.item() == 3
    (gradient,) = torch.autograd.grad(value, net.parameters())
    # d/dz: first sample ((2,0)-(0,0) + (2,0)-(2,2))/2 = (1,-1), second (0,4)-(2,2) = (-2,2); outer x, halved
    assert gradient.tolist() == [[(1 * 2) / 2, (-2 * 4) / 2], [(-1 * 2) / 2, (2 * 4) / 2]]


def test_a_label_without_prototype_does_not_water_down_the_others(tmp_path: Path) -> None:
    lab = Lab(MULTI, FedProto(), tmp_path)
    device = lab.device("c0")
    net = device.network(device.initial)
    batch = lab.task.batch(device.client.train[:1])  # (2,0), which is a and b
    term = lab.strategy.extra(device, net, told([[7, 7], [2, 2], [0, 0]], [0, 2, 0]))
    assert term(lab.task.forward(net, batch), batch).item() == 2  # b alone: (0 + 4)/2


def test_the_first_round_has_no_term(tmp_path: Path) -> None:
    lab = Lab(SINGLE, FedProto(lam=100.0), tmp_path)
    device = lab.device("c0")
    net = device.network(device.initial)
    batch = lab.task.batch(device.client.train)
    term = lab.strategy.extra(device, net, lab.strategy.send(lab.start(), "c0"))
    assert term(lab.task.forward(net, batch), batch).item() == 0


def test_lambda_zero_is_training_alone_to_the_bit(tmp_path: Path) -> None:
    training = Training(lr=0.05, epochs=2, batch_size=4)
    labs = [
        Lab(cloud(10, 6, 14), s, tmp_path / str(i), training)
        for i, s in enumerate([Local(), FedProto(lam=0.0), FedProto(lam=1.0)])
    ]
    for lab in labs:
        lab.play(rounds=3)
    ends = [[digest(lab.memory(id, 3)["model"]) for id in ("c0", "c1", "c2")] for lab in labs]
    assert ends[0] == ends[1]
    assert all(a != b for a, b in zip(ends[0], ends[2]))


def test_weights_never_reach_the_server(tmp_path: Path) -> None:
    lab = Lab(SINGLE, FedProto(), tmp_path)
    round = lab.play(rounds=2)[-1]
    assert bits(round.state)["model"] == bits(lab.start())["model"]
    assert round.gate.bytes_down == 2 * (3 * 2 + 3) * 4


@pytest.mark.parametrize("counts", [[-5.0, 1, 0], [1e5, 1, 0]])
def test_no_client_counts_for_more_than_it_has(tmp_path: Path, counts: list[float]) -> None:
    """The gate bounds n by what a device holds; the counts per class can say no more than n."""
    lab = Lab(SINGLE, FedProto(), tmp_path)
    honest, liar = told([[2, 0], [0, 2], [0, 0]], [2, 1, 0]), told([[100, 0], [0, 2], [0, 0]], counts, n=1)
    merged = lab.strategy.merge(lab.start(), [("c0", honest), ("c1", liar)])
    assert 2 <= merged["prototypes"]["z"][0, 0] <= (2 * 2 + 100) / 3 + 1e-4


def test_multi_hot() -> None:
    from wayfare.core.protocols import Batch

    assert multi_hot(Batch(None, torch.tensor([2, 0])), 3).tolist() == [[0, 0, 1], [1, 0, 0]]
    rows = torch.tensor([[1, 1, 0]])
    assert multi_hot(Batch(None, rows), 3).tolist() == [[1, 1, 0]]
    with pytest.raises(TypeError, match="no labels"):
        multi_hot(Batch(None), 3)
