"""How often two classes of objects are related, and by which predicate: a table of counts.

It is the floor that a trained head must beat, and what MOTIFS, VCTree and GPS-Net begin with. The counts of all clients
are the sum of theirs: a statistic of their data, which they disclose before the first round (`counting.py`).

    baseline        P(predicate or none | class of the subject, class of the object) over all ordered pairs: "none"
                    counts pairs with no relation
    log table       log(n / sum of n + 0.001), "none" counting pairs whose boxes overlap, related or not, and 1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.pairs import all_pairs, intersections
from wayfare.scenes.recall import CUTOFFS, Guesses, ranked

SOFTENING = 1e-3
_LARGEST = 2**28  # cells of a table: 2 GiB


@dataclass(frozen=True)
class Frequencies:
    """Counts for each class of subject and class of object, of C classes and K predicates."""

    triplets: np.ndarray  # int64 (C, C, K): annotated; a triplet that appears twice counts twice
    overlapping: np.ndarray  # int64 (C, C): ordered pairs whose boxes have an area in common
    unrelated: np.ndarray  # int64 (C, C): ordered pairs without any relation

    def log_table(self) -> np.ndarray:
        """float32 (C, C, K + 1): what is added to the logits of a pair with these classes; column 0 is "none"."""
        counts = np.concatenate([self.overlapping[..., None] + 1, self.triplets], 2)
        shares = counts / counts.sum(2, keepdims=True)
        table: np.ndarray = np.log(shares + SOFTENING).astype(np.float32)
        return table

    def related_shares(self) -> np.ndarray:
        """float32 (C, C): the share of related pairs among those of two classes, either way round; 1/2 if unseen."""
        related, unrelated = self.triplets.sum(2), self.unrelated
        related, unrelated = related + related.T + 1, unrelated + unrelated.T + 1
        shares: np.ndarray = (related / (related + unrelated)).astype(np.float32)
        return shares

    def predicate_shares(self) -> np.ndarray:
        """float64 (K,): the share of each predicate among all relations, 1 added to each."""
        counts = self.triplets.sum((0, 1)) + 1.0
        shares: np.ndarray = counts / counts.sum()
        return shares

    def probabilities(self) -> np.ndarray:
        """float32 (C, C, K + 1): the baseline; classes that never occur together are not related."""
        counts = np.concatenate([self.unrelated[..., None], self.triplets], 2)
        counts[..., 0] += counts.sum(2) == 0
        shares: np.ndarray = (counts / counts.sum(2, keepdims=True)).astype(np.float32)
        return shares


def count(scenes: SceneGraphs) -> Frequencies:
    """The counts of these scenes. Relations of an object with itself are left out: they are no pairs."""
    classes, kinds = len(scenes.classes), len(scenes.predicates)
    if classes**2 * (kinds + 1) > _LARGEST:
        raise ConfigError(
            f"a table of {classes} x {classes} classes and {kinds} predicates is too large: "
            f"at most {_LARGEST} cells; group the classes, or do without the frequency table"
        )
    ends = scenes.relations[:, :2] + scenes.object_offsets[scenes.relation_images][:, None]
    proper = ends[:, 0] != ends[:, 1]
    ends, predicate = ends[proper], scenes.relations[proper, 2]
    cell = _cells(scenes, ends)
    pairs = all_pairs(scenes)
    met = _cells(scenes, pairs)
    common = intersections(scenes.boxes[pairs[:, 0]], scenes.boxes[pairs[:, 1]]) > 0
    shape = (classes, classes)
    related = _cells(scenes, np.unique(ends, axis=0))
    size = classes**2
    return Frequencies(
        np.bincount(cell * kinds + predicate, minlength=size * kinds).reshape(*shape, kinds),
        np.bincount(met[common], minlength=size).reshape(shape),
        (np.bincount(met, minlength=size) - np.bincount(related, minlength=size)).reshape(shape),
    )


def guesses(
    frequencies: Frequencies,
    scenes: SceneGraphs,
    scores: np.ndarray | None = None,
    *,
    constraint: bool = True,
    most: int = max(CUTOFFS),
) -> Guesses:
    """The baseline's guesses for all pairs of these scenes, from labels and, if given, object scores only."""
    if frequencies.overlapping.shape != (len(scenes.classes),) * 2:
        known = len(frequencies.overlapping)
        raise ConfigError(f"frequencies of {known} classes, scenes with {len(scenes.classes)}: expected the same ones")
    pairs = all_pairs(scenes)
    subject, target = scenes.labels[pairs].T
    chances = frequencies.probabilities()[subject, target]
    return ranked(chances, pairs, scenes, scores, constraint=constraint, most=most)


def below(metrics: Mapping[str, float]) -> str:
    """In which of R@20 and mR@20 a trained head is below the baseline, in words; "" if in neither."""
    parts = [
        f"{name} {have:.3f}, and they have {floor:.3f}"
        for name in ("R@20", "mR@20")
        if (have := metrics.get(f"test/{name}")) is not None
        and (floor := metrics.get(f"test/frequency {name}")) is not None
        and have < floor
    ]
    return f"below the frequencies of label pairs, which need no training: {'; '.join(parts)}" if parts else ""


def _cells(scenes: SceneGraphs, pairs: np.ndarray) -> np.ndarray:
    """A number for the classes of each pair."""
    labels = scenes.labels.astype(np.int64)[pairs]
    cells: np.ndarray = labels[:, 0] * len(scenes.classes) + labels[:, 1]
    return cells
