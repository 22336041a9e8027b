"""Features of labelled pictures from a frozen trunk, cached under a key made of pixels and trunk."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from wayfare.io.cache import cache_dir
from wayfare.io.findings import Progress
from wayfare.nets.cached import cached_array, in_parts, write_rows

_FORM = 1  # raise it when the same trunk and pictures give other features
_CHUNK = 4096  # pictures in memory at a time


class PictureTrunk(Protocol):
    """A frozen network."""

    @property
    def feature_dim(self) -> int:
        """How many numbers a picture becomes."""
        ...

    @property
    def key(self) -> str:
        """Differs for trunks with different features."""
        ...

    def __call__(self, pictures: Tensor) -> Tensor:
        """Pictures in 0..1, (N, 3, H, W), to features (N, feature_dim)."""
        ...

    def own_weights(self) -> dict[str, Tensor]:
        """What has to be stored with a model to have this trunk again; {}: nothing, it is in the cache by its name."""
        ...


def features_of(trunk: PictureTrunk, images: Any, progress: Progress | None = None) -> np.ndarray:
    """Features of pictures uint8 (N, H, W, C): float32 (N, feature_dim), mapped into memory."""
    shape = (len(images), trunk.feature_dim)
    if not len(images):
        return np.empty(shape, np.float32)

    def one(rows: np.ndarray) -> np.ndarray:
        pictures = torch.from_numpy(images[rows]).permute(0, 3, 1, 2).float().div_(255)
        found: np.ndarray = trunk(pictures).numpy()
        return found

    path = cache_dir() / "features" / _key(trunk, images) / "features.npy"
    return cached_array(path, shape, lambda path: write_rows(path, shape, lambda: in_parts(one, len(images)), progress))


def _key(trunk: PictureTrunk, images: Any) -> str:
    """A key from the pixels, not from file names and dates; for CIFAR-10 that takes less than half a second."""
    sha = hashlib.sha256(f"{_FORM} {trunk.key} {torch.__version__} {images.shape}".encode())
    for start in range(0, len(images), _CHUNK):
        sha.update(np.ascontiguousarray(images[start : start + _CHUNK]).data)
    return sha.hexdigest()[:32]
