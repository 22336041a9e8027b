"""Robust aggregation: what replaces the mean where some devices may lie.

`share` is the share of a round's replies that may be wrong; of K replies f = floor(share * K). All replies weigh the
same, because a device could lie about its examples, too. The changes of running statistics of normalisation layers are
aggregated by themselves: they are large and would hide the changes of the weights.

Two things may stand before a rule: `mix = "nearest"` replaces each change by the mean of its K - f nearest, itself
included (NNM, Allouah et al., 2023); `mix = "buckets"` takes the means of random groups (Karimireddy et al., 2022).
Both are matrices that are applied to the rows. Rules that need only distances work on the products of the rows and say
with which weights the rows are added; the others take the columns one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

import numpy as np

from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import MergeContext, MergeRule, Strategy, Topology
from wayfare.core.seeds import rng_for
from wayfare.privacy.changes import ChangeRows, Layout, copies


@dataclass(frozen=True)
class RobustRule(MergeRule):
    """One change of many."""

    share: float = 0.2  # of a round's replies that may be wrong
    mix: Literal["none", "nearest", "buckets"] = "none"

    def __post_init__(self) -> None:
        if not 0 <= self.share < 0.5:
            raise ConfigError(f"robust.share = {self.share}: expected at least 0 and less than 0.5, a minority")

    def misfit(self, strategy: Strategy, topology: Topology) -> str:
        if not strategy.linear or topology.meets or strategy.pooled:
            what = f"the topology {type(topology).__name__.lower()!r}" if topology.meets else type(strategy).__name__
            return (
                f"cannot replace the mean in {what}: it uses single replies, and a robust rule leaves only one. "
                "Choose a strategy that averages"
            )
        return ""

    def merge(
        self, strategy: Strategy, state: Bundle, replies: Iterable[tuple[str, Bundle]], context: MergeContext
    ) -> Bundle:
        layout = Layout(strategy.send(state, "").tensors, strategy.expects(state))
        devices: list[str] = []
        with ExitStack() as stack:
            rows = {part: stack.enter_context(ChangeRows(size)) for part, size in layout.sizes.items()}
            for device, reply in replies:
                devices.append(device)
                for part, kept in rows.items():
                    kept.add(layout.vector(reply, part))
            change = {part: self.aggregate(kept, context) for part, kept in rows.items()}
        return strategy.merge(state, copies(layout.reply(change), devices))

    def aggregate(self, rows: ChangeRows, context: MergeContext) -> np.ndarray:
        """The one change that stands for these."""
        if not rows.columns:
            return np.empty(0)
        wrong = int(self.share * rows.count + 1e-9)
        mixing = self._mixing(rows, wrong, context)
        wrong = min(wrong, (len(mixing) - 1) // 2)
        return self.combined(rows, mixing, wrong)

    def combined(self, rows: ChangeRows, mixing: np.ndarray, wrong: int) -> np.ndarray:
        """The rule itself, on the rows that `mixing` makes of these."""
        raise NotImplementedError

    def _mixing(self, rows: ChangeRows, wrong: int, context: MergeContext) -> np.ndarray:
        count = rows.count
        if self.mix == "nearest" and wrong:
            return nearest_mixing(rows.gram(), wrong)
        if self.mix == "buckets" and wrong:
            order = rng_for(context.seed, context.round, "buckets").permutation(count)
            return bucket_mixing(order, max(1, count // (2 * wrong)))
        return np.eye(count)


@dataclass(frozen=True)
class ByColumn(RobustRule):
    """A rule for each number by itself."""

    def combined(self, rows: ChangeRows, mixing: np.ndarray, wrong: int) -> np.ndarray:
        result = np.empty(rows.columns)
        for columns, block in rows.blocks():
            result[columns] = self.columnwise(block if self.mix == "none" else mixing @ block, wrong)
        return result

    def columnwise(self, block: np.ndarray, wrong: int) -> np.ndarray:
        """One number for each column."""
        raise NotImplementedError


@dataclass(frozen=True)
class ByDistance(RobustRule):
    """A rule that needs only the distances between changes."""

    def combined(self, rows: ChangeRows, mixing: np.ndarray, wrong: int) -> np.ndarray:
        weights = mixing.T @ self.weights(mixing @ rows.gram() @ mixing.T, wrong)
        result = np.empty(rows.columns)
        for columns, block in rows.blocks():
            result[columns] = weights @ block
        return result

    def weights(self, gram: np.ndarray, wrong: int) -> np.ndarray:
        """The weight of each row, from the products of the rows."""
        raise NotImplementedError


@dataclass(frozen=True)
class Mean(ByColumn):
    """The mean with equal weights: no defence by itself, a baseline and what mixing can stand before."""

    def columnwise(self, block: np.ndarray, wrong: int) -> np.ndarray:
        return np.asarray(block.mean(0))


@dataclass(frozen=True)
class Median(ByColumn):
    """The median of each number (Yin et al., 2018)."""

    def columnwise(self, block: np.ndarray, wrong: int) -> np.ndarray:
        return np.asarray(np.median(block, axis=0))


@dataclass(frozen=True)
class Trimmed(ByColumn):
    """The mean of each number without the f smallest and the f largest (Yin et al., 2018)."""

    def columnwise(self, block: np.ndarray, wrong: int) -> np.ndarray:
        return np.asarray(np.sort(block, axis=0)[wrong : len(block) - wrong].mean(0))


@dataclass(frozen=True)
class Geometric(ByDistance):
    """The point with the least sum of distances, by Weiszfeld's steps (Pillutla et al., 2022)."""

    iterations: int = 100
    smoothing: float = 1e-6  # distances below it count as this

    def weights(self, gram: np.ndarray, wrong: int) -> np.ndarray:
        weights = np.full(len(gram), 1 / len(gram))
        for _ in range(self.iterations):
            inverse = 1 / np.maximum(distances(gram, weights), self.smoothing)
            before, weights = weights, inverse / inverse.sum()
            if np.abs(weights - before).max() < 1e-12:
                break
        return weights


