"""The parts of object recognition: augmentation, counting, the frozen trunk and its features, the small VGG."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from wayfare.core.bundle import snapshot
from wayfare.core.errors import ConfigError, DataError
from wayfare.nets import frozen
from wayfare.nets.efficientnet import EfficientNetLite0
from wayfare.nets.features import features_of
from wayfare.nets.frozen import Head, Trunk, resized
from wayfare.nets.vgg import VGGSmall
from wayfare.objects.augment import TourAugmentation, transformed
from wayfare.objects.tally import TOGETHER, count_right, count_right_of_heads, spread


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


#### Augmentation


def changed(pictures: Tensor, mirror=False, turn=0.0, magnify=1.0, move=(0.0, 0.0)) -> Tensor:
    count = len(pictures)
    return transformed(
        pictures,
        mirror=np.full(count, mirror),
        turn=np.full(count, turn),
        magnify=np.full(count, magnify),
        move=np.tile(move, (count, 1)),
    )


def near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, atol=1e-4)


def test_every_movement_by_itself() -> None:
    square, wide = noise(2, 3, 8, 8), noise(2, 3, 6, 10)
    for pictures in (square, wide):
        assert near(changed(pictures), pictures)
        assert near(changed(pictures, mirror=True), pictures.flip(3))
        assert near(changed(pictures, turn=math.pi), pictures.flip(2, 3))
    assert near(changed(square, turn=math.pi / 2), torch.rot90(square, 1, (2, 3)))  # anticlockwise
    # two pixels of ten to the right, one of six up
    assert near(changed(wide, move=(0.2, -1 / 6))[..., :-1, 2:], wide[..., 1:, :-2])
    # beyond the left edge comes the reflection: columns 0 and 1 again, from the edge outwards
    assert near(changed(wide, move=(0.2, 0))[..., :2], wide[..., :2].flip(3))


def test_sides_of_unlike_length_are_turned_without_shearing() -> None:
    """A dot two pixels right of the middle goes two pixels up, whatever the picture's shape."""
    picture = torch.zeros(1, 1, 7, 11)
    picture[0, 0, 3, 7] = 1
    turned = changed(picture, turn=math.pi / 2)
    assert float(turned[0, 0, 1, 5]) == pytest.approx(1, abs=1e-4)
    assert float(turned.sum()) == pytest.approx(1, abs=1e-3)


def test_magnified_about_the_middle() -> None:
    """Twice as large: the middle stays, and what was one pixel beside it is two away."""
    picture = torch.zeros(1, 1, 9, 9)
    picture[0, 0, 4, 5] = 1
    assert float(changed(picture, magnify=2.0)[0, 0, 4, 6]) == pytest.approx(1, abs=1e-4)


def test_the_order_is_mirror_turn_move() -> None:
    square = noise(1, 3, 8, 8)
    done = changed(square, mirror=True, turn=math.pi / 2, move=(0.25, 0))
    assert near(done[..., 2:], torch.rot90(square.flip(3), 1, (2, 3))[..., :-2])


def test_a_tour_is_drawn_from_the_generator_alone() -> None:
    pictures, tour = noise(6, 3, 8, 8).to(memory_format=torch.channels_last), TourAugmentation()
    torch.manual_seed(1)
    first = tour(pictures, np.random.default_rng(5))
    torch.manual_seed(2)
    assert torch.equal(first, tour(pictures, np.random.default_rng(5)))
    assert not torch.equal(first, tour(pictures, np.random.default_rng(6)))
    assert first.is_contiguous(memory_format=torch.channels_last)
    # a picture's own five numbers decide what becomes of it, not its neighbours
    assert near(first[:2], tour(pictures[:2], np.random.default_rng(5)))


def test_a_tours_extremes() -> None:
    class Fixed:
        def __init__(self, *values: float) -> None:
            self.values = values

        def random(self, shape: tuple[int, int]) -> np.ndarray:
            return np.tile(self.values, (shape[0], 1))

    square = noise(1, 3, 8, 8)

    def seen(*values: float, **settings: float) -> Tensor:
        return TourAugmentation(**settings)(square, Fixed(*values))  # type: ignore[arg-type]

    assert near(seen(0.5, 0.5, 0.5, 0.5, 0.5), square)
    assert near(seen(0.4, 0.5, 0.5, 0.5, 0.5), square.flip(3))
    assert near(seen(0.5, 1, 0, 0.5, 1), changed(square, turn=math.radians(15), magnify=1 / 1.2, move=(0, 0.1)))
    assert near(seen(0.5, 0, 1, 1, 0.5, turn=90.0, magnify=2.0, move=0.25),
                changed(square, turn=-math.pi / 2, magnify=2.0, move=(0.25, 0)))  # fmt: skip
    for wrong in ({"turn": -1.0}, {"magnify": 0.9}, {"move": 1.0}):
        with pytest.raises(ConfigError, match="expected turn of at least 0 degrees"):
            TourAugmentation(**wrong)


#### Counting


