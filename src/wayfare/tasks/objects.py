"""Objects: what is in the photo? Image classification, over any labelled pictures.

    architecture               what learns and travels (ten classes)                      parameters
    cnn                        the small CNN, `width` and `hidden` scale it                   89,834 (colour, 32x32)
    vgg_small                  VGG's blocks with few channels, `width` scales it             109,658
    vgg16_pooled               FedTour's: VGG16's convolutions and one linear layer       14,719,818
    vgg16                      with the three wide layers, too                           134,301,514
    resnet18                   torchvision's; a smaller stem for small pictures           11,173,962 (32x32)
    efficientnet_lite0_head    a linear layer on features of a network from ImageNet          12,810

The last is for thousands of devices: the frozen network is the same on all of them, what it makes of the pictures is
computed once and kept in the cache, and the batches are these features.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from wayfare.core.protocols import Batch, Client, Output
from wayfare.data import cifar, digits
from wayfare.data.cache import cache_dir
from wayfare.data.pictures import Pictures
from wayfare.data.weights import load_weights
from wayfare.errors import ConfigError
from wayfare.tasks.nets.cnn import small_cnn
from wayfare.tasks.nets.frozen import SMALLEST, Head, Scaled, Trunk
from wayfare.tasks.nets.pretrained import load_pretrained
from wayfare.tasks.nets.resnet import ResNet18
from wayfare.tasks.nets.vgg import VGG16, VGG16Pooled, VGGSmall
from wayfare.tasks.recognition.augment import Augmentation, tour
from wayfare.tasks.recognition.features import features_of
from wayfare.tasks.recognition.sights import made, sights
from wayfare.tasks.recognition.tally import count_right, count_right_of_heads, spread

NORMALISATION = {  # channel means and deviations of pixels in 0..1
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
_SCAN, _SCAN_FEATURES = 250, 1000  # samples per batch where no gradient is needed
_PREPARED = 2**26  # bytes of samples that stay ready to be judged by
_POOL, _TEST = 0, 1

Architecture = Literal["cnn", "vgg_small", "efficientnet_lite0_head", "vgg16", "vgg16_pooled", "resnet18"]


@dataclass(frozen=True)
class Objects:
    """Image classification; see the module."""

    data: Literal["digits", "cifar10", "folder", "town"] = "digits"
    path: str = ""  # where the data is; without one cifar10 is where `wayfare data get cifar10` puts it, a town is made
    image_size: int = 0  # for a folder's pictures, and for all before the frozen network; 0: 32, or 64 for the latter
    architecture: Architecture = "cnn"
    width: int = 16  # of the first layer of the small CNN or VGG
    hidden: int = 64  # of the small CNN's representation
    norm: Literal["none", "group", "batch"] = "none"  # in the small CNN or VGG
    weights: str = ""  # a safetensors file with pretrained weights, torchvision's names; "": ImageNet's where frozen
    normalise: Literal["half", "cifar10", "imagenet"] = "half"  # the frozen network has its own
    augment: Augmentation = "none"  # tour: pictures are turned, magnified, moved and mirrored in training
    names: tuple[str, ...] = ()  # the classes, where the folder may have some of them only; (): those it has
    own: bool = False  # the folder is a device's own: nothing is held back to test with

    provides: ClassVar[frozenset[str]] = frozenset({"features", "classes"})

    def __post_init__(self) -> None:
        least = SMALLEST if self.frozen else 1
        if self.image_size and self.image_size < least:
            raise ConfigError(f"task.image_size = {self.image_size}: at least {least} pixels, or 0 for the usual size")
        if self.frozen and self.augment != "none":
            raise ConfigError(
                f"task.augment = {self.augment!r} does not go with {self.architecture}: features of the pictures are "
                "computed once, and those of a changed picture are others. Use 'none', or vgg_small or cnn"
            )

    # ---- data

    @cached_property
    def _parts(self) -> tuple[Pictures, Pictures]:
        if self.data == "digits":
            return digits.load()
        if self.data == "cifar10":
            return cifar.load(Path(self.path) if self.path else cache_dir() / "cifar10")
        if self.data == "town":
            return sights(self.path)
        if not self.path:
            raise ConfigError("task.data = 'folder' needs task.path, the folder that holds a folder per class")
        from wayfare.data import folder  # with Pillow, which no other data needs

        return folder.load(Path(self.path), (self._side, self._side), classes=self.names, own=self.own)

    def settled(self) -> Objects:
        """The same for folders that do not have all classes."""
        return replace(self, names=self.classes) if self.data == "folder" else self

    @property
    def frozen(self) -> bool:
        """Whether only a head is trained, on features of a network that stays as it is."""
        return self.architecture == "efficientnet_lite0_head"

    @property
    def _side(self) -> int:
        return self.image_size or (64 if self.frozen else 32)

    def ready(self, progress: Any) -> None:
        """Do what takes long before the first round, saying how far it is: progress(what, done, total)."""
        if self.data == "town" and not self.path:
            made(progress)
        if self.frozen:
            self._features(lambda done, total: progress("features of the pictures", done, total))

    def _trunk(self) -> Trunk:
        return Trunk(self._side, load_weights(Path(self.weights)) if self.weights else None)

    def _features(self, progress: Any = lambda *_: None) -> tuple[np.ndarray, np.ndarray]:
        """What the frozen network makes of pool and test pictures."""
        if "_kept_features" not in self.__dict__:
            trunk, (pool, test) = self._trunk(), self._parts
            whole = len(pool) + len(test)
            first = features_of(trunk, pool.images, lambda done, _: progress(done, whole))
            second = features_of(trunk, test.images, lambda done, _: progress(len(pool) + done, whole))
            self.__dict__["_kept_features"] = first, second
        found: tuple[np.ndarray, np.ndarray] = self.__dict__["_kept_features"]
        return found

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
        if self.frozen:
            return Head(len(self.classes))
        height, width, channels = self._parts[_POOL].images.shape[1:]
        net: nn.Module
        if self.architecture == "cnn":
            net = small_cnn(len(self.classes), channels, (height, width), self.width, self.hidden, self.norm)
        elif self.architecture == "vgg_small":
            net = VGGSmall(len(self.classes), channels, self.width, self.norm)
        elif self.architecture == "vgg16":
            net = VGG16(len(self.classes), channels)
        elif self.architecture == "vgg16_pooled":
            net = VGG16Pooled(len(self.classes), channels)
        else:
            net = ResNet18(len(self.classes), channels, stem="cifar" if min(height, width) <= 64 else "imagenet")
        if self.weights:
            load_pretrained(net, load_weights(Path(self.weights)))
        return net

    def whole(self, net: nn.Module) -> nn.Module:
        """What recognises new photographs: float32 (N, C, H, W) in 0..1 of any size, to logits.

        A trained network, copied, behind all that pictures go through before it: the frozen network, or the scaling.
        """
        before: nn.Module
        if self.frozen:
            before = self._trunk()
        else:
            height, width = self._parts[_POOL].images.shape[1:3]
            means, factors = self._scale
            before = Scaled((height, width), means / 255, 1 / (255 * factors))
        where = next(net.parameters()).device
        return nn.Sequential(before.to(where), copy.deepcopy(net)).eval()

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
            batch = self._batch(_where(net), _POOL, order[start : start + batch_size])
            if self.augment == "tour":
                batch.inputs = tour(batch.inputs, rng)
            yield batch

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        features = net.features(batch.inputs)  # type: ignore[operator]
        return Output({"image": features}, net.head(features))  # type: ignore[operator]

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        if output.logits is None or batch.labels is None:
            raise TypeError("classification needs logits and labels")
        return cross_entropy(output.logits, batch.labels)

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        return self._scan(_where(net), _POOL, client.train)

    # ---- judging

    @torch.no_grad()
    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        right = total = 0
        loss = 0.0
        for logits, labels in self._answers(net, samples):
            right += int((logits.argmax(1) == labels).sum())
            loss += float(cross_entropy(logits, labels, reduction="sum"))
            total += len(labels)
        return {"accuracy": right / max(total, 1), "loss": loss / max(total, 1)}

    @torch.no_grad()
    def tally(self, net: nn.Module, samples: np.ndarray | None, limit: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Right and all answers per class, int64, on these samples of the pool, or on the test set.

        With `limit` > 0 on so many of them, evenly spread, always the same.
        """
        return count_right(self._answers(net, samples, limit), len(self.classes))

    @torch.no_grad()
    def tally_many(
        self, heads: Tensor, biases: Tensor, samples: np.ndarray | None = None, limit: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """`tally` of many heads (k, classes, 1280), biases (k, classes): right answers (k, classes), all (classes,).

        A head's counts do not depend on those it is judged together with. `tally` rounds its products otherwise: where
        two classes are equal but for that, the two may differ by a picture.
        """
        count, shape = len(heads), (len(self.classes), Head.feature_dim)
        if not self.frozen:
            raise ConfigError(f"tally_many() is for efficientnet_lite0_head; use tally() for {self.architecture}")
        if heads.shape != (count, *shape) or biases.shape != (count, shape[0]):
            raise ConfigError(
                f"heads {tuple(heads.shape)} and biases {tuple(biases.shape)}: expected (k, {shape[0]}, {shape[1]}) "
                f"and (k, {shape[0]}), with one k"
            )
        return count_right_of_heads(heads, biases, map(_pair, self._shown(heads.device, samples, limit)))

    def _answers(self, net: nn.Module, samples: np.ndarray | None, limit: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits and labels, batch by batch."""
        for batch in self._shown(_where(net), samples, limit):
            logits = self.forward(net, batch).logits
            if logits is None or batch.labels is None:
                raise TypeError("classification needs logits and labels")
            yield logits, batch.labels

    def _shown(self, where: torch.device, samples: np.ndarray | None, limit: int) -> Iterable[Batch]:
        """What networks are judged by. Few samples stay prepared: the same ones judge thousands of models."""
        part = _TEST if samples is None else _POOL
        if samples is None:
            samples = np.arange(len(self._parts[_TEST]))
        if limit < 0:
            raise ConfigError(f"limit = {limit}: a number of samples, or 0 for all")
        samples = samples[spread(len(samples), limit)]
        values = Head.feature_dim if self.frozen else self._parts[part].images[0].size
        if 4 * len(samples) * values > _PREPARED:
            return self._scan(where, part, samples)
        prepared: dict[int, tuple[tuple[torch.device, bytes], list[Batch]]] = self.__dict__.setdefault("_prepared", {})
        key = where, samples.tobytes()
        if part not in prepared or prepared[part][0] != key:
            prepared[part] = key, list(self._scan(where, part, samples))
        return prepared[part][1]

    # ---- batches

    def _scan(self, where: torch.device, part: int, samples: np.ndarray) -> Iterator[Batch]:
        size = _SCAN_FEATURES if self.frozen else _SCAN
        for start in range(0, len(samples), size):
            yield self._batch(where, part, samples[start : start + size])

    def _batch(self, where: torch.device, part: int, samples: np.ndarray) -> Batch:
        labels = torch.from_numpy(self._parts[part].labels[samples]).to(where)
        if self.frozen:
            return Batch(torch.from_numpy(self._features()[part][samples]).to(where), labels)
        means, factors = self._scale
        # N,H,W,C in memory is channels_last as it stands; no copy to turn it round
        pictures = torch.from_numpy(self._parts[part].images[samples]).to(where).permute(0, 3, 1, 2).float()
        return Batch(pictures.sub_(means.to(where)).mul_(factors.to(where)), labels)

    @cached_property
    def _scale(self) -> tuple[Tensor, Tensor]:
        means, deviations = NORMALISATION[self.normalise]
        channels = self._parts[0].images.shape[3]
        shape = (1, channels, 1, 1)
        return (
            255 * torch.tensor(means[:channels]).view(shape),
            1 / (255 * torch.tensor(deviations[:channels]).view(shape)),
        )


def _where(net: nn.Module) -> torch.device:
    return next(net.parameters()).device


def _pair(batch: Batch) -> tuple[Tensor, Tensor]:
    if batch.labels is None:
        raise TypeError("classification needs labels")
    return batch.inputs, batch.labels
