"""Coders by hand: what travels, how much it weighs, what comes out again, and parts that are not theirs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from wayfare.compression.coders import Coder, CodingError, Factors, Halves, Largest, Levels

CODERS = (Halves(), Levels(8), Levels(4), Largest(0.1), Factors(2))


class Half:
    """A generator of random numbers that always gives one half: rounding to the nearest."""

    def random(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        return np.full(shape, 0.5, dtype)


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def through(coder: Coder, tensor: Tensor) -> Tensor:
    return coder.decode(coder.encode(tensor, rng()), tensor.shape)


def test_levels_by_hand() -> None:
    # the largest entry of a row is L = 7 steps; the second row has steps of its own
    parts = Levels(4).encode(torch.tensor([[7.0, -3.4, 1.6], [0.0, 14.0, -6.9]]), Half())  # type: ignore[arg-type]
    assert parts["steps"].tolist() == [1, 2]
    # codes 7 -3 2 0 7 -3, plus 8: 15 5 10 8 15 5; two in a byte, the first one low
    assert parts["codes"].tolist() == [15 | 5 << 4, 10 | 8 << 4, 15 | 5 << 4]
    assert Levels(4).decode(parts, torch.Size([2, 3])).tolist() == [[7, -3, 2], [0, 14, -6]]


def test_largest_by_hand() -> None:
    parts = Largest(0.4).encode(torch.tensor([[0.5, -4.0, 0.0], [1.0, 4.0, -1.0]]), rng())
    # three of six: both fours, and of the equal ones the first
    assert parts["places"].tolist() == [1, 3, 4] and parts["values"].tolist() == [-4, 1, 4]
    assert Largest(0.4).decode(parts, torch.Size([2, 3])).tolist() == [[0, -4, 0], [1, 4, 0]]


def test_a_matrix_of_that_rank_comes_out_whole() -> None:
    matrix = torch.outer(torch.arange(1.0, 21), torch.ones(15)) + torch.outer(torch.ones(20), torch.arange(15.0))
    assert torch.allclose(through(Factors(2), matrix), matrix, atol=1e-3)
    assert not torch.allclose(through(Factors(1), matrix), matrix, atol=1)


def test_rounding_at_random_is_right_on_average() -> None:
    tensor = torch.tensor([1.0, 0.3])  # 0.3 is 2.1 of 7 steps
    drawn, coder = np.random.default_rng(0), Levels(4)
    values = [float(coder.decode(coder.encode(tensor, drawn), tensor.shape)[1]) for _ in range(1000)]
    assert set(np.round(values, 4)) == {round(2 / 7, 4), round(3 / 7, 4)}
    assert np.mean(values) == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("coder", CODERS, ids=str)
def test_what_is_said_to_be_sent_is_what_is_sent(coder: Coder) -> None:
    for shape in ((40, 33), (7, 3, 5, 5)) if isinstance(coder, Factors) else ((40, 33), (7, 3, 5, 5), (301,)):
        tensor = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        parts = coder.encode(tensor, rng())
        assert sum(part.nbytes for part in parts.values()) == coder.nbytes(tensor.shape)
        again = coder.encode(tensor, rng())
        assert all(torch.equal(part, again[name]) for name, part in parts.items())
        assert coder.decode(parts, tensor.shape).shape == tensor.shape
        assert through(coder, torch.zeros(shape)).abs().max() == 0


@pytest.mark.parametrize("coder", CODERS, ids=str)
def test_parts_of_something_else_are_refused(coder: Coder) -> None:
    parts = coder.encode(torch.ones(20, 15), rng())
    for name, part in parts.items():
        for wrong in (part.double(), part.reshape(-1)[:-1], torch.zeros(0)):
            with pytest.raises(CodingError, match=name):
                coder.decode({**parts, name: wrong}, torch.Size([20, 15]))
        with pytest.raises(CodingError):
            coder.decode({n: p for n, p in parts.items() if n != name}, torch.Size([20, 15]))


def test_places_that_are_none_are_refused() -> None:
    coder = Largest(0.5)
    parts = coder.encode(torch.arange(4.0), rng())
    for places in ([2, 4], [-1, 2], [2, 2], [3, 2]):
        with pytest.raises(CodingError, match="places"):
            coder.decode({**parts, "places": torch.tensor(places, dtype=torch.int32)}, torch.Size([4]))
