"""What the frozen part of a network makes of photographs: computed once for all rounds, clients, seeds and runs.

The maps are an array in the cache, mapped into memory, under a key made of the photographs and of the frozen weights.
They are computed in parts of fixed size with one thread each, so that they are the same whatever number of threads the
process has that happens to come first. Where nothing is frozen, or where they would take too much room, maps are made
of the pictures whenever they are asked for.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from wayfare.data.cache import cache_dir, new_folder, read_array
from wayfare.data.decoded import Decoded
from wayfare.data.findings import Progress
from wayfare.errors import DataError
from wayfare.tasks.nets.descriptor import Descriptor

_FORM = 1  # raise it when the same weights and pictures give other maps
_PART = 32  # photographs that go through the network together


def pictures(images: Decoded, rows: np.ndarray, where: torch.device) -> Tensor:
    """Photographs as float32 (n, 3, H, W) in 0..1; channels_last as they lie in memory."""
    return torch.from_numpy(images[rows]).to(where).permute(0, 3, 1, 2).float().div_(255)


class Maps:
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
    """Photographs through the frozen part. One alone is rounded differently from one among others: it gets company."""
    together = rows if len(rows) > 1 else np.repeat(rows, 2)
    return net.trunk(pictures(images, together, net.mean.device))[: len(rows)]


def _kept(net: Descriptor, images: Decoded, room: float, progress: Progress | None) -> np.ndarray | None:
    where = net.mean.device
    facts = f"{_FORM} {images.key} {net.trunk_key} {where.type} {torch.__version__}"
    target = cache_dir() / "maps" / hashlib.sha256(facts.encode()).hexdigest()[:32]
    shape = _through(net, images, np.arange(1)).shape[1:]
    if 4 * len(images) * shape.numel() > room:
        return None
    whole = (len(images), shape[1], shape[2], shape[0])
    _make(target, net, images, whole, progress)
    try:
        return _read(target / "maps.npy", whole)
    except DataError:  # damaged from outside: the photographs are still there
        shutil.rmtree(target, ignore_errors=True)
        _make(target, net, images, whole, progress)
        return _read(target / "maps.npy", whole)


def _make(target: Path, net: Descriptor, images: Decoded, shape: tuple[int, ...], progress: Progress | None) -> None:
    with new_folder(target) as part:
        if part is not None:
            _write(part / "maps.npy", net, images, shape, progress)


def _read(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    maps = read_array(path)
    if maps.shape != shape or maps.dtype != np.float32:
        raise DataError(f"maps {maps.dtype} {maps.shape}, expected float32 {shape}", path, remedy="delete it")
    return maps


def _write(path: Path, net: Descriptor, images: Decoded, shape: tuple[int, ...], progress: Progress | None) -> None:
    try:
        with path.open("wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for number, maps in enumerate(_computed(net, images), start=1):
                file.write(np.ascontiguousarray(maps).data)
                if progress is not None:
                    progress(min(number * _PART, len(images)), len(images))
    except OSError as error:
        remedy = "free some space there, set WAYFARE_CACHE, or lower task.cache"
        raise DataError(f"cannot be written: {error.strerror}", file=path, remedy=remedy) from error


def _computed(net: Descriptor, images: Decoded) -> Iterator[np.ndarray]:
    """(n, h, w, C) of one part after the other; a few are worked on at a time."""
    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    starts = range(0, len(images), _PART)

    def one(start: int) -> np.ndarray:
        rows = np.arange(start, min(start + _PART, len(images)))
        maps = _through(net, images, rows)
        return maps.permute(0, 2, 3, 1).cpu().numpy()

    try:
        with ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for first in range(0, len(starts), 4 * cores):
                yield from pool.map(one, starts[first : first + 4 * cores])
    finally:
        torch.set_num_threads(threads)
