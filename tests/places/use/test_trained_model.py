"""A model comes out of its run whole, under a name that changes with everything that changes descriptors."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from wayfare.core.errors import ConfigError, DataError, StoreError, WayfareError
from wayfare.experiment import Experiment
from wayfare.io.images import decode
from wayfare.nets.pooling import MacPooling
from wayfare.places.losses import TripletLoss
from wayfare.places.trained_model import TrainedPlaceModel, describe, load_model, unpack


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def test_it_describes_as_the_task_does(model: TrainedPlaceModel, street: Path) -> None:
    files = sorted(street.glob("*.png"))[:5]
    images = np.stack([decode(file, size=(32, 32)) for file in files])
    (part,) = describe(model, [*files[:2], street / "missing.png", *files[2:]])
    np.testing.assert_allclose(part.descriptors, model.task.describe(model.net, images), atol=1e-6)
    assert part.kept.tolist() == [0, 1, 3, 4, 5]
    assert [(Path(item.file).name, item.reason) for item in part.skipped] == [("missing.png", "no such file")]
    assert not model.net.training


def test_parts_follow_each_other(model: TrainedPlaceModel, street: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(street.glob("*.png"))[:7]
    (whole,) = describe(model, files)
    monkeypatch.setattr("wayfare.places.trained_model._CHUNK", 3)
    parts = list(describe(model, files))
    assert [part.kept.tolist() for part in parts] == [[0, 1, 2], [3, 4, 5], [6]]
    np.testing.assert_allclose(np.concatenate([part.descriptors for part in parts]), whole.descriptors, atol=1e-6)
    assert list(describe(model, [])) == []


def test_a_packed_model_is_the_same(model: TrainedPlaceModel, street: Path, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(model.pack())
    torch.manual_seed(5)  # whatever random weights the network begins with
    again = unpack(tmp_path / "model")
    assert (again.digest, again.name, again.recipe) == (model.digest, "street", model.recipe)
    files = sorted(street.glob("*.png"))[:2]
    (left,), (right,) = describe(model, files), describe(again, files)
    assert (left.descriptors == right.descriptors).all()


def test_random_numbers_of_others_are_left_alone(run: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    load_model(run)
    assert torch.equal(torch.rand(2), expected)


def test_the_name_changes_with_the_descriptors(model: TrainedPlaceModel, run: Path) -> None:
    assert load_model(run).digest == model.digest
    task = model.task
    for changed in (
        replace(task, data=replace(task.data, height=64)),
        replace(task, model=replace(task.model, l2="none")),
        replace(task, model=replace(task.model, pooling=MacPooling())),
    ):
        assert replace(model, task=changed).digest != model.digest
    other = load_model(run)
    with torch.no_grad():
        next(other.net.parameters())[0] += 1e-6
    assert other.digest != model.digest
    shifted = load_model(run)
    shifted.net.mean += 0.01  # not in a weight file, but part of what the network sees
    assert shifted.digest != model.digest
    assert replace(model, task=replace(task, loss=TripletLoss(0.2))).digest == model.digest  # of training only


def edited(folder: Path, old: str, new: str) -> None:
    text = (folder / "experiment.toml").read_text()
    assert old in text
    (folder / "experiment.toml").write_text(text.replace(old, new))


def test_unfit_runs_are_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a run"):
        load_model(tmp_path)
    edited(copy, 'name = "fedavg"', 'name = "local"')
    with pytest.raises(ConfigError, match="'local' trains a model for each client"):
        load_model(copy)
    (copy / "experiment.toml").write_text(Experiment().to_toml())
    with pytest.raises(ConfigError, match="a run of 'objects': only models of 'places'"):
        load_model(copy)


def test_an_unfinished_run_is_refused(copy: Path) -> None:
    (copy / "summary.json").unlink()
    with pytest.raises(StoreError, match=r"is not finished \(1 rounds done\): run `wayfare resume"):
        load_model(copy)


@pytest.mark.parametrize("harm", ["flipped", "cut", "gone", "another's"])
def test_a_damaged_model_is_refused(copy: Path, harm: str) -> None:
    file = copy / "model.safetensors"
    data = file.read_bytes()
    if harm == "flipped":
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif harm == "cut":
        file.write_bytes(data[:-4])
    elif harm == "gone":
        file.unlink()
    else:
        summary = json.loads((copy / "summary.json").read_text()) | {"weights_sha256": "0" * 64}
        (copy / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(StoreError, match=r"model.safetensors"):
        load_model(copy)


@pytest.mark.parametrize("content", [b"", b"{}", b"\x00" * 100])
def test_a_damaged_packed_model_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model").write_bytes(content)
    with pytest.raises(WayfareError, match="cannot be read"):
        unpack(tmp_path / "model")
