"""Engines: how programs (`programs.py`) run on devices.

`local` runs one device after another in this process, `pool` runs them in one worker process per core, `flower` on the
nodes of Flower, simulated or deployed. `core/gate.py` is the only caller. All engines give the same bits, because a
device's result depends only on its message and on what it remembers.
Importing this module costs nothing, so a command can start the pool's fork server before it imports torch itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wayfare.core.protocols import Engine


@contextmanager
def open_engine(engine: str | Engine, workers: int = 0) -> Iterator[Engine]:
    """An engine by name, closed at the end; an engine that is passed in open stays open."""
    if not isinstance(engine, str):
        yield engine
        return
    if engine == "auto":
        engine = "pool" if (workers or os.cpu_count() or 1) > 1 else "local"
    if engine == "pool":
        from wayfare.engines.pool.processes import start_fork_server

        start_fork_server()  # it imports torch while this process does
    from wayfare.components import allow_code, find

    if ":" in engine:
        allow_code(engine)  # it comes from the caller, never from a file
    with find("engine", engine)(workers=workers) as opened:
        yield opened
