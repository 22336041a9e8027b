"""Data that is read when it is first needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from wayfare.core.protocols import Progress, silent


class LazyInputs(ABC):
    """Whatever takes long is done when `inputs` is first used, or by `prepare`."""

    _progress: Progress = staticmethod(silent)

    @property
    @abstractmethod
    def inputs(self) -> Any:
        """What the network sees; cached, and read with `self._progress`."""

    def prepare(self, progress: Progress) -> None:
        """Read everything, reporting to `progress`."""
        with self._reporting(progress):
            _ = self.inputs

    @contextmanager
    def _reporting(self, progress: Progress) -> Iterator[None]:
        self._progress = progress
        try:
            yield
        finally:
            del self._progress
