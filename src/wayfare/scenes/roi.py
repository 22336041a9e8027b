"""Features of regions: a frozen EfficientNet-Lite0 looks at the whole image, and its maps are pooled in each box.

An object's features are those of its box, a pair's those of the box around both. The latter do not tell subject from
object, so the numbers of `geometry` stand beside them, as the spatial map does in OpenPSG.

A region is pooled as RoIAlign does it: `size` x `size` cells, each the mean of 2 x 2 points, each point interpolated
between the four nearest values of the map. What a region has of one stage is then brought to mean 0 and deviation 1, so
that it weighs as much as the numbers beside it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, grid_sample, interpolate, layer_norm

from wayfare.core.bundle import digest
from wayfare.core.errors import ConfigError, DataError, unknown
from wayfare.io.images import decode
from wayfare.nets.efficientnet import STAGES, EfficientNetLite0, imagenet_weights
from wayfare.nets.pretrained import load_pretrained
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.features import Provider
from wayfare.scenes.geometry import OBJECT_NUMBERS, PAIR_NUMBERS, object_numbers, pair_numbers

POINTS = 2  # in each direction, in each cell
_KEPT = 64  # images whose maps are remembered: about 1 MB each at 640 pixels
_SMALLEST = 32  # pixels: the network halves an image five times
_CHANNELS = {f"stage{number}": outer for number, (_, _, _, outer, _) in enumerate(STAGES, 1)}


def roi_align(maps: Tensor, boxes: Tensor, size: int) -> Tensor:
    """(R, C, size, size) of one image's maps (C, H, W); boxes (R, 4) in units of its cells, from 0, 0 to W, H.

    A cell's value is that at its middle; beyond the outermost middles the maps go on as they end.
    """
    _, height, width = maps.shape
    steps = (torch.arange(size * POINTS, dtype=maps.dtype, device=maps.device) + 0.5) / (size * POINTS)
    x = boxes[:, :1] + (boxes[:, 2:3] - boxes[:, :1]) * steps
    y = boxes[:, 1:2] + (boxes[:, 3:] - boxes[:, 1:2]) * steps
    across, down = 2 * x / width - 1, 2 * y / height - 1
    both = torch.broadcast_tensors(across[:, None, :], down[:, :, None])  # type: ignore[no-untyped-call]
    grid = torch.stack(both, 3)
    values = grid_sample(maps[None], grid.flatten(0, 1)[None], "bilinear", "border", align_corners=False)[0]
    points = values.unflatten(1, (len(boxes), -1)).transpose(0, 1)  # type: ignore[no-untyped-call]
    return avg_pool2d(points, POINTS)


def around(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The smallest boxes that hold each row's two boxes."""
    return np.concatenate([np.minimum(a[:, :2], b[:, :2]), np.maximum(a[:, 2:], b[:, 2:])], 1)


