"""What a network guesses of pictures, and what these guesses are worth, with graph constraint and without."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from wayfare.data.scene_graphs import SceneGraphs
from wayfare.tasks.sgg import recall
from wayfare.tasks.sgg.detections import Detections, mask_overlaps
from wayfare.tasks.sgg.features import Provider, batch
from wayfare.tasks.sgg.graphs import Said
from wayfare.tasks.sgg.pairs import all_pairs

_TOGETHER = 32  # pictures


class Part(NamedTuple):
    """Some pictures: what is annotated and, outside PredCls, what a detector found."""

    truth: SceneGraphs
    seen: Detections | None = None

    @property
    def scenes(self) -> SceneGraphs:
        """The objects that a network is given."""
        return self.truth if self.seen is None else self.seen.found

    @property
    def scores(self) -> np.ndarray | None:
        """The detector's; None in PredCls."""
        return None if self.seen is None else self.seen.scores

    def select(self, images: np.ndarray) -> Part:
        return Part(self.truth.select(images), None if self.seen is None else self.seen.select(images))

    def overlaps(self, of: Literal["boxes", "masks"]) -> np.ndarray | None:
        """IoU of detected and annotated masks; None for boxes, of which `recall.tally` asks only those that matter."""
        return None if self.seen is None or of == "boxes" else mask_overlaps(self.seen.found, self.truth)


@torch.no_grad()
def guesses(
    net: nn.Module,
    source: Provider,
    scenes: SceneGraphs,
    scores: np.ndarray | None,
    most: int,
    constraints: tuple[bool, ...],
) -> list[recall.Guesses]:
    """The best guesses of each picture, once for each way of constraint. `scores` (N,) are the objects' own.

    Where a network refines labels, its certainty of the best one is an object's score as well.
    """
    training, where = net.training, next(net.parameters()).device
    net.eval()
    parts: list[list[recall.Guesses]] = []
    for start in range(0, max(len(scenes), 1), _TOGETHER):
        some = scenes.select(np.arange(start, min(start + _TOGETHER, len(scenes))))
        own = None
        if scores is not None:
            own = scores[scenes.object_offsets[start] : scenes.object_offsets[start + len(some)]]
        pairs = all_pairs(some)
        chances = np.empty((0, len(some.predicates) + 1), np.float32)
        if len(pairs):
            said: Said = net(batch(some, source, pairs).to(where))
            chances = said.predicates.softmax(1).cpu().numpy()
            if said.objects is not None:
                sure = said.objects.softmax(1).amax(1).cpu().numpy()
                own = sure if own is None else own * sure
        parts.append([recall.ranked(chances, pairs, some, own, constraint=one, most=most) for one in constraints])
    net.train(training)
    return [recall.Guesses.joined(one) for one in zip(*parts)]


def metrics(
    guessed: Iterable[recall.Guesses], part: Part, overlaps: np.ndarray | None, as_paper: bool
) -> dict[str, float]:
    """Recalls of the guesses; none where no picture counts."""
    found = None if part.seen is None else part.seen.found
    counted = [recall.tally(some, part.truth, found, overlaps, as_paper=as_paper) for some in guessed]
    return {name: value for one in counted if one.images for name, value in one.metrics.items()}
