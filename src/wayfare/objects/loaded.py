"""The data of an objects task in memory: pictures, labels, and the batches that are made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
import torch

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Batch, Progress
from wayfare.io.lazy import LazyInputs
from wayfare.io.pictures import Pictures
from wayfare.objects.data import ObjectData
from wayfare.objects.inputs import ObjectInputs
from wayfare.objects.models import ObjectModel
from wayfare.objects.tally import spread

POOL, TEST = 0, 1
_PREPARED = 2**26  # bytes of samples that stay ready for evaluation


class LoadedObjects(LazyInputs):
    """The pictures, and what a frozen network makes of them."""

    def __init__(self, data: ObjectData, model: ObjectModel) -> None:
        self._data, self._model = data, model
        self.prepared: dict[int, tuple[tuple[torch.device, bytes], list[Batch]]] = {}

    @cached_property
    def parts(self) -> tuple[Pictures, Pictures]:
        return self._data.sized(self._model.side).load(self._progress)

    def read(self, progress: Progress) -> None:
        """Read the pictures, but compute no features of them yet."""
        with self._reporting(progress):
            _ = self.parts

    @cached_property
    def inputs(self) -> tuple[ObjectInputs, ObjectInputs]:
        return self._model.inputs(self.parts, self._progress)

    def batch(self, part: int, samples: np.ndarray, device: torch.device) -> Batch:
        labels = torch.from_numpy(self.parts[part].labels[samples]).to(device)
        return Batch(self.inputs[part].rows(samples, device), labels)

    def scan(self, part: int, samples: np.ndarray, device: torch.device) -> Iterator[Batch]:
        """These samples in order, in batches for which no gradient is needed."""
        size = self.inputs[part].together
        for start in range(0, len(samples), size):
            yield self.batch(part, samples[start : start + size], device)

    def evaluated(self, samples: np.ndarray | None, limit: int, device: torch.device) -> Iterable[Batch]:
        """Samples of the pool, or the test set, to evaluate on; `limit` > 0: so many of them, evenly spread.

        Few samples stay prepared: the same ones evaluate thousands of models.
        """
        if limit < 0:
            raise ConfigError(f"limit = {limit}: expected a number of samples, or 0 for all")
        part = TEST if samples is None else POOL
        if samples is None:
            samples = np.arange(len(self.parts[TEST]))
        samples = samples[spread(len(samples), limit)]
        if 4 * len(samples) * self.inputs[part].width > _PREPARED:
            return self.scan(part, samples, device)
        key = device, samples.tobytes()
        if part not in self.prepared or self.prepared[part][0] != key:
            self.prepared[part] = key, list(self.scan(part, samples, device))
        return self.prepared[part][1]
