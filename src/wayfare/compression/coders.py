"""Ways to write a tensor in few bytes. A coder is pure: the same tensor and random numbers give the same bytes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from wayfare.core.bundle import Weights

_HALF, _FLOAT = 2, 4  # bytes
_BLOCK = 128  # numbers that share a step
_THREES = torch.tensor([1, 3, 9, 27, 81])  # five numbers with three levels go into a byte
_WIDE, _MOST = 256, 127  # numbers among which the largest are found; the largest code in a byte
_SHARES = (1.0, 0.85, 0.7, 0.55, 0.4)  # steps that are tried, over the one that reaches the largest entry


class CodingError(Exception):
    """What came is not what this coder writes."""


class Coder(ABC):
    """Writes a float tensor as named tensors, and reads them again."""

    @abstractmethod
    def encode(self, tensor: Tensor, rng: np.random.Generator) -> Weights:
        """The parts that travel."""

    @abstractmethod
    def decode(self, parts: Weights, shape: torch.Size) -> Tensor:
        """A tensor of this shape, float32; CodingError if the parts are not those of such a tensor."""

    @abstractmethod
    def nbytes(self, shape: torch.Size) -> int:
        """How much the parts weigh."""


@dataclass(frozen=True)
class Halves(Coder):
    """Two bytes a number."""

    def encode(self, tensor: Tensor, rng: np.random.Generator) -> Weights:
        return {"halves": tensor.half()}

    def decode(self, parts: Weights, shape: torch.Size) -> Tensor:
        return _part(parts, "halves", shape, torch.float16).float()

    def nbytes(self, shape: torch.Size) -> int:
        return shape.numel() * _HALF


@dataclass(frozen=True)
class Levels(Coder):
    """Multiples of a step at equal distances around zero, with a step for each 128 numbers.

    levels      2^bits - 1, one of which is 0; or 2^bits if `even`, which are nearer, but none is 0
    value       (code - top) step,  code = 0 ... levels - 1,  top = (levels - 1) / 2
    at random   code = floor(x / step + top + u), u uniform in [0, 1), step = max |x| / top     (QSGD)
    to nearest  code = round(x / step + top), cut off at both ends, with the step of those tried that loses least

    Rounding at random is right on average; to the nearest it loses less, but the same way each time.
    """

    bits: int
    random: bool = True
    even: bool = False

    @property
    def levels(self) -> int:
        """How many values a number can have."""
        return int(2**self.bits) - (not self.even)

    @property
    def _top(self) -> float:
        return (self.levels - 1) / 2

    def encode(self, tensor: Tensor, rng: np.random.Generator) -> Weights:
        blocks = _in_blocks(tensor)
        largest = blocks.abs().amax(1) / self._top
        if self.random:
            steps = largest.bfloat16()
            drawn = torch.from_numpy(rng.random(tuple(blocks.shape), dtype=np.float32))
            codes = torch.floor(_over(blocks, steps) + self._top + drawn).clamp_(0, self.levels - 1)
        else:
            steps = self._best(blocks, largest, _in_blocks(torch.ones_like(tensor)))
            codes = self._nearest(blocks, steps)
        return {"codes": self._packed(codes.to(torch.uint8).reshape(-1)[: tensor.numel()]), "steps": steps}

    def _nearest(self, blocks: Tensor, steps: Tensor) -> Tensor:
        return torch.round(_over(blocks, steps) + self._top).clamp_(0, self.levels - 1)

    def _best(self, blocks: Tensor, largest: Tensor, real: Tensor) -> Tensor:
        """For each block the step whose codes lose least; what fills the last block does not count."""
        if self.bits == 8:  # nothing to gain
            return largest.bfloat16()
        tried, lost = [(largest * share).bfloat16() for share in _SHARES], []
        for steps in tried:
            read = (self._nearest(blocks, steps) - self._top) * steps.float()[:, None]
            lost.append(((blocks - read) * real).square().sum(1))
        best = torch.stack(lost).argmin(0, keepdim=True)
        return torch.stack(tried).gather(0, best)[0]

    def decode(self, parts: Weights, shape: torch.Size) -> Tensor:
        count = shape.numel()
        steps = _part(parts, "steps", torch.Size([_blocks(count)]), torch.bfloat16).float()
        packed = _part(parts, "codes", torch.Size([self._bytes(count)]), torch.uint8)
        codes = self._unpacked(packed)[:count].float() - self._top
        return (_in_blocks(codes) * steps[:, None]).reshape(-1)[:count].reshape(shape)

    def nbytes(self, shape: torch.Size) -> int:
        return self._bytes(shape.numel()) + _HALF * _blocks(shape.numel())

    def _bytes(self, count: int) -> int:
        return math.ceil(count / len(_THREES)) if self.levels == 3 else math.ceil(count * self.bits / 8)

    def _packed(self, codes: Tensor) -> Tensor:
        if self.bits == 8:
            return codes
        if self.levels == 3:
            fives = torch.nn.functional.pad(codes, (0, -len(codes) % len(_THREES))).reshape(-1, len(_THREES))
            return (fives.int() * _THREES).sum(1).to(torch.uint8)
        each = np.unpackbits(codes.numpy()[:, None], axis=1)[:, 8 - self.bits :]
        return torch.from_numpy(np.packbits(each))

    def _unpacked(self, packed: Tensor) -> Tensor:
        """The codes, with a few more from what fills the last byte."""
        if self.bits == 8:
            return packed
        if self.levels == 3:
            if bool((packed >= 3 ** len(_THREES)).any()):
                raise CodingError("codes must be those of five numbers with three levels")
            return (packed[:, None].int() // _THREES % 3).reshape(-1)
        each = np.unpackbits(packed.numpy())
        whole = each[: len(each) // self.bits * self.bits].reshape(-1, self.bits)
        return torch.from_numpy((whole @ (1 << np.arange(self.bits - 1, -1, -1))).astype(np.uint8))


@dataclass(frozen=True)
class Largest(Coder):
    """Of each 256 numbers the share that is largest in size; the others are zero.

    So a place takes one byte; the number takes another one, in steps of a 127th of the largest of the 256.
    """

    share: float

    def _layout(self, count: int) -> tuple[int, int, int]:
        """How many blocks, how many numbers in each, how many of them travel."""
        width = min(_WIDE, max(count, 1))
        return -(-count // width), width, max(1, math.ceil(self.share * width))

    def encode(self, tensor: Tensor, rng: np.random.Generator) -> Weights:
        many, width, kept = self._layout(tensor.numel())
        flat = tensor.reshape(-1)
        blocks = torch.nn.functional.pad(flat, (0, many * width - flat.numel())).reshape(many, width)
        # numpy's stable sort: of equal entries the first ones, on every machine
        order = np.argsort(-blocks.abs().numpy(), axis=1, kind="stable")[:, :kept]
        places = torch.from_numpy(np.sort(order, axis=1))
        values = blocks.gather(1, places)
        steps = (values.abs().amax(1) / _MOST).bfloat16()
        codes = torch.round(_over(values, steps)).clamp_(-_MOST, _MOST).to(torch.int8)
        return {"places": places.to(torch.uint8).reshape(-1), "codes": codes.reshape(-1), "steps": steps}

    def decode(self, parts: Weights, shape: torch.Size) -> Tensor:
        many, width, kept = self._layout(shape.numel())
        size = torch.Size([many * kept])
        places = _part(parts, "places", size, torch.uint8).long().reshape(many, kept)
        codes = _part(parts, "codes", size, torch.int8).float().reshape(many, kept)
        steps = _part(parts, "steps", torch.Size([many]), torch.bfloat16).float()
        if bool((places[:, -1] >= width).any()) or bool((places.diff(dim=1) <= 0).any()):
            raise CodingError("positions must increase and lie within their block")
        blocks = torch.zeros(many, width).scatter_(1, places, codes * steps[:, None])
        return blocks.reshape(-1)[: shape.numel()].reshape(shape)

    def nbytes(self, shape: torch.Size) -> int:
        many, _, kept = self._layout(shape.numel())
        return many * (2 * kept + _HALF)


@dataclass(frozen=True)
class Factors(Coder):
    """A matrix as a product of two thin ones: one step of the power method (PowerSGD, Vogels et al., 2019).

    P = orthonormal basis of M M^T M Q, Q drawn;  M is sent as P and P^T M
    """

    rank: int

    def encode(self, tensor: Tensor, rng: np.random.Generator) -> Weights:
        matrix = _rows(tensor).double()
        drawn = torch.from_numpy(rng.standard_normal((matrix.shape[1], self.rank)))
        left, _ = torch.linalg.qr(matrix @ (matrix.T @ (matrix @ drawn)))
        return {"left": left.float().contiguous(), "right": (left.T @ matrix).float().contiguous()}

    def decode(self, parts: Weights, shape: torch.Size) -> Tensor:
        rows = shape[0]
        left = _part(parts, "left", torch.Size([rows, self.rank]), torch.float32)
        right = _part(parts, "right", torch.Size([self.rank, shape.numel() // rows]), torch.float32)
        return (left @ right).reshape(shape)

    def nbytes(self, shape: torch.Size) -> int:
        return _FLOAT * self.rank * (shape[0] + shape.numel() // shape[0])


def _rows(tensor: Tensor) -> Tensor:
    """A matrix: a row for each output of a layer; a vector is one row."""
    return tensor.reshape(tensor.shape[0], -1) if tensor.ndim > 1 else tensor.reshape(1, -1)


def _part(parts: Weights, name: str, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    tensor = parts.get(name)
    if tensor is None or tensor.shape != shape or tensor.dtype != dtype:
        raise CodingError(f"{name} must be {dtype} of shape {tuple(shape)}")
    return tensor


def _blocks(count: int) -> int:
    return -(-count // _BLOCK)


def _in_blocks(tensor: Tensor) -> Tensor:
    """A row for each block; zeros fill the last one."""
    flat = tensor.reshape(-1)
    return torch.nn.functional.pad(flat, (0, -flat.numel() % _BLOCK)).reshape(-1, _BLOCK)


def _over(blocks: Tensor, steps: Tensor) -> Tensor:
    return blocks / steps.float().clamp_min(torch.finfo(torch.float32).tiny)[:, None]
