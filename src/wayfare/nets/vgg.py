"""VGG16 (Simonyan and Zisserman, configuration D) with torchvision's names, the form FedTour used, and a small one.

- `VGG16`: torchvision's network: features.N.*, classifier.0 / 3 / 6.*; 138,357,544 parameters with 1000 classes.
- `VGG16Pooled`: the convolutions, global average pooling and Linear(512, classes), as in FedTour ("58.9 MB"):
  14,719,818 parameters with 10 classes. The convolutions keep torchvision's names, so its weights load.
- `VGGSmall`: VGG's first three blocks (2, 2 and 3 convolutions) with `width`, 2 `width` and 4 `width` channels, global
  average pooling and a linear layer, for pictures from 8x8 up. Parameters for colour and 10 classes: 27,762 at width
  8, 109,658 at 16 (the default), 170,910 at 20, 435,882 at 32.

In torchvision's names `features` is the convolutional part. Here it is that same module, and calling it goes on to
the penultimate representation, as `features(x)` does in every network of Wayfare. VGG16's pictures must be at least
32x32.
"""

from __future__ import annotations

from torch import Tensor, nn

from wayfare.core.errors import ConfigError
from wayfare.nets.cnn import Norm, norm_layers

_CONFIGURATION = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)  # 0: max pooling


class Convolutions(nn.Sequential):
    """VGG16's convolutions, numbered as torchvision's `features`; calls give the penultimate representation."""

    def __init__(self, channels: int, grid: int, tail: nn.Module | None = None) -> None:
        super().__init__(*_layers(channels))
        self._grid = grid
        # In a tuple, so that it is not registered here: these layers belong to, and are named by, `classifier`.
        self._tail = (tail,)

    def maps(self, x: Tensor) -> Tensor:
        """(B, 512, H/32, W/32)."""
        for layer in self:
            x = layer(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.adaptive_avg_pool2d(self.maps(x), self._grid).reshape(x.shape[0], -1)
        (tail,) = self._tail
        return x if tail is None else tail(x)


class VGG16(nn.Module):
    """torchvision's VGG16; the representation is the second 4096-wide layer's."""

    head_name = "classifier.6"

    def __init__(self, classes: int = 1000, channels: int = 3, hidden: int = 4096, dropout: float = 0.5) -> None:
        super().__init__()
        self.feature_dim = hidden
        classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )
        self.features = Convolutions(channels, grid=7, tail=classifier[:6])
        self.classifier = classifier
        _initialise(self)

    @property
    def head(self) -> nn.Module:
        return self.classifier[6]

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


class VGG16Pooled(nn.Module):
    """FedTour's form: convolutions, global average pooling, one linear layer."""

    head_name = "classifier"

    def __init__(self, classes: int = 10, channels: int = 3) -> None:
        super().__init__()
        self.feature_dim = 512
        self.features = Convolutions(channels, grid=1)
        self.classifier = nn.Linear(512, classes)
        _initialise(self)

    @property
    def head(self) -> nn.Module:
        return self.classifier

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x))
        return logits


class VGGSmall(nn.Module):
    """VGG's blocks with few channels; see the module."""

    head_name = "head"

    def __init__(self, classes: int, channels: int = 3, width: int = 16, norm: Norm = "none") -> None:
        super().__init__()
        if width < 1:
            raise ConfigError(f"vgg_small: width must be at least 1, not {width}")
        layers: list[nn.Module] = []
        for block, convolutions in enumerate((2, 2, 3)):
            outer = width * 2**block
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, outer, 3, padding=1), *norm_layers(norm, outer), nn.ReLU(inplace=True)]
                channels = outer
            layers.append(nn.MaxPool2d(2))
        self.feature_dim = channels
        self.convolutions = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)
        _initialise(self)

    def features(self, x: Tensor) -> Tensor:
        maps: Tensor = self.convolutions(x)
        return maps.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


def _layers(channels: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for outer in _CONFIGURATION:
        if outer:
            layers += [nn.Conv2d(channels, outer, 3, padding=1), nn.ReLU()]
            channels = outer
        else:
            layers.append(nn.MaxPool2d(2))
    return layers


def _initialise(net: nn.Module) -> None:
    """torchvision's: without it sixteen plain layers start with vanishing signals."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 0.01)
        if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
            nn.init.zeros_(module.bias)
