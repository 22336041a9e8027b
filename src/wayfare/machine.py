"""Engines by name. Importing this module costs nothing: workers can be started before torch is imported."""

from __future__ import annotations

import os
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

        crew = hire_all(workers)  # before the next line, which imports torch: they do so at the same time
        from wayfare.engines.pool import Pool

        with Pool(crew=crew) as made:
            yield made
        return
    from wayfare.components import find

    with find("engine", engine)(workers=workers) as made:
        yield made
