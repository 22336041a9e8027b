"""Attributes: has the face this attribute, yes or no? CelebA's Smiling, by default (federated PSG benchmark, Sec. 5).

    path         CelebA's folder, its list of attributes, or the packed .npz table; "": a made-up table (faces.made_up)
    pictures     where they are: a small CNN sees them. The paper's network is in a supplement that we do not have
    table        where there are none: a small perceptron sees the *other* attributes. This stands in for the paper's
                 experiment and is another one: 39 attributes of CelebA tell Smiling to about 85 %, pictures to more
    parts        the data's own: its training part is dealt out, and its test part (or the validation part) is judged on

The partition `semantic` clusters the attributes as -1 and 1. Whether the target is among them makes clusters that are
nearly pure in it, or not; the paper does not say, so `clusters_see_target` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from wayfare.core.protocols import Batch, Client, Output
from wayfare.data import celeba
from wayfare.data.decoded import Decoded, decoded
from wayfare.data.semantics import Categories, categories
from wayfare.errors import ConfigError, DataError, unknown
from wayfare.tasks.faces.made_up import NAMES, made_up
from wayfare.tasks.nets.cnn import small_cnn

_SCAN = 500  # faces judged together
_GIB = 2.0**30
_TRAIN = celeba.PARTS.index("train")


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


@dataclass(frozen=True)
class Attributes:
    """One attribute of faces, yes or no; see the module."""

    path: str = ""
    target: str = "Smiling"
    inputs: Literal["auto", "pictures", "table"] = "auto"  # auto: pictures where there are any
    clusters_see_target: bool = False  # whether the target is among the attributes that samples are clustered by
    judged_on: Literal["test", "validate"] = "test"  # validate: to choose settings by
    image_size: int = 64  # pictures are brought to so many pixels in height and width
    cache: float = 8.0  # GiB on disk for decoded pictures; beyond it they are read anew each time
    width: int = 16  # of the CNN's first layer
    norm: Literal["none", "group"] = "none"  # in the CNN
    hidden: int = 64  # of the representation
    made_up: int = 20_000  # faces of the made-up table
    data_seed: int = 0  # which these are
    own: bool = False  # the data is a device's own: it need not say what is to test with

    provides: ClassVar[frozenset[str]] = frozenset({"features", "classes"})

    def __post_init__(self) -> None:
        for name, least in (("image_size", 5), ("width", 1), ("hidden", 1), ("made_up", 100), ("cache", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"task.{name} = {getattr(self, name)}: at least {least}")
        if not self.path and self.inputs == "pictures":
            raise ConfigError("task.inputs = 'pictures' needs task.path, CelebA's folder: the made-up table has none")
        if not self.path and self.target not in NAMES:
            raise unknown("attribute", self.target, NAMES, "task.target")

    @classmethod
    def example(cls) -> Attributes:
        """A task that is quick to try things with: the made-up table, but few of it."""
        return cls(made_up=1000, hidden=8)

    # ---- data

    def ready(self, progress: Any) -> None:
        """Do what takes long before the first round, saying how far it is: progress(what, done, total)."""
        self._read(lambda done, total: progress("reading pictures", done, total))

    def _read(self, progress: Any = None) -> tuple[celeba.Attributes, Decoded | None]:
        """The whole table, and its pictures where they are looked at: only faces that have one are in it."""
        if "_kept" not in self.__dict__:
            table = celeba.load(Path(self.path)) if self.path else made_up(self.made_up, self.data_seed)
            table.column(self.target)  # refuses a name that is not there
            pictures = None
            if self.inputs == "pictures" or (self.inputs == "auto" and table.folder is not None):
                table = celeba.with_pictures(table)
                folder, size = table.folder or Path(), (self.image_size, self.image_size)
                pictures = decoded(folder, [folder / name for name in table.files], size, self.cache * _GIB, progress)
                table = table.select(pictures.kept)
            self.__dict__["_kept"] = table, pictures
        found: tuple[celeba.Attributes, Decoded | None] = self.__dict__["_kept"]
        return found

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Which faces are dealt out, and which are judged on."""
        table = self._read()[0]
        if self.own:
            return np.arange(len(table)) if table.partition is None else table.part(_TRAIN), np.empty(0, np.int64)
        parts = {name: table.part(celeba.PARTS.index(name)) for name in (celeba.PARTS[_TRAIN], self.judged_on)}
        for name, rows in parts.items():
            if not len(rows):
                raise DataError(f"no face is in the part to {name}", self.path, remedy="mend the list of parts")
        pool, judged = parts.values()
        return pool, judged

    @cached_property
    def _answers(self) -> np.ndarray:
        return self._read()[0].column(self.target).astype(np.int64)

    @cached_property
    def _others(self) -> np.ndarray:
        """bool (N, A - 1): every attribute but the target."""
        table = self._read()[0]
        return np.delete(table.values, table.names.index(self.target), axis=1)

    @property
    def samples(self) -> int:
        return len(self._rows[0])

    @cached_property
    def labels(self) -> np.ndarray:
        return self._answers[self._rows[0]]

    @property
    def classes(self) -> tuple[str, str]:
        return f"not {self.target}", self.target

    @property
    def terms(self) -> tuple[str, ...]:
        """What the numbers of a face stand for: devices of one federation mean the same by them."""
        table, pictures = self._read()
        return self.classes if pictures is not None else (*self.classes, *table.names)

    @cached_property
    def categories(self) -> Categories:
        """The attributes as -1 and 1: what the partition `semantic` goes by."""
        pool = self._read()[0].select(self._rows[0])
        return categories(pool, drop=() if self.clusters_see_target else (self.target,))

    @property
    def skipped(self) -> list[dict[str, str]]:
        """Lines and pictures that were left out, and why."""
        table, pictures = self._read()
        lines = [
            {"file": str(e.file), "reason": str(e).removeprefix(f"{e.file}:").strip()} for e in table.problems.found
        ]
        broken = () if pictures is None else pictures.skipped
        return lines + [{"file": item.file, "reason": item.reason} for item in broken]

    @property
    def protocol(self) -> str:
        """What is seen and what an accuracy is of."""
        table, pictures = self._read()
        if pictures is not None:
            seen = f"from pictures of {self.image_size}x{self.image_size} pixels, by a small CNN"
        else:
            of = "a made-up table, about nobody" if not self.path else "the table"
            seen = f"without pictures: from the other {len(table.names) - 1} attributes of {of}, not the paper's task"
        among = "among" if self.clusters_see_target else "left out of"
        rows = f"{len(self._rows[1])} rows of the part to {self.judged_on}"
        return f"{self.target} {seen}; {rows}; the target is {among} what a semantic partition clusters"

    # ---- network

    def network(self) -> nn.Module:
        if self._read()[1] is not None:
            return small_cnn(2, 3, self.image_size, self.width, self.hidden, self.norm)
        if not self._others.shape[1]:
            raise ConfigError(f"there is no attribute beside {self.target!r} to tell it from; pictures are needed")
        return TableNet(self._others.shape[1], self.hidden)

    def views(self, net: nn.Module) -> dict[str, int]:
        return {self._view: int(net.feature_dim)}  # type: ignore[arg-type]

    @property
    def _view(self) -> str:
        return "attributes" if self._read()[1] is None else "image"

    # ---- learning

    def steps(
        self, net: nn.Module, client: Client, batch_size: int, memo: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[Batch]:
        order = self._rows[0][rng.permutation(client.train)]
        for start in range(0, len(order), batch_size):
            yield self._batch(net, order[start : start + batch_size])

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        features = net.features(batch.inputs)  # type: ignore[operator]
        return Output({self._view: features}, net.head(features))  # type: ignore[operator]

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        if output.logits is None or batch.labels is None:
            raise TypeError("classification needs logits and labels")
        return cross_entropy(output.logits, batch.labels)

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        return self._scan(net, self._rows[0][client.train])

    @torch.no_grad()
    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        """Accuracy; the mean of the accuracies on either answer; and what the more frequent one alone would reach."""
        rows = self._rows[1] if samples is None else self._rows[0][samples]
        right, total, loss = np.zeros(2), np.zeros(2), 0.0
        for batch in self._scan(net, rows):
            logits = self.forward(net, batch).logits
            if logits is None or batch.labels is None:
                raise TypeError("classification needs logits and labels")
            loss += float(cross_entropy(logits, batch.labels, reduction="sum"))
            total += torch.bincount(batch.labels, minlength=2).cpu().numpy()
            right += torch.bincount(batch.labels[logits.argmax(1) == batch.labels], minlength=2).cpu().numpy()
        count = max(total.sum(), 1)
        there = total > 0
        return {
            "accuracy": float(right.sum() / count),
            "balanced_accuracy": float((right[there] / total[there]).mean()) if there.any() else 0.0,
            "more_frequent_answer": float(total.max() / count),
            "loss": float(loss / count),
        }

    # ---- batches

    def _scan(self, net: nn.Module, rows: np.ndarray) -> Iterator[Batch]:
        for start in range(0, len(rows), _SCAN):
            yield self._batch(net, rows[start : start + _SCAN])

    def _batch(self, net: nn.Module, rows: np.ndarray) -> Batch:
        where = next(net.parameters()).device
        labels = torch.from_numpy(self._answers[rows]).to(where)
        pictures = self._read()[1]
        if pictures is None:
            return Batch(torch.from_numpy(self._others[rows]).to(where).float().mul_(2).sub_(1), labels)
        # N,H,W,C in memory is channels_last as it stands
        pixels = torch.from_numpy(pictures[rows]).to(where).permute(0, 3, 1, 2).float()
        return Batch(pixels.sub_(127.5).div_(127.5), labels)
