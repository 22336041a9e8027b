"""Pictures turned, magnified, moved and mirrored at random, in one call for a batch.

FedTour expands 50,000 pictures to 500,000 "by applying rotation, magnification, etc", and gives no amounts. Here every
picture is changed anew in every pass of the user who holds it, so that pictures of different users stay apart; ten
passes see as many variants as one pass over the paper's. Mirroring is part of it, which suits photographs and not
digits.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

Augmentation = Literal["none", "tour"]

TURN = math.radians(15)  # at most, to either side
MAGNIFY = 1.2  # at most, or its inverse
MOVE = 0.1  # of the picture's side at most, in each direction


def tour(pictures: Tensor, rng: np.random.Generator) -> Tensor:
    """Pictures (N, C, H, W), each changed on its own; five numbers are drawn for each."""
    mirror, turn, magnify, across, down = rng.random((len(pictures), 5)).T
    return moved(
        pictures, mirror < 0.5, TURN * (2 * turn - 1), MAGNIFY ** (2 * magnify - 1),
        MOVE * (2 * np.stack((across, down), 1) - 1),
    )  # fmt: skip


def moved(pictures: Tensor, mirror: np.ndarray, turn: np.ndarray, magnify: np.ndarray, move: np.ndarray) -> Tensor:
    """One value for each picture.

    A picture is mirrored left to right where asked, then turned anticlockwise by radians about its middle, magnified,
    and moved by shares (n, 2) of its width to the right and of its height down. It goes on beyond its edges as its own
    reflection.
    """
    height, width = pictures.shape[2:]
    # from a place in the result to one in the original; coordinates run from -1 to 1 on both axes, whatever the sides
    cosine, sine, sign = np.cos(turn) / magnify, np.sin(turn) / magnify, np.where(mirror, -1.0, 1.0)
    matrix = np.empty((len(pictures), 2, 3))
    matrix[:, 0, 0], matrix[:, 0, 1] = sign * cosine, -sign * sine * height / width
    matrix[:, 1, 0], matrix[:, 1, 1] = sine * width / height, cosine
    matrix[:, :, 2] = -np.einsum("nij,nj->ni", matrix[:, :, :2], 2 * move)
    grid = affine_grid(torch.from_numpy(matrix).to(pictures), list(pictures.shape), align_corners=False)
    seen = grid_sample(pictures, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    return seen.contiguous(memory_format=torch.channels_last)
