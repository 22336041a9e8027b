"""Low-rank adapters (LoRA, Hu et al.): a frozen linear layer W x + b becomes (W + B A) x + b.

A (rank x in) starts random and B (out x rank) at 0, so that training starts from exactly the frozen network. Only A and
B are trained and sent: for the attention of one block of DINOv2 ViT-S at rank 8, 18,432 numbers of 591,360.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

AdaptedLayers = Literal["attention", "all"]
_NAMES: dict[AdaptedLayers, tuple[str, ...]] = {"attention": ("qkv", "proj"), "all": ("qkv", "proj", "fc1", "fc2")}


class AdaptedLinear(nn.Linear):
    """A frozen linear layer, under its own names, with an adapter beside it."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__(layer.in_features, layer.out_features, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self.requires_grad_(False)
        self.down = nn.Parameter(torch.empty(rank, layer.in_features, device=layer.weight.device))
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank, device=layer.weight.device))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + linear(linear(x, self.down), self.up)


Place = tuple[nn.Module, str, nn.Linear]  # a module, and the name and the value of its child


def linear_layers(layers: Iterable[nn.Module], which: AdaptedLayers = "attention") -> list[Place]:
    """The linear layers of attention, or of whole blocks, in `layers`."""
    return [
        (module, name, child)
        for layer in layers
        for module in layer.modules()
        for name, child in module.named_children()
        if name in _NAMES[which] and isinstance(child, nn.Linear)
    ]


def adapt(layers: Iterable[nn.Module], rank: int, which: AdaptedLayers = "attention") -> None:
    """Freeze `layers`, and give their linear layers an adapter each."""
    layers = list(layers)
    for layer in layers:
        layer.requires_grad_(False)
    for module, name, child in linear_layers(layers, which):
        setattr(module, name, AdaptedLinear(child, rank))
