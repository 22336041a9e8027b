"""What a tree of VCTree is worth: how many of the relations to learn a network finds with it."""

from __future__ import annotations

import torch
from torch import Tensor

from wayfare.scenes.batch import GraphBatch, HeadOutput

_MOST = 100  # guesses of an image that count, as in VCTree's own training


def recall_of_targets(graphs: GraphBatch, output: HeadOutput, most: int = _MOST) -> Tensor:
    """R@100 of each image (B,) among the pairs of the batch: one guess per pair; 0 for an image without relations."""
    chance, guess = output.predicates.detach().softmax(1)[:, 1:].max(1)
    image = graphs.image.index_select(0, graphs.pairs[:, 0])
    order = torch.argsort(chance, descending=True, stable=True)
    order = order[torch.argsort(image[order], stable=True)]  # image by image, the best first
    counts = torch.bincount(image, minlength=graphs.images)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[image[order]]
    related = graphs.targets > 0
    hit = related & (guess + 1 == graphs.targets) & (rank < most)
    found, meant = (torch.bincount(image[some], minlength=graphs.images) for some in (hit, related))
    return found / meant.clamp(min=1)
