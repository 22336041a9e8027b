"""Partial whitening of descriptors: directions in which all photographs differ much tell places apart less well.

    y = (C + (tr C / d) I)^(-power / 2) (x - m), brought to length 1

with mean m and covariance C of descriptors x of width d. Power 1 is whitening; 0.5 goes half the way, and was better
where photographs are few: their covariance has rank n < d at most, hence the multiple of I.

m and E[x x'] are buffers, so they travel with the network and the server's mean of them is that of all photographs it
has received statistics of. A device adds those of its own to what it received at one part in ten, as BatchNorm does;
the sums begin at 0, and `weight` says how far they have come. Until a device has added its own, descriptors are left
alone. Only what is compared is whitened: training sees descriptors as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

_PACE = 0.1


class Whitening(nn.Module):
    """See the module."""

    mean: Tensor
    moments: Tensor
    weight: Tensor

    def __init__(self, width: int, power: float) -> None:
        super().__init__()
        self.power = power
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("moments", torch.zeros(width, width))
        self.register_buffer("weight", torch.zeros(()))
        self._solution: tuple[list[tuple[Tensor, int]], Tensor, Tensor] = ([], self.mean, self.moments)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Take a device's descriptors (n, d) into account."""
        x = x.to(self.moments.device, torch.float64)
        for sums, own in ((self.mean, x.mean(0)), (self.moments, x.T @ x / len(x)), (self.weight, torch.ones(()))):
            sums.lerp_(own.to(sums), _PACE)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        if not self.weight > 0:
            return x
        state, mean, matrix = self._solution
        now = [(buffer, buffer._version) for buffer in self.buffers()]
        if len(state) < len(now) or any(a is not b or m != n for (a, m), (b, n) in zip(state, now)):
            mean, matrix = self._solved()
            self._solution = now, mean, matrix
        return normalize((x - mean) @ matrix, dim=1)

    def _solved(self) -> tuple[Tensor, Tensor]:
        mean, moments = self.mean.double() / self.weight, self.moments.double() / self.weight
        values, vectors = torch.linalg.eigh(moments - torch.outer(mean, mean))
        values = values.clamp(min=0)
        values = (values + values.mean().clamp(min=1e-12)) ** (-self.power / 2)
        return mean.to(self.mean), (vectors * values @ vectors.T).to(self.moments)
