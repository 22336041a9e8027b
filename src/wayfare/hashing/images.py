"""The image side: what is taken of a picture, and the network that turns it into bits.

efficientnet_lite0   features of a network that learnt from ImageNet and never changes, computed once; then a head
dinov2-s             the same with DINOv2, which is better and slower, and has to be fetched first
                     (both, if `colours` is set, with how much of each colour is there, see `nets.colours`)
cnnf                 CNN-F, which learns from the picture itself
file                 features that the data brings; then a head
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Progress
from wayfare.hashing.data.pairs import Paired
from wayfare.hashing.data.source import PairPictures
from wayfare.hashing.nets import CNNF, Layers, Lrn
from wayfare.io.weights import load_weights, missing
from wayfare.nets.colours import Colours, WithColours
from wayfare.nets.features import PictureTrunk, features_of
from wayfare.nets.features_by_picture import features_by_picture
from wayfare.nets.frozen import SMALLEST, Trunk
from wayfare.nets.published import PUBLISHED
from wayfare.nets.trunks import DinoTrunk

_PATCH = 14
DINO_WIDTH = 3 * 384
Report = Callable[[int, int], None]  # how many pictures are done, of how many
Reader = Callable[[np.ndarray], Tensor]  # rows of all pairs -> a batch, as the encoder takes it


class ImageSide:
    """What is taken of pictures; extend it for one of your own."""

    batch: ClassVar[int] = 1000  # pairs that are encoded together where no gradient is needed
    reads_photos: ClassVar[bool] = True  # whether it can encode other pictures than those of the data

    @property
    def size(self) -> tuple[int, int]:
        """Height and width that picture files are decoded to."""
        return 224, 224

    def reader(self, pairs: Paired, progress: Progress) -> Reader:
        """Gives batches of these pairs; what takes long is done now."""
        raise NotImplementedError

    def encoder(self, pairs: Paired, bits: int) -> nn.Module:
        """A batch -> float32 (n, bits)."""
        raise NotImplementedError

    def terms(self, pairs: Paired) -> str:
        """What must be the same on every device."""
        raise NotImplementedError

    def trunk(self, weights: dict[str, Tensor] | None = None) -> PictureTrunk | None:
        """The frozen network before the encoder; `weights` are its own (`PictureTrunk.own_weights`), if stored."""
        return None

    def shown(self, trunk: PictureTrunk | None, images: np.ndarray) -> Tensor:
        """What the encoder is shown of other pictures, uint8 (n, H, W, 3)."""
        pictures = torch.from_numpy(images).permute(0, 3, 1, 2).float()
        return pictures if trunk is None else trunk(pictures / 255)

    def without_weights(self) -> Self:
        """The same without a file of weights, for a network whose weights come from elsewhere."""
        return self

    def missing_files(self) -> list[str]:
        """Files that the settings name and that do not exist."""
        return []


class TrunkImages(ImageSide):
    """Features of a frozen network, if wanted with how much of each colour is there, and a head on them."""

    side: int
    hidden: int
    colours: bool
    kind: ClassVar[str]  # of the network
    width: ClassVar[int]  # of its features

    @property
    def size(self) -> tuple[int, int]:
        return self.side, self.side

    def network(self, weights: dict[str, Tensor] | None = None) -> PictureTrunk:
        """The frozen network alone."""
        raise NotImplementedError

    def features(self, network: PictureTrunk, images: Any, report: Report | None = None) -> np.ndarray:
        """Of all these pictures, from the cache where they are there."""
        raise NotImplementedError

    def reader(self, pairs: Paired, progress: Progress) -> Reader:
        images = _All(_pictures(pairs), len(pairs))
        report = lambda done, total: progress("features of the pictures", done, total)  # noqa: E731
        found = self.features(self.network(), images, report)
        if not self.colours:
            return lambda rows: torch.from_numpy(found[rows])
        shares = features_of(Colours(), images)  # on their own, so that the network's are computed once
        return lambda rows: torch.from_numpy(np.concatenate([found[rows], shares[rows]], 1))

    def encoder(self, pairs: Paired, bits: int) -> nn.Module:
        _pictures(pairs)
        return Layers(self.width + self.colours * Colours.feature_dim, self.hidden, bits)

    def terms(self, pairs: Paired) -> str:
        return self.kind + ", colours" * self.colours

    def trunk(self, weights: dict[str, Tensor] | None = None) -> PictureTrunk:
        network = self.network(weights)
        return WithColours(network) if self.colours else network


@dataclass(frozen=True)
class FrozenImages(TrunkImages):
    """Features of a frozen EfficientNet-Lite0, and a head on them."""

    side: int = 64  # of the pictures before the frozen network, in pixels
    hidden: int = 512  # between features and bits; 0: no hidden layer
    weights: str = ""  # of the frozen network: .safetensors; "": ImageNet's
    colours: bool = False  # also how much of each colour is in a picture: then colours are found by their names

    kind: ClassVar[str] = "frozen"
    width: ClassVar[int] = Trunk.feature_dim

    def __post_init__(self) -> None:
        if self.side < SMALLEST:
            raise ConfigError(f"model.image.side = {self.side}: expected at least {SMALLEST} pixels")
        _check_hidden("image", self.hidden)

    def network(self, weights: dict[str, Tensor] | None = None) -> PictureTrunk:
        given = weights or (load_weights(Path(self.weights)) if self.weights else None)
        return Trunk(self.side, given)

    def features(self, network: PictureTrunk, images: Any, report: Report | None = None) -> np.ndarray:
        return features_of(network, images, report)

    def without_weights(self) -> Self:
        return replace(self, weights="")

    def missing_files(self) -> list[str]:
        return missing(self.weights)


@dataclass(frozen=True)
class DinoImages(TrunkImages):
    """Features of a frozen DINOv2 ViT-S/14, and a head on them."""

    side: int = 224  # of the pictures before the frozen network, in pixels: a multiple of 14
    hidden: int = 0  # between features and bits; 0: no hidden layer, which a federation averages better
    colours: bool = False  # also how much of each colour is in a picture: then colours are found by their names

    kind: ClassVar[str] = "dinov2-s"
    width: ClassVar[int] = DINO_WIDTH

    def __post_init__(self) -> None:
        if self.side < _PATCH or self.side % _PATCH:
            raise ConfigError(f"model.image.side = {self.side}: expected a multiple of {_PATCH} pixels")
        _check_hidden("image", self.hidden)

    def network(self, weights: dict[str, Tensor] | None = None) -> PictureTrunk:
        return DinoTrunk(self.side)

    def features(self, network: PictureTrunk, images: Any, report: Report | None = None) -> np.ndarray:
        return features_by_picture(network, images, report)

    def shown(self, trunk: PictureTrunk | None, images: np.ndarray) -> Tensor:
        network = trunk.network if isinstance(trunk, WithColours) else trunk or self.network()
        found = torch.from_numpy(self.features(network, images))
        if not self.colours:
            return found
        pictures = torch.from_numpy(images).permute(0, 3, 1, 2).float()
        return torch.cat([found, Colours()(pictures / 255)], 1)

    def missing_files(self) -> list[str]:
        return missing(str(PUBLISHED["dinov2-s"].path))


@dataclass(frozen=True)
class PixelImages(ImageSide):
    """CNN-F on pixels."""

    weights: str = ""  # imagenet-vgg-f.mat or .safetensors; "": drawn at random
    lrn: Lrn = "authors"  # CNN-F's normalisation; "ports": as in the published PyTorch code

    batch: ClassVar[int] = 32

    def reader(self, pairs: Paired, progress: Progress) -> Reader:
        pictures = _pictures(pairs)
        return lambda rows: torch.from_numpy(pictures.read(rows)).permute(0, 3, 1, 2).float()

    def encoder(self, pairs: Paired, bits: int) -> nn.Module:
        net = CNNF(bits, self.lrn)
        if self.weights:
            net.load(Path(self.weights))
        return net

    def terms(self, pairs: Paired) -> str:
        return "pixels"

    def without_weights(self) -> Self:
        return replace(self, weights="")

    def missing_files(self) -> list[str]:
        return missing(self.weights)


@dataclass(frozen=True)
class GivenImages(ImageSide):
    """Features that the data brings, or `data.features` names, and a head on them."""

    hidden: int = 512  # between features and bits; 0: no hidden layer

    reads_photos: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_hidden("image", self.hidden)

    def reader(self, pairs: Paired, progress: Progress) -> Reader:
        found = self._features(pairs)
        return lambda rows: torch.from_numpy(found[rows])

    def encoder(self, pairs: Paired, bits: int) -> nn.Module:
        return Layers(self._features(pairs).shape[1], self.hidden, bits)

    def terms(self, pairs: Paired) -> str:
        return str(self._features(pairs).shape[1])

    def _features(self, pairs: Paired) -> np.ndarray:
        if pairs.features is None:
            raise ConfigError(
                f"model.image = 'file': the data {pairs.name!r} has no features of pictures. Name a file in "
                "data.features, or use 'efficientnet_lite0', 'dinov2-s' or 'cnnf'"
            )
        return pairs.features


def _check_hidden(side: str, hidden: int) -> None:
    if hidden < 0:
        raise ConfigError(f"model.{side}.hidden = {hidden}: expected at least 0")


def _pictures(pairs: Paired) -> PairPictures:
    if pairs.pictures is None:
        raise ConfigError(
            f"the data {pairs.name!r} has no pictures. Set model.image = 'file' if it has features of them"
        )
    return pairs.pictures


class _All:
    """All pictures as if they were one array."""

    def __init__(self, pictures: PairPictures, count: int) -> None:
        self._pictures, self.shape = pictures, (count, *pictures.size, 3)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        return self._pictures.read(np.arange(len(self))[rows])
