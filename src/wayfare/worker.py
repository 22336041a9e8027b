"""The nursery of the pool engine, `python -m wayfare.worker FD PARENT`, and the workers that it forks.

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

import torch

from wayfare.core.device import Bench
from wayfare.core.protocols import Failure
from wayfare.engines import shared
from wayfare.engines.crew import HIRE, PID, STOP, UP, heard, words
from wayfare.engines.programs import keep_freed_memory, perform
from wayfare.errors import StoreError


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
    from wayfare.experiment import Experiment

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
