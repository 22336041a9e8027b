"""A table of yes-or-no attributes of many pictures: what every reader here returns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from wayfare.core.errors import DataError, suggestion
from wayfare.io.findings import Problems

PARTS = ("train", "validate", "test")


@dataclass(frozen=True)
class AttributeTable:
    """Which of A attributes each of N pictures has."""

    names: tuple[str, ...]
    files: np.ndarray  # str objects (N,)
    values: np.ndarray  # bool (N, A)
    partition: np.ndarray | None = None  # uint8 (N,): the place of a picture's part in PARTS; None where unknown
    identity: np.ndarray | None = None  # int64 (N,): whose picture it is; None where unknown
    folder: Path | None = None  # where the pictures are; None where there are none
    problems: Problems = field(default_factory=Problems)

    def __len__(self) -> int:
        return len(self.files)

    def column(self, name: str) -> np.ndarray:
        """bool (N,): which pictures have the attribute."""
        if name not in self.names:
            near = suggestion(name, self.names)
            raise DataError(f"no attribute {name!r}{near}; there are {', '.join(self.names[:50])}")
        return np.asarray(self.values[:, self.names.index(name)])

    def without(self, name: str) -> np.ndarray:
        """bool (N, A - 1): every attribute but this one."""
        return np.delete(self.values, self.names.index(name), axis=1)

    def part(self, name: str) -> np.ndarray:
        """The indices of one part: "train", "validate" or "test"."""
        if self.partition is None:
            raise DataError("no partition into pictures for training and testing", remedy="add the partition file")
        return np.flatnonzero(self.partition == PARTS.index(name))

    def select(self, rows: np.ndarray) -> AttributeTable:
        """Some of the pictures, by their indices or as a mask, in that order."""
        partition = None if self.partition is None else self.partition[rows]
        identity = None if self.identity is None else self.identity[rows]
        return replace(
            self, files=self.files[rows], values=self.values[rows], partition=partition, identity=identity
        )  # fmt: skip

    def with_pictures(self) -> AttributeTable:
        """The rows whose picture files exist; the others are listed in `problems`."""
        if self.folder is None:
            raise DataError(
                "no pictures here: expected a folder img_align_celeba beside the lists",
                remedy='or set model.name = "table", which sees the other attributes instead',
            )
        exists = np.array([(self.folder / name).is_file() for name in self.files], bool)
        for name in self.files[~exists]:
            self.problems.add("no such picture, but it has attributes", self.folder / name, remedy="put it there")
        return self.select(exists)
