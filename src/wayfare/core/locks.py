"""Files that tell which process is at work, and whether it still is: the kernel lets go of a lock however that ends.

A run folder is locked itself, so that nothing in it can be deleted to get in; its file `lock` only says who is there.
Where a file system cannot lock folders (NFS), the file is the lock, and its holder stops when it is deleted.

The library `filelock` would replace one call here, `flock`. It does not say who holds a lock, nor can another process
ask that without taking it, nor can a lock be handed to a program that is being started.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from wayfare.core.errors import StoreError, WayfareError

_LOOK = 0.1  # seconds between two looks
_NO_FOLDER_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP)


class FolderLock:
    """A folder that this process holds."""

    def __init__(self, folder: Path, handle: int, file: int, is_locked: bool) -> None:
        self._folder, self._handle, self._file, self._is_locked = folder, handle, file, is_locked

    def check(self) -> None:
        """Raise if what lies at the folder's path is no longer the folder that was locked."""
        if not _is_at(self._handle, self._folder):
            raise StoreError(
                f"{self._folder} was moved, removed or replaced while this process worked in it: nothing more is "
                "written there. Put the folder back, then resume"
            )
        if not self._is_locked and not _is_at(self._file, self._folder / "lock"):
            raise StoreError(
                f"{self._folder / 'lock'} was removed while this process worked there, so another one may have begun: "
                "stop the others, then resume"
            )


@contextlib.contextmanager
def folder_held(folder: Path) -> Iterator[FolderLock]:
    """Hold a folder for this process."""
    lock = folder / "lock"
    with _explained(lock):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        is_locked = _folder_taken(handle, lock)
        with held(lock, os.getpid()) as file:
            yield FolderLock(folder, handle, file, is_locked)
            try:
                sign(file, 0)  # or the next holder would be taken for this one for a moment
            except OSError as error:
                raise StoreError(f"cannot release {lock}: {error.strerror or error}") from error
    finally:
        os.close(handle)


def _folder_taken(handle: int, lock: Path) -> bool:
    """Lock a folder; False where its file system cannot do that."""
    try:
        if _taken(handle, fcntl.LOCK_EX):
            return True
    except OSError as error:
        if error.errno in _NO_FOLDER_LOCKS:
            return False
        raise StoreError(f"cannot lock {lock.parent}: {error.strerror or error}") from error
    raise _in_use(lock)


@contextlib.contextmanager
def held(lock: Path, process: int) -> Iterator[int]:
    """Hold a file for a process; 0: one that is still to begin, and is given the descriptor that this yields."""
    with _explained(lock):
        handle = _locked(lock)
    try:
        with _explained(lock):
            sign(handle, process)
        yield handle
    finally:
        os.close(handle)


def _locked(lock: Path) -> int:
    """The lock's file, opened and locked."""
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        if not _taken(handle, fcntl.LOCK_EX):
            os.close(handle)
            raise _in_use(lock)
        if _is_at(handle, lock):
            return handle
        os.close(handle)  # it was deleted before it was locked: a lock on it would keep nobody out


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
        if not process.isdigit():
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


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _in_use(lock: Path) -> StoreError:
    return StoreError(f"{lock.parent} is in use by process {_named(lock)}: wait for it, or stop it first")


def _named(lock: Path) -> str:
    """Who has the lock; a process that has just taken it may not have signed yet."""
    number = ""
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError):
            number = lock.read_bytes()[:20].decode(errors="replace").strip()
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
