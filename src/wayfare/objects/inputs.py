"""What networks see of pictures: their pixels, scaled, or features that a frozen network computed once."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

NORMALISATION = {  # channel means and deviations of pixels in 0..1
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


class ObjectInputs:
    """A network's inputs for all pictures of a set."""

    together: ClassVar[int]  # samples in a batch where no gradient is needed

    @property
    def width(self) -> int:
        """How many numbers a sample has."""
        raise NotImplementedError

    def rows(self, samples: np.ndarray, device: torch.device) -> Tensor:
        """The inputs of these samples."""
        raise NotImplementedError


class ScaledPixels(ObjectInputs):
    """Float32 (n, C, H, W), each channel with its mean taken off and divided by its deviation."""

    together: ClassVar[int] = 250

    def __init__(self, images: np.ndarray, normalise: str) -> None:
        means, deviations = NORMALISATION[normalise]
        channels = images.shape[3]
        shape = (1, channels, 1, 1)
        self._images = images
        self._means = 255 * torch.tensor(means[:channels]).view(shape)
        self._factors = 1 / (255 * torch.tensor(deviations[:channels]).view(shape))

    @property
    def width(self) -> int:
        return int(np.prod(self._images.shape[1:]))

    def rows(self, samples: np.ndarray, device: torch.device) -> Tensor:
        # N,H,W,C in memory is channels_last as it stands; no copy to turn it round
        pixels = torch.from_numpy(self._images[samples]).to(device).permute(0, 3, 1, 2).float()
        return pixels.sub_(self._means.to(device)).mul_(self._factors.to(device))


class FrozenFeatures(ObjectInputs):
    """Float32 (n, width)."""

    together: ClassVar[int] = 1000

    def __init__(self, features: np.ndarray) -> None:
        self._features = features

    @property
    def width(self) -> int:
        return int(self._features.shape[1])

    def rows(self, samples: np.ndarray, device: torch.device) -> Tensor:
        return torch.from_numpy(self._features[samples]).to(device)
