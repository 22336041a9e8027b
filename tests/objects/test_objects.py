"""Object recognition as a task: its networks, batches, counts, and where its pictures come from."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from wayfare.components import allow_code
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Client
from wayfare.core.seeds import rng_for
from wayfare.experiment import Experiment
from wayfare.nets.efficientnet import EfficientNetLite0
from wayfare.nets.frozen import Head
from wayfare.objects.augment import TourAugmentation
from wayfare.objects.data.folder import ClassFolders
from wayfare.objects.data.sights import TownSights
from wayfare.objects.models import (
    CnnClassifier,
    FrozenHeadClassifier,
    ObjectModel,
    PixelModel,
    ResNet18Classifier,
    Vgg16PooledClassifier,
    VggSmallClassifier,
)
from wayfare.objects.task import Objects
from wayfare.testing import TASK_CHECKS, check_task
from wayfare.town.words import SIGHTS


@pytest.fixture(autouse=True)
def cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Linear.__module__])
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
    return Objects(TownSights(str(town)), FrozenHeadClassifier(32, weights))


@dataclass(frozen=True)
class Linear(PixelModel):
    """A model of a user's own."""

    classes_first: int = 1


#### The town's sights


def test_the_towns_sights(town: Path) -> None:
    task = Objects(TownSights(str(town)))
    assert task.classes == SIGHTS and task.samples == 20
    assert task.labels.tolist() == [*range(10)] * 2
    batch = next(task.scan(task.network(), Client("c", np.array([13]), np.array([], int))))
    assert batch.inputs.shape == (1, 3, 32, 32) and batch.labels is not None and batch.labels.tolist() == [3]
    assert torch.allclose(batch.inputs, torch.tensor((61 / 255 - 0.5) / 0.5))


def test_other_folders_are_not_mistaken_for_a_town(tmp_path: Path, town: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere: no complete town here: town\.json is missing"):
        _ = Objects(TownSights(str(tmp_path / "nowhere"))).samples
    (tmp_path / "town.json").write_text("{}")
    with pytest.raises(DataError, match=r"no pictures of its sights: the folder cifar is missing.*--only cifar"):
        _ = Objects(TownSights(str(tmp_path))).samples
    (tmp_path / "cifar").mkdir()
    with pytest.raises(DataError, match="no CIFAR-10 here"):
        _ = Objects(TownSights(str(tmp_path))).samples


#### Settings


def table(**sections: dict[str, Any]) -> Experiment:
    return Experiment.from_table({"task": {"name": "objects"}} | sections)


def test_settings_that_do_not_go_together() -> None:
    frozen = {"name": "efficientnet_lite0_head"}
    with pytest.raises(ConfigError, match=r"task\.augment does not go with a frozen network: features"):
        table(model=frozen, task={"name": "objects", "augment": "tour"})
    with pytest.raises(ConfigError, match=r"model\.image_size = 31: expected at least 32 pixels"):
        table(model=frozen | {"image_size": 31})
    with pytest.raises(ConfigError, match=r"data\.image_size = -1: expected at least 1 pixel"):
        table(data={"name": "folder", "image_size": -1})
    with pytest.raises(ConfigError, match=r"unknown augmentation 'tours'; did you mean 'tour'"):
        table(task={"name": "objects", "augment": "tours"})
    with pytest.raises(ConfigError, match=r"data: unknown setting 'path'"):
        table(data={"name": "digits", "path": "here"})
    with pytest.raises(ConfigError, match=r"data\.path is missing"):
        _ = table(data={"name": "folder"}).task.samples


def test_settings_of_earlier_recipes_say_where_they_are_now() -> None:
    for key, now in Objects.moved.items():
        with pytest.raises(ConfigError, match=rf"task\.{key} has moved: it is {re.escape(now)} now"):
            table(task={"name": "objects", key: 1})
    assert {value.partition(" ")[0].partition(".")[0] for value in Objects.moved.values()} == {"data", "model"}
    for key in ("data", "model"):
        with pytest.raises(ConfigError, match=rf"task\.{key} has moved: it is {key}\.name now"):
            table(task={"name": "objects", key: "x"})


def test_a_part_of_ones_own_is_found_by_its_name() -> None:
    allow_code(__name__)
    found = table(model={"name": f"{__name__}:Linear", "classes_first": 3})
    assert found.task.model == Linear(classes_first=3) and Experiment.from_toml(found.to_toml()) == found


def test_a_folder_has_the_size_that_the_model_prefers() -> None:
    assert ClassFolders("x").sized(64) == ClassFolders("x", image_size=64)
    assert ClassFolders("x", image_size=8).sized(64) == ClassFolders("x", image_size=8)
    assert (CnnClassifier().side, FrozenHeadClassifier().side, FrozenHeadClassifier(96).side) == (32, 64, 96)


@pytest.mark.parametrize("model", [VggSmallClassifier(width=2), CnnClassifier(width=2, hidden=4)])
def test_changed_pictures_still_make_a_task(model: ObjectModel) -> None:
    assert len(check_task(Objects(model=model, augment=TourAugmentation()))) == len(TASK_CHECKS)


def test_a_head_on_frozen_features_is_a_task(heads: Objects) -> None:
    assert len(check_task(heads)) == len(TASK_CHECKS)
    assert heads.provides - Objects().provides == {"heads"}


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (CnnClassifier(), 89_834),
        (VggSmallClassifier(), 109_658),
        (Vgg16PooledClassifier(), 14_719_818),
        (ResNet18Classifier(), 11_173_962),
    ],
)
def test_parameters_are_as_described(model: ObjectModel, parameters: int) -> None:
    net = model.network(10, (32, 32, 3))
    assert sum(p.numel() for p in net.parameters()) == parameters


