"""A frozen trunk and a trained head: EfficientNet-Lite0 with ImageNet weights, and one linear layer for the classes.

The trunk's features of a picture never change, so they are computed once and cached (`nets.features`). Only the head is
trained and sent: 12,810 parameters with ten classes.

The trunk's 1,280 pooled values are normalised to mean 0 and deviation 1 *within each picture*. That needs no constants,
which would differ for every picture size: the values' mean over CIFAR-10 is 0.02, 0.87 and 0.59 for pictures of 32, 64
and 96 pixels. A head trained on 3,000 of its pictures by five passes of SGD, evaluated on 1,500 test pictures:

    pictures brought to              32       64       96
    pictures per second (one core)   1,500    520      250
    as pooled                        47.7 %   66.1 %   76.7 %
    mean 0, deviation 1              47.9     67.4     77.3
    each value over all pictures     47.6     67.2     77.9
    length 1                         44.3     58.7     71.8

Each with the best of seven learning rates from 0.001 to 1, chosen on these same pictures: the table compares, it does
not predict. For mean 0 and deviation 1 the best rate was 0.003, 0.01 and 0.03; for length 1 it was 1, the largest
tried. One trial each, so differences of two points are noise. Statistics over all pictures are no better, and no device
has them.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, layer_norm

from wayfare.core.bundle import digest
from wayfare.nets.efficientnet import EfficientNetLite0, imagenet_weights
from wayfare.nets.pretrained import load_pretrained

SMALLEST = 32  # pixels: the trunk halves a picture five times
_MEAN, _DEVIATION = 127 / 255, 128 / 255  # of pixels in 0..1, as the trunk was trained


class Trunk(nn.Module):
    """Pictures in 0..1, grey or colour, of any size, to features (N, 1280); it never trains."""

    feature_dim = EfficientNetLite0.feature_dim

    def __init__(self, side: int, weights: dict[str, Tensor] | None = None) -> None:
        """`side`: pictures are resized to it; `weights`: of EfficientNet-Lite0, instead of those from ImageNet."""
        super().__init__()
        self.side = side
        with torch.random.fork_rng(devices=[]):  # its random initial weights are not used
            self.backbone = EfficientNetLite0()
        del self.backbone._fc
        given = imagenet_weights() if weights is None else weights
        trunk = {name: tensor for name, tensor in given.items() if not name.startswith("_fc.")}
        load_pretrained(self.backbone, trunk, skip_head=False)
        self.requires_grad_(False)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.eval()

    @property
    def key(self) -> str:
        """A cache key that differs for trunks with different features."""
        return f"{digest(self.backbone.state_dict())} {self.side}"

    def own_weights(self) -> dict[str, Tensor]:
        """What has to be stored with a model to have this trunk again."""
        return self.backbone.state_dict()

    def train(self, mode: bool = True) -> Self:
        """Always stay in evaluation mode, so that BatchNorm uses its stored statistics."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, pictures: Tensor) -> Tensor:
        x = resized(pictures, self.side).expand(-1, 3, -1, -1)
        x = ((x - _MEAN) / _DEVIATION).contiguous(memory_format=torch.channels_last)
        return layer_norm(self.backbone.features(x), (self.feature_dim,))


class Head(nn.Module):
    """One linear layer on features, which are its inputs.

    It starts so close to zero that all classes are about equally likely, but not at zero, where every picture would
    have the same loss. Terms that strategies put on features (MOON, FedProto) have no gradient in it.
    """

    head_name = "head"
    feature_dim = Trunk.feature_dim

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(self.feature_dim, classes)
        nn.init.normal_(self.head.weight, 0, 0.001)  # logits differ by about 0.036
        nn.init.zeros_(self.head.bias)

    def features(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x)
        return logits


def resized(pictures: Tensor, size: int | tuple[int, int]) -> Tensor:
    """Pictures (N, C, H, W) resized to `size` (H, W), or to squares of that side; antialiased when they shrink."""
    height, width = (size, size) if isinstance(size, int) else size
    if pictures.shape[2:] == (height, width):
        return pictures
    shrinks = height < pictures.shape[2] or width < pictures.shape[3]
    return interpolate(pictures, (height, width), mode="bilinear", align_corners=False, antialias=shrinks)
