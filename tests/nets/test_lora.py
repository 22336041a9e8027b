"""Low-rank adapters: numbers by hand, an exact start, and where gradients go."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from wayfare.nets.dinov2 import Block, map_of
from wayfare.nets.lora import AdaptedLinear, adapt, linear_layers


def test_a_layer_by_hand() -> None:
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2], [3, 4]]))
        layer.bias.copy_(torch.tensor([10.0, 20]))
    adapted = AdaptedLinear(layer, rank=1)
    x = torch.tensor([[1.0, -1]])
    assert adapted(x).tolist() == [[9, 19]]  # B is 0
    with torch.no_grad():
        adapted.down.copy_(torch.tensor([[2.0, 5]]))
        adapted.up.copy_(torch.tensor([[1.0], [-3]]))
    # A x = 2 - 5 = -3, and B times that is (-3, 9)
    assert adapted(x).tolist() == [[6, 28]]
    adapted(x).sum().backward()
    assert adapted.up.grad is not None and adapted.up.grad.tolist() == [[-3], [-3]]
    assert adapted.down.grad is not None and adapted.down.grad.tolist() == [[-2, 2]]  # (1 - 3) x
    assert adapted.weight.grad is None


@pytest.mark.parametrize(("which", "names"), [
    ("attention", {"attn.qkv", "attn.proj"}),
    ("all", {"attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"}),
])  # fmt: skip
def test_a_block_starts_as_it_was(which: str, names: set[str]) -> None:
    torch.manual_seed(0)
    block = Block(8, 2)
    maps = map_of(torch.randn(2, 7, 8), 3)
    before, keys = block(maps), set(block.state_dict())
    adapt([block], 2, which)  # type: ignore[arg-type]
    assert torch.equal(block(maps), before)
    trained = {name for name, p in block.named_parameters() if p.requires_grad}
    assert trained == {f"{name}.{part}" for name in names for part in ("down", "up")}
    assert set(block.state_dict()) == keys | trained  # weight files fit as before


def test_gradients_reach_both_factors() -> None:
    torch.manual_seed(0)
    block = Block(8, 2)
    adapt([block], 2)
    maps = map_of(torch.randn(2, 7, 8), 3)
    optimiser = torch.optim.SGD([p for p in block.parameters() if p.requires_grad], 0.1)
    for step in range(2):
        optimiser.zero_grad()
        block(maps).square().sum().backward()
        for module, name, _ in linear_layers([block]):
            layer = getattr(module, name)
            assert layer.up.grad.abs().max() > 0
            assert (layer.down.grad.abs().max() > 0) == (step > 0)  # B = 0 hides A from the first step
        optimiser.step()
