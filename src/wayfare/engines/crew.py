"""Worker processes of the pool engine, as seen from outside them.

Nothing here needs torch, so the command line can have its workers starting before it spends seconds on importing it
itself: theirs and its own then happen at the same time.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


@dataclass(eq=False)
class Worker:
    """One process and the pipe to it."""

    process: subprocess.Popen[bytes]
    pipe: Connection
    job: Any = None  # what it is doing
    reply: str = ""  # the file in which it leaves its answer

    def send(self, frame: dict[str, Any]) -> None:
        """Tell it something; OSError if it is gone."""
        self.pipe.send_bytes(json.dumps(frame).encode())

    def stop(self) -> int:
        """End it at once; returns its exit status."""
        with contextlib.suppress(OSError):
            self.pipe.close()
        self.process.kill()
        return self.process.wait()


def hire() -> Worker:
    """Start a process with one torch thread; it ends when this one does."""
    ours, theirs = socket.socketpair()
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "wayfare.worker", str(theirs.fileno()), str(os.getpid())],
        pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    theirs.close()
    return Worker(process, Connection(ours.detach()))


def hire_all(workers: int = 0) -> list[Worker]:
    """That many, or one for each core."""
    return [hire() for _ in range(workers or os.cpu_count() or 1)]
