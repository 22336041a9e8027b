"""Losses and gradients by hand and by finite differences; the collapse detector."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Output
from wayfare.places.losses import (
    InfoNCE,
    MultiSimilarity,
    PlaceLoss,
    TripletLoss,
    ViewsBatch,
    collapsed,
    split,
    spread,
)
from wayfare.places.mining import Triplets

# distances of the query to the positive: 1; to the negatives: 2, 0.5 and 1
QUERY, POSITIVE = [[0.0, 0.0]], [[0.6, 0.8]]
NEGATIVES = [[[2.0, 0.0], [0.0, 0.5], [0.0, -1.0]]]


def leaves() -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (QUERY, POSITIVE, NEGATIVES))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("distances", "expected"),
    [
        ("squared", (0 + 0.85 + 0.1) / 3),  # 1 - 4 + 0.1 < 0;  1 - 0.25 + 0.1;  1 - 1 + 0.1
        ("unsquared", (0 + 0.6 + 0.1) / 3),  # 1 - 2 + 0.1 < 0;  1 - 0.5 + 0.1;  1 - 1 + 0.1
    ],
)
def test_by_hand(distances: Any, expected: float) -> None:
    assert TripletLoss(distances=distances).value(*leaves()).item() == pytest.approx(expected)


def test_gradient_by_hand() -> None:
    query, positive, negatives = leaves()
    TripletLoss().value(query, positive, negatives).backward()  # type: ignore[no-untyped-call]
    # d/dq = 2(q - p) - 2(q - n) = 2(n - p), d/dp = 2(p - q), d/dn = 2(q - n): of the violating two, a third each
    assert query.grad is not None and positive.grad is not None and negatives.grad is not None
    assert query.grad.tolist() == [pytest.approx([2 / 3 * (-0.6 - 0.6), 2 / 3 * (0.5 - 0.8 - 1 - 0.8)])]
    assert positive.grad.tolist() == [pytest.approx([4 / 3 * 0.6, 4 / 3 * 0.8])]
    assert negatives.grad[0].flatten().tolist() == pytest.approx([0, 0, 0, 2 / 3 * -0.5, 0, 2 / 3 * 1])


@pytest.mark.parametrize("distances", ["squared", "unsquared"])
def test_gradient_by_finite_differences(distances: Any) -> None:
    loss = TripletLoss(0.3, distances)
    generator = torch.Generator().manual_seed(0)
    shapes = (4, 3), (4, 3), (4, 5, 3)
    parts = [torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes]
    gradients = torch.autograd.grad(loss.value(*parts), parts)
    with torch.no_grad():
        for part, gradient in zip(parts, gradients):
            for place in np.ndindex(*part.shape):
                values = []
                for step in (1e-6, -1e-6):
                    part[place] += step
                    values.append(float(loss.value(*parts)))
                    part[place] -= step
                assert float(gradient[place]) == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-6)


@pytest.mark.parametrize("distances", ["squared", "unsquared"])
def test_equal_descriptors_have_a_loss_and_no_gradient(distances: Any) -> None:
    """The trap: all descriptors the same. The loss is the margin and nothing leads out; it must not be NaN."""
    same = torch.full((7, 4), 0.5, requires_grad=True)
    loss = TripletLoss(distances=distances).value(*split(same, 1))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(0.1) and same.grad is not None and same.grad.tolist() == [[0.0] * 4] * 7


def test_unsquared_gradient_is_of_length_one_however_close() -> None:
    query = torch.zeros(1, 2, requires_grad=True)
    loss = TripletLoss(distances="unsquared")
    loss.value(query, torch.tensor([[3e-15, 4e-15]]), torch.ones(1, 1, 2) * 1e-3).backward()  # type: ignore[no-untyped-call]
    assert query.grad is not None
    away = 1 / math.sqrt(2)  # from the negative
    assert query.grad[0].tolist() == pytest.approx([-0.6 + away, -0.8 + away], rel=1e-5)


def test_no_violation_is_no_loss() -> None:
    query, positive, _ = leaves()
    far = torch.full((1, 2, 2), 9.0, dtype=torch.float64)
    assert TripletLoss().value(query, positive, far).item() == 0
    for wrong in (lambda: TripletLoss(0.0), lambda: InfoNCE(0.0)):
        with pytest.raises(ConfigError, match="expected a number above 0"):
            wrong()


def test_split_is_the_order_of_the_triplets() -> None:
    batch = Triplets(np.array([0, 1]), np.array([2, 3]), np.array([[4, 5, 6], [7, 8, 9]]))
    query, positive, negatives = split(torch.from_numpy(batch.photos)[:, None], 2)
    assert query.flatten().tolist() == [0, 1] and positive.flatten().tolist() == [2, 3]
    assert negatives[..., 0].tolist() == [[4, 5, 6], [7, 8, 9]]


def test_info_nce_by_hand() -> None:
    east, north, west = [1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]  # only directions count
    query, positive = torch.tensor([east, north]), torch.tensor([east, west])
    negatives = torch.tensor([[north, west], [east, north]])
    # cosines of the first: positive 1, negatives 0 and -1; of the second: positive 0, negatives 0 and 1
    first = -math.log(math.exp(2) / (math.exp(2) + 1 + math.exp(-2)))
    second = -math.log(1 / (1 + 1 + math.exp(2)))
    assert float(InfoNCE(0.5).value(query, positive, negatives)) == pytest.approx((first + second) / 2)
    # the first one's positive (cosine 0) is a negative of the second too; nothing new for the first
    apart = torch.zeros(2, 6, dtype=torch.bool)
    apart[1, 0] = True
    second = -math.log(1 / (1 + 1 + math.exp(2) + 1))
    assert float(InfoNCE(0.5).value(query, positive, negatives, apart)) == pytest.approx((first + second) / 2)


def test_info_nce_leads_out_of_a_near_collapse() -> None:
    """Where the triplet loss moves descriptors by their tiny distances, the contrast of directions grows."""
    torch.manual_seed(0)
    clean = torch.randn(12, 8)  # places
    start = 1 + 1e-2 * torch.cat((clean, clean, clean.roll(1, 0)))  # queries, positives, a negative each
    moved = start.clone().requires_grad_()
    for _ in range(40):
        (gradient,) = torch.autograd.grad(InfoNCE().value(*split(moved, 12)), moved)
        moved = (moved - gradient).detach().requires_grad_()
    assert spread(moved) > 5 * spread(start)


def test_spread_by_hand() -> None:
    rows = np.array([[3.0, 0.0], [3.0, 8.0]])  # mean (3, 4): each is 4 away; mean square length (9 + 73) / 2 = 41
    assert spread(rows) == pytest.approx(4 / math.sqrt(41))
    assert spread(1e-9 * rows) == pytest.approx(spread(rows))  # whatever the scale
    assert spread(torch.tensor(rows, requires_grad=True)) == pytest.approx(spread(rows))
    assert spread(np.ones((5, 3))) == 0 and spread(np.zeros((5, 3))) == 0


def test_collapse_is_noticed() -> None:
    random = np.random.default_rng(0)
    useful = random.standard_normal((50, 16)).astype(np.float32)
    start = spread(useful)
    assert collapsed(spread(useful / 3 + 0.1), start) == ""
    assert "descriptors have collapsed" in collapsed(spread(np.full((50, 16), 0.25)), start)
    assert "have collapsed" in collapsed(spread(np.zeros((50, 16))), start)  # all units dead
    assert "differ by 0.01 of their length (0.12 before" in collapsed(0.0102, 0.12)
    assert collapsed(0.05, 0.12) == "" and collapsed(2e-3, 3e-3) == ""  # an untrained network's is small
    assert collapsed(5e-4, 6e-4) and collapsed(math.nan, 0.5)


# ---- views: three photographs; the first two are of one place, the third is of another

VIEWS = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]  # cosines: 0.8, 0 and 0.6
SAME = torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=torch.bool)
APART = torch.tensor([[0, 0, 1], [0, 0, 1], [1, 1, 0]], dtype=torch.bool)


def views() -> Tensor:
    return torch.tensor(VIEWS, dtype=torch.float64, requires_grad=True)


def test_triplets_of_views_by_hand() -> None:
    x = views()
    # squared distances: 0.4 of the pair; 2 and 0.8 of the others. Only 0.4 - 0.8 + 0.5 violates the margin.
    assert TripletLoss(margin=0.5).of_views(x, x, SAME, APART).item() == pytest.approx(0.1)
    # nothing violates it: no loss, and still something to derive
    loss = TripletLoss(margin=0.1).of_views(x, x, SAME, APART)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0 and x.grad is not None and not x.grad.any()


def test_info_nce_of_views_by_hand() -> None:
    x = views()
    first = math.log(1 + math.exp((0.0 - 0.8) / 0.5))
    second = math.log(1 + math.exp((0.6 - 0.8) / 0.5))
    assert InfoNCE(0.5).of_views(x, x, SAME, APART).item() == pytest.approx((first + second) / 2)


def test_multi_similarity_by_hand() -> None:
    x = views()
    loss = MultiSimilarity(alpha=2.0, beta=10.0, base=0.5, epsilon=0.1)
    # All is well: the partner at 0.8 is nearer than the strangers at 0 and 0.6 by more than epsilon.
    assert loss.of_views(x, x, SAME, APART).item() == 0
    # Now the second view has work to do. The third has no partner to compare its strangers with.
    wider = MultiSimilarity(alpha=2.0, beta=10.0, base=0.5, epsilon=0.3)
    pull, push = math.log(1 + math.exp(-2 * (0.8 - 0.5))) / 2, math.log(1 + math.exp(10 * (0.6 - 0.5))) / 10
    assert wider.of_views(x, x, SAME, APART).item() == pytest.approx((pull + push) / 3)


@pytest.mark.parametrize("loss", [TripletLoss(margin=1.0), InfoNCE(), MultiSimilarity(epsilon=1.0)])
def test_every_loss_brings_views_of_a_place_together(loss: PlaceLoss) -> None:
    x = torch.tensor([[1.0, 0.1, 0.0], [0.0, 1.0, 0.1], [1.0, 0.0, 0.1]], requires_grad=True)  # 1 is the odd one
    gap = []
    for _ in range(50):
        unit = torch.nn.functional.normalize(x, dim=1)
        gap.append(float((unit[0] @ unit[1] - unit[0] @ unit[2]).detach()))
        x.grad = None
        loss.of_views(unit, unit, SAME, APART).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            x -= 0.2 * x.grad  # type: ignore[operator]
    assert gap[0] < -0.8 and gap[-1] > 0.1


@pytest.mark.parametrize("loss", [TripletLoss(margin=2.0), InfoNCE(), MultiSimilarity(epsilon=2.0)])
def test_a_memory_bank_adds_comparisons_and_takes_no_gradient(loss: PlaceLoss) -> None:
    x, bank = views(), torch.tensor([[0.6, 0.8]])
    batch = ViewsBatch(
        torch.zeros(3, 1), same=torch.cat((SAME, torch.zeros(3, 1, dtype=torch.bool)), 1),
        apart=torch.cat((APART, torch.tensor([[True], [True], [False]])), 1), bank=bank,
    )  # fmt: skip
    alone = loss.of_views(x, x, SAME, APART)
    beside = loss(Output({"image": x}), batch, {})
    assert beside.item() != pytest.approx(alone.item())
    beside.backward()  # type: ignore[no-untyped-call]
    assert bank.grad is None


def test_a_multi_similarity_of_triplets_compares_each_query_with_its_own() -> None:
    query, positive, negatives = leaves()
    loss = MultiSimilarity(alpha=1.0, beta=1.0, epsilon=10.0)
    query = torch.tensor([[1.0, 0.0]], dtype=torch.float64)  # cosines: 0.6 of the positive; 1, 0 and 0
    expected = math.log(1 + math.exp(-0.6)) + math.log(1 + math.exp(1) + 1 + 1)
    assert loss.value(query, positive, negatives, None).item() == pytest.approx(expected)
