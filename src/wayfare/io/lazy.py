"""Data that is read when it is first needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
        self._progress = progress
        try:
            _ = self.inputs
        finally:
            del self._progress
