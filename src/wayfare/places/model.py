"""The settings of a place descriptor: its backbone and pooling, what of it is trained, and where weights come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from wayfare.components import part, parts_of
from wayfare.core.errors import ConfigError, unknown
from wayfare.core.protocols import Model
from wayfare.io.weights import load_weights, missing
from wayfare.nets.lora import AdaptedLayers, adapt, linear_layers
from wayfare.nets.pooling import L2Place, Pooling, aggregation
from wayfare.nets.pretrained import load_pretrained
from wayfare.places.backbones import Backbone, Stages
from wayfare.places.descriptor import Descriptor, Statistics

_BACKBONES = {
    "resnet18_layer3": "wayfare.places.backbones:ResNet18Layer3",
    "resnet18": "wayfare.places.backbones:ResNet18Backbone",
    "vgg16": "wayfare.places.backbones:VGG16Backbone",
    "efficientnet_lite0": "wayfare.places.backbones:LiteBackbone",
    "efficientnet_lite0_stage5": "wayfare.places.backbones:LiteStage5",
    "dinov2-s": "wayfare.places.backbones:DinoV2Backbone",
    "tinyvit": "wayfare.places.backbones:TinyViTBackbone",
    "cnn": "wayfare.places.backbones:SmallCnnBackbone",
}
_POOLINGS = {
    "spoc": "wayfare.nets.pooling:SpocPooling",
    "mac": "wayfare.nets.pooling:MacPooling",
    "gem": "wayfare.nets.pooling:GemPooling",
    "grid": "wayfare.nets.pooling:GridPooling",
    "class": "wayfare.nets.pooling:ClassPooling",
    "vlad": "wayfare.nets.pooling:VladPooling",
    "salad": "wayfare.nets.pooling:SaladPooling",
}


@dataclass(frozen=True)
class PlaceModel(Model):
    """A network from photos to place descriptors."""

    backbone: Backbone = part("backbone", "efficientnet_lite0", _BACKBONES)
    weights: str = "auto"  # auto: the backbone's default; "imagenet", "pretrained": published ones; a file; or "random"
    train: str = "default"  # the first stage that is trained; "all"; "head": pooling and linear layer only
    pooling: Pooling = part("pooling", "gem", _POOLINGS)
    l2: L2Place = "after"
    linear: bool = False
    whiten: float = 0.0  # whitening by the descriptors of all devices: 0: none, 0.5: half of the way, 1: full
    statistics: Statistics = "batch"  # stored: BatchNorm keeps those it came with, for batches too small or too alike
    adapters: int = 0  # rank of adapters (LoRA), trained in the last stages of a frozen transformer; 0: none
    adapter_stages: int = 4  # in how many of the last stages with attention
    adapter_layers: AdaptedLayers = "attention"  # all: the linear layers after the attention, too

    def __post_init__(self) -> None:
        if not 0 <= self.whiten <= 1:
            raise ConfigError(f"model.whiten = {self.whiten}: expected a power from 0 to 1")
        if self.adapters < 0 or self.adapter_stages < 1:
            raise ConfigError(
                f"model.adapters = {self.adapters}, adapter_stages = {self.adapter_stages}: expected a rank from 0 up, "
                "and at least 1 stage"
            )
        if self.adapters and self.train not in ("default", "head"):
            raise ConfigError(
                f"model.train = {self.train!r}: with model.adapters the stages themselves are not trained"
            )

    def missing_files(self) -> list[str]:
        return missing(self.weights)

    @property
    def warnings(self) -> list[str]:
        """What speaks against these settings."""
        if not self.backbone.signed or self.pooling.keeps_sign:
            return []
        pooling, backbone = (parts_of(PlaceModel)[of].name_of(getattr(self, of)) for of in ("pooling", "backbone"))
        return [
            f"model.pooling = '{pooling}' ignores negative values, which are half of the maps of {backbone}: "
            "model.pooling = 'grid' keeps them"
        ]

    @property
    def is_random(self) -> bool:
        """Whether the weights are another draw for every seed."""
        return (self.weights if self.weights != "auto" else self.backbone.default_weights) == "random"

    def network(self) -> Descriptor:
        """The network as it is before training."""
        stages = self.backbone.build()
        train = stages.train if self.train == "default" else self.train
        if train not in (known := ("all", "head", *stages.stages)):
            raise unknown("stage", train, (*known, "default"), "model.train")
        if not self.is_random:
            _load(stages, self._weights())
        if self.adapters:
            train = self._adapt(stages)
        pool = aggregation(stages.channels, self.pooling, self.l2, self.linear, token=stages.class_token)
        net = Descriptor(stages, pool, train, self.statistics, self.whiten)
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return net

    def _adapt(self, stages: Stages) -> str:
        """Give the last stages with attention their adapters; the name of the first of them."""
        able = [name for name, layers in stages.stages.items() if linear_layers(layers, self.adapter_layers)]
        if len(able) < self.adapter_stages:
            known = f"it has {len(able)}" if able else "it has none: choose a transformer such as dinov2-s"
            raise ConfigError(
                f"model.adapters: expected a backbone of {self.adapter_stages} stages with attention; {known}"
            )
        first = able[-self.adapter_stages]
        names = list(stages.stages)
        for name in names[names.index(first) :]:
            adapt(stages.stages[name], self.adapters, self.adapter_layers)
        return first

    def _weights(self) -> dict[str, Tensor]:
        weights = self.backbone.default_weights if self.weights == "auto" else self.weights
        if not weights:
            name = parts_of(PlaceModel)["backbone"].name_of(self.backbone)
            raise ConfigError(
                f"model.weights: no package carries ImageNet's for {name}; give torchvision's file, after "
                "`wayfare data import-weights`, or 'random'"
            )
        if weights in ("imagenet", "pretrained"):
            return self.backbone.published_weights(weights)
        return load_weights(Path(weights))


def _load(stages: Stages, weights: dict[str, Tensor]) -> None:
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith(stages.absent)}
    load_pretrained(stages.net, kept, skip_head=False)
