"""Bundles in shared memory: one copy in, none out; only a header goes through the pipe."""

from __future__ import annotations

import fcntl
import itertools
import math
import mmap
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from wayfare.core.bundle import Bundle, plain
from wayfare.core.errors import StoreError

Header = dict[str, Any]  # where a bundle's tensors lie, and its values
_ALIGN = 64
_PREFIX = "wayfare-pool-"
_UNFINISHED = 60.0  # seconds after which a folder that is still being made is not
_numbers = itertools.count(1)
_locks: dict[Path, int] = {}  # of the folders that this process has


def make_folder() -> Path:
    """A new folder in memory, where there is one; folders that killed processes left there are removed.

    Its owner holds a lock on it, which the kernel lets go of when the owner ends. A process number would not tell: in
    another container it belongs to somebody else.
    """
    parent = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())
    for folder in parent.glob(f"*{_PREFIX}*"):
        _remove_if_abandoned(folder)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}{os.getpid()}-", dir=parent))
    handle = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    folder = unfinished.rename(parent / unfinished.name.removeprefix("."))  # others see it only now that it is locked
    _locks[folder] = handle
    return folder


def remove_folder(folder: Path) -> None:
    """Give back the memory of a folder of this process."""
    shutil.rmtree(folder, ignore_errors=True)
    handle = _locks.pop(folder, None)
    if handle is not None:
        os.close(handle)


def _remove_if_abandoned(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # it has just gone, or is another user's
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not folder.name.startswith(".") or time.time() - os.fstat(handle).st_mtime > _UNFINISHED:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # its owner lives
        pass
    finally:
        os.close(handle)


def new_file(folder: Path, kind: str) -> Path:
    """A name that was never used before."""
    return folder / f"{kind}-{next(_numbers)}"


def put(bundle: Bundle, path: Path) -> Header:
    """Write a bundle's tensors to a file that another process will map; returns the header it needs.

    It is written as a file, not through a map of it: where no memory is left, a write fails with an error, but a map
    ends the process.
    """
    pieces: list[Any] = []
    offset = 0
    layout: dict[str, dict[str, tuple[str, list[int], int]]] = {}
    for section, weights in bundle.tensors.items():
        layout[section] = {}
        for name, tensor in weights.items():
            source = plain(tensor)
            layout[section][name] = (str(source.dtype)[6:], list(source.shape), offset)
            gap = -source.nbytes % _ALIGN
            if source.numel():
                pieces += [source.view(-1).view(torch.uint8).numpy(), bytes(gap)]
            offset += source.nbytes + gap
    if offset:
        try:
            with path.open("wb") as file:
                file.writelines(pieces)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise StoreError(
                f"no room for {offset:,} bytes of shared memory in {path.parent}: {error.strerror}. "
                "Use fewer workers, or make it larger (docker run --shm-size=...)"
            ) from error
    return {"path": str(path) if offset else "", "bytes": offset, "layout": layout, "values": bundle.values}


def get(header: Header, unlink: bool = False) -> Bundle:
    """The bundle behind a header, as views of the shared memory; `unlink` if nobody else will read it."""
    memory = _map(Path(header["path"]), header["bytes"]) if header["path"] else None
    if memory is not None and unlink:
        Path(header["path"]).unlink()  # the memory goes with the last view of it
    tensors: dict[str, dict[str, torch.Tensor]] = {}
    for section, weights in header["layout"].items():
        tensors[section] = {}
        for name, (kind, shape, offset) in weights.items():
            dtype, count = getattr(torch, kind), math.prod(shape)
            if count and memory is not None:
                tensors[section][name] = torch.frombuffer(memory, dtype=dtype, count=count, offset=offset).view(shape)
            else:
                tensors[section][name] = torch.empty(shape, dtype=dtype)
    return Bundle(tensors, dict(header["values"]))


def _map(path: Path, size: int) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)  # private: what is written, no one else sees


class SharedMessages:
    """Requests in shared memory; a message that goes to many devices lies there once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[int, ...], tuple[Header, Bundle]] = {}
        self._users: dict[str, int] = {}

    def put(self, message: Bundle) -> Header:
        """The header for one more device."""
        key = tuple(id(weights) for weights in message.tensors.values())
        if key not in self._known:
            self._forget_unused()
            # the bundle is kept with it: an id() is only an identity while the object lives
            self._known[key] = put(message, new_file(self._folder, "message")), message
        header = {**self._known[key][0], "values": message.values}
        self._users[header["path"]] = self._users.get(header["path"], 0) + 1
        return header

    def release(self, header: Header) -> None:
        """A device is done with it."""
        self._users[header["path"]] -= 1

    def clear(self) -> None:
        """Nobody needs any of them."""
        self._users.clear()
        self._forget_unused()

    def _forget_unused(self) -> None:
        for key, (header, _) in list(self._known.items()):
            if not self._users.get(header["path"]):
                del self._known[key]
                if header["path"]:
                    Path(header["path"]).unlink(missing_ok=True)
