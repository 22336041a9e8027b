"""The benchmark's own splits: folders of UserN.json and lists of ids, read and written."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scene_parts import shared
from wayfare import Experiment
from wayfare.cli import main
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.seeds import rng_for
from wayfare.partition.random import Random
from wayfare.scenes.data import psg
from wayfare.scenes.data.client_files import read_lists, write_folder, write_lists
from wayfare.scenes.data.scene_data import PsgScenes
from wayfare.scenes.partition.listed import Listed
from wayfare.scenes.task import Scenes
from wayfare.strategies.fedavg import FedAvg


@pytest.fixture
def task(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Scenes:
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    return Scenes.example()


def test_lists_are_read_by_number(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"10": ["c"], "2": [7, "b"], "0": []}')
    assert read_lists(tmp_path / "s.json") == [[], ["7", "b"], ["c"]]


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"0": ["a"], "1": ["a"]}', "'a' is listed twice"),
        ('{"0": ["a", "a"]}', "'a' is listed twice"),
        ('{"0": "a"}', "expected a list of image ids"),
        ('{"0": [1.5]}', "an image id is"),
        ("{}", "no clients"),
        ('{"data": []}', "expected a list of image ids"),
    ],
)
def test_lists_that_are_wrong_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read_lists(tmp_path / "s.json")


@pytest.mark.parametrize("name", ["clients", "clients.json"])
def test_a_split_survives_being_written_and_read(task: Scenes, tmp_path: Path, name: str) -> None:
    drawn = Random(5)(np.zeros(task.samples, int), rng_for(3))
    assert task.save_split(drawn, tmp_path / name)
    again = Experiment(task, Listed(str(tmp_path / name)), FedAvg()).split()
    assert [sorted(rows) for rows in again] == [sorted(rows) for rows in drawn]
    assert not task.save_split(drawn, tmp_path / "clients.safetensors")


def test_a_clients_file_is_a_whole_psg_json(task: Scenes, tmp_path: Path) -> None:
    task.save_split(Random(5)(np.zeros(task.samples, int), rng_for(3)), tmp_path / "clients")
    whole, part = task.loaded.all.truth, psg.load(tmp_path / "clients/User3.json")
    assert part.classes == whole.classes and part.predicates == whole.predicates
    row = list(whole.image_ids).index(part.image_ids[0])
    np.testing.assert_array_equal(part[0].boxes, whole[row].boxes)
    own = Scenes(data=PsgScenes(path=str(tmp_path / "clients/User3.json"), own=True))
    assert own.samples == len(part)  # what a device of a real federation is given


def test_the_command_writes_it(task: Scenes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(Experiment(task, Random(4), FedAvg()).to_toml())
    assert main(["split", str(recipe), "--save", str(tmp_path / "ids.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"].endswith("ids.json")
    assert len(read_lists(tmp_path / "ids.json")) == 4


def test_test_pictures_are_drawn_apart_from_clients(task: Scenes, tmp_path: Path) -> None:
    ids = task.loaded.train.truth.image_ids[:30]
    write_lists(tmp_path / "ids.json", [list(ids[:10]), list(ids[10:])])
    apart = replace(task, data=replace(task.data, apart=str(tmp_path / "ids.json"), test_seed=9))
    assert not set(apart.loaded.test.truth.image_ids) & set(ids)
    assert sum(Experiment(apart, Listed(str(tmp_path / "ids.json")), FedAvg()).split().sizes) == 30
    with pytest.raises(ConfigError, match=r"partition\.path"):
        Listed()(ids, rng_for(0))
    with pytest.raises(DataError, match="client 0 has none"):
        Listed(str(tmp_path / "ids.json"))(np.array(["x"], object), rng_for(0))


@pytest.mark.parametrize("name", ["Super_cluster_5_nonIID"])
def test_the_papers_own_splits(tmp_path: Path, name: str) -> None:
    """100 clients of 114 or 115 pictures, 11,410 in all, read and written again."""
    file = tmp_path / "split.json"
    file.write_bytes(zipfile.ZipFile(shared("paper_splits.zip")).read(f"split_mini_{name}.json"))
    lists = read_lists(file)
    assert len(lists) == 100 and sum(map(len, lists)) == 11410 and {len(ids) for ids in lists} == {114, 115}
    write_lists(tmp_path / "again.json", lists)
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(file.read_text())
    write_folder(tmp_path / "users", shared("psg_union_24378.json.gz"), lists[:3])
    assert read_lists(tmp_path / "users") == lists[:3]
