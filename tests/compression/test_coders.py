"""Coders by hand: what travels, how much it weighs, what comes out again, and parts that are not theirs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from wayfare.compression.coders import Coder, CodingError, Factors, Halves, Largest, Levels

LEVELS = (Levels(8), Levels(4), Levels(4, random=False, even=True), Levels(3), Levels(2, random=False))
CODERS = (Halves(), *LEVELS, Largest(0.1), Factors(2))


class Half:
    """A generator of random numbers that always gives one half: rounding to the nearest."""

    def random(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        return np.full(shape, 0.5, dtype)


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def through(coder: Coder, tensor: Tensor) -> Tensor:
    return coder.decode(coder.encode(tensor, rng()), tensor.shape)


def test_levels_by_hand() -> None:
    # the largest entry of 128 is 7 steps, code 14 of 0 to 14; the others have a step of their own
    tensor = torch.zeros(130)
    tensor[[0, 1, 2, 128, 129]] = torch.tensor([7.0, -3.4, 1.6, 14.0, -6.9])
    parts = Levels(4).encode(tensor, Half())  # type: ignore[arg-type]
    assert parts["steps"].tolist() == [1, 2]
    # 7 -3 2, 0 125 times, 7 -3, plus 7: 14 4 9 7 7 ... 14 4; two in a byte, the first one high
    codes = parts["codes"].tolist()
    assert codes[:2] + codes[-1:] == [14 << 4 | 4, 9 << 4 | 7, 14 << 4 | 4] and set(codes[2:-1]) == {7 << 4 | 7}
    assert Levels(4).decode(parts, torch.Size([130]))[[0, 1, 2, 3, 128, 129]].tolist() == [7, -3, 2, 0, 14, -6]


def test_the_step_that_loses_least() -> None:
    """Codes -1, 0 and 1: a step of 2, which reaches the 2, loses all ones: 7. A step of 1.1 loses 0.9^2 + 7 x 0.1^2."""
    tensor = torch.zeros(64)
    tensor[:8] = torch.tensor([2.0, 1, 1, 1, 1, 1, 1, 1])
    parts = Levels(2, random=False).encode(tensor, rng())
    assert parts["steps"].tolist() == [pytest.approx(1.1, rel=0.01)]
    # codes 2 eight times, then 1; five in a byte, the first one counts 1, the last one 81
    assert parts["codes"].tolist() == [242, 2 * (1 + 3 + 9) + 27 + 81] + [121] * 10 + [1 + 3 + 9 + 27]
    read = Levels(2, random=False).decode(parts, torch.Size([64]))
    assert torch.equal(read, torch.cat([parts["steps"].float().expand(8), torch.zeros(56)]))
    with pytest.raises(CodingError, match="three levels"):
        Levels(2).decode({**parts, "codes": torch.full((13,), 243, dtype=torch.uint8)}, torch.Size([64]))


def test_even_levels_by_hand() -> None:
    """Values of -1.5, -0.5, 0.5 and 1.5 steps."""
    tensor = torch.tensor([3.0, 1.0, -1.0, -3.0])
    parts = Levels(2, random=False, even=True).encode(tensor, rng())
    assert parts["steps"].tolist() == [2] and parts["codes"].tolist() == [0b11100100]
    assert Levels(2, random=False, even=True).decode(parts, tensor.shape).tolist() == tensor.tolist()


def test_largest_by_hand() -> None:
    parts = Largest(0.4).encode(torch.tensor([[0.5, -4.0, 0.0], [1.0, 4.0, -1.0]]), rng())
    # three of six: both fours, and of the equal ones the first; 127 steps are 4
    assert parts["places"].tolist() == [1, 3, 4] and parts["codes"].tolist() == [-127, 32, 127]
    read = Largest(0.4).decode(parts, torch.Size([2, 3]))
    assert torch.allclose(read, torch.tensor([[0, -4.0, 0], [1, 4, 0]]), atol=0.02)
    # 300 numbers are two blocks of 256, each of which sends its own largest one
    two = torch.zeros(300)
    two[[7, 9, 299]] = torch.tensor([2.0, 1.0, 0.5])
    parts = Largest(1 / 256).encode(two, rng())
    assert parts["places"].tolist() == [7, 43] and len(parts["steps"]) == 2


def test_a_matrix_of_that_rank_comes_out_whole() -> None:
    matrix = torch.outer(torch.arange(1.0, 21), torch.ones(15)) + torch.outer(torch.ones(20), torch.arange(15.0))
    assert torch.allclose(through(Factors(2), matrix), matrix, atol=1e-3)
    assert not torch.allclose(through(Factors(1), matrix), matrix, atol=1)


def test_rounding_at_random_is_right_on_average() -> None:
    tensor = torch.tensor([7 / 8, 0.3])  # 0.3 is 2.4 steps of an eighth
    drawn, coder = np.random.default_rng(0), Levels(4)
    values = [float(coder.decode(coder.encode(tensor, drawn), tensor.shape)[1]) for _ in range(1000)]
    assert set(values) == {2 / 8, 3 / 8}
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
    for places in ([2, 4], [2, 2], [3, 2]):
        with pytest.raises(CodingError, match="positions"):
            coder.decode({**parts, "places": torch.tensor(places, dtype=torch.uint8)}, torch.Size([4]))
