"""Bundles handed between processes through shared memory: one copy in, none out, and a header through the pipe."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from wayfare.core.bundle import Bundle, plain
from wayfare.errors import StoreError

_ALIGN = 64


def folder() -> Path:
    """A folder in memory where there is one; what killed processes left there is cleared away."""
    place = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())
    for left in place.glob("wayfare-*-*"):
        owner = left.name.split("-")[1]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"wayfare-{os.getpid()}-", dir=place))


def put(bundle: Bundle, path: Path) -> dict[str, Any]:
    """Write a bundle's tensors to a file that another process will map; returns the header it needs.

    A file that is there already is written over: its memory is taken, and taking memory costs more than copying.
    It is written to as a file, not through a map of it, which would cost a page fault for every 4 KiB, and where there
    is no memory left would end the process without a word.
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
            with path.open("r+b" if path.exists() else "w+b") as file:
                file.writelines(pieces)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise StoreError(
                f"no room for {offset:,} bytes of shared memory in {path.parent}: {error.strerror}. "
                "Use fewer workers, or make it larger (docker run --shm-size=...)"
            ) from error
    return {"path": str(path) if offset else "", "bytes": offset, "layout": layout, "values": bundle.values}


def get(header: dict[str, Any], unused: Callable[[], object] = lambda: None) -> Bundle:
    """The bundle behind a header, as views of the shared memory; `unused` is called when the last of them is gone."""
    memory: mmap.mmap | None = None
    if header["path"]:
        file = os.open(header["path"], os.O_RDONLY)
        try:
            # a private map: what one process writes, no other sees
            memory = mmap.mmap(file, header["bytes"], access=mmap.ACCESS_COPY)
        finally:
            os.close(file)
        weakref.finalize(memory, unused).atexit = False
    else:
        unused()
    tensors: dict[str, dict[str, torch.Tensor]] = {}
    for section, weights in header["layout"].items():
        tensors[section] = {}
        for name, (kind, shape, offset) in weights.items():
            dtype = getattr(torch, kind)
            count = 1
            for length in shape:
                count *= length
            if count and memory is not None:
                tensors[section][name] = torch.frombuffer(memory, dtype=dtype, count=count, offset=offset).view(shape)
            else:
                tensors[section][name] = torch.empty(shape, dtype=dtype)
    return Bundle(tensors, dict(header["values"]))
