"""A batch of scenes for a network: the objects of several images in one list, and the ordered pairs to classify.

Images are batched by putting their objects one after another; `image` says which is whose, and pairs never cross
images. What a relation head needs of an object is `x` (its looks), its label and its place; of a pair, `u` (the looks
of the box around both).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np
import torch
from torch import Tensor

from wayfare.core.errors import ConfigError
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.features import Provider
from wayfare.scenes.geometry import image_sizes


@dataclass(frozen=True)
class GraphBatch:
    """A batch of images; N objects, P ordered pairs, B images."""

    labels: Tensor  # int64 (N,): object classes from 0
    boxes: Tensor  # float32 (N, 4): x1, y1, x2, y2 in pixels
    image: Tensor  # int64 (N,): ascending, 0 to B - 1
    sizes: Tensor  # float32 (B, 2): width, height
    pairs: Tensor  # int64 (P, 2): subject, object, places in this list; ordered by image, then subject, then object
    x: Tensor  # float32 (N, objects' features)
    u: Tensor  # float32 (P, pairs' features)
    targets: Tensor  # int64 (P,): predicate + 1, 0 for none; empty where nothing is known
    truth: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    # int64 (N,): the classes to learn where `labels` are a detector's, -1 for none; empty where `labels` are the truth

    @property
    def images(self) -> int:
        return len(self.sizes)

    @property
    def true_labels(self) -> Tensor:
        """The classes to learn, -1 for an object without a known class."""
        return self.truth if len(self.truth) else self.labels

    def to(self, device: torch.device) -> GraphBatch:
        """The same on another device."""
        return replace(self, **{f.name: getattr(self, f.name).to(device) for f in fields(self)})


@dataclass(frozen=True)
class HeadOutput:
    """The output of a relation head for a batch."""

    predicates: Tensor  # logits (P, predicates + 1), 0 for none
    features: Tensor  # (P, width): what the logits are made of
    objects: Tensor | None = None  # logits (N, classes), where a head refines labels
    extra: Tensor | None = None  # a loss of the head's own (VCTree's tree), a scalar
    weights: Tensor | None = None  # (predicates + 1,): how much each target counts in the loss; None: all the same


def make_batch(
    scenes: SceneGraphs,
    provider: Provider,
    pairs: np.ndarray,
    targets: np.ndarray | None = None,
    truth: np.ndarray | None = None,
) -> GraphBatch:
    """The images put together, with the pairs and, where they are known, the targets that `pairs` gives.

    `truth` (N,) are the classes to learn where those of the scenes are a detector's.
    """
    return GraphBatch(
        labels=torch.from_numpy(scenes.labels.astype(np.int64)),
        boxes=torch.from_numpy(scenes.boxes.astype(np.float32)),
        image=torch.from_numpy(scenes.object_images),
        sizes=torch.from_numpy(image_sizes(scenes)),
        pairs=torch.from_numpy(pairs),
        x=_checked(provider.objects(scenes), (len(scenes.labels), provider.width_x)),
        u=_checked(provider.pairs(scenes, pairs), (len(pairs), provider.width_u)),
        targets=torch.from_numpy(np.zeros(0, np.int64) if targets is None else targets),
        truth=torch.from_numpy(np.zeros(0, np.int64) if truth is None else truth),
    )


def _checked(rows: np.ndarray, shape: tuple[int, int]) -> Tensor:
    if rows.shape != shape or rows.dtype != np.float32:
        raise ConfigError(f"the provider gave {rows.dtype} of the shape {rows.shape}, expected float32 of {shape}")
    return torch.from_numpy(rows)