@dataclass(frozen=True)
class Krum(ByDistance):
    """The change with the nearest neighbours (Blanchard et al., 2017), or the mean of the `select` best (multi-Krum).

    The score of a change is the sum of the squared distances to its K - f - 2 nearest others.
    """

    select: int = 1  # 0: all but f

    def weights(self, gram: np.ndarray, wrong: int) -> np.ndarray:
        count = len(gram)
        squared = np.diag(gram)[:, None] + np.diag(gram)[None] - 2 * gram
        np.fill_diagonal(squared, 0)
        neighbours = max(1, count - wrong - 2)
        scores = np.sort(squared, axis=1)[:, 1 : 1 + neighbours].sum(1)
        chosen = np.argsort(scores, kind="stable")[: min(self.select or count - wrong, count)]
        weights = np.zeros(count)
        weights[chosen] = 1 / len(chosen)
        return weights


@dataclass(frozen=True)
class Clipping(ByDistance):
    """The mean of the changes, each shortened to a radius around the last estimate (Karimireddy et al., 2021).

    v <- v + mean_i (x_i - v) min(1, radius / |x_i - v|), which begins with no change at all.
    """

    radius: float = 0.0  # 0: the median distance from the estimate
    iterations: int = 3

    def weights(self, gram: np.ndarray, wrong: int) -> np.ndarray:
        count = len(gram)
        weights = np.zeros(count)
        for _ in range(self.iterations):
            far = distances(gram, weights)
            radius = self.radius or float(np.median(far))
            scale = np.minimum(1, radius / np.maximum(far, 1e-300))
            weights = weights * (1 - scale.mean()) + scale / count
        return weights


def distances(gram: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """From the weighted sum of the rows to each row."""
    squared = weights @ gram @ weights - 2 * gram @ weights + np.diag(gram)
    return np.asarray(np.sqrt(np.maximum(squared, 0)))


def nearest_mixing(gram: np.ndarray, wrong: int) -> np.ndarray:
    """Each row as the mean of its K - f nearest, itself included."""
    count = len(gram)
    squared = np.diag(gram)[:, None] + np.diag(gram)[None] - 2 * gram
    np.fill_diagonal(squared, -1)  # itself comes first
    matrix = np.zeros((count, count))
    nearest = np.argsort(squared, axis=1, kind="stable")[:, : count - wrong]
    np.put_along_axis(matrix, nearest, 1 / (count - wrong), axis=1)
    return matrix


def bucket_mixing(order: np.ndarray, size: int) -> np.ndarray:
    """The means of groups of `size`, in this order; the last may be smaller."""
    groups = [order[start : start + size] for start in range(0, len(order), size)]
    matrix = np.zeros((len(groups), len(order)))
    for row, group in enumerate(groups):
        matrix[row, group] = 1 / len(group)
    return matrix
