"""What encoders are shown of pairs, and what is known of them: by rows of all pairs, queries included."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from wayfare.data.pairs import Paired
from wayfare.data.weights import load_weights
from wayfare.errors import ConfigError

Known = Literal["frozen", "pixels", "file"]


@dataclass(frozen=True)
class Inputs:
    """Pairs, and what is taken of their pictures; `weights` and `side` are the frozen network's.

    `belong` says which labels belong together, where these pairs do not show all; see `Hashing.within`.
    """

    pairs: Paired
    known: Known
    side: int = 64
    weights: str = ""
    belong: tuple[int, ...] = ()

    @property
    def levels(self) -> tuple[int, ...]:
        """How many labels are on each level; of more than two levels, the two finest are used."""
        return self.pairs.levels[-2:]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the fine labels."""
        return self.pairs.names[-self.levels[-1] :]

    def labels(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Bool (n, C) of each level, the fine one last."""
        ends = np.cumsum(self.pairs.levels)[-len(self.levels) :]
        chosen = self.pairs.labels[rows]
        return tuple(chosen[:, end - count : end] for end, count in zip(ends, self.levels, strict=True))

    @cached_property
    def within(self) -> Tensor | None:
        """Which fine class belongs to which coarse one, (C1, C2). All pairs say it: it is no secret of any of them."""
        if len(self.levels) < 2:
            return None
        if self.belong:
            found = torch.zeros(self.levels, dtype=torch.bool)
            found.view(-1)[list(self.belong)] = True
            return found
        coarse, fine = self.labels(np.arange(len(self.pairs)))
        return torch.from_numpy(coarse.T.astype(np.float32) @ fine.astype(np.float32) > 0)

    def of(self, view: str, rows: np.ndarray) -> Tensor:
        """A batch: bags of words (n, D), features (n, W), or colours 0..255 (n, 3, H, W)."""
        if view == "text":
            bags = self.pairs.bags[rows]
            return torch.from_numpy(bags if isinstance(bags, np.ndarray) else bags.toarray())
        if self.known == "pixels":
            return torch.from_numpy(self._pictures.read(rows)).permute(0, 3, 1, 2).float()
        return torch.from_numpy(self.features()[rows])

    def features(self, progress: Any = lambda *_: None) -> np.ndarray:
        """Float32 (N, W) of all pictures, as they were given or computed."""
        if "_features" not in self.__dict__:
            self.__dict__["_features"] = self._given() if self.known == "file" else self._computed(progress)
        found: np.ndarray = self.__dict__["_features"]
        return found

    def _given(self) -> np.ndarray:
        if self.pairs.features is None:
            raise ConfigError(
                f"task.features = 'file': the data {self.pairs.name!r} brings no features of pictures. Name a file in "
                "task.features_path, or use 'frozen' or 'pixels'"
            )
        return self.pairs.features

    def _computed(self, progress: Any) -> np.ndarray:
        from wayfare.tasks.nets.frozen import Trunk
        from wayfare.tasks.recognition.features import features_of

        images: Any = _All(self._pictures, len(self.pairs))
        trunk = Trunk(self.side, load_weights(Path(self.weights)) if self.weights else None)
        return features_of(trunk, images, progress)

    @property
    def _pictures(self) -> Any:
        if self.pairs.pictures is None:
            raise ConfigError(
                f"task.features = {self.known!r} needs pictures, and the data {self.pairs.name!r} has none. Use 'file' "
                "where it brings features of them"
            )
        return self.pairs.pictures


class _All:
    """All pictures as if they were one array."""

    def __init__(self, pictures: Any, count: int) -> None:
        self._pictures, self.shape = pictures, (count, *pictures.size, 3)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        found: np.ndarray = self._pictures.read(np.arange(len(self))[rows])
        return found
