"""A stored partition: a file written by `wayfare split --save`, a CSV table, or taken from another run's folder."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wayfare.core.errors import DataError
from wayfare.core.protocols import Partition, Population
from wayfare.partition.column import from_csv
from wayfare.partition.split import load_split


@dataclass(frozen=True)
class File(Partition):
    """The clients of a stored partition."""

    path: str

    def __call__(self, labels: np.ndarray, rng: np.random.Generator) -> Population:
        try:
            data = Path(self.path).read_bytes()
            if self.path.lower().endswith(".csv"):
                return from_csv(data, Path(self.path), len(labels))
            split = load_split(data)
        except OSError as error:
            raise DataError(f"cannot read this partition: {error.strerror}", file=self.path) from error
        # of a semantic split it is that of clusters, which nobody has before they are found again; and where a topology
        # kept samples back ("samples" is None) that of the others
        samples = split.provenance.get("samples", len(labels))
        checked = samples is not None and split.provenance.get("rule") != "semantic"
        known = split.provenance.get("labels_sha256") if checked else None
        found = hashlib.sha256(np.ascontiguousarray(labels, "<i8").tobytes()).hexdigest()
        if samples is None:
            samples = max(len(labels), 1 + int(split.pool().max(initial=-1)))
        if samples != len(labels) or (known and known != found):
            raise DataError(
                f"this partition was drawn over other data ({samples} samples, here {len(labels)})",
                file=self.path,
                remedy="draw it again for this data",
            )
        return split
