"""DCMH's loss against numbers by hand and against the gradient that its authors wrote out."""

import numpy as np
import pytest
import torch

from wayfare.hashing import dcmh
from wayfare.hashing.buffers import Buffers, joint_codes
from wayfare.hashing.nets import Encoders, Layers


def test_loss_by_hand():
    raw, other = torch.tensor([[1.0, -1.0]]), torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    # T = (1, -1), S = (1, 0): log(1 + e) - 1 + log(1 + 1/e) = 0.62652; |B - F|^2 = 0 + 4; (1 + 0.5, -1 + 1)^2 = 2.25
    rest = torch.tensor([0.5, 1.0], dtype=torch.float64)
    found = dcmh.objective(
        raw, other=other, similar=torch.tensor([[1.0, 0.0]]), codes=torch.ones(1, 2), rest=rest, gamma=0.5, eta=2
    )
    assert float(found) == pytest.approx((0.62652 + 0.5 * 4 + 2 * 2.25) / 2, abs=1e-5)


@pytest.mark.parametrize("batch", [1, 4, 9])
def test_gradient_as_written_out(batch):
    """dJ/dF_b = (sigma(T_b) - S_b) G / 2 + 2 gamma (F_b - B_b) + 2 eta 1 (F' 1)', over n b."""
    generator = torch.Generator().manual_seed(batch)
    n, bits, gamma, eta = 9, 5, 0.7, 0.3
    f, g = (torch.randn(n, bits, generator=generator, dtype=torch.float64) for _ in range(2))
    labels = (torch.rand(n, 3, generator=generator) < 0.4).double()
    rows = torch.randperm(n, generator=generator)[:batch]
    codes, rest = joint_codes(f, g), f.sum(0) - f[rows].sum(0)
    similar = dcmh.similarity(labels[rows], labels)
    raw = f[rows].clone().requires_grad_()
    dcmh.objective(raw, other=g, similar=similar, codes=codes[rows], rest=rest, gamma=gamma, eta=eta).backward()
    theta = f[rows] @ g.T / 2
    by_hand = (theta.sigmoid() - similar) @ g / 2 + 2 * gamma * (f[rows] - codes[rows]) + 2 * eta * f.sum(0)
    assert torch.allclose(raw.grad, by_hand / (n * batch))


def test_large_outputs_do_not_overflow():
    raw = torch.full((1, 4), 1e3, requires_grad=True)
    similar, codes = torch.tensor([[1.0, 0.0]]), torch.ones(1, 4)
    found = dcmh.objective(
        raw, other=torch.full((2, 4), 1e3), similar=similar, codes=codes, rest=torch.zeros(4), gamma=0, eta=0
    )
    found.backward()
    assert float(found.detach()) == pytest.approx(2e6 / 2) and bool(torch.isfinite(raw.grad).all())


def test_similar_is_yes_or_no():
    labels = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    others = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
    assert dcmh.similarity(labels, others).tolist() == [[1, 1, 0], [0, 0, 0]]


def test_running_sums_are_sums():
    """Of all rows that are not in the batch, however often rows are written."""

    class Negated(Encoders):
        def enhance(self, view, raw):
            return -raw

    generator = torch.Generator().manual_seed(0)
    f, g = (torch.randn(20, 3, generator=generator) for _ in range(2))
    buffers = Buffers(Negated(Layers(2, 0, 3), Layers(2, 0, 3), 3), {"image": f, "text": g}, (), joint_codes(f, g))
    unchanged = g.clone()
    rng = np.random.default_rng(0)
    for _ in range(50):
        rows = torch.from_numpy(rng.choice(20, 6, replace=False))
        raw = torch.randn(6, 3, generator=generator)
        buffers.write("image", rows, raw)
        assert torch.equal(buffers.features["image"][rows], -raw)
    rows = torch.tensor([3, 17])
    others = [row for row in range(20) if row not in (3, 17)]
    assert torch.allclose(buffers.rest("image", rows), buffers.features["image"][others].double().sum(0), atol=1e-6)
    assert torch.equal(buffers.features["text"], unchanged)
