"""The network that turns a photo into a place descriptor: a backbone, whose last stages are trained, and pooling.

A descriptor's input is float32 (N, 3, H, W) in 0..1, of any size from 32x32 up; the scaling that its network is used to
is part of it.

`forward(x)` is `finish(head(trunk(x)))`. The trunk is what is frozen, and really so: no gradients, and its BatchNorm
keeps to the stored statistics in training too. So the trunk's maps of a photo never change and may be kept. At 96x128
that is 9 KB per photo for EfficientNet-Lite0, with which training is four times as fast, and 96 KB for the paper's
networks.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from wayfare.core.bundle import digest
from wayfare.nets.pooling import Aggregation, Vlad
from wayfare.places.backbones import Stages
from wayfare.places.whitening import SettledWhitening, Whitening

Statistics = Literal["batch", "stored"]


class Descriptor(nn.Module):
    """See the module; `PlaceModel.network` makes it."""

    mean: Tensor
    deviation: Tensor
    age: Tensor  # steps it has been trained for, where a warm-up counts them

    def __init__(
        self, backbone: Stages, pool: Aggregation, train: str, statistics: Statistics, whiten: float = 0.0
    ) -> None:
        super().__init__()
        self.feature_dim = pool.width
        self.whitening: Whitening | SettledWhitening | None = Whitening(pool.width, whiten) if whiten else None
        self._class_token = backbone.class_token
        self.backbone, self.pool, self._statistics = backbone.net, pool, statistics
        names = list(backbone.stages)
        first = 0 if train == "all" else len(names) if train == "head" else names.index(train)
        # Tuples, so that layers are not registered, and named, a second time.
        self._frozen = tuple(layer for name in names[:first] for layer in backbone.stages[name])
        self._trained = tuple(layer for name in names[first:] for layer in backbone.stages[name])
        for layer in self._frozen:
            layer.requires_grad_(False)
        for name, values in zip(("mean", "deviation"), backbone.scale):
            self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1), persistent=False)
        # tells apart trunks whose maps differ; "" where nothing is frozen
        frozen = {f"{i}.{name}": t for i, layer in enumerate(self._frozen) for name, t in layer.state_dict().items()}
        self.trunk_key = f"{digest(frozen)} {backbone.scale}" if first else ""
        self.train()

    def train(self, mode: bool = True) -> Descriptor:
        """As in every network, but BatchNorm of what is frozen stays as in evaluation; with it all, where asked."""
        super().train(mode)
        for layer in self._frozen:
            layer.eval()
        if self._statistics == "stored":
            for layer in self.modules():
                if isinstance(layer, nn.BatchNorm2d):
                    layer.eval()
        return self

    @torch.no_grad()
    def trunk(self, x: Tensor) -> Tensor:
        """Pictures (N, 3, H, W) in 0..1 through the frozen stages: maps that are always the same, and may be kept."""
        return _through(self._frozen, (x - self.mean).div_(self.deviation))

    def head(self, maps: Tensor) -> Tensor:
        """The trunk's maps through the trained stages and the pooling: what is learnt from, (N, feature_dim)."""
        vectors: Tensor = self.pool(*self._pooled(maps))
        return vectors

    def _pooled(self, maps: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the pooling gets: the last maps, and the class token where there is one."""
        maps = _through(self._trained, maps)
        if self._class_token:  # the first row of a token map, see nets/dinov2.py
            return maps[:, :, 1:], maps[:, :, 0, 0]
        return maps, None

    @torch.no_grad()
    def observe(self, batches: Iterable[Tensor]) -> None:
        """Take the trunk's maps of a device's photographs into the statistics that travel: centres and whitening."""
        batches, was_training = list(batches), self.training
        self.eval()
        if isinstance(self.pool.pool, Vlad):
            self.pool.pool.update([self._pooled(maps)[0] for maps in batches])
        if isinstance(self.whitening, Whitening):
            self.whitening.update(torch.cat([self.head(maps) for maps in batches]))
        self.train(was_training)

    @property
    def observes(self) -> bool:
        """Whether it has such statistics."""
        return isinstance(self.whitening, Whitening) or isinstance(self.pool.pool, Vlad)

    def finish(self, vectors: Tensor) -> Tensor:
        """The head's vectors as they are compared: whitened, where that is asked for."""
        return vectors if self.whitening is None else self.whitening(vectors)

    def forward(self, x: Tensor) -> Tensor:
        return self.finish(self.head(self.trunk(x)))

    def settled(self) -> Descriptor:
        """A copy for use only, without the statistics that training changes: what torch.export can trace."""
        found = copy.deepcopy(self).cpu().eval()
        if isinstance(self.whitening, Whitening):
            found.whitening = self.whitening.settled()
        return found


def _through(layers: Iterable[nn.Module], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x
