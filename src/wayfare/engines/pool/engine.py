"""The pool: N workers with one torch thread each, on one machine.

Workers build the experiment from its text, as a remote node would. Requests and replies are JSON headers over a pipe;
tensors lie in shared memory. Replies come in the order asked, and only a window of them is held, so memory does not
grow with the number of clients.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType

import torch

from wayfare.components import allowed_code
from wayfare.core.bundle import Bundle
from wayfare.core.device import Bench
from wayfare.core.protocols import Engine, Failure, Prefetch
from wayfare.engines.pool import shared
from wayfare.engines.pool.call import Call
from wayfare.engines.pool.processes import Processes


class Pool(Engine):
    """Runs devices on this machine's cores."""

    prefetches: Prefetch = "commit"  # workers train the next round while this process writes the last one

    def __init__(self, workers: int = 0) -> None:
        self.workers = workers or os.cpu_count() or 1
        self.processes = Processes(self.workers)
        self.folder = shared.make_folder()
        self._prefetched: Call | None = None
        self._size: Callable[[str], int] = lambda device: 0
        self._threads = torch.get_num_threads()

    def open(self, spec: str, folder: str, bench: Callable[[], Bench]) -> None:
        """Serve this experiment from now on; the workers build it themselves."""
        torch.set_num_threads(1)
        self.finish()
        self.processes.open(
            {
                "open": spec, "folder": folder, "allow_code": allowed_code(),
                "environment": dict(os.environ), "current": str(Path.cwd()),
            }
        )  # fmt: skip

    def set_client_sizes(self, size: Callable[[str], int]) -> None:
        """How large a device's work is: the larger ones of a window are started first."""
        self._size = size

    def prefetch(self, program: str, requests: Iterable[tuple[str, Bundle]], round: int, seconds: float) -> None:
        """Begin what the next `call` will ask, as far as there are workers.

        It changes no result: what a device does depends on its message and on what it knew before that round.
        """
        self.finish()
        self._prefetched = call = self._new_call(program)
        first = [
            (device, Bundle(message.tensors, {**message.values, "round": round}))
            for device, message in itertools.islice(requests, self.workers)
        ]
        call.begin(first, time.monotonic() + seconds)

    def finish(self) -> None:
        """Drop what was prefetched: workers that are busy with it are stopped."""
        call, self._prefetched = self._prefetched, None
        if call is not None:
            call.stop()

    def call(
        self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float
    ) -> Iterator[tuple[str, Bundle | Failure]]:
        if self._prefetched is not None and self._prefetched.program != program:
            self.finish()
        call, self._prefetched = self._prefetched or self._new_call(program), None
        return call.replies(requests, deadline)

    def _new_call(self, program: str) -> Call:
        return Call(program, self.processes, self.folder, self._size)

    def close(self) -> None:
        """End the workers and give back the shared memory."""
        self._prefetched = None
        self.processes.close()
        shared.remove_folder(self.folder)
        torch.set_num_threads(self._threads)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
