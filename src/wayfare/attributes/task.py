"""The task `attributes`: has the face this attribute, yes or no? CelebA's Smiling, by default.

The training part of the data's own list is divided among clients; its test part, or its validation part, is evaluated
on. The partition `semantic` clusters the attributes as -1 and 1. Whether the target is among them makes clusters that
are nearly pure in it, or not; the paper does not say, so `clusters_see_target` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from wayfare.attributes.categories import attribute_categories
from wayfare.attributes.data import AttributeData
from wayfare.attributes.data.synthetic import SyntheticFaces
from wayfare.attributes.loaded import LoadedFaces
from wayfare.attributes.models import AttributeModel, TablePerceptron
from wayfare.components import part
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Batch, Client, Output, Progress, Task
from wayfare.core.values import LOSS, SHARE, Kind
from wayfare.partition.semantics import Categories

_DATA = {
    "celeba": "wayfare.attributes.data.celeba:CelebA",
    "synthetic": "wayfare.attributes.data.synthetic:SyntheticFaces",
}
_CHANCE = 0.52  # balanced accuracy up to which nothing has been learnt
_MODELS = {"cnn": "wayfare.attributes.models:FaceCnn", "table": "wayfare.attributes.models:TablePerceptron"}


@dataclass(frozen=True)
class Attributes(Task):
    """One attribute of faces, yes or no."""

    data: AttributeData = part("data", "synthetic", _DATA)
    model: AttributeModel = part("model", "table", _MODELS)
    target: str = "Smiling"  # the attribute to learn
    clusters_see_target: bool = False  # whether the target is among the attributes that samples are clustered by
    judged_on: Literal["test", "validate"] = "test"  # validate: for choosing settings

    by_sample: ClassVar[bool] = True
    sources: ClassVar[frozenset[str]] = frozenset({"labels", "categories"})
    provides: ClassVar[frozenset[str]] = frozenset({"features", "classes"})
    finished: ClassVar[str] = "wayfare.attributes.finished:AttributesRun"
    moved: ClassVar[Mapping[str, str]] = {
        "path": "data.path of celeba",
        "cache": "data.cache of celeba",
        "own": "data.own of celeba",
        "made_up": "data.faces of synthetic",
        "data_seed": "data.seed of synthetic",
        "inputs": "model.name ('cnn' sees pictures, 'table' the other attributes)",
        "image_size": "model.image_size of cnn",
        "width": "model.width of cnn",
        "norm": "model.norm of cnn",
        "hidden": "model.hidden",
    }

    def __post_init__(self) -> None:
        if self.model.sees_pictures and not self.data.has_pictures:
            raise ConfigError(f"this model sees pictures, and the data is {self.data.about}: use model.name = 'table'")

    @classmethod
    def example(cls) -> Attributes:
        """A task that is quick to try things with: few faces of the made-up table."""
        return cls(SyntheticFaces(faces=1000), TablePerceptron(hidden=8))

    # ---- data

    @cached_property
    def loaded(self) -> LoadedFaces:
        """The faces, read when they are first needed."""
        return LoadedFaces(self.data, self.model, self.target, self.judged_on)

    def prepare(self, progress: Progress) -> None:
        self.loaded.prepare(progress)

    def on_folder(self, path: str) -> Self | None:
        data = self.data.on_folder(path)
        return None if data is None else replace(self, data=data)

    def source(self, name: str) -> Any:
        return self.categories if name == "categories" else self.labels

    @property
    def samples(self) -> int:
        return len(self.loaded.pool)

    @cached_property
    def labels(self) -> np.ndarray:
        return np.asarray(self.loaded.answers[self.loaded.pool])

    @property
    def classes(self) -> tuple[str, str]:
        return f"not {self.target}", self.target

    @property
    def terms(self) -> tuple[str, ...]:
        """What the numbers of a face stand for: devices of one federation mean the same by them."""
        return self.classes if self.model.sees_pictures else (*self.classes, *self.loaded.table.names)

    @cached_property
    def categories(self) -> Categories:
        """The attributes as -1 and 1: what the partition `semantic` goes by."""
        pool = self.loaded.table.select(self.loaded.pool)
        return attribute_categories(pool, drop=() if self.clusters_see_target else (self.target,))

    @property
    def skipped(self) -> list[dict[str, str]]:
        """Lines and pictures that were left out, and why."""
        problems = self.loaded.table.problems.found
        lines = [{"file": str(e.file), "reason": str(e).removeprefix(f"{e.file}:").strip()} for e in problems]
        return lines + self.loaded.inputs.skipped

    @property
    def protocol(self) -> str:
        """What is seen and what an accuracy is of."""
        seen = self.model.describe(len(self.loaded.table.names), self.data.about)
        among = "among" if self.clusters_see_target else "left out of"
        rows = f"{len(self.loaded.evaluated)} rows of the part to {self.judged_on}"
        return f"{self.target} {seen}; {rows}; the target is {among} what a semantic partition clusters"

    # ---- learning

    def network(self) -> nn.Module:
        return self.model.network(len(self.loaded.table.names))

    def views(self, net: nn.Module) -> dict[str, int]:
        return {self.model.view: int(net.feature_dim)}  # type: ignore[arg-type]

    def steps(
        self, net: nn.Module, client: Client, batch_size: int, memo: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[Batch]:
        order = self.loaded.pool[rng.permutation(client.train)]
        for start in range(0, len(order), batch_size):
            yield self.loaded.batch(order[start : start + batch_size], _device_of(net))

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        features = net.features(batch.inputs)  # type: ignore[operator]
        return Output({self.model.view: features}, net.head(features))  # type: ignore[operator]

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        if output.logits is None or batch.labels is None:
            raise TypeError("classification needs logits and labels")
        return cross_entropy(output.logits, batch.labels)

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        return self.loaded.scan(self.loaded.pool[client.train], _device_of(net))

    # ---- evaluation

    @property
    def metrics(self) -> Mapping[str, Kind]:
        shares = ("accuracy", "balanced_accuracy", "more_frequent_answer")
        return {**dict.fromkeys(shares, SHARE), "loss": LOSS}

    def doubt(self, now: dict[str, float], start: dict[str, float]) -> str:
        reached = now.get("test/balanced_accuracy")
        if reached is None or reached > _CHANCE:
            return ""
        return f"no better than chance: balanced accuracy {reached:.3f}, and guessing gives 0.5. Train longer"

    @torch.no_grad()
    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        """Accuracy; the mean of the accuracies on either answer; and what the more frequent one alone would reach."""
        rows = self.loaded.evaluated if samples is None else self.loaded.pool[samples]
        right, total, loss = np.zeros(2), np.zeros(2), 0.0
        for batch in self.loaded.scan(rows, _device_of(net)):
            logits = self.forward(net, batch).logits
            if logits is None or batch.labels is None:
                raise TypeError("classification needs logits and labels")
            loss += float(cross_entropy(logits, batch.labels, reduction="sum"))
            total += torch.bincount(batch.labels, minlength=2).cpu().numpy()
            right += torch.bincount(batch.labels[logits.argmax(1) == batch.labels], minlength=2).cpu().numpy()
        count = max(total.sum(), 1)
        present = total > 0
        return {
            "accuracy": float(right.sum() / count),
            "balanced_accuracy": float((right[present] / total[present]).mean()) if present.any() else 0.0,
            "more_frequent_answer": float(total.max() / count),
            "loss": float(loss / count),
        }


def _device_of(net: nn.Module) -> torch.device:
    return next(net.parameters()).device
