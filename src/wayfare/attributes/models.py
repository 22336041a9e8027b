"""Networks that tell an attribute: a CNN that sees pictures, and a perceptron that sees the other attributes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.attributes.table import AttributeTable
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Model, Progress
from wayfare.io.decoded import Decoded, decoded
from wayfare.nets.cnn import small_cnn

_GIB = 2.0**30


class FaceInputs:
    """What a network sees of the faces in `table`: those of the data that can be used."""

    def __init__(self, table: AttributeTable) -> None:
        self.table = table

    @property
    def skipped(self) -> list[dict[str, str]]:
        """Pictures that were left out, and why."""
        return []

    def rows(self, rows: np.ndarray, device: torch.device) -> Tensor:
        """The inputs of these rows of the table."""
        raise NotImplementedError


class FacePictures(FaceInputs):
    """Pixels from -1 to 1, (n, 3, H, W)."""

    def __init__(self, table: AttributeTable, pictures: Decoded) -> None:
        super().__init__(table)
        self.pictures = pictures

    @property
    def skipped(self) -> list[dict[str, str]]:
        return [{"file": item.file, "reason": item.reason} for item in self.pictures.skipped]

    def rows(self, rows: np.ndarray, device: torch.device) -> Tensor:
        # N,H,W,C in memory is channels_last as it stands
        pixels = torch.from_numpy(self.pictures[rows]).to(device).permute(0, 3, 1, 2).float()
        return pixels.sub_(127.5).div_(127.5)


class OtherAttributes(FaceInputs):
    """Every attribute but the target, as -1 and 1."""

    def __init__(self, table: AttributeTable, target: str) -> None:
        super().__init__(table)
        self._values = table.without(target)

    def rows(self, rows: np.ndarray, device: torch.device) -> Tensor:
        return torch.from_numpy(self._values[rows]).to(device).float().mul_(2).sub_(1)


class AttributeModel(Model):
    """How a network for one attribute is made, and what it sees."""

    view: ClassVar[str]  # the name of its features
    sees_pictures: ClassVar[bool]

    def inputs(self, table: AttributeTable, target: str, cache: float, progress: Progress) -> FaceInputs:
        """What the network sees; `cache` GiB may be used for decoded pictures."""
        raise NotImplementedError

    def network(self, attributes: int) -> nn.Module:
        """A new network, for a table of this many attributes."""
        raise NotImplementedError

    def describe(self, attributes: int, about: str) -> str:
        """What it sees, in words."""
        raise NotImplementedError


@dataclass(frozen=True)
class FaceCnn(AttributeModel):
    """A small CNN that sees pictures."""

    image_size: int = 64  # pictures are resized to this height and width in pixels
    width: int = 16  # channels of the first layer
    hidden: int = 64  # of the representation
    norm: Literal["none", "group"] = "none"

    view: ClassVar[str] = "image"
    sees_pictures: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _at_least("image_size", self.image_size, 5)
        _at_least("width", self.width, 1)
        _at_least("hidden", self.hidden, 1)

    def inputs(self, table: AttributeTable, target: str, cache: float, progress: Progress) -> FaceInputs:
        table = table.with_pictures()
        folder, size = table.folder or Path(), (self.image_size, self.image_size)
        files = [folder / name for name in table.files]

        def report(done: int, total: int) -> None:
            progress("reading pictures", done, total)

        pictures = decoded(folder, files, size, cache * _GIB, report)
        return FacePictures(table.select(pictures.kept), pictures)

    def network(self, attributes: int) -> nn.Module:
        return small_cnn(2, 3, self.image_size, width=self.width, hidden=self.hidden, norm=self.norm)

    def describe(self, attributes: int, about: str) -> str:
        return f"from pictures of {self.image_size}x{self.image_size} pixels, by a small CNN"


@dataclass(frozen=True)
class TablePerceptron(AttributeModel):
    """Two hidden layers that see the other attributes."""

    hidden: int = 64  # of both layers

    view: ClassVar[str] = "attributes"
    sees_pictures: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _at_least("hidden", self.hidden, 1)

    def inputs(self, table: AttributeTable, target: str, cache: float, progress: Progress) -> FaceInputs:
        return OtherAttributes(table, target)

    def network(self, attributes: int) -> nn.Module:
        if attributes < 2:
            raise ConfigError("model.name = 'table' needs attributes other than the target; 'cnn' uses pictures")
        return TableNet(attributes - 1, self.hidden)

    def describe(self, attributes: int, about: str) -> str:
        return f"without pictures: from the other {attributes - 1} attributes of {about}, not the paper's task"


class TableNet(nn.Module):
    """Two hidden layers on a row of -1 and 1."""

    head_name = "head"

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.feature_dim = hidden
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, 2)

    def features(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"model.{name} = {value}: expected at least {least}")
