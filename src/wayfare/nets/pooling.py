"""From feature maps (N, C, H, W) to one vector per picture (N, C): the last layers of a place descriptor.

- A pooling is a class that is chosen by name. `spoc`: the mean over the map. `mac`: the maximum. `gem`: the generalised
  mean (mean(x^p))^(1/p) with a learnt p: p = 1 is the mean, and p towards infinity the maximum.
- Codes for place recognition disagree on where vectors are normalised: `l2 = "before"` normalises the local
  descriptors (each position of the map) ahead of pooling (deep-vg and tvg, the family of FedVPR); "after" the pooled
  vector (gsv-cities); "both" (CosPlace, with its linear layer between); "none" neither.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from wayfare.core.errors import ConfigError

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
        # With logarithms: a third of the time of two calls of pow (with a gradient for p), and 1e-6^p and 6^p
        # neither vanish nor overflow for any p.
        powers = self.p * maps.clamp(min=self.eps).log()
        mean = torch.logsumexp(powers, dim=(2, 3)) - math.log(maps.shape[2] * maps.shape[3])
        return (mean / self.p).exp()

    def extra_repr(self) -> str:
        return f"eps={self.eps}"


class L2(nn.Module):
    """Normalise vectors along the channels to length 1."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x, dim=1)


class Pooling:
    """A choice of pooling: a frozen dataclass of settings with one method."""

    def layer(self) -> nn.Module:
        """The layer from maps (N, C, H, W) to vectors (N, C)."""
        raise NotImplementedError


@dataclass(frozen=True)
class SpocPooling(Pooling):
    """The mean."""

    def layer(self) -> nn.Module:
        return SPOC()


@dataclass(frozen=True)
class MacPooling(Pooling):
    """The maximum."""

    def layer(self) -> nn.Module:
        return MAC()


@dataclass(frozen=True)
class GemPooling(Pooling):
    """The generalised mean."""

    p: float = 3.0  # initial value: it is trained

    def layer(self) -> nn.Module:
        return GeM(self.p)


def aggregation(channels: int, pooling: Pooling, l2: L2Place = "after", linear: bool = False) -> nn.Sequential:
    """Maps of `channels` channels to vectors: pooling (under the name `pool`), with L2 where asked.

    `linear` adds a square linear layer after the pooling. It starts as the identity: a random layer would lose what the
    network has learnt, and overfits if there are few photos. To centre the descriptors, initialise its bias with minus
    their mean.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    if l2 in ("before", "both"):
        layers["before"] = L2()
    layers["pool"] = pooling.layer()
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
