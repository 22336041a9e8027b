"""One call of the pool: a program on many devices, with a deadline, a window, and replies in the order asked.

A device whose worker dies is asked once more, on another worker; a worker that hangs is killed after the deadline.
Either way the worker is replaced and the call goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from wayfare.core.bundle import Bundle
from wayfare.core.errors import StoreError
from wayfare.core.protocols import Failure
from wayfare.engines.pool import shared
from wayfare.engines.pool.processes import Processes, Worker

WINDOW = 4  # requests per worker that are taken and not yet handed out, at most
GRACE = 5.0  # a worker stops by itself at the deadline; this many seconds later it is killed
_TRIES = 2
_LONGEST_WAIT = 60.0  # the system's own timeouts have a limit


@dataclass
class Job:
    """One request on its way to a worker."""

    order: int
    device: str
    message: shared.Header
    size: int
    reply: Path  # the file for the answer's tensors
    tries: int = 0


class Call:
    """What is waiting, running and answered."""

    def __init__(self, program: str, processes: Processes, folder: Path, size: Callable[[str], int]) -> None:
        self.program = program
        self._processes, self._folder, self._size = processes, folder, size
        self._messages = shared.SharedMessages(folder)
        self._deadline = 0.0
        self._begun: list[tuple[str, Bundle]] = []  # requests that were started before they were asked
        self._taken = 0  # requests taken from the caller
        self._waiting: list[Job] = []
        self._answered: dict[int, tuple[str, Bundle | Failure]] = {}

    def begin(self, requests: Iterable[tuple[str, Bundle]], deadline: float) -> None:
        """Start these before they are asked."""
        self._deadline = deadline
        self._begun = list(requests)
        for order, (device, message) in enumerate(self._begun):
            self._add(order, device, message)
        self._start()

    def replies(
        self, requests: Iterable[tuple[str, Bundle]], deadline: float
    ) -> Iterator[tuple[str, Bundle | Failure]]:
        """Take requests and hand out replies until there are no more."""
        self._deadline, handed, source = deadline, 0, iter(requests)
        try:
            while True:
                self._take(source, handed)
                self._start()
                if handed in self._answered:
                    yield self._answered.pop(handed)
                    handed += 1
                    self._receive(0.0)  # whoever is done meanwhile gets its next job before the next reply goes out
                elif self._processes.busy:
                    self._receive(self._deadline + GRACE - time.monotonic())
                else:
                    return
        finally:
            self.stop()

    def stop(self) -> None:
        """What is still running is of no use any more: the caller left early."""
        for worker in self._processes.busy:
            self._end(worker)
        self._messages.clear()

    def _take(self, source: Iterator[tuple[str, Bundle]], handed: int) -> None:
        """Fill the window."""
        while self._taken - handed < WINDOW * self._processes.count:
            request = next(source, None)
            if request is None:
                return
            if self._taken < len(self._begun):
                _check_same(self._begun[self._taken], request)
            else:
                self._add(self._taken, *request)
            self._taken += 1

    def _add(self, order: int, device: str, message: Bundle) -> None:
        header, reply = self._messages.put(message), shared.new_file(self._folder, "reply")
        self._waiting.append(Job(order, device, header, self._size(device), reply))

    def _start(self) -> None:
        """Give every idle worker a job, the largest first."""
        if not self._waiting:
            return
        for worker in self._processes.idle():
            if self._waiting:
                job = max(self._waiting, key=lambda job: (job.size, -job.order))
                self._waiting.remove(job)
                worker.start(job, self._order(job))

    def _order(self, job: Job) -> dict[str, Any]:
        return {
            "do": self.program, "device": job.device, "message": job.message, "reply": str(job.reply),
            "deadline": self._deadline,
        }  # fmt: skip

    def _receive(self, seconds: float) -> None:
        """Take the replies that are there; if there are none, wait for one, up to the deadline."""
        running = self._processes.busy
        ready = wait([worker.connection for worker in running], min(max(seconds, 0.0), _LONGEST_WAIT))
        for worker in running:
            if worker.connection in ready:
                self._read(worker)
        if not ready and time.monotonic() > self._deadline + GRACE:
            self._give_up(running)

    def _read(self, worker: Worker) -> None:
        try:
            job, reply = worker.receive()
        except (EOFError, OSError):
            self._retry(worker)
            return
        if "stopped" in reply:  # a full disk is not the device's fault
            raise StoreError(reply["stopped"])
        failed = Failure(reply["failed"], reply["detail"]) if "failed" in reply else None
        self._answer(job, failed or shared.get(reply["reply"], unlink=True))

    def _retry(self, worker: Worker) -> None:
        job, status = self._end(worker)
        job.tries += 1
        if job.tries < _TRIES:
            self._waiting.append(job)
        else:
            self._answer(job, Failure(f"its worker process died twice (exit status {status})"))

    def _give_up(self, running: list[Worker]) -> None:
        for worker in running:
            job, _ = self._end(worker)
            self._answer(job, Failure("late: no reply before the round's deadline"))
        while self._waiting:
            self._answer(self._waiting.pop(), Failure("late: not started before the round's deadline"))

    def _end(self, worker: Worker) -> tuple[Job, int]:
        """Replace a worker; returns what it was doing, and its exit status."""
        job: Job = worker.job
        status = self._processes.replace(worker)
        job.reply.unlink(missing_ok=True)
        return job, status

    def _answer(self, job: Job, reply: Bundle | Failure) -> None:
        self._messages.release(job.message)
        self._answered[job.order] = job.device, reply


def _check_same(begun: tuple[str, Bundle], asked: tuple[str, Bundle]) -> None:
    if begun[0] != asked[0] or not begun[1].is_same(asked[1]):
        raise RuntimeError(f"device {begun[0]!r} was prefetched, but {asked[0]!r} is asked, or something else")
