"""How much of each colour is in a picture: what networks that name things hardly keep.

Pixels are averaged in squares, so that about 32 x 32 are left, and brought to CIELAB, where equal distances look about
equally different. Each is shared among the 8 colours around it of a grid,

    lightness 0, 25, 50, 75, 100; green to red and blue to yellow -60, -30, 0, 30, 60 (beyond: as the last)

by 1 - distance / step on each axis, so that a small change of a picture is a small change of its features. The shares
of the 125 colours, in the whole picture and in its middle (half of the height and width), are square-rooted, which
makes rare colours count, and multiplied by 20: each region's are then as long as 400 numbers of about 1.

Precision at 10 of 245 queries such as "black shirts for men" over 1,000 fashion photos (the mean of five groups of
queries), linear heads on EfficientNet-Lite0 and MiniLM taught 4,082 others in ten rounds of ten devices: 0.56 without
colours; 0.62 with them, times 10, 20 or 40.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from wayfare.nets.features import PictureTrunk

_CELLS, _SCALE = 32, 20.0
_LIGHT, _HUES = (0.0, 25.0, 50.0, 75.0, 100.0), (-60.0, -30.0, 0.0, 30.0, 60.0)
_TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
_WHITE = (0.95047, 1.0, 1.08883)


class Colours(nn.Module):
    """Pictures in 0..1, grey or colour, of any size, to features (N, 250); it has nothing to learn."""

    feature_dim = 2 * len(_LIGHT) * len(_HUES) ** 2
    key = "colours 1"

    def own_weights(self) -> dict[str, Tensor]:
        """None."""
        return {}

    @torch.no_grad()
    def forward(self, pictures: Tensor) -> Tensor:
        height, width = pictures.shape[2:]
        cells = avg_pool2d(pictures.expand(-1, 3, -1, -1), (max(1, height // _CELLS), max(1, width // _CELLS)))
        colours = lab(cells)
        height, width = colours.shape[2:]
        middle = colours[:, :, height // 4 : height - height // 4, width // 4 : width - width // 4]
        return _SCALE * torch.cat([_shares(colours), _shares(middle)], 1).sqrt()


class WithColours(nn.Module):
    """A frozen network's features and these, (N, width + 250)."""

    def __init__(self, network: PictureTrunk) -> None:
        super().__init__()
        self.network, self.colours = network, Colours()
        self.feature_dim = network.feature_dim + Colours.feature_dim
        self.key = f"{network.key} {Colours.key}"

    def own_weights(self) -> dict[str, Tensor]:
        """The network's."""
        return self.network.own_weights()

    @torch.no_grad()
    def forward(self, pictures: Tensor) -> Tensor:
        return torch.cat([self.network(pictures), self.colours(pictures)], 1)


def lab(pictures: Tensor) -> Tensor:
    """sRGB in 0..1, (N, 3, H, W), to CIELAB by daylight (D65)."""
    linear = torch.where(pictures <= 0.04045, pictures / 12.92, ((pictures + 0.055) / 1.055).clamp(min=0) ** 2.4)
    xyz = torch.einsum("ij,njhw->nihw", pictures.new_tensor(_TO_XYZ), linear)
    x, y, z = (xyz / pictures.new_tensor(_WHITE)[:, None, None]).unbind(1)
    x, y, z = (_root(each) for each in (x, y, z))
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], 1)


def _root(values: Tensor) -> Tensor:
    """CIELAB's cube root, which is a line near 0."""
    least = (6 / 29) ** 3
    return torch.where(values > least, values.clamp(min=least) ** (1 / 3), values * (29 / 6) ** 2 / 3 + 4 / 29)


def _shares(colours: Tensor) -> Tensor:
    """Of each colour of the grid, (N, 125); they sum to 1."""
    light, red, yellow = (
        _near(values.flatten(1), grid) for values, grid in zip(colours.unbind(1), (_LIGHT, _HUES, _HUES))
    )
    hues = (red[:, :, None] * yellow[:, None]).flatten(1, 2)
    return (light @ hues.transpose(1, 2)).flatten(1) / colours[0, 0].numel()


def _near(values: Tensor, grid: tuple[float, ...]) -> Tensor:
    """Which points of a grid values (N, P) are near, (N, points, P); 1 in all for each value."""
    at = values.clamp(grid[0], grid[-1])[:, None] - values.new_tensor(grid)[:, None]
    return (1 - at.abs() / (grid[1] - grid[0])).clamp(min=0)
