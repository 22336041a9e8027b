"""What devices count before the first round: how often two classes are related, and by which predicate.

The sums are the frequency table (`frequency.py`): MOTIFS' and VCTree's bias, VCTree's prior, GPS-Net's ARM, the prior
of logit adjustment, and the floor that every result is compared with. How they are added up is a setting:

    [task.sum]
    name = "plain"      # the server sees each device's exact counts
    name = "noised"     # each device adds noise before it sends them
    epsilon = 8.0

With "noised" a picture counts with at most `objects` objects, the largest, and at most `relations` relations among
them, the first. So one picture changes the triplets by at most `relations`, and each of the two counts of pairs by at
most objects * (objects - 1). Each of the three gets a third of epsilon, as two-sided geometric noise (discrete Laplace)
of the scale 3 * change / epsilon in every cell: what a device sends is epsilon-differentially private for each of its
pictures. It needs no trust in the server. The noise of all devices adds up, so cells below three standard deviations of
the sum's noise are set to 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from wayfare.core.bundle import Weights
from wayfare.core.errors import ConfigError
from wayfare.scenes import frequency
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.frequency import Frequencies

TRIPLETS, OVERLAPPING, UNRELATED, DEVICES = "triplets", "overlapping", "unrelated", "devices"
_MOST_OBJECTS = 1000  # of a picture, in counts that are believed
_SURE = 3.0  # standard deviations: a smaller count of a noised sum may be nothing but noise


@dataclass(frozen=True)
class PlainSum:
    """The exact counts."""

    @property
    def about(self) -> str:
        return (
            "How many pairs of each two classes this device's pictures show, and how many of them are related by which "
            "predicate, exactly: what it photographs, and whether a rare relation is among it."
        )

    def counted(self, scenes: SceneGraphs) -> Weights:
        found = frequency.count(scenes)
        tables = {TRIPLETS: found.triplets, OVERLAPPING: found.overlapping, UNRELATED: found.unrelated}
        counts = {name: torch.from_numpy(table.astype(np.int32)) for name, table in tables.items()}
        return counts | {DEVICES: torch.ones(1, dtype=torch.int32)}

    def blurred(self, counts: Weights, rng: np.random.Generator) -> Weights:
        return counts

    def fault(self, counts: Weights, examples: int) -> str:
        """What is wrong with a device's counts of so many pictures; "" if nothing."""
        most = examples * _MOST_OBJECTS**2
        for name, table in counts.items():
            if name != DEVICES and (int(table.min()) < 0 or int(table.sum()) > most):
                return f"{name} must be from 0 to {most} in all for {examples} pictures"
        return _devices_fault(counts)

    def frequencies(self, sums: Weights) -> Frequencies:
        """The table that the sums over devices are."""
        return Frequencies(*(sums[name].numpy().astype(np.int64) for name in (TRIPLETS, OVERLAPPING, UNRELATED)))


@dataclass(frozen=True)
class NoisedSum(PlainSum):
    """Counts with noise that each device adds itself."""

    epsilon: float = 8.0  # for each picture of a device
    objects: int = 10  # of a picture that count, the largest
    relations: int = 10  # of a picture that count

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise ConfigError(f"task.sum.epsilon = {self.epsilon}: expected a number above 0")
        if self.objects < 2 or self.relations < 1:
            raise ConfigError(
                f"task.sum: objects = {self.objects}, relations = {self.relations}: expected at least 2 and 1"
            )

    @property
    def about(self) -> str:
        return (
            f"Counts of pairs and predicates with noise of this device's own: epsilon = {self.epsilon:g} for each "
            f"picture, of which {self.objects} objects and {self.relations} relations count."
        )

    def counted(self, scenes: SceneGraphs) -> Weights:
        return super().counted(_clipped(scenes, self.objects, self.relations))

    def blurred(self, counts: Weights, rng: np.random.Generator) -> Weights:
        return {
            name: table if name == DEVICES else table + torch.from_numpy(self._noise(name, table.shape, rng))
            for name, table in counts.items()
        }

    def fault(self, counts: Weights, examples: int) -> str:
        """A cell beyond all pictures and 60 scales of noise, which no honest device ever sends."""
        for name, table in counts.items():
            if name != DEVICES:
                most = math.ceil(examples * self._change(name) + 60 * self._scale(name))
                if int(table.abs().max()) > most:
                    return f"{name} must be at most {most} in each cell for {examples} pictures"
        return _devices_fault(counts)

    def frequencies(self, sums: Weights) -> Frequencies:
        tables = []
        for name in (TRIPLETS, OVERLAPPING, UNRELATED):
            table = sums[name].numpy().astype(np.int64)
            sure = _SURE * math.sqrt(2 * int(sums[DEVICES])) * self._scale(name)
            tables.append(np.where(table < sure, 0, table))
        return Frequencies(*tables)

    def _change(self, name: str) -> int:
        """By how much one picture changes a table, in all its cells together."""
        return self.relations if name == TRIPLETS else self.objects * (self.objects - 1)

    def _scale(self, name: str) -> float:
        return 3 * self._change(name) / self.epsilon

    def _noise(self, name: str, shape: torch.Size, rng: np.random.Generator) -> np.ndarray:
        p = -math.expm1(-1 / self._scale(name))
        noise: np.ndarray = (rng.geometric(p, shape) - rng.geometric(p, shape)).astype(np.int32)
        return noise


def _devices_fault(counts: Weights) -> str:
    return "" if int(counts[DEVICES]) == 1 else "one device must count as one"


def _clipped(scenes: SceneGraphs, objects: int, relations: int) -> SceneGraphs:
    """The same pictures with their largest objects and their first relations among these."""
    sides = scenes.boxes[:, 2:] - scenes.boxes[:, :2]
    order = np.lexsort((-sides.prod(1), scenes.object_images))  # the largest of each picture first
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - scenes.object_offsets[scenes.object_images[order]]
    chosen = scenes.keep_objects(rank < objects)
    place = np.arange(len(chosen.relations)) - chosen.relation_offsets[chosen.relation_images]
    return chosen.keep_relations(place < relations)
