"""Clients by lists of pictures: the federated scene-graph benchmark's own splits, or yours in the same form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Partition
from wayfare.partition.split import Split
from wayfare.scenes.data.client_files import read_lists


@dataclass(frozen=True)
class Listed(Partition):
    """Client k has the pictures of Userk.json, or of the list "k". Pictures that the task leaves out are left out."""

    path: str = ""  # a folder of UserN.json, or a file {"0": [image ids], "1": ...}

    source: ClassVar[str] = "ids"

    def __call__(self, dealt: np.ndarray, rng: np.random.Generator) -> Split:
        if not self.path:
            raise ConfigError("partition.path: expected a folder of UserN.json or a file with lists of image ids")
        place = {str(image_id): row for row, image_id in enumerate(dealt)}
        lists = read_lists(Path(self.path))
        parts = [np.array([place[i] for i in ids if i in place], np.int64) for ids in lists]
        if empty := [number for number, part in enumerate(parts) if not len(part)]:
            raise DataError(
                f"client {empty[0]} has none of the {len(dealt)} pictures to train on",
                Path(self.path),
                remedy="give the annotations that the lists are of in data.path, or fewer test pictures",
            )
        missing = sum(map(len, lists)) - sum(map(len, parts))
        about = {"rule": "listed", "samples": len(dealt), "settings": {"path": self.path}, "left_out": missing}
        return Split.from_parts(parts, about)
