"""Faces with attributes, one module for each layout; `AttributeData` is what a data set of your own extends."""

from __future__ import annotations

from typing import ClassVar

from wayfare.attributes.table import AttributeTable
from wayfare.core.protocols import Data, Progress


class AttributeData(Data):
    """A table of attributes, perhaps with pictures. A subclass is a frozen dataclass of settings with a `load`."""

    about: ClassVar[str] = "the table"  # what a protocol calls it
    has_pictures: ClassVar[bool] = True  # whether there may be any
    own: bool = False  # it is a device's own: nothing is held back to test with
    cache: float = 8.0  # GiB on disk for decoded pictures

    def load(self, progress: Progress) -> AttributeTable:
        """The whole table."""
        raise NotImplementedError
