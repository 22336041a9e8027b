"""TinyViT-5M (Wu et al.): convolutions, then attention within windows; distilled on ImageNet-22k.

5,066,196 parameters without the last layers. The published file has the norms folded into the convolutions, and so has
the network here: there is no BatchNorm. Maps are at stride 32, (N, 320, H/32, W/32) rounded up. Windows are of 7x7,
14x14 and 7x7 positions; maps that do not divide into windows are padded with zeros.

`wayfare data get tinyvit` brings the weights into the cache (see `downloads.weights`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, pad, scaled_dot_product_attention

from wayfare.nets.dinov2 import Mlp

# channels, blocks, and of attention heads and window
STAGES = ((64, 2, 0, 0), (128, 2, 4, 7), (160, 6, 5, 14), (320, 2, 10, 7))


class TinyViT(nn.Module):
    """See the module."""

    feature_dim = STAGES[-1][0]

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = Stem(STAGES[0][0])
        inner = STAGES[0][0]
        stages: list[nn.Module] = []
        for outer, blocks, heads, window in STAGES:
            stages.append(TinyVitStage(inner, outer, blocks, heads=heads, window=window))
            inner = outer
        self.stages = nn.ModuleList(stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # without norms, the default would let signals vanish
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def parts(self) -> dict[str, list[nn.Module]]:
        """The layers in order: stem, stage1 to stage4."""
        found: dict[str, list[nn.Module]] = {"stem": [self.patch_embed]}
        return found | {f"stage{number}": [stage] for number, stage in enumerate(self.stages, 1)}


class Stem(nn.Module):
    """Two convolutions of stride 2."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width // 2, 3, 2, padding=1)
        self.conv2 = nn.Conv2d(width // 2, width, 3, 2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.conv2(gelu(self.conv1(x)))
        return maps


class TinyVitStage(nn.Module):
    """Blocks of one size; all but the first stage halve the map first."""

    def __init__(self, inner: int, outer: int, blocks: int, *, heads: int, window: int) -> None:
        super().__init__()
        self.downsample = Merging(inner, outer) if heads else nn.Identity()
        made = (WindowBlock(outer, heads, window) if heads else Inverted(outer) for _ in range(blocks))
        self.blocks = nn.ModuleList(made)

    def forward(self, maps: Tensor) -> Tensor:
        maps = self.downsample(maps)
        for block in self.blocks:
            maps = block(maps)
        return maps


class Inverted(nn.Module):
    """1x1 expansion, depthwise convolution and 1x1 projection, with a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        wide = 4 * width
        self.conv1 = nn.Conv2d(width, wide, 1)
        self.conv2 = nn.Conv2d(wide, wide, 3, padding=1, groups=wide)
        self.conv3 = nn.Conv2d(wide, width, 1)

    def forward(self, maps: Tensor) -> Tensor:
        return gelu(maps + self.conv3(gelu(self.conv2(gelu(self.conv1(maps))))))


class Merging(nn.Module):
    """To maps of half the size and other channels."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 1)
        self.conv2 = nn.Conv2d(outer, outer, 3, 2, padding=1, groups=outer)
        self.conv3 = nn.Conv2d(outer, outer, 1)

    def forward(self, maps: Tensor) -> Tensor:
        merged: Tensor = self.conv3(gelu(self.conv2(gelu(self.conv1(maps)))))
        return merged


class WindowBlock(nn.Module):
    """Attention within windows, a depthwise convolution, and two linear layers."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.window = window
        self.attn = WindowAttention(width, heads, window)
        self.local_conv = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.mlp = NormedMlp(width, 4 * width)

    def forward(self, maps: Tensor) -> Tensor:
        x = maps.permute(0, 2, 3, 1)
        maps = self.local_conv((x + self._windowed(x)).permute(0, 3, 1, 2))
        mixed: Tensor = self.mlp(maps.permute(0, 2, 3, 1))
        return maps + mixed.permute(0, 3, 1, 2)

    def _windowed(self, x: Tensor) -> Tensor:
        (count, height, width, channels), side = x.shape, self.window
        x = pad(x, (0, 0, 0, -width % side, 0, -height % side))
        rows, columns = x.shape[1] // side, x.shape[2] // side
        windows = x.view((count, rows, side, columns, side, channels)).transpose(2, 3)
        mixed: Tensor = self.attn(windows.reshape(-1, side * side, channels))
        mixed = mixed.view((count, rows, columns, side, side, channels)).transpose(2, 3)
        return mixed.reshape(count, rows * side, columns * side, channels)[:, :height, :width]


class WindowAttention(nn.Module):
    """Self-attention of the positions of a window (N, L, C), with a bias for each offset of two positions."""

    offsets: Tensor

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.attention_biases = nn.Parameter(torch.zeros(heads, window * window))
        places = torch.cartesian_prod(torch.arange(window), torch.arange(window))
        apart = (places[:, None] - places).abs()
        self.register_buffer("offsets", apart[..., 0] * window + apart[..., 1], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(self.norm(x)).unflatten(2, (self.heads, -1)).transpose(1, 2)
        q, k, v = qkv.chunk(3, dim=3)  # within each head
        mixed = scaled_dot_product_attention(q, k, v, attn_mask=self.attention_biases[:, self.offsets])
        found: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return found


class NormedMlp(Mlp):
    """Two linear layers after a norm."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(width, hidden)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(x))


def from_onnx(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the ONNX file that `downloads.weights` fetches, under the names that they have here."""
    return {name.replace(".conv.", ".").replace("stages_", "stages."): tensor for name, tensor in tensors.items()}
