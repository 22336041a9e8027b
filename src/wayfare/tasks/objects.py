"""Objects: what is in the photo? Image classification, over any labelled pictures."""

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
from wayfare.data import cifar, digits, folder
from wayfare.data.cache import cache_dir
from wayfare.data.pictures import Pictures
from wayfare.data.weights import load_weights
from wayfare.errors import ConfigError
from wayfare.tasks.nets.cnn import small_cnn
from wayfare.tasks.nets.pretrained import load_pretrained
from wayfare.tasks.nets.resnet import ResNet18
from wayfare.tasks.nets.vgg import VGG16, VGG16Pooled

NORMALISATION = {  # channel means and deviations of pixels in 0..1
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
_SCAN = 250  # samples per batch where no gradient is needed


@dataclass(frozen=True)
class Objects:
    """Image classification with a small CNN, VGG16 or ResNet18."""

    data: Literal["digits", "cifar10", "folder"] = "digits"
    path: str = ""  # where the data is; cifar10 without one is looked for where `wayfare data get cifar10` puts it
    image_size: int = 32  # pictures of a folder are brought to this size
    architecture: Literal["cnn", "vgg16", "vgg16_pooled", "resnet18"] = "cnn"
    width: int = 16  # of the small CNN's first layer
    hidden: int = 64  # of the small CNN's representation
    norm: Literal["none", "group", "batch"] = "none"  # in the small CNN
    weights: str = ""  # a safetensors file with pretrained weights, torchvision's names
    normalise: Literal["half", "cifar10", "imagenet"] = "half"

    provides: ClassVar[frozenset[str]] = frozenset({"features", "classes"})

    # ---- data

    @cached_property
    def _parts(self) -> tuple[Pictures, Pictures]:
        if self.data == "digits":
            return digits.load()
        if self.data == "cifar10":
            return cifar.load(Path(self.path) if self.path else cache_dir() / "cifar10")
        if not self.path:
            raise ConfigError("task.data = 'folder' needs task.path, the folder that holds a folder per class")
        return folder.load(Path(self.path), (self.image_size, self.image_size))

    @property
    def samples(self) -> int:
        return len(self._parts[0])

    @property
    def labels(self) -> np.ndarray:
        return self._parts[0].labels

    @property
    def classes(self) -> tuple[str, ...]:
        return self._parts[0].classes

    @property
    def skipped(self) -> list[dict[str, str]]:
        """Files that were left out, and why."""
        return [{"file": s.file, "reason": s.reason} for part in self._parts for s in part.skipped]

    # ---- network

    def network(self) -> nn.Module:
        height, width, channels = self._parts[0].images.shape[1:]
        net: nn.Module
        if self.architecture == "cnn":
            net = small_cnn(len(self.classes), channels, (height, width), self.width, self.hidden, self.norm)
        elif self.architecture == "vgg16":
            net = VGG16(len(self.classes), channels)
        elif self.architecture == "vgg16_pooled":
            net = VGG16Pooled(len(self.classes), channels)
        else:
            net = ResNet18(len(self.classes), channels, stem="cifar" if min(height, width) <= 64 else "imagenet")
        if self.weights:
            load_pretrained(net, load_weights(Path(self.weights)))
        return net

    def views(self, net: nn.Module) -> dict[str, int]:
        return {"image": int(net.feature_dim)}  # type: ignore[arg-type]

    # ---- learning

    def steps(
        self, net: nn.Module, client: Client, batch_size: int, memo: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[Batch]:
        order = rng.permutation(client.train)
        # BatchNorm has no variance over a single sample
        spare = 1 if len(order) > 1 and any(isinstance(m, nn.BatchNorm2d) for m in net.modules()) else 0
        for start in range(0, len(order) - spare, batch_size):
            yield self._batch(net, self._parts[0], order[start : start + batch_size])

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        features = net.features(batch.inputs)  # type: ignore[operator]
        return Output({"image": features}, net.head(features))  # type: ignore[operator]

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        if output.logits is None or batch.labels is None:
            raise TypeError("classification needs logits and labels")
        return cross_entropy(output.logits, batch.labels)

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        return self._scan(net, self._parts[0], client.train)

    @torch.no_grad()
    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        part = self._parts[1] if samples is None else self._parts[0]
        right = total = 0
        loss = 0.0
        for batch in self._scan(net, part, np.arange(len(part)) if samples is None else samples):
            logits, labels = self.forward(net, batch).logits, batch.labels
            if logits is None or labels is None:
                raise TypeError("classification needs logits and labels")
            right += int((logits.argmax(1) == labels).sum())
            loss += float(cross_entropy(logits, labels, reduction="sum"))
            total += len(labels)
        return {"accuracy": right / max(total, 1), "loss": loss / max(total, 1)}

    def _scan(self, net: nn.Module, part: Pictures, samples: np.ndarray) -> Iterator[Batch]:
        for start in range(0, len(samples), _SCAN):
            yield self._batch(net, part, samples[start : start + _SCAN])

    def _batch(self, net: nn.Module, part: Pictures, samples: np.ndarray) -> Batch:
        where = next(net.parameters()).device
        means, deviations = self._scale
        # N,H,W,C in memory is channels_last as it stands; no copy to turn it round
        pictures = torch.from_numpy(part.images[samples]).to(where).permute(0, 3, 1, 2).float()
        pictures = pictures.sub_(means.to(where)).mul_(deviations.to(where))
        return Batch(pictures, torch.from_numpy(part.labels[samples]).to(where))

    @cached_property
    def _scale(self) -> tuple[Tensor, Tensor]:
        means, deviations = NORMALISATION[self.normalise]
        channels = self._parts[0].images.shape[3]
        shape = (1, channels, 1, 1)
        return (
            255 * torch.tensor(means[:channels]).view(shape),
            1 / (255 * torch.tensor(deviations[:channels]).view(shape)),
        )
