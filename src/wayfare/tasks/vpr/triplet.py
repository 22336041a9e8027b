"""Losses on mined triplets, and what to do about networks that start from random weights.

    triplet_loss    Eq. 3 of the FedVPR paper, max(D^2(q, p) - D^2(q, n) + m, 0); code related to it has D for D^2
    info_nce        which of these photographs is of the query's place? The warm-up
    collapsed       says when descriptors have become the same for every photograph

Hard negatives teach a network that has learnt nothing to give the same descriptor for everything: all distances are
then zero, the loss is the margin and its gradient is zero, for ever. Trained on `info_nce` first, it learns to tell
places apart, and hard negatives help from there. Networks with pretrained weights need no warm-up.

What worked when tried (four convolutions, 64x64 pixels, some hundred queries of real photographs): a few hundred steps
of 8 triplets with random negatives and `apart`, Adam 1e-3, then hard negatives with a tenth of that learning rate. With
the same learning rate they collapsed after the warm-up too, and without `apart` or with 2 triplets it taught little.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from wayfare.errors import ConfigError

_LEAST_SPREAD = 1e-3  # of the descriptors' length
_LEAST_SHARE = 0.2  # of the spread at the start


def split(descriptors: Tensor, queries: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query (B, d), positive (B, d) and negatives (B, n, d) of descriptors in the order of `Triplets.photos`."""
    negatives = descriptors[2 * queries :]
    return descriptors[:queries], descriptors[queries : 2 * queries], negatives.unflatten(0, (queries, -1))


def triplet_loss(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor,
    margin: float = 0.1,
    squared: bool = True,
    over: Literal["all", "violating"] = "all",
) -> Tensor:
    """The mean of Eq. 3 over all pairs of a query and a negative, or over those that violate the margin.

    A mean over all shrinks as negatives become easy; a mean over the violating does not. Where there are none it is 0.
    """
    if over not in ("all", "violating"):
        raise ConfigError(f"the triplet loss is a mean over 'all' or 'violating', not {over!r}")
    near, far = (query - positive).square().sum(-1), (query[:, None] - negatives).square().sum(-1)
    if not squared:
        near, far = _root(near), _root(far)
    losses = (near[:, None] - far + margin).clamp_min(0)
    return losses.mean() if over == "all" else losses.sum() / (losses > 0).sum().clamp_min(1)


def info_nce(
    query: Tensor, positive: Tensor, negatives: Tensor, apart: Tensor | None = None, temperature: float = 0.1
) -> Tensor:
    """Cross-entropy of finding the positive among the query's negatives, by cosine.

    The other queries' positives and negatives take part where `apart` (B, B + B * n) says that they are negatives of
    this query too: `miner.apart(batch.query, batch.photos[B:])`. The more there are, the better it works.
    """
    count = len(query)
    others = torch.cat((positive, negatives.flatten(0, 1)))
    own = torch.eye(count, dtype=torch.bool, device=query.device)
    taking_part = torch.cat((own, own.repeat_interleave(negatives.shape[1], 1)), 1)
    if apart is not None:
        taking_part = taking_part | apart
    likeness = normalize(query, dim=1) @ normalize(others, dim=1).T / temperature
    return cross_entropy(likeness.masked_fill(~taking_part, -math.inf), torch.arange(count, device=query.device))


def spread(descriptors: Tensor | np.ndarray) -> float:
    """How much descriptors differ: their root mean square distance from their mean, as a share of their length.

    Descriptors that all become shorter alike keep their spread: which is nearest does not change.
    """
    rows = torch.as_tensor(descriptors).detach().double()
    length = rows.square().sum(1).mean().sqrt()
    away = (rows - rows.mean(0)).square().sum(1).mean().sqrt()
    return float(away / length) if length > 0 else 0.0


def collapsed(now: float, start: float) -> str:
    """What to tell the user if descriptors with this `spread`, and that one before training, are of no use any more."""
    if now >= max(_LEAST_SPREAD, _LEAST_SHARE * start):  # not so for NaN either
        return ""
    return (
        f"the descriptors have collapsed: they differ by {now:.2g} of their length ({start:.2g} before training), so "
        "every photograph looks like every other; start from pretrained weights, warm up, or lower training.lr"
    )


def _root(squares: Tensor) -> Tensor:
    """The root, with gradient 0 at 0, where the true one is infinite and turns into NaN."""
    there = squares > 0
    return torch.where(there, torch.where(there, squares, 1).sqrt(), 0)
