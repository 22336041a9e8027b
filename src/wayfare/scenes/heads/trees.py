"""Trees over the objects of images, for VCTree: built by Prim's algorithm, made binary, and divided into levels.

The trees of a batch are built together: one step attaches one object in every image that is not yet complete. A level
holds the nodes of equal depth of all trees, so that a tree-LSTM takes as many steps as the deepest tree has levels,
however many images there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Forced:
    """For every image one attachment that replaces the best one; turn 0 for an image without."""

    turn: np.ndarray  # int64 (B,)
    edge: np.ndarray  # int64 (B, 2): who is in the tree, who joins it


def spanning_trees(
    scores: np.ndarray, sizes: np.ndarray, forced: Forced | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The trees of a batch: each object's parent (-1 for roots), and the turn at which it was attached (0 for roots).

    `scores` (B, M, M) is the score of object j as a child of object i. Image b has `sizes[b]` objects; the rest is
    padding (-1 in both results). The root has the largest mean of its row (including the diagonal). Then the best edge
    from the tree to an object outside is added, repeatedly. Among equal edges the lowest index wins, and the parent
    that was added first.
    """
    images, most, _ = scores.shape
    scores = np.nan_to_num(scores)  # a diverged network still gives trees
    every, exists = np.arange(images), np.arange(most) < sizes[:, None]
    parent, turn = np.full((2, images, most), -1)
    best, via = np.full((images, most), -np.inf), np.full((images, most), -1)
    means = (scores * exists[:, None, :]).sum(axis=2) / np.maximum(sizes, 1)[:, None]
    newest = np.where(exists, means, -np.inf).argmax(axis=1) if most else every
    for step in range(most):
        going = every[sizes > step]
        if step:
            outside = exists[going] & (turn[going] < 0)
            joins = np.where(outside, best[going], -np.inf).argmax(axis=1)
            under = via[going, joins]
            if forced is not None:
                now = forced.turn[going] == step
                under, joins = np.where(now, forced.edge[going].T, (under, joins))
            newest[going], parent[going, joins] = joins, under
        turn[going, newest[going]] = step
        offered = scores[going, newest[going]]
        better = offered > best[going]
        best[going] = np.where(better, offered, best[going])
        via[going] = np.where(better, newest[going, None], via[going])
    return parent, turn


def binary(parent: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Left and right children (-1 for none) of the nodes of a list of trees, given in one list.

    The first child of a node becomes its left child, and every further child the right child of the one before it.
    """
    left, right = np.full((2, len(parent)), -1)
    row = np.lexsort((turn, parent))  # roots, then siblings side by side in the order in which they joined
    row = row[parent[row] >= 0]
    first = np.ones(len(row), dtype=bool)
    first[1:] = parent[row[1:]] != parent[row[:-1]]
    left[parent[row[first]]] = row[first]
    later = np.flatnonzero(~first)
    right[row[later - 1]] = row[later]
    return left, right


@dataclass(frozen=True)
class TreeLevel:
    """The nodes of one depth of all trees, and where their relatives stand in the neighbouring levels."""

    nodes: Tensor  # int64 (n,): places in the batch's list
    parent: Tensor  # int64 (n,): places in the level above; 0 for the roots
    left: Tensor  # int64 (n,): places in the level below; its length for none
    right: Tensor  # int64 (n,): likewise


@dataclass(frozen=True)
class Forest:
    """Binary trees over a batch's list of objects, from the roots down."""

    levels: tuple[TreeLevel, ...]
    order: Tensor  # int64 (N,): the objects of all levels, one level after another
    back: Tensor  # int64 (N,): where each object of the list stands there

    def by_level(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Rows of the list (N, ...), a tensor per level."""
        return torch.split(rows.index_select(0, self.order), [len(level.nodes) for level in self.levels])

    def in_list(self, levels: Sequence[Tensor], empty: Tensor) -> Tensor:
        """The inverse of `by_level`; `empty` (0, ...) is returned for an empty list."""
        return torch.cat([empty, *levels]).index_select(0, self.back)


def forest(left: np.ndarray, right: np.ndarray, device: torch.device | None = None) -> Forest:
    """The levels of the binary trees with these children."""
    child = np.concatenate([left, right])
    above = np.setdiff1d(np.arange(len(left)), child)
    parent = np.zeros(len(above), dtype=np.int64)
    levels, nodes = [], []
    while len(above):
        both = np.stack([left[above], right[above]])
        is_there = both >= 0
        places = np.where(is_there, is_there.cumsum().reshape(both.shape) - 1, is_there.sum())
        levels.append(TreeLevel(*(torch.from_numpy(part).to(device) for part in (above, parent, places[0], places[1]))))
        nodes.append(above)
        parent = np.nonzero(is_there)[1]
        above = both[is_there]
    order = np.concatenate([child[:0], *nodes])
    return Forest(tuple(levels), torch.from_numpy(order).to(device), torch.from_numpy(np.argsort(order)).to(device))


def as_forest(parent: np.ndarray, turn: np.ndarray, sizes: np.ndarray, device: torch.device | None = None) -> Forest:
    """The forest of trees as `spanning_trees` gives them: places within images become places in the batch's list."""
    exists = np.arange(parent.shape[1]) < sizes[:, None]
    starts = (np.cumsum(sizes) - sizes)[:, None]
    in_list = np.where(parent >= 0, parent + starts, -1)
    return forest(*binary(in_list[exists], turn[exists]), device)


def sample_detour(
    scores: np.ndarray, parent: np.ndarray, turn: np.ndarray, sizes: np.ndarray, draws: np.ndarray
) -> tuple[Forced, np.ndarray]:
    """One departure per image from the trees that `spanning_trees` gave, and all edges that were open then (B, M, M).

    The turn is drawn uniformly, the edge in proportion to its score among the open edges except the best one. `draws`
    (B, 2) lie in [0, 1). Two objects have only one tree, so images with fewer than three objects have turn 0.
    """
    at = np.where(sizes > 2, 1 + (draws[:, 0] * (sizes - 1)).astype(np.int64), 0)
    inside, outside = (turn >= 0) & (turn < at[:, None]), turn >= np.maximum(at, 1)[:, None]
    open_edges = inside[:, :, None] & outside[:, None, :]
    rows = np.flatnonzero(at)
    best = np.nonzero(turn[rows] == at[rows, None])[1]
    chance = np.where(open_edges, np.maximum(np.nan_to_num(scores), 1e-12), 0.0)
    chance[rows, parent[rows, best], best] = 0.0
    heaps = chance.reshape(len(sizes), -1).cumsum(axis=1)
    edge = np.zeros((len(sizes), 2), dtype=np.int64)
    drawn = (heaps[rows] <= draws[rows, 1:] * heaps[rows, -1:]).sum(axis=1)
    edge[rows] = np.stack(np.divmod(drawn, turn.shape[1]), axis=1)
    return Forced(at, edge), open_edges
