"""A small convolutional network for pictures from 8x8 digits to 96x128 photographs.

Blocks of 3x3 convolution, ReLU and 2x2 max pooling until the shorter side is 4 or less, doubling the channels up to
four times `width`; then one hidden layer (the representation) and the head. There is no BatchNorm by default: running
statistics of clients with different labels do not average well.

Parameters for 32x32 colour pictures and 10 classes (`norm="none"`):

    width  8, hidden  21        17,025
    width 16, hidden  64        89,834      the default
    width 32, hidden 384       883,914
    width 64, hidden 128       896,522
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from wayfare.core.errors import ConfigError, unknown

Norm = Literal["none", "group", "batch"]


class SmallCNN(nn.Module):
    """See the module; made by `small_cnn`."""

    head_name = "head"

    def __init__(
        self, classes: int, channels: int, image_size: tuple[int, int], width: int, hidden: int, norm: Norm
    ) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        size, inner = image_size, channels
        while min(size) > 4:
            outer = width * min(2 ** len(blocks), 4)
            blocks.append(_block(inner, outer, norm))
            size, inner = (size[0] // 2, size[1] // 2), outer
        self.image_size, self.channels = image_size, channels
        self.feature_dim = hidden
        self.blocks = nn.Sequential(*blocks)
        self.hidden = nn.Linear(inner * size[0] * size[1], hidden)
        self.head = nn.Linear(hidden, classes)

    def features(self, x: Tensor) -> Tensor:
        # reshape, not flatten or view: a channels_last tensor has no plain view of this shape
        x = self.blocks(x)
        return torch.relu(self.hidden(x.reshape(x.shape[0], -1)))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


def small_cnn(
    classes: int,
    channels: int = 3,
    image_size: int | tuple[int, int] = 32,
    width: int = 16,
    hidden: int = 64,
    norm: Norm = "none",
) -> SmallCNN:
    """A small CNN for pictures of `channels` channels; `image_size` is (height, width), or the side of a square."""
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    if min(size) < 5:
        raise ConfigError(f"small_cnn needs pictures of at least 5x5 pixels, not {size[0]}x{size[1]}")
    for name, value in (("classes", classes), ("channels", channels), ("width", width), ("hidden", hidden)):
        if value < 1:
            raise ConfigError(f"small_cnn: {name} must be at least 1, not {value}")
    if norm not in get_args(Norm):
        raise unknown("norm", str(norm), get_args(Norm), "small_cnn")
    return SmallCNN(classes, channels, image_size=size, width=width, hidden=hidden, norm=norm)


def _block(inner: int, outer: int, norm: Norm) -> nn.Sequential:
    convolution = nn.Conv2d(inner, outer, 3, padding=1)
    return nn.Sequential(convolution, *norm_layers(norm, outer), nn.ReLU(), nn.MaxPool2d(2))


def norm_layers(norm: Norm, channels: int) -> list[nn.Module]:
    """The norm to put behind a convolution: one layer, or none."""
    if norm == "group":
        return [nn.GroupNorm(math.gcd(8, channels), channels)]
    return [nn.BatchNorm2d(channels)] if norm == "batch" else []
