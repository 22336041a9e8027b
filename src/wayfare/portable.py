"""What of a finished run works without Wayfare: its networks as plain modules, and how their inputs are made.

`FinishedRun.portable` gives one part for each thing that a network takes (pictures, texts). `wayfare.exporting` writes
them as files for other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

BATCH = "n"
Output = Literal["descriptor", "logits", "vector"]


@dataclass(frozen=True)
class PortableInput:
    """One tensor that a network takes."""

    name: str
    example: Tensor  # a batch of 2
    free: Mapping[int, str]  # which axes may have another length, and their names

    @property
    def shape(self) -> list[int | str]:
        """As the manifest has it."""
        return [self.free.get(axis, length) for axis, length in enumerate(self.example.shape)]


@dataclass(frozen=True)
class PortablePart:
    """A network in evaluation mode that torch.export can trace."""

    name: str  # of its file: "image" or "text"
    module: nn.Module
    inputs: tuple[PortableInput, ...]
    output: Output
    preparing: Mapping[str, Any]  # for the manifest: what is done with a file or a text before
    own: Callable[[int], tuple[Tensor, ...]]  # inputs of so many of the run's own samples
    files: Mapping[str, bytes] = field(default_factory=dict)  # what preparing needs, beside the network

    @torch.no_grad()
    def __call__(self, *inputs: Tensor) -> np.ndarray:
        found: np.ndarray = self.module(*inputs).float().numpy()
        return found


def picture_input(size: tuple[int, int]) -> PortableInput:
    """Pictures (n, 3, height, width) with values from 0 to 1."""
    return PortableInput("image", torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0)), {0: BATCH})


def picture_preparing(size: tuple[int, int]) -> dict[str, Any]:
    """What `io.images` does with a file."""
    return {
        "kind": "picture", "height": size[0], "width": size[1], "colours": "RGB", "range": [0, 1],
        "resize": "bilinear, antialiased; proportions are not kept", "orientation": "EXIF, applied first",
        "transparency": "over white", "frame": "first",
    }  # fmt: skip


def as_input(images: np.ndarray) -> Tensor:
    """Pictures uint8 (n, height, width, 3) as `picture_input` has them."""
    colours = images if images.shape[3] == 3 else np.repeat(images, 3, axis=3)
    return torch.from_numpy(np.ascontiguousarray(colours)).permute(0, 3, 1, 2).float().div_(255).contiguous()


def spread_rows(count: int, most: int) -> np.ndarray:
    """At most so many of the rows, evenly spread."""
    return (
        np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(np.int64)) if count else np.empty(0, int)
    )
