"""Object recognition as a task: its networks, batches, counts, and where its pictures come from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from wayfare.components import build
from wayfare.core.protocols import Client
from wayfare.core.seeds import rng_for
from wayfare.data.town.words import SIGHTS
from wayfare.errors import ConfigError, DataError
from wayfare.tasks.nets.efficientnet import EfficientNetLite0
from wayfare.tasks.nets.frozen import Head
from wayfare.tasks.objects import Objects
from wayfare.tasks.recognition.augment import tour
from wayfare.testing import TASK_CHECKS, check_task


@pytest.fixture(autouse=True)
def cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def row(label: int, shade: int) -> bytes:
    return bytes([label]) + bytes([shade]) * 3072


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `wayfare town` leaves it, with pictures of one shade: twenty to learn from, ten to be judged by."""
    root = tmp_path_factory.mktemp("town")
    folder = root / "cifar" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "batches.meta.txt").write_text("".join(f"{name}\n" for name in SIGHTS))
    (folder / "data_batch_1.bin").write_bytes(b"".join(row(n % 10, 20 * (n % 10) + n // 10) for n in range(20)))
    (folder / "test_batch.bin").write_bytes(b"".join(row(n, 20 * n) for n in range(10)))
    (root / "town.json").write_text(json.dumps({"spec": {}}))
    return root


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A frozen network with random weights: the real ones are tested elsewhere, and take longer to get."""
    file = tmp_path_factory.mktemp("weights") / "lite0.safetensors"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_file(EfficientNetLite0().state_dict(), file)
    return str(file)


@pytest.fixture
def heads(town: Path, weights: str) -> Objects:
    return Objects("town", str(town), 32, "efficientnet_lite0_head", weights=weights)


#### The town's sights


def test_the_towns_sights(town: Path) -> None:
    task = Objects("town", str(town))
    assert task.classes == SIGHTS and task.samples == 20
    assert task.labels.tolist() == [*range(10)] * 2
    batch = next(task.scan(task.network(), Client("c", np.array([13]), np.array([], int))))
    assert batch.inputs.shape == (1, 3, 32, 32) and batch.labels is not None and batch.labels.tolist() == [3]
    assert torch.allclose(batch.inputs, torch.tensor((61 / 255 - 0.5) / 0.5))


def test_what_is_no_town_is_told_apart(tmp_path: Path, town: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere: no town here, or not a whole one: town\.json is missing"):
        _ = Objects("town", str(tmp_path / "nowhere")).samples
    (tmp_path / "town.json").write_text("{}")
    with pytest.raises(DataError, match=r"no pictures of its sights: the folder cifar is missing.*--only cifar"):
        _ = Objects("town", str(tmp_path)).samples
    (tmp_path / "cifar").mkdir()
    with pytest.raises(DataError, match="no CIFAR-10 here"):
        _ = Objects("town", str(tmp_path)).samples


#### Settings


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match=r"task\.augment = 'tour' does not go with efficientnet_lite0_head: features"):
        build(Objects, {"architecture": "efficientnet_lite0_head", "augment": "tour"}, "task")
    with pytest.raises(ConfigError, match=r"task\.image_size = 31: at least 32 pixels, or 0"):
        Objects(architecture="efficientnet_lite0_head", image_size=31)
    with pytest.raises(ConfigError, match=r"task\.image_size = -1: at least 1 pixels"):
        Objects(image_size=-1)
    with pytest.raises(ConfigError, match=r"task\.augment"):
        build(Objects, {"augment": "tours"}, "task")


@pytest.mark.parametrize("architecture", ["vgg_small", "cnn"])
def test_changed_pictures_still_make_a_task(architecture: str) -> None:
    task = Objects(architecture=architecture, width=2, hidden=4, augment="tour")  # type: ignore[arg-type]
    assert len(check_task(task)) == len(TASK_CHECKS)


def test_a_head_on_frozen_features_is_a_task(heads: Objects) -> None:
    assert len(check_task(heads)) == len(TASK_CHECKS)


#### Augmentation


def test_pictures_are_changed_in_training_and_nowhere_else() -> None:
    plain, changed = Objects(width=2, hidden=4), Objects(width=2, hidden=4, augment="tour")
    net, client = plain.network(), Client("c", np.arange(40), np.arange(40, 50))
    for one, other in zip(plain.scan(net, client), changed.scan(net, client), strict=True):
        assert torch.equal(one.inputs, other.inputs)
    assert plain.evaluate(net, None) == changed.evaluate(net, None)
    rng = rng_for(7)
    order = rng.permutation(client.train)
    for start, batch in zip((0, 16, 32), changed.steps(net, client, 16, {}, rng_for(7)), strict=True):
        members = Client("c", order[start : start + 16], client.holdout)
        (shown,) = plain.scan(net, members)
        assert torch.equal(batch.inputs, tour(shown.inputs, rng))
        assert batch.labels is not None and shown.labels is not None and torch.equal(batch.labels, shown.labels)


#### Counts


class Constant(torch.nn.Module):
    """Says the same class whatever it is shown."""

    def __init__(self, answer: int) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.eye(10)[answer])

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)

    def head(self, x: torch.Tensor) -> torch.Tensor:
        return self.bias.expand(len(x), -1)


def test_a_tally_by_hand(town: Path) -> None:
    task, net = Objects("town", str(town)), Constant(4)
    right, total = task.tally(net, np.array([4, 14, 5, 3]))
    assert right.tolist() == [0, 0, 0, 0, 2, 0, 0, 0, 0, 0]
    assert total.tolist() == [0, 0, 0, 1, 2, 1, 0, 0, 0, 0]
    assert right.dtype == total.dtype == np.int64
    right, total = task.tally(net, None)
    assert right.tolist() == np.eye(10)[4].tolist() and total.tolist() == [1] * 10
    # five of ten: 0, 2, 4, 6, 8
    right, total = task.tally(net, None, limit=5)
    assert right.sum() == 1 and total.tolist() == [1, 0] * 5
    assert task.tally(net, None, limit=99)[1].sum() == 10
    assert task.tally(net, np.array([], int))[1].tolist() == [0] * 10
    assert task.evaluate(net, np.array([4, 14, 5, 3]))["accuracy"] == 0.5
    with pytest.raises(ConfigError, match="limit = -1"):
        task.tally(net, None, limit=-1)


def test_what_stays_prepared_is_never_mistaken(town: Path) -> None:
    """Test set, samples of the pool and limits in any order, with nothing prepared and with something else prepared."""
    asked = [(None, 0), (None, 5), (np.arange(10), 0), (np.arange(5, 20), 0), (np.arange(5, 20), 4), (None, 0)]
    net, task = Constant(2), Objects("town", str(town))
    for samples, limit in asked + asked[::-1]:
        fresh = Objects("town", str(town)).tally(net, samples, limit)
        assert [part.tolist() for part in task.tally(net, samples, limit)] == [part.tolist() for part in fresh]


def test_a_large_test_set_is_not_kept(monkeypatch: pytest.MonkeyPatch, town: Path) -> None:
    task, net = Objects("town", str(town)), Constant(4)
    monkeypatch.setattr("wayfare.tasks.objects._PREPARED", 4 * 10 * 3072 - 1)
    assert task.tally(net, None)[0].sum() == 1 and "_prepared" not in vars(task)
    monkeypatch.setattr("wayfare.tasks.objects._PREPARED", 4 * 10 * 3072)
    assert task.tally(net, None)[0].sum() == 1 and len(vars(task)["_prepared"]) == 1


def test_many_heads_at_once(heads: Objects) -> None:
    weights = torch.randn(11, 10, 1280, generator=torch.Generator().manual_seed(0))
    biases = torch.randn(11, 10, generator=torch.Generator().manual_seed(1))
    for samples, limit in ((None, 0), (None, 3), (np.arange(3, 17), 0)):
        right, total = heads.tally_many(weights, biases, samples, limit)
        assert right.shape == (11, 10) and right.dtype == total.dtype == np.int64
        for number in range(11):
            net = Head(10)
            net.head.weight.data.copy_(weights[number])
            net.head.bias.data.copy_(biases[number])
            one, whole = heads.tally(net, samples, limit)
            assert one.tolist() == right[number].tolist() and whole.tolist() == total.tolist()
            alone = heads.tally_many(weights[number : number + 1], biases[number : number + 1], samples, limit)[0]
            assert alone[0].tolist() == one.tolist()


def test_many_heads_of_another_shape(heads: Objects, town: Path) -> None:
    with pytest.raises(ConfigError, match=r"heads \(2, 9, 1280\) and biases \(2, 10\): expected \(k, 10, 1280\)"):
        heads.tally_many(torch.zeros(2, 9, 1280), torch.zeros(2, 10))
    with pytest.raises(ConfigError, match=r"biases \(3, 10\)"):
        heads.tally_many(torch.zeros(2, 10, 1280), torch.zeros(3, 10))
    with pytest.raises(ConfigError, match=r"use tally\(\) for cnn"):
        Objects("town", str(town)).tally_many(torch.zeros(1, 10, 1280), torch.zeros(1, 10))


#### Features and the whole network


def test_ready_says_how_far_it_is(heads: Objects, town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path))
    seen: list[tuple[str, int, int]] = []
    heads.ready(lambda *how_far: seen.append(how_far))
    assert seen == [("features of the pictures", 20, 30), ("features of the pictures", 30, 30)]
    heads.ready(lambda *_: pytest.fail("a second time"))
    Objects("town", str(town), 32, heads.architecture, weights=heads.weights).ready(lambda *_: pytest.fail("computed"))
    Objects("town", str(town)).ready(lambda *_: pytest.fail("nothing to get ready"))


def test_batches_are_features_of_the_right_pictures(heads: Objects) -> None:
    net, client = heads.network(), Client("c", np.array([19, 2, 2]), np.array([], int))
    (batch,) = heads.scan(net, client)
    trunk = heads.whole(net)[0]  # type: ignore[index]
    shades = torch.tensor([181, 40, 40]).view(3, 1, 1, 1) / 255
    assert batch.inputs.shape == (3, 1280) and heads.views(net) == {"image": 1280}
    assert torch.allclose(batch.inputs, trunk(shades.expand(3, 3, 32, 32)), atol=1e-3)


def test_pictures_are_brought_to_64_unless_told_otherwise(town: Path, weights: str) -> None:
    task = Objects("town", str(town), architecture="efficientnet_lite0_head", weights=weights)
    assert task.whole(task.network())[0].side == 64  # type: ignore[index]


@pytest.mark.parametrize("architecture", ["cnn", "vgg_small", "efficientnet_lite0_head"])
def test_the_whole_network_says_of_photographs_what_the_trained_one_says(
    town: Path, weights: str, architecture: str
) -> None:
    frozen = architecture == "efficientnet_lite0_head"
    task = Objects("town", str(town), 32, architecture, width=4, hidden=4, weights=weights if frozen else "")  # type: ignore[arg-type]
    torch.manual_seed(0)
    net = task.network()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    (batch,) = task.scan(net, Client("c", np.arange(20), np.array([], int)))
    shades = torch.from_numpy(task._parts[0].images).permute(0, 3, 1, 2).float() / 255
    whole = task.whole(net)
    with torch.no_grad():
        said = task.forward(net, batch).logits
        assert said is not None and float(said.std()) > 0.01
        assert torch.allclose(whole(shades), said, atol=1e-3)
        # a photograph of another size: pictures of one shade are the same at any
        assert torch.allclose(whole(torch.nn.functional.interpolate(shades, (48, 70))), said, atol=1e-3)
        next(net.parameters()).zero_()  # a copy was taken
        assert torch.allclose(whole(shades), said, atol=1e-3)
    assert not whole.training and net.training
