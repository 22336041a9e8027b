"""Counts of right answers by class: of one network's logits, or of many heads at once as matrix products."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear, one_hot, pad

# Heads in one product. It is always this number, filled up with zeros: a product of another shape may be rounded
# otherwise, and the counts would depend on how many heads a process was given. Larger ones are not faster.
TOGETHER = 8


def spread(count: int, limit: int) -> np.ndarray:
    """`limit` of the places 0 .. count - 1, evenly spread; all of them where limit is 0 or not below count."""
    return np.arange(limit) * count // limit if 0 < limit < count else np.arange(count)


def count_right(answers: Iterable[tuple[Tensor, Tensor]], classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Right and all answers per class, int64, of pairs of logits (n, classes) and labels (n,)."""
    counts = np.zeros((2, classes), np.int64)  # wrong ones, right ones
    for logits, labels in answers:
        kind = labels + classes * (logits.argmax(1) == labels)
        counts += torch.bincount(kind, minlength=2 * classes).cpu().numpy().reshape(2, classes)
    return counts[1], counts.sum(0)


def count_right_of_heads(
    heads: Tensor, biases: Tensor, batches: Iterable[tuple[Tensor, Tensor]]
) -> tuple[np.ndarray, np.ndarray]:
    """Right answers of each head (k, classes) and all answers (classes,), of pairs of features (n, d) and labels."""
    count, classes, width = heads.shape
    filling = -count % TOGETHER
    blocks = (count + filling) // TOGETHER
    rows = pad(heads, (0, 0, 0, 0, 0, filling)).reshape(blocks, TOGETHER * classes, width)
    offsets = pad(biases, (0, 0, 0, filling)).reshape(blocks, TOGETHER * classes)
    right = torch.zeros(count + filling, classes, dtype=torch.int64, device=heads.device)
    total = torch.zeros(classes, dtype=torch.int64, device=heads.device)
    for features, labels in batches:
        members = one_hot(labels, classes)
        total += members.sum(0)
        members = members.float()  # whole numbers far below 2^24: their sums are exact
        for number, (weights, bias) in enumerate(zip(rows, offsets)):
            answers = linear(features, weights, bias).view(-1, TOGETHER, classes).argmax(2)
            hits = (answers == labels[:, None]).float().T @ members
            right[number * TOGETHER : (number + 1) * TOGETHER] += hits.long()
    return right[:count].cpu().numpy(), total.cpu().numpy()
