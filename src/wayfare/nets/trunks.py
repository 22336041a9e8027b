"""DINOv2 as a frozen trunk: features of a picture, computed once, on which small heads are trained.

A picture's features are three vectors of 384 numbers, each normalised to mean 0 and deviation 1: the class token, the
mean of the patches, and the mean of the patches after the third block, which knows colours better. Precision at 10 of
110 queries such as "black belt" over 1,000 fashion photos, ridge regression from 2,000 others to MiniLM's vectors of
their titles, the best of five weights: class token 0.65, with the last patches 0.66, with the third block's 0.68; with
those of the sixth block too 0.68; EfficientNet-Lite0 at 128 pixels 0.59.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from wayfare.core.bundle import digest
from wayfare.nets.dinov2 import DinoV2
from wayfare.nets.frozen import resized
from wayfare.nets.published import PUBLISHED

_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_EARLY = "block3"


class DinoTrunk(nn.Module):
    """Pictures in 0..1, grey or colour, of any size, to features (N, 3 * width); it never trains."""

    _mean: Tensor
    _deviation: Tensor

    def __init__(self, side: int = 224, net: DinoV2 | None = None) -> None:
        """`side`: pictures are resized to it; `net`: another than the published one, for tests."""
        super().__init__()
        self.side = side
        if net is None:
            with torch.random.fork_rng(devices=[]):  # its random initial weights are not used
                net = DinoV2()
            net.load_state_dict(PUBLISHED["dinov2-s"].load())
        self.net = net.requires_grad_(False).eval()
        self.feature_dim = 3 * net.feature_dim
        self.register_buffer("_mean", torch.tensor(_MEAN)[:, None, None], persistent=False)
        self.register_buffer("_deviation", torch.tensor(_DEVIATION)[:, None, None], persistent=False)

    @property
    def key(self) -> str:
        """A cache key that differs for trunks with different features."""
        return f"dinov2 {digest(self.net.state_dict())} {self.side}"

    def own_weights(self) -> dict[str, Tensor]:
        """None: published weights are in the cache, see `nets.published`."""
        return {}

    def train(self, mode: bool = True) -> Self:
        """Always stay in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, pictures: Tensor) -> Tensor:
        maps = (resized(pictures, self.side).expand(-1, 3, -1, -1) - self._mean) / self._deviation
        early = maps
        for name, layers in self.net.stages().items():
            for layer in layers:
                maps = layer(maps)
            early = maps if name == _EARLY else early
        parts = maps[:, :, 0, 0], maps[:, :, 1:].mean((2, 3)), early[:, :, 1:].mean((2, 3))
        return torch.cat([layer_norm(part, part.shape[1:]) for part in parts], 1)
