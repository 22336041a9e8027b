"""Scenes as a network sees them: the objects of several images in one list, and the ordered pairs to say something of.

Images are batched by putting their objects one after another; `image` says which is whose, and pairs never cross
images. What a relation head needs of an object is `x` (its looks), its label and its place; of a pair, `u` (the looks
of the box around both).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Graphs:
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
        """The classes to learn, -1 where an object is nothing known."""
        return self.truth if len(self.truth) else self.labels

    def to(self, where: torch.device) -> Graphs:
        """The same on another device."""
        return replace(self, **{f.name: getattr(self, f.name).to(where) for f in fields(self)})


@dataclass(frozen=True)
class Said:
    """What a head says of a batch."""

    predicates: Tensor  # logits (P, predicates + 1), 0 for none
    features: Tensor  # (P, width): what the logits are made of
    objects: Tensor | None = None  # logits (N, classes), where a head refines labels
    extra: Tensor | None = None  # a loss of the head's own (VCTree's tree, GPS-Net's NPS), a scalar
