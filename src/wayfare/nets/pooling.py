"""From feature maps (N, C, H, W) to one vector per picture: the last layers of a place descriptor.

A pooling is a class that is chosen by name:

    spoc     (N, C)         the mean over the map
    mac      (N, C)         the maximum
    gem      (N, C)         the generalised mean (mean(x^p))^(1/p) with a learnt p: p = 1 is the mean, and p towards
                            infinity the maximum. Values below 0 are clamped away
    grid     (N, cells C)   a signed generalised mean of each cell of a grid laid over the map: it keeps the sign of
                            every value, and where in the picture it was
    class    (N, C)         the class token of a vision transformer
    vlad     (N, K C)       VLAD: the residuals of the local features from K centres, by a soft assignment. The
                            centres come from federated K-means
    salad    (N, K c + t)   optimal-transport aggregation (SALAD): local features are assigned to K learnt clusters or
                            to none of them, and a global part stands beside the clusters

GeM and MAC are made for maps after a ReLU. On maps of a linear layer, where half of the values are negative, they lose
half of what there is; `PlaceModel.warnings` says so.

Codes for place recognition disagree on where vectors are normalised: `l2 = "before"` normalises the local descriptors
(each position of the map) ahead of pooling (deep-vg and tvg, the family of FedVPR); "after" the pooled vector
(gsv-cities); "both" (CosPlace, with its linear layer between); "none" neither.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, normalize

from wayfare.core.errors import ConfigError

L2Place = Literal["before", "after", "both", "none"]
_TINY = 1e-12
_PACE = 0.5  # of federated K-means: how far a device's own sums replace those it received


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


class SignedGrid(nn.Module):
    """The signed generalised mean of each cell of a grid: m = mean(sign(x) |x|^p), then sign(m) |m|^(1/p)."""

    def __init__(self, rows: int, columns: int, p: float, token: bool = False) -> None:
        super().__init__()
        self.rows, self.columns, self.p, self.token = rows, columns, p, token

    def forward(self, maps: Tensor, token: Tensor | None = None) -> Tensor:
        powers = maps.sign() * maps.abs().pow(self.p)
        mean = adaptive_avg_pool2d(powers, (self.rows, self.columns))
        cells = mean * (mean.abs() + _TINY).pow(1 / self.p - 1)  # the signed root, with a finite gradient at 0
        # each cell's vector counts alike, however strong its activations are
        vectors = normalize(cells, dim=1).permute(0, 2, 3, 1).flatten(1)
        if self.token and token is not None:
            vectors = torch.cat((vectors, normalize(token, dim=1) * math.sqrt(self.rows * self.columns)), 1)
        return vectors


class ClassToken(nn.Module):
    """The class token as it is."""

    def forward(self, maps: Tensor, token: Tensor | None = None) -> Tensor:
        if token is None:
            raise ConfigError("model.pooling = 'class': this backbone has no class token; choose another pooling")
        return token


class Vlad(nn.Module):
    """Residuals of the local features from K centres, by a soft assignment whose sharpness is trained.

    The centres are found by federated K-means: a device's share of each cluster and the sum of its features are
    buffers, so they travel, and the server's mean of them gives the centres of all devices. `update` is a device's part
    of one step of Lloyd's algorithm. In the first, clusters are told apart by random directions from the device's mean,
    which are the same for all devices.
    """

    directions: Tensor
    sums: Tensor
    counts: Tensor

    def __init__(self, channels: int, clusters: int, sharpness: float) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor([float(sharpness)]))
        self.register_buffer("directions", normalize(torch.randn(clusters, channels), dim=1))
        self.register_buffer("sums", torch.zeros(clusters, channels))
        self.register_buffer("counts", torch.zeros(clusters))

    @property
    def centres(self) -> Tensor:
        """(K, C); a cluster that has no features yet keeps its random direction."""
        counts = self.counts[:, None]
        return torch.where(counts > 0, self.sums / counts.clamp(min=_TINY), self.directions)

    @torch.no_grad()
    def update(self, maps: list[Tensor]) -> None:
        """Take a device's maps into account."""
        local = torch.cat([normalize(part.flatten(2), dim=1).transpose(1, 2).flatten(0, 1) for part in maps])
        if self.counts.any():
            nearest = self._closeness(local.T).argmax(0)
        else:
            nearest = ((local - local.mean(0)) @ self.directions.T).argmax(1)
        share = nn.functional.one_hot(nearest, len(self.counts)).to(torch.float64) / len(local)
        pace = _PACE if self.counts.any() else 1.0
        self.sums.lerp_((share.T @ local.double()).to(self.sums), pace)
        self.counts.lerp_(share.sum(0).to(self.counts), pace)

    def _closeness(self, local: Tensor) -> Tensor:
        """Of features (..., C, L) to the centres: 1 less the squared distance, as far as centres differ in it."""
        centres = self.centres
        return 2 * centres @ local - centres.square().sum(1)[:, None]

    def forward(self, maps: Tensor) -> Tensor:
        local = normalize(maps.flatten(2), dim=1)  # (N, C, L)
        share = (self.sharpness * self._closeness(local)).softmax(1)  # (N, K, L)
        residuals = share @ local.transpose(1, 2) - share.sum(2)[..., None] * self.centres
        return normalize(residuals, dim=2).flatten(1)


