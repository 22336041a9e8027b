"""The networks: parameter counts, torchvision's names, representations, pretrained weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from wayfare.core.errors import ConfigError
from wayfare.nets.cnn import small_cnn
from wayfare.nets.pretrained import load_pretrained
from wayfare.nets.resnet import ResNet18
from wayfare.nets.vgg import VGG16, VGG16Pooled


def parameters(make: Callable[[], nn.Module]) -> int:
    with torch.device("meta"):  # shapes only: VGG16 has half a gigabyte of weights
        return sum(p.numel() for p in make().parameters())


MAKERS: dict[str, Callable[[], nn.Module]] = {
    "cnn": lambda: small_cnn(7, 3, 32),
    "cnn-group": lambda: small_cnn(7, 3, 32, norm="group"),
    "cnn-batch": lambda: small_cnn(7, 3, 32, norm="batch"),
    "vgg": lambda: VGG16(7, hidden=8),
    "vgg-pooled": lambda: VGG16Pooled(7),
    "resnet": lambda: ResNet18(7),
    "resnet-cifar": lambda: ResNet18(7, stem="cifar", last="layer3"),
    "resnet-layer3": lambda: ResNet18(7, last="layer3"),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine cost more than these small passes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MAKERS[name]().eval()


@pytest.fixture(params=MAKERS)
def net(request: pytest.FixtureRequest) -> nn.Module:
    return copy.deepcopy(made(request.param))  # to copy is quicker than to draw eleven million numbers again


def picture(batch: int = 2, channels: int = 3, height: int = 32, width: int = 32) -> Tensor:
    return torch.randn(batch, channels, height, width, generator=torch.Generator().manual_seed(1))


#### What every network promises


def test_forward_is_the_head_of_the_features(net: nn.Module) -> None:
    with torch.no_grad():
        features = net.features(picture())
        assert features.shape == (2, net.feature_dim)
        assert torch.equal(net.head(features), net(picture()))
        assert net(picture()).shape == (2, 7)
    assert {name for name, _ in net.named_parameters() if name.startswith(net.head_name + ".")} == {
        f"{net.head_name}.weight",
        f"{net.head_name}.bias",
    }


def test_channels_last_gives_the_same(net: nn.Module) -> None:
    with torch.no_grad():
        plain = net(picture())
        last = net.to(memory_format=torch.channels_last)(picture().to(memory_format=torch.channels_last))
    assert torch.allclose(plain, last, atol=1e-4, rtol=1e-3)


def test_a_copy_shares_nothing(net: nn.Module) -> None:
    twin = copy.deepcopy(net)
    with torch.no_grad():
        before = net(picture())
        for p in twin.parameters():
            p.zero_()
        assert torch.equal(net(picture()), before)
        assert not twin(picture()).any()


def test_functional_call_reaches_every_weight(net: nn.Module) -> None:
    zeros = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    with torch.no_grad():
        assert not torch.func.functional_call(net, zeros, (picture(),)).any()


def test_every_parameter_gets_a_gradient(net: nn.Module) -> None:
    net(picture()).square().sum().backward()
    assert all(p.grad is not None for p in net.parameters())


@pytest.mark.parametrize("name", ["cnn", "vgg-pooled", "resnet"])
def test_weights_follow_the_seed(name: str) -> None:
    def make(seed: int) -> dict[str, Tensor]:
        torch.manual_seed(seed)
        return MAKERS[name]().state_dict()

    one, again, other = make(3), make(3), make(4)
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


#### The small one


def test_small_cnn_parameters_by_hand() -> None:
    # 8x8 grey, width 4, hidden 5, 3 classes: one block: 9*1*4 + 4; hidden 4*4*4*5 + 5; head 5*3 + 3
    assert parameters(lambda: small_cnn(3, 1, 8, width=4, hidden=5)) == 40 + 325 + 18
    # 32x32 colour: 3 blocks w, 2w, 4w, then 4w * 4 * 4 -> h -> 10
    for width, hidden, total in ((8, 21, 17_025), (16, 64, 89_834), (32, 384, 883_914), (64, 128, 896_522)):
        blocks = (27 * width + width) + (18 * width**2 + 2 * width) + (72 * width**2 + 4 * width)
        by_hand = blocks + (64 * width * hidden + hidden) + (10 * hidden + 10)
        assert parameters(lambda w=width, h=hidden: small_cnn(10, 3, 32, width=w, hidden=h)) == by_hand == total


@pytest.mark.parametrize("norm", ["none", "group", "batch"])
@pytest.mark.parametrize(("channels", "size"), [(1, 8), (1, (28, 28)), (3, 32), (3, (96, 128)), (3, (33, 47))])
def test_small_cnn_takes_many_sizes(channels: int, size: int | tuple[int, int], norm: str) -> None:
    height, width = (size, size) if isinstance(size, int) else size
    net = small_cnn(10, channels, size, width=6, norm=norm)  # type: ignore[arg-type]
    assert net(picture(2, channels, height, width)).shape == (2, 10)
    assert bool(list(net.buffers())) == (norm == "batch")


def test_small_cnn_learns() -> None:
    torch.manual_seed(0)
    x, y = torch.rand(64, 1, 8, 8), torch.arange(64) % 2
    x[y == 1, :, :4] += 1.0  # the upper half is brighter
    net = small_cnn(2, 1, 8)
    optimiser = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    assert (net(x).argmax(1) == y).all()


def test_small_cnn_refuses() -> None:
    with pytest.raises(ConfigError, match="5x5"):
        small_cnn(10, 3, 4)
    with pytest.raises(ConfigError, match="width must be at least 1"):
        small_cnn(10, 3, 32, width=0)
    with pytest.raises(ConfigError, match="did you mean 'group'"):
        small_cnn(10, 3, 32, norm="groups")  # type: ignore[arg-type]


#### Torchvision's networks

VGG_CONVOLUTIONS = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)


def test_vgg_parameters() -> None:
    assert parameters(lambda: VGG16(1000)) == 138_357_544
    assert parameters(lambda: VGG16Pooled(10)) == 14_719_818
    # one input channel: 2 * 64 * 9 weights fewer
    assert parameters(lambda: VGG16Pooled(10, channels=1)) == 14_719_818 - 1152


def test_vgg_names() -> None:
    with torch.device("meta"):
        full, pooled = VGG16(1000).state_dict(), VGG16Pooled(10).state_dict()
    convolutions = [f"features.{n}.{kind}" for n in VGG_CONVOLUTIONS for kind in ("weight", "bias")]
    assert list(full) == convolutions + [f"classifier.{n}.{kind}" for n in (0, 3, 6) for kind in ("weight", "bias")]
    assert list(pooled) == [*convolutions, "classifier.weight", "classifier.bias"]
    assert full["classifier.0.weight"].shape == (4096, 25088)
    assert full["features.28.weight"].shape == (512, 512, 3, 3)


def test_vgg_dropout_is_off_in_evaluation() -> None:
    torch.manual_seed(0)
    net = VGG16(3, hidden=16)
    with torch.no_grad():
        assert not torch.equal(net.features(picture()), net.features(picture()))
        net.eval()
        assert torch.equal(net.features(picture()), net.features(picture()))


def test_vgg_maps() -> None:
    with torch.no_grad():
        assert VGG16Pooled().features.maps(picture(1, 3, 64, 96)).shape == (1, 512, 2, 3)


def test_resnet_parameters() -> None:
    assert parameters(lambda: ResNet18(1000)) == 11_689_512
    assert parameters(lambda: ResNet18(10)) == 11_181_642
    # a 3x3 first convolution has 64 * 3 * (49 - 9) weights fewer
    assert parameters(lambda: ResNet18(10, stem="cifar")) == 11_181_642 - 7680
    # up to layer3 2,782,784, and a head of 256 * 10 + 10
    assert parameters(lambda: ResNet18(10, last="layer3")) == 2_782_784 + 2570
    assert parameters(lambda: ResNet18(10, channels=1)) == 11_181_642 - 64 * 2 * 49


def resnet_names() -> set[str]:
    def bn(name: str) -> list[str]:
        return [f"{name}.{k}" for k in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")]

    names = ["conv1.weight", *bn("bn1"), "fc.weight", "fc.bias"]
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            for n in (1, 2):
                names += [f"layer{stage}.{block}.conv{n}.weight", *bn(f"layer{stage}.{block}.bn{n}")]
        if stage > 1:
            names += [f"layer{stage}.0.downsample.0.weight", *bn(f"layer{stage}.0.downsample.1")]
    return set(names)


def test_resnet_names() -> None:
    with torch.device("meta"):
        own = ResNet18(1000).state_dict()
    assert set(own) == resnet_names()
    assert len(own) == 122
    assert own["conv1.weight"].shape == (64, 3, 7, 7)
    assert own["layer2.0.downsample.0.weight"].shape == (128, 64, 1, 1)


def test_resnet_strides() -> None:
    with torch.no_grad():
        assert ResNet18(3).eval().maps(picture(1, 3, 64, 96)).shape == (1, 512, 2, 3)
        assert ResNet18(3, last="layer3").eval().maps(picture(1, 3, 64, 96)).shape == (1, 256, 4, 6)
        assert ResNet18(3, stem="cifar").eval().maps(picture(1)).shape == (1, 512, 4, 4)


def test_resnet_refuses() -> None:
    with pytest.raises(ConfigError, match="did you mean 'cifar'"):
        ResNet18(10, stem="cifar10")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="last stage"):
        ResNet18(10, last="layer2")  # type: ignore[arg-type]


#### Pretrained weights


def resnet(classes: int, seed: int) -> ResNet18:
    torch.manual_seed(seed)
    return ResNet18(classes, last="layer3")


def test_equal_classes_load_everything() -> None:
    source, net = resnet(4, 0), resnet(4, 1)
    assert load_pretrained(net, source.state_dict()) == []
    assert all(torch.equal(a, b) for a, b in zip(source.state_dict().values(), net.state_dict().values()))


def test_a_head_of_other_classes_is_left_as_it_was() -> None:
    source, net = resnet(1000, 0), resnet(4, 1)
    head = net.fc.weight.clone()
    assert load_pretrained(net, source.state_dict()) == ["fc.weight", "fc.bias"]
    assert torch.equal(net.fc.weight, head)
    assert torch.equal(net.layer3[1].conv2.weight, source.layer3[1].conv2.weight)


def test_a_head_is_taken_whole_or_not_at_all() -> None:
    weights = resnet(4, 0).state_dict()
    weights["fc.weight"] = torch.zeros(4, 100)  # the bias still fits
    net = resnet(4, 1)
    bias = net.fc.bias.clone()
    assert load_pretrained(net, weights) == ["fc.weight", "fc.bias"]
    assert torch.equal(net.fc.bias, bias)


def test_vgg_weights_load_into_the_pooled_form() -> None:
    torch.manual_seed(0)
    source, net = VGG16(5, hidden=4), VGG16Pooled(10)
    assert load_pretrained(net, source.state_dict()) == ["classifier.weight", "classifier.bias"]
    assert torch.equal(net.features[28].weight, source.features[28].weight)


def test_old_files_lack_batchnorms_counter() -> None:
    weights = {k: v for k, v in resnet(4, 0).state_dict().items() if not k.endswith("num_batches_tracked")}
    left = load_pretrained(resnet(4, 1), weights)
    assert left
    assert all(name.endswith("num_batches_tracked") for name in left)


def test_what_does_not_fit_is_named_and_nothing_is_loaded() -> None:
    weights = resnet(4, 0).state_dict()
    del weights["bn1.bias"]
    weights["extra.weight"] = torch.zeros(2)
    weights["conv1.weight"] = torch.zeros(64, 1, 7, 7)
    net = resnet(4, 1)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    with pytest.raises(ConfigError) as caught:
        load_pretrained(net, weights)
    message = str(caught.value)
    assert "missing: bn1.bias" in message
    assert "unexpected: extra.weight" in message
    assert "of another shape: conv1.weight (64, 1, 7, 7) for (64, 3, 7, 7)" in message
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


def test_the_head_counts_too_when_asked() -> None:
    with pytest.raises(ConfigError, match=r"fc.weight \(1000, 256\) for \(4, 256\)"):
        load_pretrained(resnet(4, 1), resnet(1000, 0).state_dict(), skip_head=False)
