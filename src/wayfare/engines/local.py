"""The engine of one process: devices one after another, with one torch thread, so that its bits are those of a pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

import torch

from wayfare.core.bundle import Bundle
from wayfare.core.device import Bench
from wayfare.core.protocols import Engine, Failure
from wayfare.engines.programs import perform


class Local(Engine):
    """Runs every device here."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = 1
        self._bench: Callable[[], Bench] | None = None
        self._threads = torch.get_num_threads()

    def open(self, spec: str, folder: str, bench: Callable[[], Bench]) -> None:
        """Serve this experiment from now on."""
        torch.set_num_threads(1)
        self._bench = bench

    def call(
        self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float
    ) -> Iterator[tuple[str, Bundle | Failure]]:
        if self._bench is None:
            raise RuntimeError("the engine has not been opened")
        for id, message in requests:
            yield id, perform(self._bench(), program, id, message, deadline)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.set_num_threads(self._threads)
