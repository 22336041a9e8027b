"""From feature maps (N, C, H, W) to one vector per picture (N, C): the last layers of a place descriptor.

- `SPOC`: the mean over the map. `MAC`: the maximum. `GeM`: the generalised mean (mean(x^p))^(1/p) with a learnt p:
  p = 1 is the mean, and p towards infinity the maximum.
- Codes for place recognition disagree on where vectors are brought to length 1: `l2 = "before"` normalises the local
  descriptors (each position of the map) ahead of pooling (deep-vg and tvg, the family of FedVPR); "after" the pooled
  vector (gsv-cities); "both" (CosPlace, with its linear layer between); "none" neither.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from wayfare.errors import ConfigError, unknown

Pooling = Literal["spoc", "mac", "gem"]
L2Place = Literal["before", "after", "both", "none"]


class SPOC(nn.Module):
    """The mean of every channel."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3))


class MAC(nn.Module):
    """The maximum of every channel."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.amax(dim=(2, 3))


class GeM(nn.Module):
    """The generalised mean of every channel, one p for all; values below `eps` count as `eps`."""

    def __init__(self, p: float = 3.0, eps: float = 1e-6) -> None:
        super().__init__()
        if not (p > 0 and eps > 0):
            raise ConfigError(f"GeM: p and eps must be above 0, not p = {p} and eps = {eps}")
        self.p = nn.Parameter(torch.tensor([float(p)]))
        self.eps = eps

    def forward(self, maps: Tensor) -> Tensor:
        # By way of logarithms: a third of the time of two calls of pow (with a gradient for p), and 1e-6^p or 6^p
        # neither vanish nor overflow whatever p becomes.
        powers = self.p * maps.clamp(min=self.eps).log()
        mean = torch.logsumexp(powers, dim=(2, 3)) - math.log(maps.shape[2] * maps.shape[3])
        return (mean / self.p).exp()

    def extra_repr(self) -> str:
        return f"eps={self.eps}"


class L2(nn.Module):
    """Vectors along the channels brought to length 1."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x, dim=1)


def aggregation(
    channels: int, pooling: Pooling = "gem", l2: L2Place = "after", p: float = 3.0, linear: bool = False
) -> nn.Sequential:
    """Maps of `channels` channels to vectors: pooling (under the name `pool`), with L2 where asked.

    `linear` puts a square linear layer behind the pooling. It starts as the identity: a layer that starts at random
    forgets what the network knew, and over-fits where photos are few. To centre the descriptors, start its bias at
    minus their mean.
    """
    if pooling not in get_args(Pooling):
        raise unknown("pooling", str(pooling), get_args(Pooling))
    if l2 not in get_args(L2Place):
        raise unknown("place of the L2 norm", str(l2), get_args(L2Place))
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    if l2 in ("before", "both"):
        layers["before"] = L2()
    layers["pool"] = GeM(p) if pooling == "gem" else MAC() if pooling == "mac" else SPOC()
    if linear:
        layers["linear"] = _identity(channels)
    if l2 in ("after", "both"):
        layers["after"] = L2()
    return nn.Sequential(layers)


def _identity(width: int) -> nn.Linear:
    layer = nn.Linear(width, width)
    nn.init.eye_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
