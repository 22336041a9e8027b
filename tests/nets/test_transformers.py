"""DINOv2 and TinyViT: token maps and attention by hand, and onnxruntime's numbers for the published weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from wayfare.core.errors import DataError
from wayfare.nets.dinov2 import Attention, Block, DinoV2, map_of, tokens_of
from wayfare.nets.published import PUBLISHED
from wayfare.nets.tinyvit import TinyViT, WindowAttention, WindowBlock


def through(stages: dict[str, list[nn.Module]], x: Tensor) -> Tensor:
    with torch.no_grad():
        for layers in stages.values():
            for layer in layers:
                x = layer(x)
    return x


def waves() -> Tensor:
    """The picture that onnxruntime was given."""
    c, i, j = torch.arange(3.0)[:, None, None], torch.arange(224.0)[:, None], torch.arange(224.0)
    return torch.sin((c + 1) * i / 20 + j / (c + 9))[None]


# ---- by hand


def test_a_token_map_is_the_tokens_with_the_class_token_above() -> None:
    tokens = torch.tensor([[[9.0], [1], [2], [3], [4], [5], [6]]])
    maps = map_of(tokens, 3)
    assert maps.tolist() == [[[[9, 9, 9], [1, 2, 3], [4, 5, 6]]]]
    assert torch.equal(tokens_of(maps), tokens)


def test_attention_of_two_tokens() -> None:
    """q and k are the token, v its double, and proj changes nothing: softmax weights of the products."""
    attention = Attention(1, 1)
    with torch.no_grad():
        attention.qkv.weight.copy_(torch.tensor([[1.0], [1], [2]]))
        attention.proj.weight.fill_(1)
        for bias in (attention.qkv.bias, attention.proj.bias):
            bias.zero_()
        found = attention(torch.tensor([[[1.0], [math.log(3)]]])).flatten().tolist()
    # from token 1: e^1 and e^(log 3) = 3 weigh 2 and 2 log 3
    first = (math.e * 2 + 3 * 2 * math.log(3)) / (math.e + 3)
    own = math.exp(math.log(3) ** 2)  # from log 3: e^(log 3) = 3 and e^(log 3)^2
    second = (3 * 2 + own * 2 * math.log(3)) / (3 + own)
    assert found == pytest.approx([first, second], rel=1e-6)


def test_a_block_of_layer_scale_0_changes_nothing() -> None:
    block = Block(4, 2)
    maps = map_of(torch.randn(2, 7, 4), 3)
    assert not torch.allclose(block(maps), maps)
    with torch.no_grad():
        block.ls1.gamma.zero_()
        block.ls2.gamma.zero_()
    assert torch.equal(block(maps), maps)


def test_the_class_token_is_one_token() -> None:
    """What stands in the other columns of its row does not count."""
    net = DinoV2(8, 2, 2, patch=8, grid=4)
    maps = net.stages()["patches"][0](torch.rand(1, 3, 32, 48))
    assert maps.shape == (1, 8, 5, 6)
    changed = maps.clone()
    changed[:, :, 0, 1:] = 7.0
    assert torch.equal(net.blocks[0](changed), net.blocks[0](maps))


def test_positions_of_the_own_grid_are_taken_as_they_are_and_others_resampled() -> None:
    net = DinoV2(8, 1, 2, patch=8, grid=4)
    with torch.no_grad():
        net.patch_embed.proj.weight.zero_()
        net.patch_embed.proj.bias.zero_()
        # channel 0: the row of the patch
        net.pos_embed.zero_()
        net.pos_embed[0, 1:, 0] = torch.arange(4.0).repeat_interleave(4)
    patches = net.stages()["patches"][0]
    assert patches(torch.rand(1, 3, 32, 32))[0, 0, 1:].tolist() == [[row] * 4 for row in range(4)]
    assert patches(torch.rand(1, 3, 30, 34))[0, 0, 1:].tolist() == [[row] * 4 for row in range(4)]  # to 32x32 first
    wider = patches(torch.rand(1, 3, 64, 16))[0, 0, 1:]
    assert wider.shape == (8, 2)
    assert torch.allclose(wider[:, 0], wider[:, 1], atol=1e-6)
    # position 3 of 8 is at 3.5 * 4 / 8.1 - 0.5 = 1.228 of 4, where a ramp is itself but for bicubic's a = -0.75
    assert wider[3, 0].item() == pytest.approx(1.228, abs=0.06)
    assert (wider[1:, 0] > wider[:-1, 0]).all()


def test_windows_do_not_see_each_other() -> None:
    block = WindowBlock(64, 2, 7).eval()
    x = torch.randn(1, 10, 14, 64)
    other = x.clone()
    other[:, :7, :7] = 0
    with torch.no_grad():
        one, two = block._windowed(x), block._windowed(other)
    assert one.shape == x.shape
    assert torch.equal(one[:, :7, 7:], two[:, :7, 7:])
    assert torch.equal(one[:, 7:], two[:, 7:])
    assert not torch.allclose(one[:, :7, :7], two[:, :7, :7])


def test_window_biases_go_by_the_offset() -> None:
    offsets = WindowAttention(32, 1, 7).offsets
    assert offsets[0, :8].tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert offsets[8, 0] == 7 + 1 == offsets[0, 8]  # one row and one column apart
    assert offsets[6, 7] == 7 + 6


# ---- sizes and published weights


@pytest.mark.parametrize("net", [DinoV2, TinyViT])
def test_sizes(net: type[DinoV2] | type[TinyViT]) -> None:
    with torch.device("meta"):
        made = net()
    count = sum(p.numel() for p in made.parameters())
    assert count == {DinoV2: 22_056_192, TinyViT: 5_066_196}[net]


@pytest.mark.parametrize("name", PUBLISHED)
def test_absent_weights_say_how_to_get_them(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path))
    with pytest.raises(DataError, match=rf"have not been fetched yet \(wayfare data get {name}\)"):
        PUBLISHED[name].load()


def published(name: str) -> dict[str, Tensor]:
    try:
        return PUBLISHED[name].load()
    except DataError:
        pytest.skip(f"the weights are not in WAYFARE_CACHE: run `wayfare data get {name}` to have them")


def test_dinov2_agrees_with_onnxruntime() -> None:
    """Its numbers for the file, whose graph was changed to resample positions bicubically, as the authors do."""
    net = DinoV2()
    net.load_state_dict(published("dinov2-s"))
    tokens = tokens_of(through(net.stages(), waves()))[0]
    expected = [-1.3236359, 1.1664063, -0.02553606, -2.7807727, -0.98711216, -0.21011347]
    assert tokens[0, :6].tolist() == pytest.approx(expected, abs=1e-3)
    expected = [-0.6520082, 2.0346663, -2.3185105, -4.0633035, -0.1356625, -5.008932]
    assert tokens[101, :6].tolist() == pytest.approx(expected, abs=1e-3)


def test_tinyvit_agrees_with_onnxruntime() -> None:
    net = TinyViT()
    net.load_state_dict(published("tinyvit"))
    maps = through(net.parts(), waves())
    expected = [3.1147108, -0.22303373, -0.8573052, -1.9898376, 0.473936, 3.1158]
    assert maps.shape == (1, 320, 7, 7)
    assert maps[0, :6, 2, 3].tolist() == pytest.approx(expected, abs=1e-3)
