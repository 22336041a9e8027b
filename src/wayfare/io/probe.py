"""Checking many pictures without keeping them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wayfare.core.errors import DataError
from wayfare.io.findings import Problems, Progress
from wayfare.io.images import decode

_CHUNK = 256


def check_pictures(
    files: Sequence[Path],
    problems: Problems,
    progress: Progress | None = None,
    sizes: Sequence[tuple[int, int]] | None = None,
) -> int:
    """How many of the files are intact pictures; the others are added to the problems.

    A picture whose size differs from the one in `sizes` (height and width; (0, 0) if unknown) is a problem too.
    """

    def faults(index: int) -> list[DataError]:
        stated = sizes[index] if sizes is not None else (0, 0)
        if not any(stated):
            decode(files[index], size=(8, 8))  # decodes a JPEG at an eighth of its size; all its bytes are read
            return []
        found = decode(files[index]).shape[:2]
        if found == tuple(stated):
            return []
        what = f"{found[1]} x {found[0]} pixels, the annotation says {stated[1]} x {stated[0]}"
        return [DataError(what, files[index], remedy="is it the right picture?")]

    return check_each(len(files), faults, problems, progress)


def check_each(
    count: int,
    faults: Callable[[int], list[DataError]],
    problems: Problems,
    progress: Progress | None = None,
) -> int:
    """Find the faults of each of `count` files; return how many have none. A DataError raised counts as a fault."""

    def one(index: int) -> list[DataError]:
        try:
            return faults(index)
        except DataError as error:
            return [error]

    whole = 0
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # decoding releases the interpreter lock
        for start in range(0, count, _CHUNK):
            for found in pool.map(one, range(start, min(start + _CHUNK, count))):
                whole += not found
                for error in found:
                    problems.note(error)
            if progress is not None:
                progress(min(start + _CHUNK, count), count)
    return whole