def test_pretrained_weights_are_loaded(tmp_path: Path) -> None:
    net = CnnClassifier(width=2, hidden=4).network(10, (8, 8, 1))
    save_file({name: tensor + 1 for name, tensor in net.state_dict().items()}, tmp_path / "w.safetensors")
    model = CnnClassifier(str(tmp_path / "w.safetensors"), width=2, hidden=4)
    again = model.network(10, (8, 8, 1))
    assert all(torch.equal(tensor, net.state_dict()[name] + 1) for name, tensor in again.state_dict().items())
    assert model.missing_files() == [] and CnnClassifier("no.safetensors").missing_files() == ["no.safetensors"]


#### Augmentation


def test_pictures_are_changed_in_training_and_nowhere_else() -> None:
    small, tour = CnnClassifier(width=2, hidden=4), TourAugmentation()
    plain, changed = Objects(model=small), Objects(model=small, augment=tour)
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
    task, net = Objects(TownSights(str(town))), Constant(4)
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
    net, task = Constant(2), Objects(TownSights(str(town)))
    for samples, limit in asked + asked[::-1]:
        fresh = Objects(TownSights(str(town))).tally(net, samples, limit)
        assert [part.tolist() for part in task.tally(net, samples, limit)] == [part.tolist() for part in fresh]


def test_a_large_test_set_is_not_kept(monkeypatch: pytest.MonkeyPatch, town: Path) -> None:
    task, net = Objects(TownSights(str(town))), Constant(4)
    monkeypatch.setattr("wayfare.objects.loaded._PREPARED", 4 * 10 * 3072 - 1)
    assert task.tally(net, None)[0].sum() == 1 and not task.loaded.prepared
    monkeypatch.setattr("wayfare.objects.loaded._PREPARED", 4 * 10 * 3072)
    assert task.tally(net, None)[0].sum() == 1 and len(task.loaded.prepared) == 1


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
    with pytest.raises(ConfigError, match=r"use tally\(\) for this model"):
        Objects(TownSights(str(town))).tally_many(torch.zeros(1, 10, 1280), torch.zeros(1, 10))


#### Features


def test_ready_says_how_far_it_is(heads: Objects, town: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path))
    seen: list[tuple[str, int, int]] = []
    heads.prepare(lambda *how_far: seen.append(how_far))
    assert seen == [("features of the pictures", 20, 30), ("features of the pictures", 30, 30)]
    heads.prepare(lambda *_: pytest.fail("a second time"))
    again = Objects(TownSights(str(town)), heads.model)
    again.prepare(lambda *_: pytest.fail("computed"))
    Objects(TownSights(str(town))).prepare(lambda *_: pytest.fail("nothing to get ready"))


def test_batches_are_features_of_the_right_pictures(heads: Objects) -> None:
    net, client = heads.network(), Client("c", np.array([19, 2, 2]), np.array([], int))
    (batch,) = heads.scan(net, client)
    trunk = heads.model.trunk()  # type: ignore[attr-defined]
    shades = torch.tensor([181, 40, 40]).view(3, 1, 1, 1) / 255
    assert batch.inputs.shape == (3, 1280) and heads.views(net) == {"image": 1280}
    assert torch.allclose(batch.inputs, trunk(shades.expand(3, 3, 32, 32)), atol=1e-3)
