"""ResNet18 (He et al.) with torchvision's names: conv1, bn1, layer1.0.conv1, layer2.0.downsample.0, fc.

11,689,512 parameters with 1000 classes, 11,181,642 with 10. `stem="cifar"` is the usual form for 32x32 pictures
(3x3 convolution of stride 1, no max pooling): 11,173,962 with 10 classes. `last="layer3"` ends after the third stage
(256 channels at stride 16; 2,782,784 parameters without the head), the trunk of FedVPR's small network.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from wayfare.core.errors import unknown

Stem = Literal["imagenet", "cifar"]
Last = Literal["layer3", "layer4"]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut (torchvision's name for it, too)."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inner != outer:
            self.downsample = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(x)) + shortcut)


class ResNet18(nn.Module):
    """See the module."""

    head_name = "fc"

    def __init__(self, classes: int = 1000, channels: int = 3, stem: Stem = "imagenet", last: Last = "layer4") -> None:
        super().__init__()
        if stem not in get_args(Stem):
            raise unknown("stem", str(stem), get_args(Stem), "ResNet18")
        if last not in get_args(Last):
            raise unknown("last stage", str(last), get_args(Last), "ResNet18")
        kernel, stride = (7, 2) if stem == "imagenet" else (3, 1)
        self.conv1 = nn.Conv2d(channels, 64, kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if stem == "imagenet" else nn.Identity()
        self.layer1 = _stage(64, 64, 1)
        self.layer2 = _stage(64, 128, 2)
        self.layer3 = _stage(128, 256, 2)
        self.layer4 = _stage(256, 512, 2) if last == "layer4" else None
        self.feature_dim = 512 if last == "layer4" else 256
        self.fc = nn.Linear(self.feature_dim, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @property
    def head(self) -> nn.Module:
        return self.fc

    def maps(self, x: Tensor) -> Tensor:
        """The last stage's feature maps, (B, feature_dim, h, w): what place recognition pools in its own way."""
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer3(self.layer2(self.layer1(x)))
        return x if self.layer4 is None else self.layer4(x)

    def features(self, x: Tensor) -> Tensor:
        return self.maps(x).mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.features(x))
        return logits


def _stage(inner: int, outer: int, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(inner, outer, stride), BasicBlock(outer, outer, 1))