class Salad(nn.Module):
    """Local features to clusters by optimal transport, with a bin for those that belong to none (Izquierdo, Civera)."""

    def __init__(self, channels: int, clusters: int, width: int, token: int, hidden: int) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Conv2d(channels, hidden, 1), nn.ReLU(), nn.Conv2d(hidden, clusters, 1))
        self.feature = nn.Sequential(nn.Conv2d(channels, hidden, 1), nn.ReLU(), nn.Conv2d(hidden, width, 1))
        self.whole = nn.Sequential(nn.Linear(channels, hidden), nn.ReLU(), nn.Linear(hidden, token))

    def forward(self, maps: Tensor, token: Tensor | None = None) -> Tensor:
        scores = self.score(maps).flatten(2)  # (N, K, L)
        # The bin's score is learnt in the paper. It makes no difference: what each bin takes is fixed.
        share = _transported(torch.cat((scores, torch.zeros_like(scores[:, :1])), 1))[:, :-1]
        local = self.feature(maps).flatten(2)  # (N, c, L)
        clusters = normalize(share @ local.transpose(1, 2), dim=2).flatten(1)
        whole = self.whole(maps.mean((2, 3)) if token is None else token)
        return torch.cat((clusters, normalize(whole, dim=1)), 1)


def _transported(scores: Tensor, iterations: int = 3) -> Tensor:
    """Sinkhorn's shares (N, K + 1, L): every feature gives all of itself; the last row, the bin, takes what is left.

    Each cluster takes as much as one feature, and the bin L - K of them (at least one).
    """
    bins, features = scores.shape[1], scores.shape[2]
    takes = torch.ones(bins, device=scores.device)
    takes[-1] = max(features - bins + 1, 1)
    takes = (takes * features / takes.sum()).log()
    v = torch.zeros_like(scores[:, :1])
    for _ in range(iterations):
        u = takes[:, None] - torch.logsumexp(scores + v, 2, keepdim=True)
        v = -torch.logsumexp(scores + u, 1, keepdim=True)
    return (scores + u + v).exp()


class Pooling:
    """A choice of pooling: a frozen dataclass of settings."""

    takes_token: ClassVar[bool] = False
    """Whether its layer is called with (maps, class token or None) instead of the maps only."""
    keeps_sign: ClassVar[bool] = True
    """Whether negative values of a map count."""

    def layer(self, channels: int) -> nn.Module:
        """The layer from maps (N, channels, H, W) to vectors."""
        raise NotImplementedError

    def width(self, channels: int, token: bool = False) -> int:
        """The length of the vectors; `token`: the backbone has a class token."""
        return channels


@dataclass(frozen=True)
class SpocPooling(Pooling):
    """The mean."""

    def layer(self, channels: int) -> nn.Module:
        return SPOC()


@dataclass(frozen=True)
class MacPooling(Pooling):
    """The maximum."""

    keeps_sign: ClassVar[bool] = False

    def layer(self, channels: int) -> nn.Module:
        return MAC()


@dataclass(frozen=True)
class GemPooling(Pooling):
    """The generalised mean."""

    p: float = 3.0  # initial value: it is trained

    keeps_sign: ClassVar[bool] = False

    def layer(self, channels: int) -> nn.Module:
        return GeM(self.p)


