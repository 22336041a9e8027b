"""Feature maps of photographs from the frozen part of a network: computed once for all rounds, clients, seeds and runs.

The maps are an array in the cache (see `nets.cached`) under a key made of the photographs and of the frozen weights.
If nothing is frozen, or if the maps would take too much space, they are computed on every access.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from wayfare.io.cache import cache_dir
from wayfare.io.decoded import Decoded
from wayfare.io.findings import Progress
from wayfare.nets.cached import cached_array, in_parts, write_rows
from wayfare.places.descriptor import Descriptor

_FORM = 1  # raise it when the same weights and pictures give other maps


def pictures(images: Decoded, rows: np.ndarray, device: torch.device) -> Tensor:
    """Photographs as float32 (n, 3, H, W) in 0..1; channels_last as they lie in memory."""
    return torch.from_numpy(images[rows]).to(device).permute(0, 3, 1, 2).float().div_(255)


class FeatureMaps:
    """Maps of photographs by their rows."""

    def __init__(self, net: Descriptor, images: Decoded, room: float, progress: Progress | None = None) -> None:
        self.images = images
        self._kept = _kept(net, images, room, progress) if net.trunk_key else None

    def __call__(self, net: Descriptor, rows: np.ndarray) -> Tensor:
        """(n, C, h, w), channels_last, on the network's device."""
        if self._kept is None:
            return _through(net, self.images, rows)
        return torch.from_numpy(self._kept[rows]).to(net.mean.device).permute(0, 3, 1, 2)


def _through(net: Descriptor, images: Decoded, rows: np.ndarray) -> Tensor:
    """Photographs through the frozen part. A single one is duplicated, because it would be rounded differently."""
    together = rows if len(rows) > 1 else np.repeat(rows, 2)
    return net.trunk(pictures(images, together, net.mean.device))[: len(rows)]


def _kept(net: Descriptor, images: Decoded, room: float, progress: Progress | None) -> np.ndarray | None:
    facts = f"{_FORM} {images.key} {net.trunk_key} {net.mean.device.type} {torch.__version__}"
    target = cache_dir() / "maps" / hashlib.sha256(facts.encode()).hexdigest()[:32]
    shape = _through(net, images, np.arange(1)).shape[1:]
    if 4 * len(images) * shape.numel() > room:
        return None
    whole = (len(images), shape[1], shape[2], shape[0])
    return cached_array(target / "maps.npy", whole, lambda path: _write(path, net, images, whole, progress))


def _write(path: Path, net: Descriptor, images: Decoded, shape: tuple[int, ...], progress: Progress | None) -> None:
    remedy = "free some space there, set WAYFARE_CACHE, or lower data.cache"
    write_rows(path, shape, lambda: _computed(net, images), progress, remedy)


def _computed(net: Descriptor, images: Decoded) -> Iterator[np.ndarray]:
    """(n, h, w, C) of one part after the other."""
    return in_parts(lambda rows: _through(net, images, rows).permute(0, 2, 3, 1).cpu().numpy(), len(images))
