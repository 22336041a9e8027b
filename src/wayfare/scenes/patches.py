"""Features of a picture's patches by DINOv2 ViT-S/14, whose weights `wayfare data get dinov2-s` fetches."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from wayfare.nets.dinov2 import DinoV2
from wayfare.nets.published import PUBLISHED
from wayfare.scenes.segmenting import LONG_SIDE, PATCH

_MEAN, _SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as DINOv2 was trained


class DinoPatches:
    """float32 (384, rows, columns) of a picture, its long side 630 pixels if nothing else is said."""

    def __init__(self, long_side: int = LONG_SIDE) -> None:
        self.long_side = long_side
        net = DinoV2()
        net.load_state_dict(PUBLISHED["dinov2-s"].load())
        self._layers = [layer for stage in net.eval().stages().values() for layer in stage]

    @torch.no_grad()
    def __call__(self, pixels: np.ndarray) -> Tensor:
        scale = self.long_side / max(pixels.shape[:2])
        size = [max(1, round(side * scale / PATCH)) * PATCH for side in pixels.shape[:2]]
        x = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255
        x = (x - torch.tensor(_MEAN)[:, None, None]) / torch.tensor(_SPREAD)[:, None, None]
        maps = interpolate(x[None], size, mode="bilinear", align_corners=False, antialias=True)
        for layer in self._layers:
            maps = layer(maps)
        return maps[0, :, 1:]  # without the class token's row
