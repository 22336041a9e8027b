"""Augmentation: pictures of a batch changed at random in training, chosen by name (`task.augment`).

FedTour expands 50,000 pictures to 500,000 "by applying rotation, magnification, etc", and gives no amounts. `tour`
changes every picture differently in every pass of the user who holds it, so that users do not share pictures; ten
passes see as many variants as one pass over the paper's. Mirroring is part of it, which suits photographs and not
digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from wayfare.core.errors import ConfigError


class PictureAugmentation:
    """A subclass is a frozen dataclass of settings."""

    def __call__(self, pictures: Tensor, rng: np.random.Generator) -> Tensor:
        """Pictures (N, C, H, W), each changed on its own; all randomness comes from `rng`."""
        raise NotImplementedError


@dataclass(frozen=True)
class UnchangedPictures(PictureAugmentation):
    """Pictures as they are."""

    def __call__(self, pictures: Tensor, rng: np.random.Generator) -> Tensor:
        return pictures


@dataclass(frozen=True)
class TourAugmentation(PictureAugmentation):
    """Pictures mirrored, turned, magnified and moved; five numbers are drawn for each."""

    turn: float = 15.0  # degrees at most, to either side
    magnify: float = 1.2  # at most, or its inverse
    move: float = 0.1  # of the picture's side at most, in each direction

    def __post_init__(self) -> None:
        if self.turn < 0 or self.magnify < 1 or not 0 <= self.move < 1:
            raise ConfigError(
                f"task.augment: turn = {self.turn}, magnify = {self.magnify}, move = {self.move}: expected turn of at "
                "least 0 degrees, magnify of at least 1, and move from 0 to below 1"
            )

    def __call__(self, pictures: Tensor, rng: np.random.Generator) -> Tensor:
        mirror, turn, magnify, across, down = rng.random((len(pictures), 5)).T
        return transformed(
            pictures,
            mirror=mirror < 0.5,
            turn=math.radians(self.turn) * (2 * turn - 1),
            magnify=self.magnify ** (2 * magnify - 1),
            move=self.move * (2 * np.stack((across, down), 1) - 1),
        )


def transformed(
    pictures: Tensor, *, mirror: np.ndarray, turn: np.ndarray, magnify: np.ndarray, move: np.ndarray
) -> Tensor:
    """One value for each picture.

    A picture is mirrored left to right where `mirror` is set, then turned anticlockwise by radians about its middle,
    magnified, and moved by shares (n, 2) of its width to the right and of its height down. Beyond its edges it
    continues as its own reflection.
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
