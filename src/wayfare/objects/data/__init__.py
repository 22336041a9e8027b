"""Labelled pictures, one module for each layout; `ObjectData` is what a data set of your own extends."""

from __future__ import annotations

from typing import Self

from wayfare.core.protocols import Data, Progress, SampleFiles
from wayfare.io.pictures import Pictures


class ObjectData(Data):
    """Pictures with one class each. A subclass is a frozen dataclass of settings that has at least `load`."""

    def load(self, progress: Progress) -> tuple[Pictures, Pictures]:
        """The pool that partitions divide, and the test set."""
        raise NotImplementedError

    def sized(self, side: int) -> Self:
        """The same with pictures of the size that the model prefers, where the layout leaves it open."""
        return self

    def files(self, pool: Pictures) -> SampleFiles | None:
        """The files of the pool, where pictures are files."""
        return None

    def fixed(self, classes: tuple[str, ...]) -> Self:
        """The same with these classes written into the settings, for folders that have only some of them."""
        return self
