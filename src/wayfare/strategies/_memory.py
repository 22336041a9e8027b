"""Memories: a table of C centres of features, found by K-means with the cosine as nearness.

A centre is the plain mean of its points, not brought back to length 1. A centre of zeros is no centre: nothing belongs
to it. Everything is float64 on the CPU, so that a memory does not depend on where it was made.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_SWEEPS = 100  # at most: a sweep that moves no point ends it long before
_SAME = 1e-9  # two points with a cosine this near to 1 are one


def unit(rows: Tensor) -> Tensor:
    """Rows of length 1; a row of zeros stays what it is."""
    lengths: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / lengths.clamp(min=torch.finfo(rows.dtype).tiny)


def present(rows: Tensor) -> Tensor:
    """Which rows are not zeros."""
    return (rows != 0).any(1)


def nearest(points: Tensor, centres: Tensor) -> Tensor:
    """The centre that each point belongs to."""
    near = unit(points) @ unit(centres).T
    return near.masked_fill(~present(centres), -torch.inf).argmax(1)


def cluster(points: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
    """K-means from these seeds: the centres in their order, and how many points each has (without any: zeros)."""
    centres, counts = torch.zeros_like(seeds), torch.zeros(len(seeds), dtype=torch.long)
    if not len(points) or not present(seeds).any():
        return centres, counts
    owner, fresh = None, nearest(points, seeds)
    for _ in range(_SWEEPS):
        if owner is not None and torch.equal(owner, fresh):
            break
        owner = fresh
        counts = torch.bincount(owner, minlength=len(seeds))
        centres = torch.zeros_like(seeds).index_add_(0, owner, points) / counts.clamp(min=1)[:, None]
        fresh = nearest(points, centres)
    return centres, counts


def scattered(points: Tensor, count: int, rng: np.random.Generator) -> Tensor:
    """K-means++: `count` seeds from among the points, a far one likelier; zeros where there are too few points."""
    seeds = points.new_zeros(count, points.shape[1])
    directions = unit(points)
    gaps = torch.ones(len(points), dtype=points.dtype)
    for row in range(min(count, len(points))):
        if float(gaps.max()) < _SAME:
            break
        heights = gaps.cumsum(0)
        # a point where a centre already is has no share of the line that is thrown at
        at = int(torch.searchsorted(heights, rng.random() * float(heights[-1]), right=True).clamp(max=len(points) - 1))
        seeds[row] = points[at]
        gaps = torch.minimum(gaps, (1 - directions @ directions[at]).clamp(min=0))
        gaps[gaps < _SAME] = 0
    return seeds


def class_means(points: Tensor, labels: Tensor, otherwise: Tensor) -> Tensor:
    """The mean of the points that have each label (multi-hot), or a row of `otherwise` where none has."""
    counts = labels.sum(0)[:, None]
    return torch.where(counts > 0, labels.T @ points / counts.clamp(min=1), otherwise)


def matched(rows: Tensor, like: Tensor) -> Tensor:
    """The rows in the order in which they are together most like those of another memory (Hungarian method)."""
    if not present(like).any():
        return rows
    from scipy.optimize import linear_sum_assignment

    order = linear_sum_assignment((unit(like) @ unit(rows).T).numpy(), maximize=True)[1]
    return rows[torch.from_numpy(order)]
