"""Files that tell which process is at work, and whether it still is: the kernel lets go of a lock however that ends.

The library `filelock` would replace one call here, `flock`. It does not say who holds a lock, nor can another process
ask that without taking it, nor can a lock be handed to a program that is being started.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from wayfare.core.errors import StoreError, WayfareError

_LOOK = 0.1  # seconds between two looks


@contextlib.contextmanager
def held(lock: Path, process: int) -> Iterator[int]:
    """Hold a file for a process; 0: one that is still to begin, and is given the descriptor that this yields."""
    with _explained(lock):
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with _explained(lock):
            if not _taken(handle, fcntl.LOCK_EX):
                raise StoreError(f"{lock.parent} is in use by process {_named(handle)}: wait for it, or stop it first")
            sign(handle, process)
        yield handle
    finally:
        os.close(handle)


def sign(handle: int, process: int) -> None:
    """Say whose it is; 0: nobody's."""
    os.ftruncate(handle, 0)
    if process:
        os.pwrite(handle, str(process).encode(), 0)


def holder(lock: Path) -> int | None:
    """The process that holds a file; 0 if it has ended, None if it has not begun."""
    try:
        handle = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        process = os.pread(handle, 20, 0)
        if not process:
            return None
        return 0 if _taken(handle, fcntl.LOCK_SH) else int(process)
    finally:
        os.close(handle)


def await_end(lock: Path, seconds: float = 5.0) -> None:
    """Wait until nobody holds a file any more; who still does after so many seconds is killed."""
    for kill in (True, False):
        end = time.monotonic() + seconds
        while process := holder(lock):
            if time.monotonic() > end:
                break
            time.sleep(_LOOK)
        else:
            return
        if kill:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    raise WayfareError(f"process {process} of an earlier server still holds {lock} and does not stop: stop it by hand")


def _taken(handle: int, kind: int) -> bool:
    """Whether it could be had; it is let go of when the handle is closed."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _named(handle: int) -> str:
    """Who has the lock; a process that has just taken it may not have signed yet."""
    for _ in range(100):
        number = os.pread(handle, 20, 0).decode(errors="replace").strip()
        if number.isdigit() and _lives(int(number)):
            break
        time.sleep(_LOOK / 10)
    return number or "unknown"


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:  # another user's
        return True
    except (OSError, OverflowError):
        return False
    return True


@contextlib.contextmanager
def _explained(lock: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot lock {lock}: {error.strerror or error}") from error
