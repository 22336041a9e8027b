"""Worker processes, from Python's own fork server (`multiprocessing`).

The server has imported what every worker needs, so torch is imported once for all of them, and a worker that dies is
replaced in milliseconds. The executors of the standard library are not used: when one of their processes dies, all
that was submitted is lost, and a process that hangs cannot be replaced.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import sys
import types
from collections.abc import Iterator
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

WORKER = "wayfare.worker"  # what a worker runs: by name, since it knows all of Wayfare, an engine only the core
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_context = multiprocessing.get_context("forkserver")


def start_fork_server() -> None:
    """Start the server if it is not running; it imports in the background."""
    _context.set_forkserver_preload([WORKER])
    path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
    # a process that forks must have no other threads; and Python would import from the current folder before `path`
    with _environment({**ONE_THREAD, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}):
        forkserver.ensure_running()


class Worker:
    """One process and the connection to it."""

    def __init__(self) -> None:
        self.job: Any = None  # what it is doing
        self.connection, theirs = _context.Pipe()
        with theirs, _no_main_module():
            start_fork_server()
            self.process = _context.Process(target=_serve, args=(theirs,), daemon=True)
            self.process.start()

    def send(self, message: dict[str, Any]) -> None:
        """Send something; OSError if the process is gone."""
        self.connection.send_bytes(json.dumps(message).encode())

    def start(self, job: Any, message: dict[str, Any]) -> None:
        """Have it do a job."""
        self.job = job
        with contextlib.suppress(OSError):  # if the process is gone, `receive` will notice
            self.send(message)

    def receive(self) -> tuple[Any, dict[str, Any]]:
        """The job that it has done, and the reply; EOFError or OSError if the process is gone."""
        reply = json.loads(self.connection.recv_bytes())
        job, self.job = self.job, None
        return job, reply

    def stop(self) -> int:
        """End it at once; returns its exit status."""
        self.connection.close()
        self.process.kill()
        self.process.join()
        return self.process.exitcode or 0


class Processes:
    """So many workers; one that was ended is replaced when it is next needed."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.replaced = 0
        self.workers: list[Worker] = []
        self._opening: dict[str, Any] | None = None
        start_fork_server()

    def open(self, message: dict[str, Any]) -> None:
        """Send this to all workers, and to those that come later."""
        self._opening = message
        for worker in list(self.workers):
            try:
                worker.send(message)
            except OSError:  # it died while it had nothing to do
                self.replace(worker)
        self._fill()

    @property
    def busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.job is not None]

    def idle(self) -> list[Worker]:
        """The workers that have nothing to do."""
        self._fill()
        return [worker for worker in self.workers if worker.job is None]

    def replace(self, worker: Worker) -> int:
        """End a worker; another takes its place. Returns the exit status."""
        self.workers.remove(worker)
        self.replaced += 1
        return worker.stop()

    def _fill(self) -> None:
        while len(self.workers) < self.count:
            worker = Worker()
            if self._opening is not None:
                worker.send(self._opening)
            self.workers.append(worker)

    def close(self) -> None:
        """End all workers."""
        while self.workers:
            self.workers.pop().stop()


def _serve(connection: Connection) -> None:
    importlib.import_module(WORKER).serve(connection)


@contextlib.contextmanager
def _no_main_module() -> Iterator[None]:
    """Hide the caller's script: `multiprocessing` would run it again in every worker.

    So it needs no `if __name__ == "__main__"`. Workers find what an experiment names by importing it.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    """Environment variables for a process that is started meanwhile."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
