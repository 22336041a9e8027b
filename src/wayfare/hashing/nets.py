"""The encoders of cross-modal hashing: a picture or a text to `bits` numbers, whose signs are its code.

    image   CNN-F on pixels (56.87 M parameters at 32 bits), or a head on features that never change
    text    bag of words -> 8192 -> bits (11.6 M parameters with 1,386 words and 32 bits)

The last layer of each is called `hash` and has no activation: SHDCH puts its tanh on what comes out of it. Hash layers
and heads start from 0.01 N(0, 1), weights and biases alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad, relu

from wayfare.core.errors import ConfigError, DataError
from wayfare.hashing.vggf import read
from wayfare.io.weights import load_weights
from wayfare.nets.frozen import resized

CLASS_CODES = "class_codes"  # the buffer's name
VIEWS = ("image", "text")
Lrn = Literal["authors", "ports"]
_SIDE = 224
_MEAN = (123.68, 116.779, 103.939)  # of ImageNet's pixels in 0..255, where no mean image is given


class Encoders(nn.Module):
    """A network for each view, what of their outputs is turned into codes, and, where a base has them, class codes."""

    def __init__(self, image: nn.Module, text: nn.Module, bits: int, classes: Tensor | None = None) -> None:
        super().__init__()
        self.image, self.text, self.bits = image, text, bits
        if classes is not None:
            self.register_buffer(CLASS_CODES, classes)

    def encode(self, view: str, inputs: Tensor) -> Tensor:
        """What the hash layer of a view says, real numbers (B, bits)."""
        net = {"image": self.image, "text": self.text}[view]
        raw: Tensor = net(inputs)
        return raw

    def enhance(self, view: str, raw: Tensor) -> Tensor:
        """What codes are the signs of: here the raw output itself."""
        return raw


def class_codes_of(net: nn.Module) -> Tensor:
    """The encoders' buffer of class codes, however a strategy has wrapped the encoders."""
    return next(codes for name, codes in net.named_buffers() if name.split(".")[-1] == CLASS_CODES)


def signs(values: Tensor) -> Tensor:
    """+1 or -1 of the same type; 0 is +1, so that a code is always binary."""
    return torch.where(values >= 0, 1, -1).to(values.dtype)


class Layers(nn.Module):
    """Features or a bag of words, (B, width), to bits through one hidden layer; with hidden = 0, through none."""

    def __init__(self, width: int, hidden: int, bits: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, hidden) if hidden else None
        self.hash = nn.Linear(hidden or width, bits)
        self.skips_empty = True  # leave out columns that are empty in the whole batch
        for layer in (self.hidden, self.hash):
            if layer is not None:
                small(layer)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.hidden is not None:
            inputs = relu(_short(self.hidden, inputs) if self.skips_empty else self.hidden(inputs))
        raw: Tensor = self.hash(inputs)
        return raw


def _short(layer: nn.Linear, inputs: Tensor) -> Tensor:
    """What the layer says. Of bags of words most columns are empty in a whole batch: these are left out."""
    used = inputs.any(0)
    if 3 * int(used.sum()) > inputs.shape[1]:  # then taking columns out takes longer than it saves
        found: Tensor = layer(inputs)
        return found
    chosen = used.nonzero().squeeze(1)
    return linear(inputs.index_select(1, chosen), layer.weight.index_select(1, chosen), layer.bias)


def small(layer: nn.Linear) -> None:
    """Initialise weights and biases with 0.01 N(0, 1)."""
    nn.init.normal_(layer.weight, 0, 0.01)
    nn.init.normal_(layer.bias, 0, 0.01)


def across_channels(lrn: Lrn) -> nn.LocalResponseNorm:
    """CNN-F's normalisation: over 5 channels with 1e-4 on the sum of their squares, which torch calls 5e-4.

    The published PyTorch ports of DCMH have 2 channels and 1e-4 on their mean instead, a slip in copying.
    """
    size, alpha = (5, 5e-4) if lrn == "authors" else (2, 1e-4)
    return nn.LocalResponseNorm(size, alpha, beta=0.75, k=2.0)


class CNNF(nn.Module):
    """VGG-F on colour pixels 0..255 of any size, (B, 3, H, W); they are brought to 224 x 224, less a mean image."""

    mean: Tensor

    def __init__(self, bits: int, lrn: Lrn = "authors") -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 11, stride=4)
        self.conv2 = nn.Conv2d(64, 256, 5, padding=2)
        self.conv3 = nn.Conv2d(256, 256, 3, padding=1)
        self.conv4 = nn.Conv2d(256, 256, 3, padding=1)
        self.conv5 = nn.Conv2d(256, 256, 3, padding=1)
        self.fc6 = nn.Conv2d(256, 4096, 6)
        self.fc7 = nn.Linear(4096, 4096)
        self.hash = nn.Linear(4096, bits)
        small(self.hash)
        self.norm = across_channels(lrn)
        self.pool = nn.MaxPool2d(3, stride=2)
        # the same everywhere, so it does not travel
        self.register_buffer("mean", torch.tensor(_MEAN)[:, None, None], persistent=False)

    def forward(self, pictures: Tensor) -> Tensor:
        x = resized(pictures, _SIDE) - self.mean
        x = self.norm(relu(self.conv1(x)))
        x = self.pool(pad(x, (0, 1, 0, 1)))  # right and bottom: 54 -> 55 -> 27
        x = self.pool(self.norm(relu(self.conv2(x))))
        x = relu(self.conv3(x))
        x = relu(self.conv4(x))
        x = self.pool(relu(self.conv5(x)))
        x = relu(self.fc6(x)).flatten(1)
        raw: Tensor = self.hash(relu(self.fc7(x)))
        return raw

    def load(self, file: Path) -> None:
        """All but the hash layer from imagenet-vgg-f.mat, or from .safetensors with this network's names.

        The mean image comes from the former too, or is called `mean` in the latter.
        """
        if file.suffix == ".mat":
            weights = {name: torch.from_numpy(values) for name, values in read(file).items()}
        else:
            weights = load_weights(file)
        mean = weights.pop("mean", None)
        own = {name: value for name, value in self.state_dict().items() if not name.startswith("hash.")}
        given = {name: value for name, value in weights.items() if not name.startswith("hash.")}
        for name in own.keys() | given.keys():
            found, wanted = (tuple(part[name].shape) if name in part else None for part in (given, own))
            if found != wanted:
                raise ConfigError(f"{file}: not the weights of CNN-F: {name} is {found}, expected {wanted}")
        self.load_state_dict(given, strict=False)
        if mean is not None:
            if mean.shape not in ((3, _SIDE, _SIDE), (3, 1, 1)) or not torch.isfinite(mean).all():
                raise DataError(f"a mean image of shape {tuple(mean.shape)}, expected 3 x 224 x 224", file)
            self.mean = mean.float()