class RoiProvider(Provider):
    """See the module. Images are read where the annotations say, and brought to `longest` pixels on their longer side.

    `stages`: whose maps are pooled (stage5 has a value for every 16 pixels, stage7 for every 32); `weights`: of
    EfficientNet-Lite0, those from ImageNet where not given.
    """

    def __init__(
        self,
        stages: tuple[str, ...] = ("stage5", "stage7"),
        size: int = 2,
        longest: int = 640,
        weights: dict[str, Tensor] | None = None,
    ) -> None:
        for stage in stages:
            if stage not in _CHANNELS:
                raise unknown("stage", stage, _CHANNELS)
        if not stages or size < 1 or longest < _SMALLEST:
            least = f"at least one stage, size 1 and {_SMALLEST} pixels"
            raise ConfigError(f"regions: {least}; not {stages}, {size}, {longest}")
        self.stages, self.size, self.longest = stages, size, longest
        with torch.random.fork_rng(devices=[]):  # no random number of its layers is used
            self._net = EfficientNetLite0()
        load_pretrained(self._net, imagenet_weights() if weights is None else weights)
        self._net.eval().requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._maps: OrderedDict[Path, list[Tensor]] = OrderedDict()

    @property
    def digest(self) -> str:
        """A name for everything that changes the features of a region."""
        weights = digest(self._net.state_dict())
        return hashlib.sha256(f"{weights} {self.stages} {self.size} {self.longest}".encode()).hexdigest()

    @property
    def width(self) -> int:
        """Of what the network says of a region."""
        return sum(_CHANNELS[stage] for stage in self.stages) * self.size**2

    @property
    def width_x(self) -> int:
        return self.width + len(OBJECT_NUMBERS)

    @property
    def width_u(self) -> int:
        return self.width + len(PAIR_NUMBERS)

    def objects(self, scenes: SceneGraphs) -> np.ndarray:
        pooled = self.pooled(scenes, scenes.boxes, scenes.object_images)
        return np.concatenate([pooled, object_numbers(scenes)], 1)

    def pairs(self, scenes: SceneGraphs, pairs: np.ndarray) -> np.ndarray:
        both = around(scenes.boxes[pairs[:, 0]], scenes.boxes[pairs[:, 1]])
        pooled = self.pooled(scenes, both, scenes.object_images[pairs[:, 0]])
        return np.concatenate([pooled, pair_numbers(scenes, pairs)], 1)

    def pooled(self, scenes: SceneGraphs, boxes: np.ndarray, image: np.ndarray) -> np.ndarray:
        """float32 (R, width): of boxes in the images' pixels, of which `image` says whose each is."""
        rows = np.empty((len(boxes), self.width), np.float32)
        for place in np.unique(image):
            here = image == place
            pixels, maps = self._look(scenes, int(place))
            shares = torch.from_numpy((boxes[here] / pixels).astype(np.float32))
            with _one_thread():
                parts = [
                    roi_align(part, shares * torch.tensor([part.shape[2], part.shape[1]] * 2), self.size).flatten(1)
                    for part in maps
                ]
            rows[here] = torch.cat([layer_norm(part, part.shape[1:]) for part in parts], 1).numpy()
        return rows

    def _look(self, scenes: SceneGraphs, place: int) -> tuple[np.ndarray, list[Tensor]]:
        """The image's width and height, twice, and its maps."""
        file = scenes.picture(place)
        if file is None:
            what = f"no picture {scenes.files[place]} of image {scenes.image_ids[place]}"
            raise DataError(what, scenes.root, remedy="put it there, or use the features 'geometry'")
        known = self._maps.get(file)
        if known is None:
            picture = decode(file)
            stated = tuple(scenes.sizes[place].tolist())
            if any(stated) and picture.shape[:2] != stated:
                found = f"{picture.shape[1]} x {picture.shape[0]} pixels"
                raise DataError(f"{found}, the annotations say {stated[1]} x {stated[0]}", file)
            known = [torch.tensor(picture.shape[1::-1] * 2), *self._computed(picture)]
            self._maps[file] = known
            if len(self._maps) > _KEPT:
                self._maps.popitem(last=False)
        return known[0].numpy(), known[1:]

    @torch.no_grad()
    def _computed(self, picture: np.ndarray) -> list[Tensor]:
        scale = self.longest / max(picture.shape[:2])
        sides = [max(round(side * scale), _SMALLEST) for side in picture.shape[:2]]
        x = torch.from_numpy(picture).permute(2, 0, 1)[None].float()
        found: dict[str, Tensor] = {}
        with _one_thread():
            x = interpolate(x, sides, mode="bilinear", antialias=True)
            x = ((x - 127) / 128).contiguous(memory_format=torch.channels_last)
            for stage, layers in self._net.stages().items():
                for layer in layers:
                    x = layer(x)
                if stage in self.stages:
                    found[stage] = x[0]
                if len(found) == len(set(self.stages)):
                    break
        return [found[stage] for stage in self.stages]


@contextmanager
def _one_thread() -> Iterator[None]:
    """The same bits whatever the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