def test_places_are_evenly_spread() -> None:
    assert spread(10, 4).tolist() == [0, 2, 5, 7]
    assert spread(3, 3).tolist() == spread(3, 9).tolist() == spread(3, 0).tolist() == [0, 1, 2]


def test_right_answers_by_hand() -> None:
    logits = torch.tensor([[3.0, 1, 0], [0, 1, 5], [0, 2, 1], [1, 0, 0]])
    labels = torch.tensor([0, 2, 2, 0])
    right, total = count_right([(logits[:3], labels[:3]), (logits[3:], labels[3:])], 3)
    assert right.tolist() == [2, 0, 1] and total.tolist() == [2, 0, 2]
    assert right.dtype == total.dtype == np.int64
    assert count_right([], 3)[1].tolist() == [0, 0, 0]


def test_heads_by_hand() -> None:
    """Two values, two classes: one head says what is larger, one the contrary, one always the second class."""
    heads = torch.tensor([[[1.0, 0], [0, 1]], [[0, 1], [1, 0]], [[0, 0], [0, 0]]])
    biases = torch.tensor([[0.0, 0], [0, 0], [0, 1]])
    features, labels = torch.tensor([[2.0, 1], [3, 1], [1, 4], [5, 1]]), torch.tensor([0, 0, 1, 1])
    right, total = count_right_of_heads(heads, biases, [(features[:3], labels[:3]), (features[3:], labels[3:])])
    assert right.tolist() == [[2, 1], [0, 1], [0, 2]] and total.tolist() == [2, 2]


@pytest.mark.parametrize("count", [1, TOGETHER - 1, TOGETHER, TOGETHER + 1, 3 * TOGETHER])
def test_many_heads_are_counted_as_one_by_one(count: int) -> None:
    heads, biases = noise(count, 5, 40, seed=1) - 0.5, noise(count, 5, seed=2)
    features, labels = noise(70, 40, seed=3), torch.arange(70) % 5
    right, total = count_right_of_heads(heads, biases, [(features, labels)])
    assert right.shape == (count, 5) and total.tolist() == [14] * 5
    for head, bias, found in zip(heads, biases, right):
        one = count_right([(nn.functional.linear(features.double(), head.double(), bias.double()), labels)], 5)[0]
        assert one.tolist() == found.tolist()
    assert count_right_of_heads(heads[:0], biases[:0], [(features, labels)])[0].shape == (0, 5)


#### The small VGG


def test_vggs_parameters_by_hand() -> None:
    def parameters(net: nn.Module) -> int:
        return sum(p.numel() for p in net.parameters())

    for width, total in ((8, 27_762), (16, 109_658), (20, 170_910), (32, 435_882)):
        w = width
        first = (27 * w + w) + (9 * w * w + w)
        second = (18 * w * w + 2 * w) + (36 * w * w + 2 * w)
        third = (72 * w * w + 4 * w) + 2 * (144 * w * w + 4 * w)
        assert first + second + third + 40 * w + 10 == total == parameters(VGGSmall(10, 3, width))


@pytest.mark.parametrize("norm", ["none", "group", "batch"])
@pytest.mark.parametrize(("channels", "height", "width"), [(1, 8, 8), (3, 32, 32), (3, 48, 40)])
def test_the_small_vgg_is_a_network_as_all_are(channels: int, height: int, width: int, norm: str) -> None:
    net = VGGSmall(7, channels, 4, norm).eval()  # type: ignore[arg-type]
    pictures = noise(2, channels, height, width)
    with torch.no_grad():
        features = net.features(pictures)
        assert features.shape == (2, net.feature_dim) == (2, 16)
        assert torch.equal(net.head(features), net(pictures))
        last = net.to(memory_format=torch.channels_last)(pictures.to(memory_format=torch.channels_last))
        assert torch.allclose(last, net.head(features), atol=1e-5)
    assert bool(list(net.buffers())) == (norm == "batch")
    net.train()(pictures).square().sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_the_small_vgg_refuses_no_channels() -> None:
    with pytest.raises(ConfigError, match="width must be at least 1, not 0"):
        VGGSmall(10, 3, 0)


