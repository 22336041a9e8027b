"""A network's guesses for pictures and their recalls, with graph constraint and without."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import nn

from wayfare.scenes import recall
from wayfare.scenes.batch import HeadOutput, make_batch
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.features import Provider
from wayfare.scenes.modes import ScenePictures
from wayfare.scenes.pairs import all_pairs

_BATCH = 32  # pictures


@torch.no_grad()
def guesses(
    net: nn.Module,
    provider: Provider,
    scenes: SceneGraphs,
    scores: np.ndarray | None = None,
    *,
    most: int = max(recall.CUTOFFS),
    constraints: tuple[bool, ...] = (True, False),
) -> list[recall.Guesses]:
    """The best guesses of each picture, with graph constraint and without. `scores` (N,) are the objects' own.

    Where a network refines labels, its certainty of the best one, the background apart, is an object's score as well.
    """
    training, device = net.training, next(net.parameters()).device
    net.eval()
    parts: list[list[recall.Guesses]] = []
    for start in range(0, max(len(scenes), 1), _BATCH):
        some = scenes.select(np.arange(start, min(start + _BATCH, len(scenes))))
        own = None
        if scores is not None:
            own = scores[scenes.object_offsets[start] : scenes.object_offsets[start + len(some)]]
        pairs = all_pairs(some)
        probabilities = np.empty((0, len(some.predicates) + 1), np.float32)
        if len(pairs):
            output: HeadOutput = net(make_batch(some, provider, pairs).to(device))
            probabilities = output.predicates.softmax(1).cpu().numpy()
            if output.objects is not None:
                certainty = output.objects.softmax(1)[:, : len(some.classes)].amax(1).cpu().numpy()
                own = certainty if own is None else own * certainty
        parts.append([recall.ranked(probabilities, pairs, some, own, constraint=one, most=most) for one in constraints])
    net.train(training)
    return [recall.Guesses.joined(one) for one in zip(*parts)]


def metrics(
    guessed: Iterable[recall.Guesses], pictures: ScenePictures, overlaps: np.ndarray | None, as_paper: bool
) -> dict[str, float]:
    """Recalls of the guesses; empty if no picture counts."""
    counted = [recall.tally(some, pictures.truth, pictures.matched, overlaps, as_paper=as_paper) for some in guessed]
    return {name: value for one in counted if one.images for name, value in one.metrics.items()}
