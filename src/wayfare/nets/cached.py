"""Outputs of frozen layers as arrays in the cache: computed once for all rounds, clients, seeds and runs.

An array is computed in parts of fixed size with one thread each, so that its bytes do not depend on the number of
threads of the process. Readers map it into memory; if it is missing or damaged, it is computed again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from wayfare.core.errors import DataError
from wayfare.io.cache import new_folder, read_array
from wayfare.io.findings import Progress

PART = 32  # pictures that go through a network together


def cached_array(path: Path, shape: tuple[int, ...], write: Callable[[Path], None]) -> np.ndarray:
    """The float32 array at `path`; if it is missing or damaged, `write` fills its folder first."""
    _make(path, write)
    try:
        return _read(path, shape)
    except DataError:  # damaged, but it can be computed again
        shutil.rmtree(path.parent, ignore_errors=True)
        _make(path, write)
        return _read(path, shape)


def write_rows(
    path: Path,
    shape: tuple[int, ...],
    parts: Callable[[], Iterable[np.ndarray]],
    progress: Progress | None = None,
    remedy: str = "free some space there, or set WAYFARE_CACHE",
) -> None:
    """Write the parts one after the other to one .npy file of this shape, and report progress in rows."""
    try:
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
            done = 0
            for rows in parts():
                file.write(np.ascontiguousarray(rows).data)
                done += len(rows)
                if progress is not None:
                    progress(done, shape[0])
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror}", file=path, remedy=remedy) from error


def in_parts(one: Callable[[np.ndarray], np.ndarray], count: int) -> Iterator[np.ndarray]:
    """`one(rows)` for each part of 0 .. count - 1, in order; a few run at a time, with one thread each."""
    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    parts = [np.arange(start, min(start + PART, count)) for start in range(0, count, PART)]
    try:
        with ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for first in range(0, len(parts), 4 * cores):
                yield from pool.map(one, parts[first : first + 4 * cores])
    finally:
        torch.set_num_threads(threads)


def _make(path: Path, write: Callable[[Path], None]) -> None:
    with new_folder(path.parent) as part:
        if part is not None:
            write(part / path.name)


def _read(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    array = read_array(path)
    if array.shape != shape or array.dtype != np.float32:
        raise DataError(f"an array {array.dtype} {array.shape}, expected float32 {shape}", path, remedy="delete it")
    return array
