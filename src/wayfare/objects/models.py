"""Classifiers: what is trained and travels, and what it sees of a picture.

    model.name                 what is trained (ten classes)                              parameters
    cnn                        a small CNN; `width` and `hidden` scale it                     89,834 (colour, 32x32)
    vgg_small                  VGG's blocks with few channels; `width` scales it             109,658
    vgg16_pooled               FedTour's: VGG16's convolutions and one linear layer       14,719,818
    vgg16                      with its three wide layers, too                           134,301,514
    resnet18                   torchvision's; a smaller stem for small pictures           11,173,962 (32x32)
    efficientnet_lite0_head    a linear layer on features of a frozen network                 12,810

The last is for thousands of devices: the frozen network is the same on all of them, its features are computed once and
kept in the cache, and batches consist of these features.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from torch import nn

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Model, Progress
from wayfare.io.pictures import Pictures
from wayfare.io.weights import load_weights, missing
from wayfare.nets.cnn import Norm, small_cnn
from wayfare.nets.features import features_of
from wayfare.nets.frozen import SMALLEST, Head, Trunk
from wayfare.nets.pretrained import load_pretrained
from wayfare.nets.resnet import ResNet18
from wayfare.nets.vgg import VGG16, VGG16Pooled, VGGSmall
from wayfare.objects.inputs import FrozenFeatures, ObjectInputs, ScaledPixels

Shape = tuple[int, int, int]  # of a picture: height, width, channels
Parts = tuple[Pictures, Pictures]  # the pool, and the test set


class ObjectModel(Model):
    """How a network that tells classes apart is made. It has `features`, `head` and `feature_dim`."""

    frozen: ClassVar[bool] = False  # only a linear head is trained, on features that never change

    @property
    def side(self) -> int:
        """ScaledPixels in height and width that pictures of any size are best brought to."""
        return 32

    def inputs(self, parts: Parts, progress: Progress) -> tuple[ObjectInputs, ObjectInputs]:
        """What the network sees of the pool and of the test set."""
        raise NotImplementedError

    def network(self, classes: int, shape: Shape) -> nn.Module:
        """A new network for pictures of this shape."""
        raise NotImplementedError

    @property
    def scaling(self) -> str:
        """By which means and deviations of `inputs.NORMALISATION` pixels are scaled."""
        return "half"

    def frozen_part(self) -> nn.Module | None:
        """What makes features of pictures from 0 to 1, where the network sees these."""
        return None


@dataclass(frozen=True)
class PixelModel(ObjectModel):
    """A network that sees pixels. A subclass says which, in `build`."""

    weights: str = ""  # a safetensors file with pretrained weights, torchvision's names
    normalise: Literal["half", "cifar10", "imagenet"] = "half"  # by which means and deviations pixels are scaled

    @property
    def scaling(self) -> str:
        return self.normalise

    def missing_files(self) -> list[str]:
        return missing(self.weights)

    def inputs(self, parts: Parts, progress: Progress) -> tuple[ObjectInputs, ObjectInputs]:
        pool, test = parts
        return ScaledPixels(pool.images, self.normalise), ScaledPixels(test.images, self.normalise)

    def network(self, classes: int, shape: Shape) -> nn.Module:
        net = self.build(classes, shape)
        if self.weights:
            load_pretrained(net, load_weights(Path(self.weights)))
        return net

    def build(self, classes: int, shape: Shape) -> nn.Module:
        """The network with weights drawn from torch's generator."""
        raise NotImplementedError


@dataclass(frozen=True)
class CnnClassifier(PixelModel):
    """The small CNN of `nets.cnn`."""

    width: int = 16  # channels of the first layer
    hidden: int = 64  # of the representation
    norm: Norm = "none"

    def build(self, classes: int, shape: Shape) -> nn.Module:
        height, width, channels = shape
        return small_cnn(
            classes, channels, image_size=(height, width), width=self.width, hidden=self.hidden, norm=self.norm
        )


@dataclass(frozen=True)
class VggSmallClassifier(PixelModel):
    """VGG's first three blocks with few channels."""

    width: int = 16  # channels of the first layer
    norm: Norm = "none"

    def build(self, classes: int, shape: Shape) -> nn.Module:
        return VGGSmall(classes, shape[2], self.width, self.norm)


@dataclass(frozen=True)
class Vgg16Classifier(PixelModel):
    """VGG16 with its three wide layers."""

    def build(self, classes: int, shape: Shape) -> nn.Module:
        return VGG16(classes, shape[2])


@dataclass(frozen=True)
class Vgg16PooledClassifier(PixelModel):
    """VGG16's convolutions, pooled, and one linear layer: FedTour's network."""

    def build(self, classes: int, shape: Shape) -> nn.Module:
        return VGG16Pooled(classes, shape[2])


@dataclass(frozen=True)
class ResNet18Classifier(PixelModel):
    """ResNet18."""

    def build(self, classes: int, shape: Shape) -> nn.Module:
        height, width, channels = shape
        return ResNet18(classes, channels, stem="cifar" if min(height, width) <= 64 else "imagenet")


@dataclass(frozen=True)
class FrozenHeadClassifier(ObjectModel):
    """A linear layer on the features of a frozen EfficientNet-Lite0."""

    image_size: int = 64  # pictures are resized to this height and width in pixels before the frozen network
    weights: str = ""  # of the frozen network, a safetensors file; "": ImageNet's, which come with a package

    frozen: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.image_size < SMALLEST:
            raise ConfigError(f"model.image_size = {self.image_size}: expected at least {SMALLEST} pixels")

    @property
    def side(self) -> int:
        return self.image_size

    def missing_files(self) -> list[str]:
        return missing(self.weights)

    def inputs(self, parts: Parts, progress: Progress) -> tuple[ObjectInputs, ObjectInputs]:
        trunk, (pool, test) = self.trunk(), parts
        total = len(pool) + len(test)

        def features(part: Pictures, before: int) -> FrozenFeatures:
            def report(done: int, _: int) -> None:
                progress("features of the pictures", before + done, total)

            return FrozenFeatures(features_of(trunk, part.images, report))

        return features(pool, 0), features(test, len(pool))

    def network(self, classes: int, shape: Shape) -> nn.Module:
        return Head(classes)

    def frozen_part(self) -> nn.Module:
        return self.trunk()

    def trunk(self) -> Trunk:
        """The frozen network."""
        return Trunk(self.image_size, load_weights(Path(self.weights)) if self.weights else None)
