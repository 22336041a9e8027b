"""The nursery of the pool engine, and the workers that it forks.

It is a program, `python -m wayfare.worker FD PARENT`, or a copy of the process that needs it (machine.py).

A worker reads frames from a socket: `open` names an experiment and its run folder, `do` runs a program as a device.
The nursery has one thread and imports only: that is what makes forking safe.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import socket
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pydantic.type_adapter  # noqa: F401  (which every worker needs, and components.py imports when it is needed)
import torch

from wayfare.core.device import Bench
from wayfare.core.protocols import Failure
from wayfare.engines import shared
from wayfare.engines.crew import HIRE, ONE_THREAD, PID, STOP, UP, heard, words
from wayfare.engines.programs import keep_freed_memory, perform
from wayfare.errors import StoreError
from wayfare.experiment import Experiment


def main(descriptor: int, parent: int) -> None:
    """Fork workers until the other end closes (engines/crew.py has that end)."""
    faulthandler.enable()
    die_with_parent(parent)
    door, workers = socket.socket(fileno=descriptor), dict[int, int | None]()
    door.sendall(words(UP, 0))
    while True:
        try:
            what, number, given = heard(door)
        except (EOFError, OSError):
            return
        if what == HIRE:
            workers[len(workers)] = forked(given[0], door)
        elif what == PID:
            door.sendall(words(PID, workers[number] or 0))
        elif what == STOP:
            door.sendall(words(STOP, ended(workers[number])))
            workers[number] = None  # its number among processes may soon be another's


class Copy:
    """The nursery as a copy of this process; it is asked what `subprocess.Popen` is asked."""

    def __init__(self, door: socket.socket) -> None:
        self._status: int | None = None
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid:
            return
        status = 1
        try:
            alone(door.fileno())
            main(door.detach(), parent)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def poll(self) -> int | None:
        return self._ended(os.WNOHANG)

    def wait(self) -> int | None:
        return self._ended(0)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _ended(self, options: int) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, options)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status


def alone(descriptor: int) -> None:
    """Let a copy of another process be as one that was started: of what was open, it keeps this and where it prints."""
    from threadpoolctl import threadpool_limits

    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.update(ONE_THREAD)  # for libraries to come
    threadpool_limits(1)  # for those that are here
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for file in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        if file > 2 and file != descriptor:
            with contextlib.suppress(OSError):  # the one through which they were listed
                os.close(file)


def forked(descriptor: int, door: socket.socket) -> int:
    """A new worker at this end of a pipe; its process."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(descriptor)
        return pid
    status = 1
    try:
        door.close()
        die_with_parent(parent)
        serve(Connection(descriptor))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(pid: int | None) -> int:
    """Kill a process that was forked here; its exit status, which it may have had before. None: it is known no more."""
    if pid is None:
        return -signal.SIGKILL
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def serve(pipe: Connection) -> None:
    """A worker: do what is asked until the other end closes."""
    torch.set_num_threads(1)
    keep_freed_memory()
    bench: Bench | None = None
    opening: dict[str, Any] = {}
    while True:
        try:
            frame = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        if "open" in frame:
            opening, bench = frame, None
            with contextlib.suppress(Exception):  # in time for the first order; its reply tells what is wrong
                bench = built(opening)
            continue
        try:
            bench = bench or built(opening)
            outcome = answer(bench, frame)
        except StoreError as error:  # a full disk is no fault of the device: leaving it out would change the result
            outcome = {"stopped": str(error)}
        except Exception as error:
            outcome = {"failed": f"{type(error).__name__}: {error}", "detail": traceback.format_exc()}
        try:
            pipe.send_bytes(json.dumps(outcome).encode())
        except OSError:
            return


def built(opening: dict[str, Any]) -> Bench:
    """The experiment's bench, from its text."""
    return Experiment.from_toml(opening["open"]).bench(Path(opening["folder"]))


def die_with_parent(parent: int) -> None:
    """Ask Linux to end this process when its parent is killed; elsewhere it ends at its next reply."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it was killed while this process started, and its orders are still in the pipe
        os._exit(1)


def answer(bench: Bench, frame: dict[str, Any]) -> dict[str, Any]:
    """Run one program and leave its reply in shared memory."""
    reply = perform(bench, frame["do"], frame["device"], shared.get(frame["message"]), frame["deadline"])
    if isinstance(reply, Failure):
        return {"failed": reply.reason, "detail": reply.detail}
    return {"reply": shared.put(reply, Path(frame["reply"]))}


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
    os._exit(0)
