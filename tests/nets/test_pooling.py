"""The grid, VLAD, SALAD and class-token pooling: by hand, and that what should matter does."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

from wayfare.core.errors import ConfigError
from wayfare.nets.pooling import (
    ClassPooling,
    GemPooling,
    GridPooling,
    MacPooling,
    Pooling,
    Salad,
    SaladPooling,
    SignedGrid,
    SpocPooling,
    Vlad,
    VladPooling,
    _transported,
    aggregation,
)

ALL = [GemPooling(), GridPooling(), GridPooling(token=True), MacPooling(), SaladPooling(), SpocPooling(), VladPooling()]


def maps(count: int = 2, channels: int = 3, height: int = 4, width: int = 8) -> Tensor:
    return torch.randn(count, channels, height, width, generator=torch.Generator().manual_seed(0))


# ---- grid


def test_grid_by_hand() -> None:
    # two cells side by side; the first has (1, -3) in one channel and (2, 0) in the other
    x = torch.tensor([[[[1.0, -3.0, 0.0, 4.0]], [[2.0, 0.0, 3.0, 3.0]]]])
    first = [-((26 / 2) ** (1 / 3)), (8 / 2) ** (1 / 3)]  # mean of 1 and -27 is -13; of 8 and 0 it is 4
    second = [(64 / 2) ** (1 / 3), 3.0]
    expected = [v / math.hypot(*cell) for cell in (first, second) for v in cell]
    assert SignedGrid(1, 2, 3.0)(x)[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_grid_turns_with_the_sign() -> None:
    x = maps()
    assert torch.allclose(SignedGrid(2, 4, 3.0)(-x), -SignedGrid(2, 4, 3.0)(x))


def test_grid_sees_where_something_is() -> None:
    x = maps()
    assert torch.allclose(SignedGrid(1, 1, 3.0)(x), SignedGrid(1, 1, 3.0)(x.flip(3)), atol=1e-6)
    assert not torch.allclose(SignedGrid(1, 2, 3.0)(x), SignedGrid(1, 2, 3.0)(x.flip(3)), atol=0.1)


def test_grid_has_a_finite_gradient_where_a_map_is_zero() -> None:
    x = torch.zeros(1, 2, 2, 4, requires_grad=True)
    SignedGrid(2, 4, 3.0)(x).sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()


def test_a_token_beside_the_cells_weighs_as_much_as_all_of_them() -> None:
    found = SignedGrid(2, 4, 3.0, token=True)(maps(), torch.randn(2, 3))
    assert found.shape == (2, 3 * 9)
    assert found[:, :24].norm(dim=1).tolist() == pytest.approx([math.sqrt(8)] * 2)
    assert found[:, 24:].norm(dim=1).tolist() == pytest.approx([math.sqrt(8)] * 2)


# ---- class token


def test_the_class_token_is_taken_as_it_is() -> None:
    token = torch.tensor([[3.0, 4.0, 0.0]])
    assert aggregation(3, ClassPooling(), token=True)(maps(1), token)[0].tolist() == pytest.approx([0.6, 0.8, 0.0])
    with pytest.raises(ConfigError, match="has no class token"):
        aggregation(3, ClassPooling())(maps(1))


# ---- VLAD


def test_vlad_by_hand() -> None:
    layer = Vlad(2, 2, sharpness=1.0)
    layer.directions.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    x = torch.tensor([[[[2.0, 0.6]], [[0.0, 0.8]]]])  # local features (1, 0) and, already of length 1, (0.6, 0.8)
    # squared distances from the centres: 0 and 2; 0.8 and 0.4. Twice the dot product less 1 is 1 less the distance
    a, b = 1 / (1 + math.exp(-2)), 1 / (1 + math.exp(0.4))
    first = [b * (0.6 - 1), b * 0.8]  # a * (0, 0) adds nothing
    second = [(1 - a) * 1 + (1 - b) * 0.6, -(1 - a) + (1 - b) * (0.8 - 1)]
    expected = [v / math.hypot(*residual) for residual in (first, second) for v in residual]
    assert layer(x)[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_federated_k_means_by_hand() -> None:
    # Two devices; all features have length 1. The directions tell left from right of each device's mean.
    devices = [torch.tensor([[[[-1.0, -0.6, 1.0]], [[0.0, 0.8, 0.0]]]]), torch.tensor([[[[1.0, 0.6]], [[0.0, 0.8]]]])]
    start = Vlad(2, 2, sharpness=1.0)
    start.directions.copy_(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    states = []
    for maps in devices:
        layer = copy.deepcopy(start)
        layer.update([maps])
        states.append((layer.sums.clone(), layer.counts.clone()))
    # the first: two features left, one right; the second, with its mean at 0.8: (0.6, 0.8) left and (1, 0) right
    assert torch.allclose(states[0][1], torch.tensor([2 / 3, 1 / 3]))
    assert torch.allclose(states[1][1], torch.tensor([0.5, 0.5]))
    merged = copy.deepcopy(start)  # as a server merges: the mean, weighted with 3 and 2 features
    merged.sums.copy_((3 * states[0][0] + 2 * states[1][0]) / 5)
    merged.counts.copy_((3 * states[0][1] + 2 * states[1][1]) / 5)
    assert torch.allclose(merged.centres, torch.tensor([[-1.0 / 3, 1.6 / 3], [1.0, 0.0]]), atol=1e-6)
    # Lloyd's next step on the second device: (1, 0) is its own centre; (0.6, 0.8) is nearer to (1, 0), at 0.8, than to
    # the other, at 0.94, so the first cluster gets nothing of this device
    before = merged.counts.clone()
    merged.update([devices[1]])
    assert torch.allclose(merged.counts, (before + torch.tensor([0.0, 1.0])) / 2)


def test_k_means_finds_clusters() -> None:
    torch.manual_seed(0)
    truth = torch.nn.functional.normalize(torch.randn(4, 8), dim=1)
    x = (truth.repeat(50, 1) + 0.05 * torch.randn(200, 8)).T.reshape(1, 8, 10, 20)
    layer = Vlad(8, 8, sharpness=1.0)
    random = torch.cdist(truth, layer.centres).amin(1)
    for _ in range(10):
        layer.update([x])
    assert (torch.cdist(truth, layer.centres).amin(1) < 0.1).all() and (random > 0.3).all()


# ---- SALAD


def test_transport_by_hand() -> None:
    # Two equal features, one cluster and the bin: each gives half of itself to either.
    assert _transported(torch.zeros(1, 2, 2)).flatten().tolist() == pytest.approx([0.5] * 4)


def test_transport_gives_every_feature_away_and_fills_the_clusters() -> None:
    share = _transported(torch.randn(2, 4, 10, generator=torch.Generator().manual_seed(1)), iterations=100)
    assert share.sum(1).flatten().tolist() == pytest.approx([1.0] * 20)
    assert share.sum(2)[0].tolist() == pytest.approx([1.0, 1.0, 1.0, 7.0], rel=1e-3)  # the bin takes 10 - 3


def test_salad_leaves_out_what_belongs_to_no_cluster() -> None:
    torch.manual_seed(0)
    layer = Salad(3, clusters=2, width=4, token=5, hidden=8)
    with torch.no_grad():  # a score that falls with the first channel
        for conv in (layer.score[0], layer.score[2]):
            torch.nn.init.zeros_(conv.weight)
            torch.nn.init.zeros_(conv.bias)
        layer.score[0].weight[0, 0] = 1.0
        layer.score[2].weight[:, 0] = -50.0
    token, x = torch.randn(1, 3), maps(1).abs()
    x[:, 0] = 0.0
    x[:, 0, 0, 0] = 1.0  # this one feature has the score -50
    unlike = x.clone()
    unlike[:, 1:, 0, 0] += 1.0
    assert torch.allclose(layer(x, token), layer(unlike, token), atol=1e-5)
    x[:, 0, 0, 0] = unlike[:, 0, 0, 0] = 0.0
    assert not torch.allclose(layer(x, token), layer(unlike, token), atol=1e-3)


# ---- all


@pytest.mark.parametrize("pooling", ALL, ids=lambda p: type(p).__name__ + ("+" if getattr(p, "token", 0) else ""))
@pytest.mark.parametrize("token", [False, True])
def test_width_length_and_gradient(pooling: Pooling, token: bool) -> None:
    torch.manual_seed(0)
    layer = aggregation(3, pooling, token=token)
    x = maps().requires_grad_()
    found = layer(x, torch.randn(2, 3) if token else None)
    assert found.shape == (2, layer.width)
    assert found.norm(dim=1).tolist() == pytest.approx([1.0, 1.0])
    (found * torch.randn_like(found)).sum().backward()
    assert x.grad is not None and x.grad.abs().sum() > 0
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_a_linear_layer_to_fewer_numbers_starts_as_a_projection() -> None:
    torch.manual_seed(0)
    layer = aggregation(3, GridPooling(), linear=10)
    assert layer.width == 10 and layer.linear is not None
    assert torch.allclose(layer.linear.weight @ layer.linear.weight.T, torch.eye(10), atol=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: GridPooling(rows=0),
        lambda: GridPooling(p=0.5),
        lambda: VladPooling(clusters=0),
        lambda: VladPooling(sharpness=0.0),
        lambda: SaladPooling(features=0),
    ],
)
def test_what_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"model\.pooling"):
        wrong()  # type: ignore[operator]
