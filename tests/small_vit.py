"""A small vision transformer with random weights, as a backbone of one's own."""

from __future__ import annotations

from dataclasses import dataclass

from wayfare.nets.dinov2 import DinoV2
from wayfare.places.backbones import Backbone, Stages


@dataclass(frozen=True)
class SmallVit(Backbone):
    """Three blocks, 8 wide."""

    def build(self) -> Stages:
        net = DinoV2(width=8, depth=3, heads=2, patch=8, grid=4)
        return Stages(net, net.stages(), net.feature_dim, train="head", class_token=True)
