"""The engine of many processes: N workers with one torch thread each, on one machine.

Workers are separate Python programs that rebuild the experiment from its text, as a remote node would, so a caller's
script needs no `if __name__ == "__main__"`. Requests and replies are JSON headers over a socket; tensors lie in shared
memory. Replies come out in the order asked, and at most a window of them is held, so memory does not grow with the
number of clients. A worker that dies is replaced and its device is asked once more; one that hangs is killed at the
deadline.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from wayfare.core.bundle import Bundle
from wayfare.core.device import Bench
from wayfare.core.protocols import Failure
from wayfare.engines import shared
from wayfare.engines.crew import Worker, hire_all
from wayfare.engines.programs import keep_freed_memory
from wayfare.errors import StoreError

Header = dict[str, Any]  # of a bundle in shared memory


@dataclass
class _Job:
    order: int
    device: str
    message: dict[str, Any]
    size: int
    tries: int = 0
    reply: str = ""  # the file in which the answer is left


class Pool(AbstractContextManager["Pool"]):
    """Runs devices on this machine's cores."""

    foresees = "writing"  # a round to the disk: the workers then begin with the next one

    def __init__(self, workers: int = 0, crew: list[Worker] | None = None) -> None:
        self._crew = crew or hire_all(workers)
        self.workers = len(self._crew)
        self.replaced = 0
        self._folder = shared.folder()
        self._files = 0
        self._frame = 0  # bytes of the last order that was given
        self._free: list[str] = []  # files for replies that nobody looks at any more
        self._opening: dict[str, Any] | None = None
        self._size: Callable[[str], int] = lambda id: 0
        self._ahead: _Ahead | None = None
        self._threads = torch.get_num_threads()

    def open(self, spec: str, folder: str, bench: Callable[[], Bench]) -> None:
        """Serve this experiment from now on; the workers build it themselves."""
        torch.set_num_threads(1)
        keep_freed_memory()
        self.rest()
        while self._free:  # the next models may be of another size
            Path(self._free.pop()).unlink(missing_ok=True)
        self._opening = {"open": spec, "folder": folder}
        for worker in list(self._crew):
            try:
                worker.send(self._opening)
            except OSError:  # it died while it had nothing to do
                self._replace(worker)

    def deal_by(self, size: Callable[[str], int]) -> None:
        """How large a device's work is: the larger ones of a window are started first."""
        self._size = size

    def foresee(self, program: str, requests: Iterable[tuple[str, Bundle]], round: int, seconds: float) -> None:
        """What will be asked next: the workers begin with it while the caller still does something else.

        It changes no result: what a device does depends on what it is told and on what it knew before that round.
        """
        self.rest()
        self._ahead = ahead = _Ahead(program, _Messages(self._folder))
        idle, deadline = self._idle(), time.monotonic() + seconds
        for order, (worker, (device, message)) in enumerate(zip(idle, requests)):  # in this order: no request too many
            told = Bundle(message.tensors, {**message.values, "round": round})
            ahead.told[order] = device, told
            job = _Job(order, device, ahead.messages.put(told), self._size(device))
            self._start(worker, program, job, ahead.running, deadline)

    def rest(self) -> None:
        """What was foreseen will not be asked: whoever works on it stops at once."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            for worker in ahead.running.values():
                self._replace(worker)
            ahead.messages.clear()

    def call(
        self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float
    ) -> Iterator[tuple[str, Bundle | Failure]]:
        if self._ahead is not None and self._ahead.program != program:
            self.rest()
        ahead, self._ahead = self._ahead or _Ahead(program, _Messages(self._folder)), None
        messages, running = ahead.messages, ahead.running
        window: list[_Job] = []  # asked, not yet started
        done: dict[int, tuple[_Job, Header | Failure]] = {}  # answered, not yet handed out
        source, asked, handed, exhausted, moment = iter(requests), 0, 0, False, time.monotonic()
        try:
            while True:
                while not exhausted and asked - handed < _WINDOW * self.workers:
                    item = next(source, None)
                    if item is None:
                        exhausted = True
                        break
                    if not ahead.has(asked, *item):
                        window.append(_Job(asked, item[0], messages.put(item[1]), self._size(item[0])))
                    asked += 1
                for worker in self._idle(len(window)):
                    if window:
                        self._start(worker, program, window.pop(_largest(window)), running, deadline)
                # Quick replies wait for each other while the workers have enough to do: to look at several in one go
                # takes half as long as to look at each when everything else has been through the caches.
                busy = len(running) == self.workers and (exhausted or len(window) > self.workers)
                if handed in done and not (busy and time.monotonic() - moment < _MOMENT):
                    while handed in done:
                        yield self._opened(*done.pop(handed))
                        handed += 1
                    moment = time.monotonic()
                if not running and not window:
                    if exhausted and not done:
                        return
                    continue
                for job, reply in self._collect(running, window, deadline):
                    messages.release(job.message)
                    done[job.order] = (job, reply)
        finally:
            self._free += [job.reply for job, reply in done.values() if not isinstance(reply, Failure)]
            for worker in self._crew[:]:
                if worker.jobs:  # the caller left early: what it is doing is of no use any more
                    self._replace(worker)
            messages.clear()

    def _idle(self, waiting: int = 0) -> list[Worker]:
        """Who can be given something: while much is waiting, also those with one job, so that none waits for the next.

        What lies in a pipe must not fill it: two ends that both wait for room would do so for ever.
        """
        idle = [worker for worker in self._crew if not worker.jobs]
        if waiting - len(idle) > self.workers and self._frame < _LIGHT:
            idle += [worker for worker in self._crew if len(worker.jobs) == 1]
        return idle

    def _start(
        self, worker: Worker, program: str, job: _Job, running: dict[Connection, Worker], deadline: float
    ) -> None:
        job.reply = self._free.pop() if self._free else self._new_file()
        worker.jobs.append(job)
        running[worker.pipe] = worker
        frame = {"do": program, "device": job.device, "message": job.message, "reply": job.reply, "deadline": deadline}
        with contextlib.suppress(OSError):  # a worker that is gone shows up as end-of-file in _collect
            self._frame = worker.send(frame)

    def _collect(
        self, running: dict[Connection, Worker], window: list[_Job], deadline: float
    ) -> Iterator[tuple[_Job, Header | Failure]]:
        left = deadline + _GRACE - time.monotonic()
        ready = wait(list(running), timeout=min(max(left, 0.0), _NAP))  # the system's own timeouts have a limit
        if not ready and left <= 0:
            for pipe, worker in list(running.items()):
                del running[pipe]
                for job in worker.jobs:
                    yield job, Failure("late: no reply before the round's deadline")
                self._replace(worker)
            while window:
                yield window.pop(), Failure("late: not started before the round's deadline")
        for pipe, worker in [(pipe, worker) for pipe, worker in running.items() if pipe in ready]:
            try:
                frame = json.loads(pipe.recv_bytes())
            except (EOFError, OSError):
                del running[pipe]
                job, *untried = worker.jobs
                status = self._replace(worker)
                job.tries += 1
                if job.tries < 2:
                    untried.insert(0, job)
                else:
                    yield job, Failure(f"its worker process died twice (exit status {status})")
                window[:0] = untried
                continue
            if "stopped" in frame:
                raise StoreError(frame["stopped"])
            job = worker.jobs.pop(0)
            if not worker.jobs:
                del running[pipe]
            if "failed" in frame:
                self._free.append(job.reply)
                yield job, Failure(frame["failed"], frame["detail"])
            else:
                yield job, frame["reply"]

    def _opened(self, job: _Job, reply: Header | Failure) -> tuple[str, Bundle | Failure]:
        if isinstance(reply, Failure):
            return job.device, reply
        return job.device, shared.get(reply, unused=partial(self._free.append, job.reply))

    def _new_file(self) -> str:
        self._files += 1
        return str(self._folder / f"reply-{self._files}")

    def _replace(self, worker: Worker) -> int:
        status = worker.stop()
        for job in worker.jobs:
            Path(job.reply).unlink(missing_ok=True)
        self.replaced += 1
        fresh = worker.nursery.hire()
        if self._opening is not None:
            fresh.send(self._opening)
        self._crew[self._crew.index(worker)] = fresh
        return status

    def close(self) -> None:
        """Send the workers home."""
        for nursery in {id(worker.nursery): worker.nursery for worker in self._crew}.values():
            nursery.close()
        self._crew = []
        shutil.rmtree(self._folder, ignore_errors=True)
        torch.set_num_threads(self._threads)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_WINDOW = 4  # requests for each worker that are asked and not yet handed out, at most
_MOMENT = 0.1  # seconds since replies were last handed out in which the next ones wait
_LIGHT = 2**15  # bytes of an order that may wait in a pipe
_NAP = 60.0
_GRACE = 5.0  # a worker stops by itself at the deadline; this long after it, it is killed


def _largest(window: list[_Job]) -> int:
    return max(range(len(window)), key=lambda i: (window[i].size, -window[i].order))


class _Messages:
    """Requests in shared memory; a message that goes to many devices lies there once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[int, ...], tuple[dict[str, Any], Bundle]] = {}
        self._users: dict[str, int] = {}
        self._count = 0

    def put(self, message: Bundle) -> dict[str, Any]:
        key = tuple(id(weights) for weights in message.tensors.values())
        if key not in self._known:
            self._forget_unused()
            self._count += 1
            # the bundle is kept with it: an id() is only an identity while the object lives
            self._known[key] = shared.put(message, self._folder / f"message-{id(self)}-{self._count}"), message
        header = {**self._known[key][0], "values": message.values}
        self._users[header["path"]] = self._users.get(header["path"], 0) + 1
        return header

    def release(self, header: dict[str, Any]) -> None:
        self._users[header["path"]] -= 1

    def _forget_unused(self) -> None:
        for key, (header, _) in list(self._known.items()):
            if not self._users.get(header["path"]):
                del self._known[key]
                if header["path"]:
                    Path(header["path"]).unlink(missing_ok=True)

    def clear(self) -> None:
        self._users.clear()
        self._forget_unused()


@dataclass
class _Ahead:
    """What workers do before it is asked."""

    program: str
    messages: _Messages
    running: dict[Connection, Worker] = field(default_factory=dict)
    told: dict[int, tuple[str, Bundle]] = field(default_factory=dict)  # by its place in the order

    def has(self, order: int, device: str, message: Bundle) -> bool:
        """Whether this request is among it."""
        if order not in self.told:
            return False
        foreseen, told = self.told.pop(order)
        if foreseen != device or not told.is_same(message):
            raise RuntimeError(f"device {foreseen!r} was foretold a message, and {device!r} is asked another")
        return True
