"""Memories: a table of C feature centres, found by K-means with cosine similarity, or with Euclidean distance.

A centre is the plain mean of its points, not scaled back to length 1. A row of zeros is not a centre: no point is
assigned to it. Everything is float64 on the CPU, so that a memory does not depend on the machine.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

_SWEEPS = 100  # a limit; usually a sweep that moves no point ends it much earlier
_SAME = 1e-9  # two points whose cosine is this close to 1 count as equal


def unit(rows: Tensor) -> Tensor:
    """Rows scaled to length 1; a row of zeros stays zero."""
    lengths: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / lengths.clamp(min=torch.finfo(rows.dtype).tiny)


def present(rows: Tensor) -> Tensor:
    """Which rows are not zeros."""
    return (rows != 0).any(1)


def nearest(points: Tensor, centres: Tensor, cosine: bool = True) -> Tensor:
    """The index of each point's nearest centre."""
    near = unit(points) @ unit(centres).T if cosine else -torch.cdist(points, centres)
    return near.masked_fill(~present(centres), -torch.inf).argmax(1)


def cluster(points: Tensor, seeds: Tensor, cosine: bool = True) -> tuple[Tensor, Tensor]:
    """K-means from these seeds: the centres in their order, and the number of points of each (zeros without any)."""
    centres, counts = torch.zeros_like(seeds), torch.zeros(len(seeds), dtype=torch.long)
    if not len(points) or not present(seeds).any():
        return centres, counts
    owner, fresh = None, nearest(points, seeds, cosine)
    for _ in range(_SWEEPS):
        if owner is not None and torch.equal(owner, fresh):
            break
        owner = fresh
        counts = torch.bincount(owner, minlength=len(seeds))
        centres = torch.zeros_like(seeds).index_add_(0, owner, points) / counts.clamp(min=1)[:, None]
        fresh = nearest(points, centres, cosine)
    return centres, counts


def kmeans_seeds(points: Tensor, count: int, rng: np.random.Generator, cosine: bool = True) -> Tensor:
    """K-means++: `count` seeds drawn from the points, distant ones more likely; zeros if there are too few points."""
    seeds = points.new_zeros(count, points.shape[1])
    directions = unit(points)
    gaps = torch.ones(len(points), dtype=points.dtype)
    for row in range(min(count, len(points))):
        if float(gaps.max()) < _SAME:
            break
        heights = gaps.cumsum(0)
        # a point that equals a centre has probability 0
        at = int(torch.searchsorted(heights, rng.random() * float(heights[-1]), right=True).clamp(max=len(points) - 1))
        seeds[row] = points[at]
        fresh = (1 - directions @ directions[at]).clamp(min=0) if cosine else (points - points[at]).square().sum(1)
        gaps = fresh if row == 0 else torch.minimum(gaps, fresh)
        gaps[gaps < _SAME] = 0
    return seeds


def random_seeds(points: Tensor, count: int, rng: np.random.Generator) -> Tensor:
    """`count` different points, as the authors' K-means starts; zeros if there are too few."""
    seeds = points.new_zeros(count, points.shape[1])
    chosen = rng.permutation(len(points))[:count]
    seeds[: len(chosen)] = points[torch.from_numpy(chosen)]
    return seeds


def class_means(points: Tensor, labels: Tensor, otherwise: Tensor) -> Tensor:
    """The mean of the points of each label (multi-hot), or the row of `otherwise` for a label without points."""
    counts = labels.sum(0)[:, None]
    return torch.where(counts > 0, labels.T @ points / counts.clamp(min=1), otherwise)


def matched(rows: Tensor, like: Tensor) -> Tensor:
    """The rows, reordered to match the rows of another memory as well as possible (Hungarian method)."""
    if not present(like).any():
        return rows
    order = linear_sum_assignment((unit(like) @ unit(rows).T).numpy(), maximize=True)[1]
    return rows[torch.from_numpy(order)]
