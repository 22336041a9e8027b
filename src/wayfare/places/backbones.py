"""The backbones of place descriptors: a class each, chosen by name, that gives a network cut into stages.

    backbone            parameters   trained from    trained       D   stride   stages
    resnet18_layer3      2,782,784   layer3        2,099,712     256     16     stem, layer1 to layer3
    resnet18            11,176,512   layer3       10,493,440     512     32     stem, layer1 to layer4
    vgg16               14,714,688   conv5         7,079,424     512     16     conv1 to conv5
    efficientnet_lite0   3,371,008   stage7        1,017,600   1,280     32     stem, stage1 to stage7, last
      ..._stage5           700,768   stage5          446,784     112     16     stem, stage1 to stage5
    dinov2-s            22,056,192   head                  0     384     14     patches, block1 to block12, norm
    tinyvit              5,066,196   head                  0     320     32     stem, stage1 to stage4
    cnn (width 32)         243,072   block1          243,072     128     16     block1 to block4

The first three are the paper's (FedVPR, Tab. 2), counted without pooling: GeM's p is one more of both. VGG16 ends
before its last ReLU and max pooling. ResNet18 and VGG16 take torchvision's weight files. `efficientnet_lite0_stage5` is
to EfficientNet-Lite0 what the paper's truncated ResNet18 is to the whole one: cut where maps are still at stride 16. On
small pictures (96x128) it learnt far more than the whole network, whose last maps are 3x4 there.

The two transformers are used as they are, unless stages or adapters (`model.adapters`) are to be trained. Their weights
come with `wayfare data get`. Untrained, on photos of an unseen campus, DINOv2 was far better than EfficientNet-Lite0.

The small CNN is for speed, and learns from scratch. It has GroupNorm: BatchNorm's running statistics of clients in
other streets, from batches that mining fills with look-alikes, do not average into those of the photos it will meet;
and with no norm at all it learnt far more slowly when tried on the town.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from wayfare.core.errors import ConfigError
from wayfare.nets.dinov2 import DinoV2
from wayfare.nets.efficientnet import STAGES, EfficientNetLite0, imagenet_weights
from wayfare.nets.published import PUBLISHED
from wayfare.nets.resnet import ResNet18
from wayfare.nets.tinyvit import TinyViT
from wayfare.nets.vgg import VGG16Pooled

Scale = tuple[tuple[float, float, float], tuple[float, float, float]]  # means and deviations of pixels in 0..1
IMAGENET: Scale = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
LITE: Scale = ((127 / 255,) * 3, (128 / 255,) * 3)
HALF: Scale = ((0.5,) * 3, (0.5,) * 3)


@dataclass(frozen=True)
class Stages:
    """A network without its last layers, cut into stages."""

    net: nn.Module  # weights under the names that they have in weight files
    stages: dict[str, list[nn.Module]]  # its layers in order, up to the feature maps
    channels: int
    train: str  # the first stage that is trained unless something else is asked for; "head": none
    scale: Scale = HALF
    absent: tuple[str, ...] = ()  # how names of the layers that are left out begin in weight files
    class_token: bool = False  # maps are token maps with the class token in their first row, see nets/dinov2.py


class Backbone:
    """A choice of backbone: a frozen dataclass of settings."""

    default_weights: ClassVar[str] = "random"
    """What `weights = "auto"` means: "imagenet", "pretrained", "random", or "" where a file must be given."""

    signed: ClassVar[bool] = False
    """Whether its maps come from a linear layer, so that about half of their values are negative."""

    def build(self) -> Stages:
        """The network, with random weights."""
        raise NotImplementedError

    def published_weights(self, name: str) -> dict[str, Tensor]:
        """Weights of that name: "imagenet" or "pretrained", from an installed package or from the cache."""
        raise ConfigError(
            f"model.weights = {name!r}: no package carries this backbone's. Give a file: torchvision's, after "
            "`wayfare data import-weights`"
        )


@dataclass(frozen=True)
class ResNet18Backbone(Backbone):
    """The whole of ResNet18 up to its last maps."""

    default_weights: ClassVar[str] = ""
    last: ClassVar[Literal["layer3", "layer4"]] = "layer4"

    def build(self) -> Stages:
        net = ResNet18(last=self.last)
        del net.fc
        stages: dict[str, list[nn.Module]] = {"stem": [net.conv1, net.bn1, nn.ReLU(inplace=True), net.maxpool]}
        stages |= {"layer1": [net.layer1], "layer2": [net.layer2], "layer3": [net.layer3]}
        if net.layer4 is not None:
            stages["layer4"] = [net.layer4]
        absent = ("fc.",) if net.layer4 is not None else ("fc.", "layer4.")
        return Stages(net, stages, net.feature_dim, train="layer3", scale=IMAGENET, absent=absent)


@dataclass(frozen=True)
class ResNet18Layer3(ResNet18Backbone):
    """ResNet18 truncated after layer3."""

    last: ClassVar[Literal["layer3", "layer4"]] = "layer3"


@dataclass(frozen=True)
class VGG16Backbone(Backbone):
    """VGG16 up to its last convolution."""

    default_weights: ClassVar[str] = ""
    signed: ClassVar[bool] = True

    def build(self) -> Stages:
        net = VGG16Pooled()
        del net.classifier
        stages: dict[str, list[nn.Module]] = {"conv1": []}
        for layer in list(net.features)[:-2]:  # without the last ReLU and max pooling
            stages[f"conv{len(stages)}"].append(layer)
            if isinstance(layer, nn.MaxPool2d):
                stages[f"conv{len(stages) + 1}"] = []
        return Stages(net, stages, net.feature_dim, train="conv5", scale=IMAGENET, absent=("classifier.",))


@dataclass(frozen=True)
class LiteBackbone(Backbone):
    """The whole of EfficientNet-Lite0 up to its last maps."""

    default_weights: ClassVar[str] = "imagenet"

    def build(self) -> Stages:
        net = EfficientNetLite0()
        stages = net.stages()
        del net._fc
        return Stages(net, stages, net.feature_dim, train="stage7", scale=LITE, absent=("_fc.",))

    def published_weights(self, name: str) -> dict[str, Tensor]:
        return imagenet_weights() if name == "imagenet" else super().published_weights(name)


@dataclass(frozen=True)
class LiteStage5(LiteBackbone):
    """EfficientNet-Lite0 truncated after stage5."""

    signed: ClassVar[bool] = True

    def build(self) -> Stages:
        net = EfficientNetLite0()
        stages = net.stages()
        kept, count = sum(blocks for *_, blocks in STAGES[:5]), len(net._blocks)
        net._blocks = nn.Sequential(*list(net._blocks.children())[:kept])
        del net._fc, net._conv_head, net._bn1
        absent = ("_fc.", "_conv_head.", "_bn1.", *(f"_blocks.{number}." for number in range(kept, count)))
        for name in ("stage6", "stage7", "last"):
            del stages[name]
        return Stages(net, stages, STAGES[4][3], train="stage5", scale=LITE, absent=absent)


@dataclass(frozen=True)
class DinoV2Backbone(Backbone):
    """DINOv2 ViT-S/14, with its class token."""

    default_weights: ClassVar[str] = "pretrained"
    signed: ClassVar[bool] = True

    def build(self) -> Stages:
        net = DinoV2()
        scale, absent = IMAGENET, ("mask_token",)
        return Stages(net, net.stages(), net.feature_dim, "head", scale=scale, absent=absent, class_token=True)

    def published_weights(self, name: str) -> dict[str, Tensor]:
        return PUBLISHED["dinov2-s"].load() if name == "pretrained" else super().published_weights(name)


@dataclass(frozen=True)
class TinyViTBackbone(Backbone):
    """TinyViT-5M up to its last maps."""

    default_weights: ClassVar[str] = "pretrained"
    signed: ClassVar[bool] = True

    def build(self) -> Stages:
        net = TinyViT()
        return Stages(net, net.parts(), net.feature_dim, train="head", scale=IMAGENET)

    def published_weights(self, name: str) -> dict[str, Tensor]:
        return PUBLISHED["tinyvit"].load() if name == "pretrained" else super().published_weights(name)


@dataclass(frozen=True)
class SmallCnnBackbone(Backbone):
    """Four convolutions."""

    width: int = 32  # channels of the first

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ConfigError(f"model.backbone.width = {self.width}: expected at least 1")

    def build(self) -> Stages:
        blocks = nn.Sequential(
            _block(3, self.width, 5, stride=2, pooled=True),
            _block(self.width, 2 * self.width, 3, stride=1, pooled=True),
            _block(2 * self.width, 4 * self.width, 3, stride=1, pooled=True),
            _block(4 * self.width, 4 * self.width, 3, stride=1, pooled=False),
        )
        stages: dict[str, list[nn.Module]] = {f"block{number}": [block] for number, block in enumerate(blocks, 1)}
        return Stages(blocks, stages, 4 * self.width, "block1")


def _block(inner: int, outer: int, kernel: int, stride: int, pooled: bool) -> nn.Sequential:
    layers = [nn.Conv2d(inner, outer, kernel, stride, padding=kernel // 2), nn.GroupNorm(math.gcd(8, outer), outer)]
    return nn.Sequential(*layers, nn.ReLU(inplace=True), *([nn.MaxPool2d(2)] if pooled else []))
