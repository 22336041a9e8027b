"""Photographs by their index in a list: decoded once and cached, or read from their files each time.

A cached set is one memory-mapped array of pictures of equal size. Its key is made of the files' names, sizes and dates.
Files that cannot be decoded are left out and listed. A set that would exceed its space in the cache is read from its
files on every access, and is not checked beforehand.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wayfare.core.errors import DataError
from wayfare.io.cache import cache_dir, new_folder, read_array
from wayfare.io.findings import Progress
from wayfare.io.images import decode_all
from wayfare.io.pictures import Skipped

_FORM = 1  # version of the cache format: raise it when decoding changes
_CHUNK = 512  # pictures in memory at a time


@dataclass(frozen=True)
class Decoded:
    """Pictures of one size. `kept` are their indices in the requested list of files."""

    files: Sequence[Path]
    size: tuple[int, int]
    kept: np.ndarray
    skipped: tuple[Skipped, ...]
    key: str
    rows: np.ndarray | None  # uint8 (N, H, W, 3); None: read from the files

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """A new uint8 array (n, H, W, 3), which the caller may change."""
        if self.rows is None:
            return decode_all([self.files[row] for row in self.kept[rows]], self.size, strict=True)[0]
        found: np.ndarray = self.rows[rows]
        return found


def decoded(
    root: Path,
    files: Sequence[Path],
    size: tuple[int, int],
    room: float = 2**33,
    progress: Progress | None = None,
) -> Decoded:
    """The pictures of these files below `root`, resized to (H, W) = `size`, with a cache of at most `room` bytes."""
    key = key_of(root, files, [_FORM, *size])
    if len(files) * size[0] * size[1] * 3 > room:
        return Decoded(files, size, kept=np.arange(len(files)), skipped=(), key=key, rows=None)
    target = cache_dir() / "photographs" / key
    _make(target, files, size, progress)
    try:
        return _read(target, files, size)
    except DataError:  # the cache is damaged, but the photographs still exist
        shutil.rmtree(target, ignore_errors=True)
        _make(target, files, size, progress)
        return _read(target, files, size)


def key_of(root: Path, files: Sequence[Path], facts: Sequence[object]) -> str:
    """A cache key for data derived from these files; it changes whenever one of the files changes."""
    described: list[object] = [*facts, str(root.resolve())]
    for file in files:
        try:
            found = file.stat()
            described.append([str(file.relative_to(root)), found.st_size, found.st_mtime_ns])
        except OSError:  # such as a dangling link: decoding will list it with the reason
            described.append([str(file.relative_to(root)), -1, -1])
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:32]


def decode_to(
    target: Path, files: Sequence[Path], size: tuple[int, int], progress: Progress | None = None
) -> tuple[list[int], list[Skipped]]:
    """Write the decoded pictures one after the other; with a memory map, a full disk would kill the process."""
    kept: list[int] = []
    broken: list[Skipped] = []
    try:
        with target.open("wb") as out:
            for start in range(0, len(files), _CHUNK):
                images, indices, skipped = decode_all(files[start : start + _CHUNK], size)
                out.write(images.data)
                kept += [start + int(index) for index in indices]
                broken += skipped
                if progress is not None:
                    progress(min(start + _CHUNK, len(files)), len(files))
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror}", file=target, remedy="free some space there") from error
    return kept, broken


def _make(target: Path, files: Sequence[Path], size: tuple[int, int], progress: Progress | None) -> None:
    with new_folder(target) as part:
        if part is not None:
            kept, broken = decode_to(part / "rows", files, size, progress)
            np.save(part / "kept.npy", np.array(kept, np.int64))
            (part / "skipped.json").write_text(json.dumps([list(item) for item in broken]), encoding="utf-8")


def _read(target: Path, files: Sequence[Path], size: tuple[int, int]) -> Decoded:
    kept = read_array(target / "kept.npy")
    try:
        skipped = tuple(Skipped(*item) for item in json.loads((target / "skipped.json").read_text(encoding="utf-8")))
        if kept.ndim != 1 or kept.dtype != np.int64 or len(kept) + len(skipped) != len(files):
            raise ValueError(f"{kept.shape} decoded and {len(skipped)} left out, but there are {len(files)} files")
        shape = (len(kept), *size, 3)
        rows = np.memmap(target / "rows", np.uint8, "r", shape=shape) if len(kept) else np.empty(shape, np.uint8)
        return Decoded(files, size, kept=kept, skipped=skipped, key=target.name, rows=rows)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DataError(f"the cache of photographs is damaged: {error}", target, remedy="delete it") from error
