"""Partial whitening of descriptors: directions in which all photographs differ much tell places apart less well.

    y = (C + (tr C / d) I)^(-power / 2) (x - m), brought to length 1

with mean m and covariance C of descriptors x of width d. Power 1 is whitening; 0.5 goes half the way, and was better
where photographs are few: their covariance has rank n < d at most, hence the multiple of I.

C itself would be a large message (896 x 896 numbers for a grid, 6,144 x 6,144 for VLAD). What travels is a sketch of
it: E[x x'] W with a fixed W of 32 random orthogonal columns, and E[|x|^2]. From S = C W follows the approximation of
Nystroem, C = S (W' S)^-1 S', which is exact if C has rank 32 or less. Directions outside of it get the mean of the
variance that is left. On unseen cities it was as good as the whole matrix, within the noise.

m, the sketch and E[|x|^2] are buffers, so they travel with the network and the server's mean of them is that of all
photographs it has received statistics of. A device adds those of its own to what it received at one part in ten, as
BatchNorm does; the sums begin at 0, and `weight` says how far they have come. Until a device has added its own,
descriptors are left alone. Only what is compared is whitened: training sees descriptors as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

_PACE = 0.1
_COLUMNS = 32  # of the sketch
_NOISE = 1e-6  # of the largest eigenvalue: below it there is rounding only


class _Solution(NamedTuple):
    """y = rest (x - mean) + directions (factors * directions' (x - mean))."""

    mean: Tensor  # (d,)
    directions: Tensor  # (d, r), orthonormal
    factors: Tensor  # (r,)
    rest: Tensor  # ()

    def __call__(self, x: Tensor) -> Tensor:
        x = x - self.mean
        return normalize(self.rest * x + (x @ self.directions * self.factors) @ self.directions.T, dim=1)


class SettledWhitening(nn.Module):
    """Whitening with a solution that does not change any more, in layers that every runtime has."""

    mean: Tensor
    rest: Tensor

    def __init__(self, solution: _Solution) -> None:
        super().__init__()
        width, rank = solution.directions.shape
        self.register_buffer("mean", solution.mean[None])
        self.register_buffer("rest", solution.rest.expand(1, width).clone())
        self.inwards, self.back = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)
        with torch.no_grad():
            self.inwards.weight.copy_((solution.directions * solution.factors).T)
            self.back.weight.copy_(solution.directions)
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        x = x - self.mean
        return normalize(self.rest * x + self.back(self.inwards(x)), dim=1)


class Whitening(nn.Module):
    """See the module."""

    mean: Tensor
    sketch: Tensor
    square: Tensor
    weight: Tensor
    columns: Tensor

    def __init__(self, width: int, power: float) -> None:
        super().__init__()
        self.power = power
        columns = min(width, _COLUMNS)
        random = torch.randn(width, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        self.register_buffer("columns", torch.linalg.qr(random)[0].float(), persistent=False)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("sketch", torch.zeros(width, columns))
        self.register_buffer("square", torch.zeros(()))
        self.register_buffer("weight", torch.zeros(()))
        self._solution: tuple[list[tuple[Tensor, int]], _Solution | None] = ([], None)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Take a device's descriptors (n, d) into account."""
        x = x.to(self.sketch.device, torch.float64)
        own = {
            "mean": x.mean(0),
            "sketch": x.T @ (x @ self.columns.double()) / len(x),
            "square": x.square().sum(1).mean(),
            "weight": torch.ones(()),
        }
        for name, value in own.items():
            sums = self.get_buffer(name)
            sums.lerp_(value.to(sums), _PACE)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        if not self.weight > 0:
            return x
        state, found = self._solution
        now = [(buffer, buffer._version) for buffer in self.buffers()]
        if found is None or any(a is not b or m != n for (a, m), (b, n) in zip(state, now)):
            found = self._solved()
            self._solution = now, found
        return found(x)

    def settled(self) -> SettledWhitening | None:
        """The same for statistics that stay as they are; None where descriptors are left alone."""
        return SettledWhitening(self._solved()) if self.weight > 0 else None

    def _solved(self) -> _Solution:
        columns, mean = self.columns.double(), self.mean.double() / self.weight
        sketch = self.sketch.double() / self.weight - torch.outer(mean, mean @ columns)
        total = (self.square.double() / self.weight - mean @ mean).clamp(min=0)
        inner = columns.T @ sketch
        values, vectors = torch.linalg.eigh((inner + inner.T) / 2)
        kept = values > _NOISE * values[-1].clamp(min=0)
        root = sketch @ (vectors[:, kept] / values[kept].sqrt())  # C = root root'
        directions, lengths, _ = torch.linalg.svd(root, full_matrices=False)
        variances, width = lengths.square(), len(mean)
        left = (total - variances.sum()).clamp(min=0) / max(1, width - len(variances))
        floor = (total / width).clamp(min=1e-12)
        rest, strong = (left + floor) ** (-self.power / 2), (variances + floor) ** (-self.power / 2)
        return _Solution(*(part.to(self.mean) for part in (mean, directions, strong - rest, rest)))