#### The frozen trunk


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    """Of no use, but quick: the real ones are in the tests of the task."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return EfficientNetLite0().state_dict()


def test_the_trunk_never_trains_and_draws_nothing(weights: dict[str, Tensor]) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    trunk = Trunk(32, weights)
    assert torch.equal(torch.get_rng_state(), before)
    trunk.train()
    assert not any(module.training for module in trunk.modules())
    assert not any(p.requires_grad for p in trunk.parameters())
    assert not trunk(noise(2, 3, 32, 32)).requires_grad


def test_features_have_mean_0_and_deviation_1(weights: dict[str, Tensor]) -> None:
    features = Trunk(32, weights)(noise(3, 3, 32, 32))
    assert features.shape == (3, 1280)
    assert torch.allclose(features.mean(1), torch.zeros(3), atol=1e-4)
    plain = EfficientNetLite0().eval()
    plain.load_state_dict(weights)
    with torch.no_grad():
        pooled = plain.features((noise(3, 3, 32, 32) * 255 - 127) / 128)
    variance = pooled.var(1, keepdim=True, correction=0)
    by_hand = (pooled - pooled.mean(1, keepdim=True)) / torch.sqrt(variance + 1e-5)
    assert torch.allclose(features, by_hand, atol=1e-3)


def test_grey_pictures_are_colour_pictures_of_equal_channels(weights: dict[str, Tensor]) -> None:
    trunk, grey = Trunk(40, weights), noise(2, 1, 8, 8)
    assert torch.equal(trunk(grey), trunk(grey.expand(-1, 3, -1, -1).contiguous()))


def test_pictures_are_enlarged_and_shrunk_evenly() -> None:
    dot = torch.zeros(1, 1, 2, 2)
    dot[0, 0, 0, 0] = 1
    # pixel centres of the larger picture lie at -1/4, 1/4, 3/4, 5/4 of the smaller's
    row = torch.tensor([1, 0.75, 0.25, 0])
    assert torch.allclose(resized(dot, 4)[0, 0], torch.outer(row, row))
    assert float(resized(noise(1, 1, 64, 64), 1)) == pytest.approx(0.5, abs=0.05)  # not one pixel of it
    assert resized(dot, 2) is dot and resized(dot, (3, 5)).shape == (1, 1, 3, 5)


def test_a_head_starts_near_zero_and_is_all_that_travels() -> None:
    torch.manual_seed(0)
    head = Head(10)
    assert sum(p.numel() for p in head.parameters()) == 12_810
    assert float(head.head.weight.detach().std()) == pytest.approx(0.001, rel=0.05) and not head.head.bias.any()
    assert list(snapshot(head)) == ["head.weight", "head.bias"]
    x = noise(2, 1280)
    assert head.features(x) is x and head(x).shape == (2, 10)


def pixels(count: int = 70) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), np.uint8)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_features_have_the_same_bytes_with_any_number_of_threads(
    weights: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for threads, cores in ((1, 1), (2, 3)):
        torch.set_num_threads(threads)
        monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / str(cores)))
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        features_of(Trunk(32, weights), pixels())
        (file,) = tmp_path.glob(f"{cores}/features/*/features.npy")
        made.append(file.read_bytes())
    assert made[0] == made[1]


def test_features_are_computed_once(
    weights: dict[str, Tensor], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    trunk = Trunk(32, weights)
    first = features_of(trunk, pixels(), lambda done, total: seen.append((done, total)))
    assert seen == [(32, 70), (64, 70), (70, 70)]
    assert first.shape == (70, 1280) and isinstance(first, np.memmap)
    whole = trunk(torch.from_numpy(pixels()).permute(0, 3, 1, 2) / 255)
    assert np.allclose(first, whole.numpy(), atol=1e-3)
    monkeypatch.setattr(Trunk, "forward", lambda *_: pytest.fail("computed again"))
    assert np.array_equal(features_of(Trunk(32, weights), pixels()), first)
    assert features_of(trunk, pixels()[:0]).shape == (0, 1280)


def test_what_changes_features_changes_their_key(weights: dict[str, Tensor], own_cache: Path) -> None:
    other = {**weights, "_conv_stem.weight": weights["_conv_stem.weight"] + 0.1}
    changed = pixels(3)
    changed[2, 7, 7, 2] ^= 1
    for trunk, images in (
        (Trunk(32, weights), pixels(3)),
        (Trunk(33, weights), pixels(3)),
        (Trunk(32, other), pixels(3)),
        (Trunk(32, weights), changed),
        (Trunk(32, {**weights, "_fc.bias": weights["_fc.bias"] + 1}), pixels(3)),  # no part of the trunk: the same
    ):
        features_of(trunk, images)
    assert len(list(own_cache.glob("features/*/features.npy"))) == 4


def test_damaged_features_are_made_again(weights: dict[str, Tensor], own_cache: Path) -> None:
    features_of(Trunk(32, weights), pixels(3))
    (file,) = own_cache.glob("features/*/features.npy")
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    features_of(Trunk(32, weights), pixels(3))
    assert file.read_bytes() == whole


def test_a_full_disk_says_what_to_do(
    weights: dict[str, Tensor], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Tensor:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Trunk, "forward", full)
    with pytest.raises(DataError, match=r"features\.npy: cannot be written: No space left.*set WAYFARE_CACHE"):
        features_of(Trunk(32, weights), pixels(3))
    assert not list(own_cache.glob("features/*/*"))


def test_weights_of_another_network_are_refused(weights: dict[str, Tensor]) -> None:
    with pytest.raises(ConfigError, match=r"do not fit the network; missing: _conv_stem\.weight"):
        Trunk(32, {name: t for name, t in weights.items() if name != "_conv_stem.weight"})


def test_imagenets_weights_come_without_being_asked_for(
    weights: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "imagenet_weights", lambda: weights)
    assert Trunk(32).key == Trunk(32, weights).key
