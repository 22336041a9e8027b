"""Contrastive alignment: of all pictures of a client, a text is nearest to its own, and the other way round.

    J = - sum_j p_ij log softmax_j(cos(F_i, G_j) / temperature) + gamma |B - F|^2

over a batch i of one view and what was last seen of the other view of all n pairs j; p_i is 1 / |right_i| for the j
that are right for i, and 0 for others. Right is a pair's own other half. Where a text is the names of some labels
(`task.label_texts`), every picture with all of these labels is right for it. The other way round such texts do not
count, neither as right nor as wrong: a picture of a red shirt has hundreds of texts that say "men", and would learn
little else. Counting them as right gave a precision at 10 of 0.44 where no names of labels at all gave 0.59, and
leaving them out 0.65 (2,000 pairs in one place, 56 queries over 1,000 other photos, 15 passes).

Linear heads do as well as others and are a fifth of the size. Ten clients, 20 rounds of three passes, 4,082 pairs, 128
bits, the same queries over 1,000 other photos: 0.75 with linear heads and Adam at 0.003, 0.73 with hidden layers of 512
in both heads at 0.001. Eight rounds with 2,000 pairs: 0.56 linear, 0.53 with a hidden layer for texts.

Class labels alone say that any shirt is right for "red shirt". Here a text's own words count, so that a frozen text
encoder and a frozen image encoder are aligned for words that no label has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from wayfare.core.errors import ConfigError
from wayfare.hashing.base_method import BaseMethod
from wayfare.hashing.buffers import Buffers

_NEVER = -1e4  # a score whose softmax is 0


@dataclass(frozen=True)
class Contrastive(BaseMethod):
    """The temperature, and the weight of the distance to the codes."""

    temperature: float = 0.1
    gamma: float = 0.01

    needs_labels: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise ConfigError(f"task.base.temperature = {self.temperature}: expected a number above 0")
        if not 0 <= self.gamma < float("inf"):
            raise ConfigError(f"task.base.gamma = {self.gamma}: expected a weight, at least 0")

    def loss(self, buffers: Buffers, view: str, rows: Tensor, raw: Tensor) -> Tensor:
        other = buffers.features["text" if view == "image" else "image"]
        scores = normalize(raw) @ normalize(other).T / self.temperature
        right = right_pairs(buffers, view, rows)
        if view == "image":  # only a picture's own text is right, and others that fit it are not wrong
            own = torch.zeros_like(right).scatter_(1, rows[:, None], 1)
            scores, right = scores.masked_fill((right > 0) & (own == 0), _NEVER), own
        aligned = -(right / right.sum(1, keepdim=True) * scores.log_softmax(1)).sum(1).mean()
        if not self.gamma:
            return aligned
        return aligned + self.gamma * (buffers.codes[rows] - raw).square().mean()


def right_pairs(buffers: Buffers, view: str, rows: Tensor) -> Tensor:
    """1 where a batch's pair (b) and one of all pairs (n) are right for each other, else 0."""
    labels, asked = buffers.labels[-1], buffers.asked
    texts, pictures = (asked[rows], labels) if view == "text" else (asked, labels[rows])
    counts = texts.sum(1)
    named = (texts @ pictures.T == counts[:, None]) & (counts[:, None] > 0)  # (texts, pictures)
    found = (named if view == "text" else named.T).to(labels.dtype)
    found[range(len(rows)), rows] = 1
    return found
