"""Engines by name. Importing this module costs nothing: workers can be started before torch is imported."""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def opened(engine: str | Any, workers: int = 0) -> Iterator[Any]:
    """An engine by name, closed at the end; one that is given open is left open."""
    if not isinstance(engine, str):
        yield engine
        return
    if engine == "auto":
        engine = "pool" if (workers or os.cpu_count() or 1) > 1 else "local"
    if engine == "pool":
        from wayfare.engines.crew import hire_all

        crew = hire_all(workers, _nursery)  # before torch is imported here
        from wayfare.engines.pool import Pool

        with Pool(crew=crew) as made:
            yield made
        return
    from wayfare.components import find

    with find("engine", engine)(workers=workers) as made:
        yield made


def _nursery(door: socket.socket) -> Any:
    """Where workers come from: a copy of this process where that is safe, else a program of its own.

    A command that has not imported torch yet does so here, once for itself and for its workers; two processes that
    import it at the same time each take up to half as long again. One that has may have used it, and what threads do
    does not survive being copied; nor, elsewhere than on Linux, what the system's own libraries did.
    """
    if "torch" in sys.modules or threading.active_count() > 1 or sys.platform != "linux":
        from wayfare.engines.crew import started

        return started(door)
    collecting = gc.isenabled()
    gc.disable()  # looking for garbage takes a tenth of the time of importing, and there is none
    try:
        import wayfare.runner  # noqa: F401  (which the command needs, and modules of users' own often import)
        from wayfare.worker import Copy

        gc.freeze()  # nor is there any later, here or in the copies, which would take memory of their own to look
    finally:
        if collecting:
            gc.enable()
    return Copy(door)
