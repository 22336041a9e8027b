"""The data of an attributes task in memory: the table, what the network sees of it, and its parts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch

from wayfare.attributes.data import AttributeData
from wayfare.attributes.models import AttributeModel, FaceInputs
from wayfare.attributes.table import AttributeTable
from wayfare.core.errors import DataError
from wayfare.core.protocols import Batch
from wayfare.io.lazy import LazyInputs

_TOGETHER = 500  # faces in a batch where no gradient is needed


class LoadedFaces(LazyInputs):
    """Table and pictures."""

    def __init__(self, data: AttributeData, model: AttributeModel, target: str, evaluated_on: str) -> None:
        self._data, self._model, self._target, self._evaluated_on = data, model, target, evaluated_on

    @cached_property
    def inputs(self) -> FaceInputs:
        table = self._data.load(self._progress)
        table.column(self._target)  # refuses a name that it does not have, before pictures are decoded
        return self._model.inputs(table, self._target, self._data.cache, self._progress)

    @property
    def table(self) -> AttributeTable:
        return self.inputs.table

    @cached_property
    def answers(self) -> np.ndarray:
        """int64 (N,): 1 where a face has the target."""
        return self.table.column(self._target).astype(np.int64)

    @property
    def pool(self) -> np.ndarray:
        """Rows that partitions divide."""
        return self._rows[0]

    @property
    def evaluated(self) -> np.ndarray:
        """Rows to evaluate on."""
        return self._rows[1]

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        table = self.table
        if self._data.own:
            pool = np.arange(len(table)) if table.partition is None else table.part("train")
            return pool, np.empty(0, np.int64)
        parts = {name: table.part(name) for name in ("train", self._evaluated_on)}
        for name, rows in parts.items():
            if not len(rows):
                raise DataError(f"no face is in the part {name!r}", remedy="correct the partition file")
        pool, evaluated = parts.values()
        return pool, evaluated

    def batch(self, rows: np.ndarray, device: torch.device) -> Batch:
        return Batch(self.inputs.rows(rows, device), torch.from_numpy(self.answers[rows]).to(device))

    def scan(self, rows: np.ndarray, device: torch.device) -> Iterator[Batch]:
        """These rows in order."""
        for start in range(0, len(rows), _TOGETHER):
            yield self.batch(rows[start : start + _TOGETHER], device)
