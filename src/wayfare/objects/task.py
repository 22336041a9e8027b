"""The task `objects`: what is in the photo? Image classification with cross-entropy, over any labelled pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from wayfare.components import part
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Batch, Client, Output, Progress, Task
from wayfare.core.values import LOSS, SHARE, Kind
from wayfare.nets.frozen import Head
from wayfare.objects.augment import PictureAugmentation, UnchangedPictures
from wayfare.objects.data import ObjectData
from wayfare.objects.loaded import POOL, TEST, LoadedObjects
from wayfare.objects.models import ObjectModel
from wayfare.objects.tally import count_right, count_right_of_heads

_DATA = {
    "digits": "wayfare.objects.data.digits:Digits",
    "cifar10": "wayfare.objects.data.cifar:Cifar10",
    "folder": "wayfare.objects.data.folder:ClassFolders",
    "town": "wayfare.objects.data.sights:TownSights",
}
_MODELS = {
    "cnn": "wayfare.objects.models:CnnClassifier",
    "vgg_small": "wayfare.objects.models:VggSmallClassifier",
    "vgg16": "wayfare.objects.models:Vgg16Classifier",
    "vgg16_pooled": "wayfare.objects.models:Vgg16PooledClassifier",
    "resnet18": "wayfare.objects.models:ResNet18Classifier",
    "efficientnet_lite0_head": "wayfare.objects.models:FrozenHeadClassifier",
}
_AUGMENTATIONS = {
    "none": "wayfare.objects.augment:UnchangedPictures",
    "tour": "wayfare.objects.augment:TourAugmentation",
}


@dataclass(frozen=True)
class Objects(Task):
    """Image classification."""

    data: ObjectData = part("data", "digits", _DATA)
    model: ObjectModel = part("model", "cnn", _MODELS)
    augment: PictureAugmentation = part("augmentation", "none", _AUGMENTATIONS)  # how pictures are changed in training

    by_sample: ClassVar[bool] = True
    finished: ClassVar[str] = "wayfare.objects.finished:ObjectsRun"
    sources: ClassVar[frozenset[str]] = frozenset({"labels", "files"})
    moved: ClassVar[Mapping[str, str]] = {
        "path": "data.path",
        "names": "data.names",
        "own": "data.own",
        "image_size": "data.image_size of a folder, or model.image_size of efficientnet_lite0_head,",
        "architecture": "model.name",
        "width": "model.width",
        "hidden": "model.hidden",
        "norm": "model.norm",
        "weights": "model.weights",
        "normalise": "model.normalise",
    }

    @property
    def provides(self) -> frozenset[str]:
        return frozenset({"features", "classes", "tally", *(("heads",) if self.model.frozen else ())})

    def __post_init__(self) -> None:
        if self.model.frozen and not isinstance(self.augment, UnchangedPictures):
            raise ConfigError(
                "task.augment does not go with a frozen network: features of the pictures are computed once, and a "
                "changed picture has other features. Use 'none', or a model such as vgg_small or cnn"
            )

    # ---- data

    @cached_property
    def loaded(self) -> LoadedObjects:
        """The pictures, read when they are first needed."""
        return LoadedObjects(self.data, self.model)

    def read(self, progress: Progress) -> None:
        self.loaded.read(progress)

    def prepare(self, progress: Progress) -> None:
        self.loaded.prepare(progress)

    def on_folder(self, path: str) -> Self | None:
        data = self.data.on_folder(path)
        return None if data is None else replace(self, data=data)

    def missing_files(self) -> list[str]:
        return self.model.missing_files()

    def fixed(self) -> Self:
        return replace(self, data=self.data.fixed(self.classes))

    @property
    def samples(self) -> int:
        return len(self.loaded.parts[POOL])

    @property
    def labels(self) -> np.ndarray:
        return self.loaded.parts[POOL].labels

    def source(self, name: str) -> Any:
        return self.data.files(self.loaded.parts[POOL]) if name == "files" else self.labels

    @property
    def classes(self) -> tuple[str, ...]:
        return self.loaded.parts[POOL].classes

    @property
    def skipped(self) -> list[dict[str, str]]:
        """Files that were left out, and why."""
        return [{"file": s.file, "reason": s.reason} for pictures in self.loaded.parts for s in pictures.skipped]

    # ---- learning

    def network(self) -> nn.Module:
        height, width, channels = self.loaded.parts[POOL].images.shape[1:]
        return self.model.network(len(self.classes), (height, width, channels))

    def views(self, net: nn.Module) -> dict[str, int]:
        return {"image": int(net.feature_dim)}  # type: ignore[arg-type]

    def steps(
        self, net: nn.Module, client: Client, batch_size: int, memo: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[Batch]:
        order = rng.permutation(client.train)
        # BatchNorm has no variance over a single sample
        spare = 1 if len(order) > 1 and any(isinstance(m, nn.BatchNorm2d) for m in net.modules()) else 0
        for start in range(0, len(order) - spare, batch_size):
            batch = self.loaded.batch(POOL, order[start : start + batch_size], _device_of(net))
            batch.inputs = self.augment(batch.inputs, rng)
            yield batch

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        features = net.features(batch.inputs)  # type: ignore[operator]
        return Output({"image": features}, net.head(features))  # type: ignore[operator]

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        if output.logits is None or batch.labels is None:
            raise TypeError("classification needs logits and labels")
        return cross_entropy(output.logits, batch.labels)

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        return self.loaded.scan(POOL, client.train, _device_of(net))

    # ---- evaluation

    @property
    def metrics(self) -> Mapping[str, Kind]:
        return {"accuracy": SHARE, "loss": LOSS}

    @torch.no_grad()
    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        right = total = 0
        loss = 0.0
        for logits, labels in self._answers(net, samples):
            right += int((logits.argmax(1) == labels).sum())
            loss += float(cross_entropy(logits, labels, reduction="sum"))
            total += len(labels)
        return {"accuracy": right / max(total, 1), "loss": loss / max(total, 1)}

    @property
    def protocol(self) -> str:
        labels = self.loaded.parts[TEST].labels
        if not len(labels):
            return ""
        often, chance = self._commonest(labels)
        always = f"always answering {often!r} would be right for {100 * chance:.1f} %"
        return f"test set: {len(labels):,} pictures of {len(np.unique(labels))} classes; {always}"

    def _commonest(self, labels: np.ndarray) -> tuple[str, float]:
        """The class of most pictures, and the share of them that it is right for."""
        counts = np.bincount(labels, minlength=len(self.classes))
        return self.classes[int(counts.argmax())], float(counts.max() / len(labels))

    def doubt(self, now: dict[str, float], start: dict[str, float]) -> str:
        reached, labels = now.get("test/accuracy"), self.loaded.parts[TEST].labels
        if reached is None or not len(labels):
            return ""
        often, chance = self._commonest(labels)
        if reached > chance + 2 * math.sqrt(chance * (1 - chance) / len(labels)):
            return ""
        return (
            f"no better than chance: {100 * reached:.1f} % of the test pictures, and always answering {often!r} would "
            f"be right for {100 * chance:.1f} %. Train longer, or with another training.lr or model"
        )

    @torch.no_grad()
    def tally(self, net: nn.Module, samples: np.ndarray | None, limit: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Right and all answers per class, int64, on these samples of the pool, or on the test set.

        With `limit` > 0 on so many of them, evenly spread, always the same.
        """
        if self.model.frozen:  # the same product as of many heads, so that the counts are the same
            head = net.head
            right, total = self.tally_many(head.weight[None], head.bias[None], samples, limit)  # type: ignore[union-attr, index]
            return right[0], total
        return count_right(self._answers(net, samples, limit), len(self.classes))

    @torch.no_grad()
    def tally_many(
        self, heads: Tensor, biases: Tensor, samples: np.ndarray | None = None, limit: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """`tally` of many heads (k, classes, 1280), biases (k, classes): right answers (k, classes), all (classes,).

        A head's counts do not depend on those it is evaluated together with.
        """
        count, shape = len(heads), (len(self.classes), Head.feature_dim)
        if not self.model.frozen:
            raise ConfigError("tally_many() needs linear heads on frozen features; use tally() for this model")
        if heads.shape != (count, *shape) or biases.shape != (count, shape[0]):
            raise ConfigError(
                f"heads {tuple(heads.shape)} and biases {tuple(biases.shape)}: expected (k, {shape[0]}, {shape[1]}) "
                f"and (k, {shape[0]}), with one k"
            )
        return count_right_of_heads(heads, biases, map(_pair, self.loaded.evaluated(samples, limit, heads.device)))

    def _answers(self, net: nn.Module, samples: np.ndarray | None, limit: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits and labels, batch by batch."""
        for batch in self.loaded.evaluated(samples, limit, _device_of(net)):
            logits = self.forward(net, batch).logits
            if logits is None or batch.labels is None:
                raise TypeError("classification needs logits and labels")
            yield logits, batch.labels


def _device_of(net: nn.Module) -> torch.device:
    return next(net.parameters()).device


def _pair(batch: Batch) -> tuple[Tensor, Tensor]:
    if batch.labels is None:
        raise TypeError("classification needs labels")
    return batch.inputs, batch.labels
