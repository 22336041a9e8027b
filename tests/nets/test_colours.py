"""How much of each colour is in a picture."""

from __future__ import annotations

import pytest
import torch

from wayfare.nets.colours import Colours, WithColours, lab
from wayfare.nets.frozen import Trunk

RED = (1.0, 0.0, 0.0)  # (53.24, 80.09, 67.20) in CIELAB
POINTS = 125  # of the grid: 5 of lightness, 5 of red, 5 of yellow


def plain(*colour: float) -> torch.Tensor:
    return torch.tensor(colour, dtype=torch.float32)[:, None, None].expand(-1, 64, 96)[None]


def at(light: int, red: int, yellow: int) -> int:
    """A colour's place in the grid, by its steps of 25 and 30."""
    return light * 25 + (red + 2) * 5 + yellow + 2


def test_colours_as_people_see_them() -> None:
    assert lab(plain(*RED))[0, :, 0, 0].tolist() == pytest.approx([53.24, 80.09, 67.20], abs=0.01)
    assert lab(plain(1, 1, 1))[0, :, 0, 0].tolist() == pytest.approx([100, 0, 0], abs=0.01)
    assert lab(plain(0.1, 0.1, 0.1))[0, :, 0, 0].tolist() == pytest.approx([9.01, 0, 0], abs=0.01)


def test_a_colour_is_shared_among_those_around_it() -> None:
    """Red: beyond 60 it counts as 60; of the lightness 53.24, 3.24 / 25 go to 75 and the rest to 50."""
    shares = (Colours()(plain(*RED))[0] / 20) ** 2
    for region in (shares[:POINTS], shares[POINTS:]):
        assert region[at(2, 2, 2)].item() == pytest.approx(1 - 3.2408 / 25, abs=1e-4)
        assert region[at(3, 2, 2)].item() == pytest.approx(3.2408 / 25, abs=1e-4)
        assert region.sum().item() == pytest.approx(1, abs=1e-5)


def test_the_whole_and_its_middle() -> None:
    """White with a black middle, a quarter of the picture: the root of 1/4 is black, of 3/4 white."""
    picture = torch.ones(1, 1, 64, 64)
    picture[:, :, 16:48, 16:48] = 0
    whole, middle = (Colours()(picture)[0] / 20).split(POINTS)
    assert whole[at(0, 0, 0)].item() == pytest.approx(0.5, abs=1e-3)
    assert whole[at(4, 0, 0)].item() == pytest.approx(0.75**0.5, abs=1e-3)
    assert middle[at(0, 0, 0)].item() == pytest.approx(1, abs=1e-3)


def test_small_changes_are_small_and_other_sizes_are_the_same() -> None:
    torch.manual_seed(0)
    picture = torch.rand(1, 3, 32, 32)
    found = Colours()(picture)
    assert torch.allclose(Colours()((picture + 1e-5).clamp(max=1)), found, atol=0.4)
    assert torch.allclose(Colours()(picture.repeat_interleave(7, 2).repeat_interleave(7, 3)), found, atol=2e-3)


def test_a_network_with_colours() -> None:
    torch.manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        trunk = Trunk(32)
    both, pictures = WithColours(trunk), torch.rand(2, 3, 32, 32)
    found = both(pictures)
    assert found.shape == (2, both.feature_dim) == (2, 1280 + 250)
    assert torch.equal(found[:, :1280], trunk(pictures)) and torch.equal(found[:, 1280:], Colours()(pictures))
    assert both.key != trunk.key and both.own_weights().keys() == trunk.own_weights().keys()
