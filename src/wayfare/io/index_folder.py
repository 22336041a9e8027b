"""Shared by all indexes on disk: a lock for adding, errors that say what is intact, and a checksum."""

from __future__ import annotations

import fcntl
import json
import zlib
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wayfare.core import disk
from wayfare.core.errors import ConfigError, StoreError

_LOCK = "lock"


def checksum(facts: dict[str, Any]) -> int:
    """A checksum of the facts, computed over their JSON text."""
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())


@contextmanager
def explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, StoreError) as error:
        reason = error.__cause__ if isinstance(error, StoreError) else error
        what = getattr(reason, "strerror", None) or str(reason)
        raise StoreError(
            f"cannot write {path}: {what}. What the index held before is intact: free some space, then run the command "
            "again"
        ) from error


@contextmanager
def held(folder: Path, files: Set[str]) -> Iterator[None]:
    """Lock the index for adding; the lock ends with the process. The folder may hold only these files."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder: choose a folder for the index")
    present = {file.name.strip(".").removesuffix(".tmp") for file in folder.iterdir()} if folder.exists() else set()
    if others := sorted(present - files - {_LOCK}):
        raise ConfigError(f"{folder} is not an index: it contains {others[0]}, for example. Choose another folder")
    with explained(folder / _LOCK):
        disk.make_folder(folder)
        lock = (folder / _LOCK).open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"another process is adding photographs to {folder}: wait for it") from None
        yield