@dataclass(frozen=True)
class GridPooling(Pooling):
    """The mean of each cell of a grid, or a signed generalised mean.

    Half whitened and untrained, the mean was 2 points of R@1 better than p = 3 on unseen cities; trained, about one.
    """

    rows: int = 2
    columns: int = 4
    p: float = 1.0  # 1: the mean of a cell
    token: bool = False  # the class token beside the cells, with the weight of all of them

    takes_token: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if min(self.rows, self.columns) < 1 or self.p < 1:
            raise ConfigError(
                f"model.pooling: rows = {self.rows}, columns = {self.columns}, p = {self.p:g}: expected at least 1"
            )

    def layer(self, channels: int) -> nn.Module:
        return SignedGrid(self.rows, self.columns, self.p, self.token)

    def width(self, channels: int, token: bool = False) -> int:
        return channels * (self.rows * self.columns + (token and self.token))


@dataclass(frozen=True)
class ClassPooling(Pooling):
    """The class token of a transformer."""

    takes_token: ClassVar[bool] = True

    def layer(self, channels: int) -> nn.Module:
        return ClassToken()


@dataclass(frozen=True)
class VladPooling(Pooling):
    """VLAD with centres from federated K-means."""

    clusters: int = 16
    sharpness: float = 10.0  # of the soft assignment; initial value: it is trained

    def __post_init__(self) -> None:
        if self.clusters < 1 or self.sharpness <= 0:
            raise ConfigError(f"model.pooling: clusters = {self.clusters}, sharpness = {self.sharpness:g}: too small")

    def layer(self, channels: int) -> nn.Module:
        return Vlad(channels, self.clusters, self.sharpness)

    def width(self, channels: int, token: bool = False) -> int:
        return channels * self.clusters


@dataclass(frozen=True)
class SaladPooling(Pooling):
    """Optimal-transport aggregation with learnt clusters."""

    clusters: int = 16
    features: int = 32  # numbers of each cluster
    whole: int = 64  # numbers of the global part
    hidden: int = 128

    takes_token: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if min(self.clusters, self.features, self.whole, self.hidden) < 1:
            raise ConfigError("model.pooling: clusters, features, whole and hidden: expected at least 1")

    def layer(self, channels: int) -> nn.Module:
        return Salad(channels, self.clusters, self.features, token=self.whole, hidden=self.hidden)

    def width(self, channels: int, token: bool = False) -> int:
        return self.clusters * self.features + self.whole


class Aggregation(nn.Module):
    """Pooling (under the name `pool`), an optional linear layer after it, and L2 where asked."""

    def __init__(self, pooling: Pooling, channels: int, l2: L2Place, linear: int, token: bool) -> None:
        super().__init__()
        self.before, self.after = l2 in ("before", "both"), l2 in ("after", "both")
        self._takes_token = pooling.takes_token
        self.pool = pooling.layer(channels)
        pooled = pooling.width(channels, token)
        self.linear = _identity(pooled, linear) if linear else None
        self.width = linear or pooled

    def forward(self, maps: Tensor, token: Tensor | None = None) -> Tensor:
        if self.before:
            maps = normalize(maps, dim=1)
        vectors: Tensor = self.pool(maps, token) if self._takes_token else self.pool(maps)
        if self.linear is not None:
            vectors = self.linear(vectors)
        return normalize(vectors, dim=1) if self.after else vectors


def aggregation(
    channels: int, pooling: Pooling, l2: L2Place = "after", linear: bool | int = False, token: bool = False
) -> Aggregation:
    """Maps of `channels` channels to vectors.

    `linear` adds a linear layer after the pooling: a square one, or one to so many numbers. It starts as the identity
    (to fewer numbers: a random orthogonal projection): a random layer would lose what the network has learnt, and
    overfits if there are few photos. To centre the descriptors, initialise its bias with minus their mean.
    """
    width = pooling.width(channels, token) if linear is True else int(linear)
    return Aggregation(pooling, channels, l2, linear=width, token=token)


def _identity(inner: int, outer: int) -> nn.Linear:
    layer = nn.Linear(inner, outer)
    if inner == outer:
        nn.init.eye_(layer.weight)
    else:
        nn.init.orthogonal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
