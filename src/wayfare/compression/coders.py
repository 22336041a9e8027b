"""Ways to write a tensor in few bytes. A coder is pure: the same tensor and random numbers give the same bytes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from wayfare.core.bundle import Weights

_PLACE, _HALF, _FLOAT = 4, 2, 4  # bytes


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
    """Whole multiples of a step, one step for each row, rounded at random so that the mean is right (QSGD).

    step = max |row| / L,  L = 2^(bits - 1) - 1,  code = floor(x / step + u), u uniform in [0, 1)
    """

    bits: int

    @property
    def most(self) -> int:
        """L, the largest code."""
        return int(2 ** (self.bits - 1) - 1)

    def encode(self, tensor: Tensor, rng: np.random.Generator) -> Weights:
        rows = _rows(tensor)
        steps = rows.abs().amax(1) / self.most
        drawn = torch.from_numpy(rng.random(tuple(rows.shape), dtype=np.float32))
        codes = torch.floor(rows / steps.clamp_min(torch.finfo(torch.float32).tiny)[:, None] + drawn)
        whole = codes.clamp_(-self.most, self.most).to(torch.int8).reshape(-1)
        return {"codes": whole if self.bits == 8 else _nibbles(whole), "steps": steps}

    def decode(self, parts: Weights, shape: torch.Size) -> Tensor:
        rows, count = (shape[0] if len(shape) > 1 else 1), shape.numel()
        steps = _part(parts, "steps", torch.Size([rows]), torch.float32)
        if self.bits == 8:
            codes = _part(parts, "codes", torch.Size([count]), torch.int8)
        else:
            codes = _from_nibbles(_part(parts, "codes", torch.Size([(count + 1) // 2]), torch.uint8))[:count]
        return (codes.float().reshape(rows, -1) * steps[:, None]).reshape(shape)

    def nbytes(self, shape: torch.Size) -> int:
        return math.ceil(shape.numel() * self.bits / 8) + _FLOAT * (shape[0] if len(shape) > 1 else 1)


@dataclass(frozen=True)
class Largest(Coder):
    """The share of entries that are largest in size; the others are zero."""

    share: float

    def count(self, shape: torch.Size) -> int:
        """How many entries travel."""
        return max(1, math.ceil(self.share * shape.numel()))

    def encode(self, tensor: Tensor, rng: np.random.Generator) -> Weights:
        flat = tensor.reshape(-1)
        # numpy's stable sort: of equal entries the first ones, on every machine
        order = np.argsort(-flat.abs().numpy(), kind="stable")[: self.count(tensor.shape)]
        places = torch.from_numpy(np.sort(order).astype(np.int32))
        most = torch.finfo(torch.float16).max
        return {"places": places, "values": flat[places.long()].clamp(-most, most).half()}

    def decode(self, parts: Weights, shape: torch.Size) -> Tensor:
        size = torch.Size([self.count(shape)])
        places = _part(parts, "places", size, torch.int32).long()
        values = _part(parts, "values", size, torch.float16).float()
        if int(places[0]) < 0 or int(places[-1]) >= shape.numel() or bool((places.diff() <= 0).any()):
            raise CodingError("places must increase, and be places of the tensor")
        flat = torch.zeros(shape.numel())
        flat[places] = values
        return flat.reshape(shape)

    def nbytes(self, shape: torch.Size) -> int:
        return self.count(shape) * (_PLACE + _HALF)


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


def _nibbles(codes: Tensor) -> Tensor:
    """Two codes from -8 to 7 in each byte."""
    shifted = torch.nn.functional.pad(codes + 8, (0, len(codes) % 2)).to(torch.uint8)
    return shifted[0::2] | (shifted[1::2] << 4)


def _from_nibbles(packed: Tensor) -> Tensor:
    return torch.stack([packed & 15, packed >> 4], 1).reshape(-1).to(torch.int8) - 8
