"""Every write of a run folder goes through here: whole or not at all, and on the disk before it counts.

What is read is a file: to read a pipe would block, and a device may have no end.

The calls are the plain ones of `os`, so a test can stop the process at each of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from wayfare.core.errors import StoreError


def read(path: Path) -> bytes:
    """The content of a regular file; OSError if it is none."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return path.read_bytes()


def write(path: Path, data: bytes) -> None:
    """Write a file under a temporary name, sync it, and rename it into place."""
    temporary = path.with_name(f".{path.name}.tmp")
    with explained(path, len(data), temporary):
        make_folder(path.parent)
        _put(temporary, data, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.replace(temporary, path)  # noqa: PTH105
        sync_folder(path.parent)


def append(path: Path, data: bytes) -> None:
    """Add to the end of a file and sync it."""
    size = path.stat().st_size if path.exists() else None
    with explained(path, len(data)):
        try:
            _put(path, data, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError:
            with contextlib.suppress(OSError):  # a reader drops a torn last line anyway
                os.truncate(path, size or 0)
            raise
        if size is None:
            sync_folder(path.parent)


def truncate(path: Path, size: int) -> None:
    """Cut a file to its first `size` bytes and sync it."""
    with explained(path, 0):
        handle = os.open(path, os.O_WRONLY)
        try:
            os.ftruncate(handle, size)
            os.fsync(handle)
        finally:
            os.close(handle)


def remove(path: Path) -> None:
    """Delete a file if it is there."""
    try:
        os.unlink(path)  # noqa: PTH108
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StoreError(f"cannot remove {path}: {error.strerror or error}") from error


def make_folder(folder: Path) -> None:
    """Create a folder and those above it where they are missing, each durably."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename or a new name in this folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _put(path: Path, data: bytes, flags: int) -> None:
    handle = os.open(path, flags, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def explained(path: Path, size: int, temporary: Path | None = None) -> Iterator[None]:
    """What the system says of a failed write, as a StoreError that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
        raise StoreError(
            f"cannot write {path} ({size:,} bytes): {error.strerror or error}. "
            "The last complete round is intact: free some space or repair the disk, then resume"
        ) from error
