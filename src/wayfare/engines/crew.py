"""Worker processes of the pool engine, as seen from outside them.

They are forked by a nursery, a process that has imported what all of them need and does nothing else: torch is imported
once for all workers, and one that dies is replaced in no time. The nursery is a program of its own, or whatever else
`start` makes of it (machine.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

HIRE, PID, STOP, UP = b"h", b"p", b"s", b"u"  # what is said through a nursery's door, each with a number
_FORM = struct.Struct("<ci")
_KILLED = -9  # the exit status of a process that was killed
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def words(what: bytes, number: int) -> bytes:
    """Something to be said through the door."""
    return _FORM.pack(what, number)


def heard(door: socket.socket) -> tuple[bytes, int, list[int]]:
    """What is said at the other end, with file descriptors that come with it; EOFError if nobody is there any more."""
    data, descriptors, _, _ = socket.recv_fds(door, _FORM.size, 1, socket.MSG_WAITALL)
    if len(data) < _FORM.size:
        raise EOFError
    what, number = _FORM.unpack(data)
    return what, number, list(descriptors)


def started(door: socket.socket) -> subprocess.Popen[bytes]:
    """The nursery as a program of its own."""
    path = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return subprocess.Popen(
        [sys.executable, "-m", "wayfare.worker", str(door.fileno()), str(os.getpid())],
        pass_fds=[door.fileno()], env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


class Nursery:
    """The process that workers are forked from; it ends when this one does, and they end with it."""

    def __init__(self, start: Callable[[socket.socket], Any] = started) -> None:
        self._start = start  # with its end of the door; returns what can be asked as `subprocess.Popen` can
        self.born, self._hired = 0, 0  # how often it was started, and how many it has forked since
        self._begin()

    def _begin(self) -> None:
        self._door, theirs = socket.socketpair()
        with theirs:
            self._process = self._start(theirs)
        self.born, self._hired, self._up = self.born + 1, 0, False

    def hire(self) -> Worker:
        """Have a worker forked as soon as the nursery is up; nobody waits for that here."""
        if self._process.poll() is not None:
            self._door.close()
            self._begin()
        ours, theirs = socket.socketpair()
        with theirs, contextlib.suppress(OSError):  # if it is just dying, so is the worker: its pipe is at its end
            socket.send_fds(self._door, [words(HIRE, 0)], [theirs.fileno()])
        self._hired += 1
        return Worker(self, self.born, self._hired - 1, Connection(ours.detach()))

    def ask(self, what: bytes, born: int, number: int) -> int | None:
        """A question about a worker, answered once the nursery is up; None if that worker's nursery is dead."""
        if born != self.born:
            return None
        try:
            if not self._up:
                heard(self._door)
                self._up = True
            self._door.sendall(words(what, number))
            return heard(self._door)[1]
        except (OSError, EOFError):
            return None

    def close(self) -> None:
        """End all workers at once."""
        if self._up or select.select([self._door], [], [], 0)[0]:  # else there is none yet
            for number in range(self._hired):
                self.ask(STOP, self.born, number)
        self._door.close()
        self._process.kill()
        self._process.wait()


@dataclass(eq=False)
class Worker:
    """One process and the pipe to it."""

    nursery: Nursery
    born: int
    number: int
    pipe: Connection
    jobs: list[Any] = field(default_factory=list)  # what it is doing, and what it does then

    @property
    def pid(self) -> int | None:
        """Its process, until it is stopped; None if its nursery is dead."""
        return self.nursery.ask(PID, self.born, self.number)

    def send(self, frame: dict[str, Any]) -> int:
        """Tell it something, of so many bytes; OSError if it is gone."""
        data = json.dumps(frame).encode()
        self.pipe.send_bytes(data)
        return len(data)

    def stop(self) -> int:
        """End it at once; returns its exit status."""
        with contextlib.suppress(OSError):
            self.pipe.close()
        status = self.nursery.ask(STOP, self.born, self.number)
        return _KILLED if status is None else status


def hire_all(workers: int = 0, start: Callable[[socket.socket], Any] = started) -> list[Worker]:
    """That many from one nursery, or one for each core."""
    nursery = Nursery(start)
    return [nursery.hire() for _ in range(workers or os.cpu_count() or 1)]
