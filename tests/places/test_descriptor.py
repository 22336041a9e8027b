"""Place descriptors: pooling worked out by hand, Tab. 2's counts, what is frozen and stays so, weights by path."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from wayfare.components import build, parts_of
from wayfare.core.bundle import travelling
from wayfare.core.errors import ConfigError, DataError
from wayfare.nets.efficientnet import PACKAGE, EfficientNetLite0
from wayfare.nets.pooling import MAC, SPOC, GeM, GemPooling, L2Place, SpocPooling, aggregation
from wayfare.nets.resnet import ResNet18
from wayfare.nets.vgg import VGG16
from wayfare.places.descriptor import Descriptor
from wayfare.places.model import PlaceModel

NETWORKS = sorted(parts_of(PlaceModel)["backbone"].known)


def descriptor(
    network: str = "efficientnet_lite0", pooling: str | dict[str, Any] = "gem", **settings: Any
) -> Descriptor:
    """A network by the names of its parts, with random weights unless others are asked for."""
    given = {"weights": "random", "backbone": network, "pooling": pooling, **settings}
    model = build(PlaceModel, given, "model")
    assert isinstance(model, PlaceModel)
    return model.network()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def made(network: str) -> Descriptor:
    torch.manual_seed(0)
    return descriptor(network)


@pytest.fixture(params=NETWORKS)
def net(request: pytest.FixtureRequest) -> Descriptor:
    return copy.deepcopy(made(request.param))


def pictures(count: int = 2, height: int = 32, width: int = 48) -> Tensor:
    return torch.rand(count, 3, height, width, generator=torch.Generator().manual_seed(1))


def counts(net: nn.Module) -> tuple[int, int]:
    """All parameters, and those that are trained."""
    return sum(p.numel() for p in net.parameters()), sum(p.numel() for p in net.parameters() if p.requires_grad)


#### Pooling by hand: one picture, two channels, 2x2

MAPS = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 8.0]]]])


def test_spoc_and_mac() -> None:
    assert SPOC()(MAPS).tolist() == [[2.5, 2.0]]
    assert MAC()(MAPS).tolist() == [[4.0, 8.0]]
    assert MAC()(-MAPS).tolist() == [[-1.0, 0.0]]


def test_gem() -> None:
    # (1 + 8 + 27 + 64) / 4 = 25 and 8^3 / 4 = 128
    assert GeM()(MAPS)[0].tolist() == pytest.approx([25 ** (1 / 3), 128 ** (1 / 3)], rel=1e-6)
    # (1 + 4 + 9 + 16) / 4 = 7.5 and 64 / 4 = 16
    assert GeM(2)(MAPS)[0].tolist() == pytest.approx([math.sqrt(7.5), 4], rel=1e-6)


def test_gem_lies_between_mean_and_maximum() -> None:
    assert torch.allclose(GeM(1)(MAPS), SPOC()(MAPS), rtol=1e-5)
    # of n values the generalised mean lies between max * n^(-1/p) and max
    large = GeM(1000)(MAPS)
    assert torch.allclose(large, MAC()(MAPS), rtol=0.002)
    assert (large >= 4 ** (-1 / 1000) * MAC()(MAPS) * (1 - 1e-5)).all()
    means = [GeM(p)(MAPS)[0, 0].item() for p in (1, 2, 3, 5, 10)]
    assert means == sorted(means)


def test_gem_floors_at_eps() -> None:
    assert torch.allclose(GeM(eps=0.5)(-MAPS), torch.full((1, 2), 0.5))
    assert GeM(eps=1e-6)(torch.zeros(1, 1, 2, 2)).item() == pytest.approx(1e-6, rel=1e-4)


def test_gem_gradients_by_finite_difference() -> None:
    gem = GeM().double()
    maps = torch.rand(2, 3, 4, 5, dtype=torch.double, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weights = torch.arange(6, dtype=torch.double).view(2, 3)
    (weights * gem(maps)).sum().backward()

    def value(p: float) -> float:
        return (weights * GeM(p).double()(maps)).sum().item()

    assert gem.p.grad is not None
    assert gem.p.grad.item() == pytest.approx((value(3 + 2**-10) - value(3 - 2**-10)) * 2**9, rel=1e-5)
    assert torch.autograd.gradcheck(gem, (maps,))


@pytest.mark.parametrize("p", [0.1, 3.0, 50.0])
@pytest.mark.parametrize("scale", [0.0, 1e-8, 1.0, 1e6])
def test_gem_stays_finite(p: float, scale: float) -> None:
    """A plain x^p gives 0 or infinity in these cases, and gradients that are no number."""
    gem, maps = GeM(p), (scale * MAPS).requires_grad_()
    gem(maps).sum().backward()
    assert gem.p.grad is not None
    assert maps.grad is not None
    assert torch.isfinite(gem(maps)).all()
    assert torch.isfinite(gem.p.grad).all()
    assert torch.isfinite(maps.grad).all()


def test_l2_before_and_after_by_hand() -> None:
    maps = torch.tensor([[[[3.0, 0.0]], [[4.0, 2.0]]]])  # positions (3, 4) and (0, 2)
    expected: dict[L2Place, list[float]] = {
        "none": [1.5, 3.0],
        "before": [0.3, 0.9],  # (0.6, 0.8) and (0, 1)
        "after": [1 / math.sqrt(5), 2 / math.sqrt(5)],
        "both": [1 / math.sqrt(10), 3 / math.sqrt(10)],
    }
    for place in get_args(L2Place):
        assert aggregation(2, SpocPooling(), place)(maps)[0].tolist() == pytest.approx(expected[place])
    assert not aggregation(2, SpocPooling(), "both")(torch.zeros(1, 2, 1, 1)).any()  # and no division by zero


def test_the_linear_layer_starts_as_the_identity_and_comes_before_the_last_norm() -> None:
    for place in get_args(L2Place):
        plain, more = aggregation(2, GemPooling(), place), aggregation(2, GemPooling(), place, linear=True)
        assert torch.allclose(plain(MAPS), more(MAPS))
        assert counts(more)[0] == counts(plain)[0] + 2 * 2 + 2
    more = aggregation(2, SpocPooling(), "after", linear=True)
    with torch.no_grad():
        more.linear.bias.copy_(torch.tensor([-2.5, -1.0]))  # type: ignore[union-attr, operator]
    assert more(MAPS)[0].tolist() == pytest.approx([0, 1])


def test_what_pooling_refuses() -> None:
    with pytest.raises(ConfigError, match="unknown pooling 'geme'; did you mean 'gem'"):
        descriptor("cnn", "geme")
    with pytest.raises(ConfigError, match=r"model\.l2 = .behind."):
        descriptor("cnn", l2="behind")
    with pytest.raises(ConfigError, match="above 0"):
        descriptor("cnn", {"name": "gem", "p": 0.0})


def test_gem_begins_with_its_setting() -> None:
    net = descriptor("cnn", {"name": "gem", "p": 2.0})
    assert net.state_dict()["pool.pool.p"].item() == 2.0


#### Parameters


@pytest.mark.parametrize(
    ("network", "total", "trained", "width"),
    [
        ("resnet18_layer3", 2_782_784, 2_099_712, 256),  # Tab. 2: 2.8M, 2.1M
        ("resnet18", 11_176_512, 10_493_440, 512),  # 11.2M, 10M
        ("vgg16", 14_714_688, 7_079_424, 512),  # 14.7M, 7M
        ("efficientnet_lite0", 3_371_008, 1_017_600, 1280),
        ("efficientnet_lite0_stage5", 700_768, 446_784, 112),
        ("cnn", 243_072, 243_072, 128),
    ],
)
def test_parameters(network: str, total: int, trained: int, width: int) -> None:
    net = descriptor(network, "spoc")
    assert counts(net) == (total, trained)
    assert net.feature_dim == width
    assert counts(made(network)) == (total + 1, trained + 1)  # GeM's p is trained, and travels


def test_trained_parameters_by_hand() -> None:
    # VGG16's last three convolutions; EfficientNet-Lite0's last block and last convolution, and two per channel of norm
    assert 3 * (512 * 512 * 9 + 512) == 7_079_424
    assert (192 + 2) * 1152 + (9 + 2) * 1152 + (1152 + 2) * 320 + (320 + 2) * 1280 == 1_017_600
    # its fifth stage: from 80 channels to 112 by way of 480, then twice from 112 by way of 672
    assert (80 + 2 + 25 + 2) * 480 + (480 + 2) * 112 + 2 * ((112 + 2 + 25 + 2) * 672 + (672 + 2) * 112) == 446_784


@pytest.mark.parametrize(
    ("network", "train", "trained"),
    [
        ("resnet18", "layer4", 8_393_728),
        ("resnet18", "all", 11_176_512),
        ("resnet18", "head", 0),
        ("resnet18_layer3", "stem", 2_782_784),
        ("vgg16", "conv1", 14_714_688),
        ("efficientnet_lite0", "last", 320 * 1280 + 2560),
        ("cnn", "block4", 128 * 128 * 9 + 128 + 256),
    ],
)
def test_the_first_trained_stage_can_be_chosen(network: str, train: str, trained: int) -> None:
    net = descriptor(network, "gem", train=train)
    assert counts(net)[1] == trained + 1
    assert net.train()(pictures()).shape == (2, net.feature_dim)


def test_the_small_cnn_scales_with_its_width() -> None:
    small = descriptor("cnn", "spoc", backbone={"name": "cnn", "width": 8})
    # weights and bias, and two per channel of norm: 3 -> 8 with 5x5, -> 16 -> 32 -> 32 with 3x3
    assert counts(small)[0] == 25 * 3 * 8 + 24 + sum(9 * i * o + 3 * o for i, o in ((8, 16), (16, 32), (32, 32)))
    assert small(pictures(1, 96, 128)).shape == (1, 32)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in small.modules())


def test_only_what_is_trained_travels_as_parameters() -> None:
    names = {name for name in travelling(made("resnet18_layer3")) if "running" not in name}
    assert names == {name for name, p in made("resnet18_layer3").named_parameters() if p.requires_grad}
    assert {name.split(".")[1] for name in names} == {"layer3", "pool"}


#### Frozen, and trained


def test_forward_is_the_head_of_the_trunk(net: Descriptor) -> None:
    for mode in (False, True):
        net.train(mode)
        x = pictures()
        kept = net.trunk(x.clone().requires_grad_())
        assert not kept.requires_grad
        assert torch.allclose(net.head(kept), net(x), atol=1e-6)
        assert net(x).shape == (2, net.feature_dim)
        assert torch.allclose(net(x).norm(dim=1), torch.ones(2), atol=1e-5)


def test_training_moves_what_is_trained_and_nothing_else(net: Descriptor) -> None:
    before = copy.deepcopy(net.state_dict())
    kept = net.eval().trunk(pictures())
    net.train()
    optimiser = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1)
    for _ in range(2):
        optimiser.zero_grad()
        anchor, other = net(pictures())
        (anchor @ other).backward()
        optimiser.step()
    assert torch.equal(net.trunk(pictures()), kept)
    trained = {name for name, p in net.named_parameters() if p.requires_grad}
    moved = {name for name, tensor in net.state_dict().items() if not torch.equal(tensor, before[name])}
    layers = {name.rpartition(".")[0] for name in trained}
    assert {name.rpartition(".")[0] for name in moved} <= layers
    assert trained <= moved
    statistics = {name for name in before if "running_" in name and name.rpartition(".")[0] in layers}
    assert statistics <= moved


@pytest.mark.parametrize("network", ["resnet18_layer3", "efficientnet_lite0"])
def test_statistics_can_be_kept_in_training_too(network: str) -> None:
    torch.manual_seed(0)
    net = descriptor(network, statistics="stored").train()
    before = copy.deepcopy(net.state_dict())
    evaluated = copy.deepcopy(net).eval()
    assert torch.equal(net(pictures()), evaluated(pictures()))
    net(pictures()).sum().backward()
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert all((p.grad is not None) == p.requires_grad for p in net.parameters())
    assert net(pictures(1)).shape == (1, net.feature_dim)  # one picture has no statistics of its own


def test_train_and_eval_return_the_network(net: Descriptor) -> None:
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    assert net.train() is net
    assert net.training
    assert net.pool.training


def test_a_copy_shares_nothing(net: Descriptor) -> None:
    net.eval()
    twin = copy.deepcopy(net)
    x = pictures(1)
    with torch.no_grad():
        before = net(x)
        for p in twin.parameters():
            p.zero_()
        assert torch.equal(net(x), before)
        assert not torch.allclose(twin(x), before)


def test_functional_call_reaches_every_weight(net: Descriptor) -> None:
    net.eval()
    zeros = {name: torch.zeros_like(p) for name, p in net.backbone.named_parameters(prefix="backbone")}
    with torch.no_grad():
        vectors = torch.func.functional_call(net, zeros, (pictures(1),))
    assert torch.allclose(vectors, vectors[0, 0])  # nothing of the picture is left


#### Pictures in


def test_channels_last_gives_the_same(net: Descriptor) -> None:
    net.eval()
    with torch.no_grad():
        plain = net(pictures())
        turned = net.to(memory_format=torch.channels_last)
        x = pictures().contiguous(memory_format=torch.channels_last)
        assert turned.trunk(x).is_contiguous(memory_format=torch.channels_last)
        assert torch.allclose(plain, turned(x), atol=1e-4)


@pytest.mark.parametrize(
    ("network", "mean", "deviation"),
    [
        ("resnet18", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("vgg16", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("efficientnet_lite0", (127 / 255,) * 3, (128 / 255,) * 3),
        ("cnn", (0.5,) * 3, (0.5,) * 3),
    ],
)
def test_scaling(network: str, mean: tuple[float, ...], deviation: tuple[float, ...]) -> None:
    net = descriptor(network, train="all").eval()  # nothing frozen: the trunk is the scaling alone
    x = pictures(1)
    scaled = (x - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(deviation).view(1, 3, 1, 1)
    assert torch.allclose(net.trunk(x), scaled, atol=1e-6)
    # it is no weight: neither saved nor sent
    assert not {"mean", "deviation"} & {*net.state_dict(), *travelling(net)}


def test_photographs_of_96x128(net: Descriptor) -> None:
    with torch.no_grad():
        assert net.eval()(pictures(1, 96, 128)).shape == (1, net.feature_dim)


def test_vgg_ends_before_its_last_relu() -> None:
    net = made("vgg16")
    with torch.no_grad():
        maps = net.trunk(pictures(1, 64, 64))
        for layer in net._trained:
            maps = layer(maps)
    assert maps.shape == (1, 512, 4, 4)
    assert (maps < 0).any()


#### Weights


@pytest.mark.parametrize(
    ("network", "whole"),
    [
        ("resnet18_layer3", lambda: ResNet18(1000)),
        ("resnet18", lambda: ResNet18(1000)),
        ("vgg16", lambda: VGG16(5, hidden=4)),
        ("efficientnet_lite0", lambda: EfficientNetLite0(1000)),
        ("efficientnet_lite0_stage5", lambda: EfficientNetLite0(1000)),
    ],
)
def test_a_whole_networks_weight_file_loads_by_path(network: str, whole: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(5)
    source = whole().eval()
    path = tmp_path / "whole.safetensors"
    save_file(source.state_dict(), path)
    net = descriptor(network, "spoc", l2="none", weights=str(path)).eval()
    own, theirs = net.backbone.state_dict(), source.state_dict()
    assert own
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in own.items())
    if network in ("resnet18", "efficientnet_lite0"):  # the others are cut short
        with torch.no_grad():
            x = pictures()
            maps = source.maps((x - net.mean) / net.deviation)  # type: ignore[operator]
            assert torch.allclose(net(x), maps.mean(dim=(2, 3)), atol=1e-4)


def test_other_weights_are_refused(tmp_path: Path) -> None:
    weights = ResNet18(10).state_dict()
    path = tmp_path / "net.safetensors"
    save_file(weights, path)
    with pytest.raises(ConfigError, match=r"missing: features\.0\.weight, .* and 21 more; unexpected: ") as caught:
        descriptor("vgg16", weights=str(path))
    assert len(str(caught.value)) < 500
    del weights["layer3.1.conv2.weight"]
    save_file(weights, path)
    with pytest.raises(ConfigError, match=r"missing: layer3\.1\.conv2\.weight\."):
        descriptor("resnet18_layer3", weights=str(path))
    with pytest.raises(DataError, match="import-weights"):
        descriptor("resnet18", weights=str(tmp_path / "resnet18-f37072fd.pth"))
    with pytest.raises(ConfigError, match=r"no package carries this backbone's"):
        descriptor("resnet18", weights="imagenet")


@pytest.mark.skipif(find_spec(PACKAGE) is None, reason=f"the package {PACKAGE} is not installed")
def test_imagenet_weights_by_name(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    net = descriptor(weights="imagenet").eval()
    with torch.no_grad():
        bright, dark, other = net(torch.stack([pictures(1)[0], 0.8 * pictures(1)[0], pictures(1)[0].roll(24, 2) ** 4]))
    assert bright @ dark > bright @ other + 0.05


def test_what_is_unknown_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'resnet18'"):
        descriptor("resnet1")
    with pytest.raises(ConfigError, match=r"model.train: unknown stage 'layer4'.*all, default, head"):
        descriptor("resnet18_layer3", train="layer4")
    with pytest.raises(ConfigError, match="statistics"):
        descriptor("cnn", statistics="none")
    with pytest.raises(ConfigError, match=r"model.backbone.width = 0"):
        descriptor("cnn", backbone={"name": "cnn", "width": 0})


def test_weights_follow_the_seed() -> None:
    def make(seed: int) -> dict[str, Tensor]:
        torch.manual_seed(seed)
        return descriptor("cnn").state_dict()

    assert all(torch.equal(a, b) for a, b in zip(make(3).values(), make(3).values()))
    assert any(not torch.equal(a, b) for a, b in zip(make(3).values(), make(4).values()))
