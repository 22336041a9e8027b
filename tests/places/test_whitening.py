"""Whitening of descriptors: by hand, over a federation, and what it leaves alone."""

import pytest
import torch

from wayfare.core.bundle import mean, snapshot
from wayfare.places.backbones import SmallCnnBackbone
from wayfare.places.model import PlaceModel
from wayfare.places.whitening import Whitening

CROSS = torch.tensor([[2.0, 0], [-2, 0], [0, 1], [0, -1]])  # covariance diag(2, 0.5), whose trace / 2 is 1.25


@pytest.mark.parametrize("shift", [0.0, 3.0])
@pytest.mark.parametrize(("power", "ratio"), [(1.0, 0.733799), (0.5, 0.856621)])  # (1.75 / 3.25)^(power / 2)
def test_by_hand(power: float, ratio: float, shift: float) -> None:
    layer = Whitening(2, power)
    layer.update(CROSS + shift)
    found = layer(torch.ones(1, 2) + shift)[0]
    assert float(found[0] / found[1]) == pytest.approx(ratio, rel=1e-4) and float(found.norm()) == pytest.approx(1)


def test_nothing_changes_before_the_first_look() -> None:
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Whitening(2, 0.5)(x), x)


def test_statistics_are_added_with_weight_one_tenth() -> None:
    """0.1, then 0.9 * 0.1 + 0.1 = 0.19; a network that looks at the same photographs again stays as it is."""
    layer, x = Whitening(2, 0.5), torch.tensor([[1.0, 2.0]])
    layer.update(CROSS)
    once = layer(x)
    moments = layer.sketch @ layer.columns.T  # of two numbers the sketch has all
    assert float(layer.weight) == pytest.approx(0.1) and float(layer.square) == pytest.approx(0.25)
    assert torch.allclose(moments, torch.tensor([[0.2, 0], [0, 0.05]]), atol=1e-6)
    layer.update(CROSS)
    assert float(layer.weight) == pytest.approx(0.19) and torch.allclose(layer(x), once, atol=1e-6)
    layer.update(5 * CROSS.flip(1))
    assert not torch.allclose(layer(x), once, atol=1e-2)  # what was worked out before is not used any more


def test_the_mean_of_devices_is_what_all_photographs_give() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(4, 3, generator=generator), 2 + torch.randn(8, 3, generator=generator)]
    models = []
    for part in parts:
        device = Whitening(3, 0.5)
        device.update(part)
        models.append((len(part) / 12, snapshot(device)))
    merged, pooled = Whitening(3, 0.5), Whitening(3, 0.5)
    merged.load_state_dict(mean(models))
    pooled.update(torch.cat(parts))
    assert all(torch.allclose(merged.state_dict()[name], t, atol=1e-6) for name, t in pooled.state_dict().items())


def test_a_sketch_is_as_good_as_the_covariance_of_few_directions() -> None:
    """100 numbers that vary in 5 directions: what is worked out from 32 columns is what the formula says."""
    generator = torch.Generator().manual_seed(0)
    x = 1 + torch.randn(40, 5, generator=generator) @ torch.randn(5, 100, generator=generator)
    layer = Whitening(100, 0.5)
    layer.update(x)
    assert layer.sketch.shape == (100, 32)
    values, vectors = torch.linalg.eigh(torch.cov(x.T.double(), correction=0))
    values = (values.clamp(min=0) + values.mean()) ** -0.25
    expected = (x - x.mean(0)).double() @ (vectors * values) @ vectors.T
    assert torch.allclose(layer(x).double(), torch.nn.functional.normalize(expected, dim=1), atol=1e-4)


def test_more_widths_than_photographs() -> None:
    layer = Whitening(50, 1.0)
    layer.update(torch.randn(3, 50, generator=torch.Generator().manual_seed(0)))
    assert bool(layer(torch.ones(2, 50)).isfinite().all())
    layer = Whitening(5, 0.5)
    layer.update(torch.ones(4, 5))  # all alike: a covariance of zeros
    assert bool(layer(torch.eye(5)).isfinite().all())


def test_in_a_descriptor_only_what_is_compared_is_whitened() -> None:
    torch.manual_seed(0)
    net = PlaceModel(SmallCnnBackbone(2), whiten=0.5).network().eval()
    pictures = torch.rand(6, 3, 32, 32)
    with torch.no_grad():
        plain = net.head(net.trunk(pictures))
        assert torch.equal(net(pictures), plain)
        net.whitening.update(plain)
        assert torch.equal(net.head(net.trunk(pictures)), plain)
        assert torch.equal(net(pictures), net.whitening(plain)) and not torch.allclose(net(pictures), plain, atol=0.1)
