"""DINOv2 ViT-S/14 (Oquab et al.): a vision transformer that was trained without labels on 142 million pictures.

22,056,192 parameters under the names of the authors' weight files: 12 blocks, 384 wide, 6 heads, with layer scale. The
position embedding is that of 37x37 patches, and is resampled bicubically for other numbers. Pictures are resized to the
nearest multiple of 14 pixels.

Between its layers the network has *token maps* (N, C, H + 1, W), so that it can be cut, and its maps kept, like those
of a convolutional network: row 0 is the class token, repeated over the columns, and the rows below are the patches.

`wayfare data get dinov2-s` brings the weights into the cache (see `downloads.weights`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, scaled_dot_product_attention

from wayfare.nets.frozen import resized

_OFFSET = 0.1  # the authors': added to the numbers of patches that the position embedding is resampled to
_ONNX_POSITIONS = "onnx::Reshape_1360"


class DinoV2(nn.Module):
    """See the module; other sizes than the defaults are for tests."""

    def __init__(self, width: int = 384, depth: int = 12, heads: int = 6, patch: int = 14, grid: int = 37) -> None:
        super().__init__()
        self.feature_dim = width
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + grid * grid, width))
        self.patch_embed = Projection(width, patch)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        for tensor in (self.cls_token, self.pos_embed):
            nn.init.trunc_normal_(tensor, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def stages(self) -> dict[str, list[nn.Module]]:
        """The layers in order, with token maps between them: patches, block1 to block12, norm."""
        found: dict[str, list[nn.Module]] = {"patches": [Embedding(self)]}
        found |= {f"block{number}": [block] for number, block in enumerate(self.blocks, 1)}
        return found | {"norm": [MapNorm(self.norm)]}


class Projection(nn.Module):
    """The projection of patches; a module of its own only for the name of its weights."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch, patch)


class Embedding(nn.Module):
    """Pictures (N, 3, H, W) to token maps: projected patches with their positions, and the class token."""

    def __init__(self, net: DinoV2) -> None:
        super().__init__()
        self.cls_token, self.pos_embed, self.proj = net.cls_token, net.pos_embed, net.patch_embed.proj
        # Read from the network, whose parameters may be exchanged for a call; a tuple, so as not to register it here.
        self._net = (net,)

    def forward(self, x: Tensor) -> Tensor:
        (net,) = self._net
        patch = self.proj.kernel_size[0]
        rows, columns = (max(round(side / patch), 1) for side in x.shape[2:])
        maps = self.proj(resized(x, (rows * patch, columns * patch)))
        maps = maps + _resampled(net.pos_embed[:, 1:], rows, columns)
        token = (net.cls_token + net.pos_embed[:, :1]).transpose(1, 2)[..., None]
        return torch.cat((token.expand(x.shape[0], -1, 1, columns), maps), 2)


def _resampled(positions: Tensor, rows: int, columns: int) -> Tensor:
    """The embeddings (1, grid^2, C) of a square grid, for another grid: (1, C, rows, columns)."""
    grid = round(positions.shape[1] ** 0.5)
    maps = positions.transpose(1, 2).reshape(1, -1, grid, grid)
    if (rows, columns) == (grid, grid):
        return maps
    scale = (rows + _OFFSET) / grid, (columns + _OFFSET) / grid
    resampled: Tensor = interpolate(maps, scale_factor=scale, mode="bicubic", align_corners=False)
    return resampled


class Block(nn.Module):
    """Attention and two linear layers, each after a norm and with a shortcut; from token map to token map."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads)
        self.ls1, self.ls2 = LayerScale(width), LayerScale(width)
        self.mlp = Mlp(width, 4 * width)

    def forward(self, maps: Tensor) -> Tensor:
        x = tokens_of(maps)
        x = x + self.ls1(self.attn(self.norm1(x)))
        x = x + self.ls2(self.mlp(self.norm2(x)))
        return map_of(x, maps.shape[3])


class Attention(nn.Module):
    """Self-attention of tokens (N, L, C)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed: Tensor = self.proj(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return mixed


class Mlp(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.fc2(self.act(self.fc1(x)))
        return found


class LayerScale(nn.Module):
    """A factor for each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class MapNorm(nn.Module):
    """A LayerNorm of the channels at each position of a map."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, maps: Tensor) -> Tensor:
        normed: Tensor = self.norm(maps.permute(0, 2, 3, 1))
        return normed.permute(0, 3, 1, 2)


def tokens_of(maps: Tensor) -> Tensor:
    """A token map (N, C, H + 1, W) as tokens (N, 1 + H W, C), the class token first."""
    rows = maps.permute(0, 2, 3, 1)
    return torch.cat((rows[:, 0, :1], rows[:, 1:].flatten(1, 2)), 1)


def map_of(tokens: Tensor, columns: int) -> Tensor:
    """The token map of tokens (N, 1 + H W, C), in channels_last memory."""
    token = tokens[:, :1, None].expand(-1, -1, columns, -1)
    patches = tokens[:, 1:].reshape(tokens.shape[0], -1, columns, tokens.shape[2])
    return torch.cat((token, patches), 1).permute(0, 3, 1, 2)


def from_onnx(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the ONNX file that `downloads.weights` fetches, under the authors' names.

    The class token's position equals the class token, and the exporter stores equal tensors once.
    """
    kept = dict(tensors)
    kept["pos_embed"] = torch.cat((kept["cls_token"], kept.pop(_ONNX_POSITIONS)), 1)
    return kept
