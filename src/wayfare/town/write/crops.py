"""What the layouts of small pictures share: cutting things out, and keeping whole walks for the test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from PIL import Image

from wayfare.core.seeds import seed_for

_MARGIN = 0.12  # of the longer side, on each side


def square_crop(pixels: np.ndarray, box: tuple[int, int, int, int], side: int) -> np.ndarray:
    """uint8 (side, side, 3): the box with some margin, made square and moved into the picture."""
    height, width = pixels.shape[:2]
    x0, y0, x1, y1 = box
    size = min(max(x1 - x0, y1 - y0) * (1 + 2 * _MARGIN), height, width)
    left = min(max((x0 + x1 - size) / 2, 0.0), width - size)
    top = min(max((y0 + y1 - size) / 2, 0.0), height - size)
    image = Image.fromarray(pixels)
    return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR, (left, top, left + size, top + size)))


def held_out(walks: Sequence[str], purpose: str, share: float) -> np.ndarray:
    """bool: which pictures to keep for the test, about `share` of them, given the walk that each was taken on.

    Walks are kept whole, so that no test picture was taken a step from a training one; a single walk is cut in two.
    """
    counts = Counter(walks)
    if len(counts) < 2:
        return np.arange(len(walks)) >= len(walks) - round(len(walks) * share)
    kept: set[str] = set()
    for walk in sorted(counts, key=lambda walk: seed_for(purpose, walk))[:-1]:
        if kept and sum(counts[other] for other in kept) >= share * len(walks):
            break
        kept.add(walk)
    return np.array([walk in kept for walk in walks], bool)
