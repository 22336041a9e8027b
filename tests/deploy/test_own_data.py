"""Devices of a federation with less than the server: fewer classes, other words, nothing to test with."""

import csv
import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import device_folders
from grids import Grid, job, said
from place_pictures import Photo, write_msls
from wayfare.attributes.data.celeba import CelebA
from wayfare.attributes.task import Attributes
from wayfare.core.errors import ConfigError, DataError, WayfareError
from wayfare.core.protocols import Training
from wayfare.core.seeds import rng_for
from wayfare.deploy.local_folder import digest_of, own, settled
from wayfare.experiment import Evaluation, Experiment
from wayfare.hashing.data.base import GivenTerms
from wayfare.hashing.data.csv_pairs import TablePairs
from wayfare.hashing.dcmh import DCMH
from wayfare.hashing.images import FrozenImages
from wayfare.hashing.model import BagOfWords, PairEncoders
from wayfare.hashing.shdch import SHDCH
from wayfare.hashing.task import Hashing
from wayfare.objects.data.folder import ClassFolders
from wayfare.objects.task import Objects
from wayfare.partition.file import File
from wayfare.partition.split import Split
from wayfare.places.data.msls_photos import MslsPhotos
from wayfare.places.data.photo_folder import PhotoFolder
from wayfare.places.data.train_test import SequenceSplit
from wayfare.places.task import Places
from wayfare.runner import run
from wayfare.scenes.models import GPSNetModel, MotifsModel
from wayfare.scenes.task import Scenes

needs_flower = pytest.mark.skipif(find_spec("flwr") is None, reason="Flower is not installed: wayfare[flower]")
OWNERS = {"anna": ("shirt",), "bert": ("shirt", "shoe"), "carl": ("shoe", "bag")}


@pytest.fixture
def identity(monkeypatch):
    """Flower's messages want to know who they are from."""
    from flwr.supercore.task_identity import TaskIdentity

    for name, value in (("_run_id", 1), ("_node_id", 1), ("_task_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)


def experiment(task, **more):
    training = Training(iterations=3, batch_size=4)
    return Experiment(task, training=training, evaluation=Evaluation(every=2), rounds=2, device="cpu", **more)


def at(task, folder):
    """The task as the device with this folder has it."""
    return own(settled(experiment(task)), str(folder)).task


def dealt(root, owner_of, samples):
    """The partition of the server's samples by owner."""
    parts = [np.array([row for row in range(samples) if owner_of(row) == name]) for name in OWNERS]
    file = root / "owners.safetensors"
    file.write_bytes(Split.from_parts(parts, {"rule": "owners"}).pack())
    return File(str(file))


# ---- pairs


@pytest.fixture(scope="module")
def wardrobes(tmp_path_factory):
    """Tables of clothes; the server's has all that the devices' have, with some to test with."""
    root = tmp_path_factory.mktemp("wardrobes")
    colours = {"red": (200, 20, 20), "blue": (20, 20, 200)}
    everything = []
    for name, kinds in OWNERS.items():
        rows = []
        for kind in kinds:
            for k in range(6):
                word, colour = list(colours.items())[k % 2]
                file = f"{name}-{kind}-{k}.png"
                noise = rng_for("wardrobe", file).integers(0, 50, (64, 64, 3)) + np.array(colour)
                for folder in (root / name, root / "all"):
                    (folder / "images").mkdir(parents=True, exist_ok=True)
                    Image.fromarray(noise.astype(np.uint8)).save(folder / "images" / file)
                group = "top" if kind == "shirt" else "rest"
                rows.append([file, f"a {word} {kind} of {name}", kind, group, "query" if k == 0 else "train"])
        everything += rows
        _table(root / name, [row[:4] for row in rows if row[4] == "train"])
    _table(root / "all", everything)
    return root


def _table(folder: Path, rows) -> None:
    with (folder / "pairs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["photo", "text", "labels", "group", "split"][: len(rows[0])], *rows])


def clothes(root, labels="", base=None):
    data = TablePairs(path=str(root / "all"), labels=labels, min_count=1)
    model = PairEncoders(FrozenImages(hidden=4), BagOfWords(hidden=4), bits=8)
    return Hashing(data, model, base or DCMH())


def of_folder(task, folder):
    """The same task on another folder, with the labels and words that are found there."""
    return replace(task, data=replace(task.data, path=str(folder)))


def test_pairs_of_a_device_mean_what_the_servers_do(wardrobes):
    server = clothes(wardrobes)
    alone = of_folder(server, wardrobes / "anna")
    anna = at(server, wardrobes / "anna")
    assert alone.classes == ("shirt",) and anna.classes == server.classes == ("bag", "shirt", "shoe")
    assert anna.pairs.words == server.pairs.words != alone.pairs.words
    assert anna.pairs.labels.tolist() == [[False, True, False]] * 5  # no row is held back: 5 of 5 are learnt from
    assert (anna.samples, alone.samples) == (5, 4) and not len(anna.pairs.query)
    assert digest_of(anna) == digest_of(server) != digest_of(alone)
    written = Experiment.from_toml(settled(experiment(server)).to_toml()).task.data.terms
    assert written.names == server.classes and written.levels == (3,) and "carl" in written.words


def test_a_words_column_is_looked_up_by_name(wardrobes):
    """Anna's third word is another column of the server's vocabulary; "carl" is in none of her texts."""
    server, anna = clothes(wardrobes), at(clothes(wardrobes), wardrobes / "anna")
    bag = dict(zip(anna.pairs.words, anna.pairs.bags[[0]].toarray()[0].tolist()))
    assert bag == {word: float(word in str(anna.pairs.texts[0]).split()) for word in server.pairs.words}
    assert bag["anna"] == 1 and bag["carl"] == 0


def test_labels_that_nobody_else_has(wardrobes, tmp_path):
    shutil.copytree(wardrobes / "anna", tmp_path / "zoe")
    table = (wardrobes / "anna/pairs.csv").read_text()
    (tmp_path / "zoe/pairs.csv").write_text(table.replace(",shirt", ",hat", 2))
    zoe = at(clothes(wardrobes), tmp_path / "zoe")
    assert zoe.samples == 3 and zoe.pairs.left_out == {"without a label": 2}
    (tmp_path / "zoe/pairs.csv").write_text(table.replace(",shirt", ",hat"))
    with pytest.raises(DataError, match=r"none of its labels \('hat'\) is one of the 3 .*'bag', 'shirt', 'shoe'"):
        _ = at(clothes(wardrobes), tmp_path / "zoe").samples


def test_labels_that_are_frequent_elsewhere_count_where_they_are_rare(wardrobes):
    server = clothes(wardrobes, "labels:12")  # 12 shirts and 12 shoes in all, 6 bags; Anna has 5 shirts
    assert server.classes == ("shirt", "shoe")
    with pytest.raises(DataError, match="no label of labels:12"):
        _ = of_folder(server, wardrobes / "anna").samples
    assert at(server, wardrobes / "anna").samples == 5
    assert at(server, wardrobes / "carl").pairs.left_out == {"without a label": 5}


def test_the_sum_of_levels_is_the_number_of_names():
    with pytest.raises(ConfigError, match=r"data.terms.levels = \[1\]: expected a sum of 2"):
        GivenTerms(names=("a", "b"), levels=(1,))


@needs_flower
@pytest.mark.parametrize("base", [DCMH(), SHDCH()])
def test_pairs_on_nodes_give_the_local_model(base, wardrobes, identity, tmp_path):
    from wayfare.deploy.server_run import run_job

    task = clothes(wardrobes, "group>labels" if base == SHDCH() else "", base)
    here = experiment(task)
    ids = task.pairs.ids[task.pairs.train]
    partition = dealt(tmp_path, lambda row: ids[row].split("-")[0], task.samples)
    local = run(replace(here, partition=partition), tmp_path / "local", "local")
    summary = run_job(Grid(wardrobes, state=tmp_path / "state"), job(here, tmp_path / "run"), said([]))
    assert summary["refused"] == 0 and summary["metrics"] == local["metrics"]
    assert summary["model_sha256"] == local["model_sha256"]


# ---- scenes


def scenes(path, **options):
    task = Scenes.example()
    return replace(task, data=task.data.at(path), model=MotifsModel(**options))


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """The tiny town's annotations, dealt out to devices; the server has all."""
    root = tmp_path_factory.mktemp("graphs")
    whole = json.loads((Scenes.example().data.folder(lambda *_: None) / "psg.json").read_text())
    test = set(whole["test_image_ids"])
    kept = [entry for entry in whole["data"] if entry["relations"] and entry["image_id"] not in test]
    for place, name in enumerate(OWNERS):
        (root / name).mkdir()
        part = {**whole, "data": kept[place::3], "test_image_ids": []}
        (root / name / "psg.json").write_text(json.dumps(part))
    (root / "all").mkdir()
    (root / "all" / "psg.json").write_text(json.dumps(whole))
    return root


@needs_flower
@pytest.mark.parametrize("head", [MotifsModel, GPSNetModel])
def test_graphs_on_nodes_give_the_local_model(graphs, identity, tmp_path, head):
    """Also of a table that is counted over the nodes before the first round."""
    from wayfare.deploy.server_run import run_job

    task = replace(scenes(str(graphs / "all")), model=head(frequency_bias=True))
    here = experiment(task)
    # by a file of fewer pictures than task.test, none of which is named as a test picture
    assert at(task, graphs / "anna").samples == len(json.loads((graphs / "anna/psg.json").read_text())["data"])
    partition = dealt(tmp_path, lambda row: list(OWNERS)[row % 3], task.samples)
    local = run(replace(here, partition=partition), tmp_path / "local", "local")
    summary = run_job(Grid(graphs, state=tmp_path / "state"), job(here, tmp_path / "run"), said([]))
    assert summary["refused"] == 0 and summary["model_sha256"] == local["model_sha256"]
    assert summary["metrics"] == local["metrics"]


def test_other_objects_are_other_terms(graphs, tmp_path):
    task = scenes(str(graphs / "all"))
    content = json.loads((graphs / "anna/psg.json").read_text())
    content["thing_classes"][:2] = content["thing_classes"][1::-1]
    (tmp_path / "psg.json").write_text(json.dumps(content))
    assert digest_of(at(task, graphs / "anna")) == digest_of(task) != digest_of(at(task, tmp_path))
    assert at(task, tmp_path).classes == task.classes  # the predicates are the same


# ---- places


def street_task(folder):
    """Half of the photographs are queries, and every second query sequence is held back."""
    data = PhotoFolder(str(folder), 32, 48, "half", SequenceSplit(2))
    return replace(Places.example(), data=data)


@needs_flower
def test_photographs_of_places_on_nodes(identity, tmp_path):
    """Each device has some geotagged photographs, the server others to test with."""
    from wayfare.deploy.server_run import run_job

    for city, name in enumerate(("all", *OWNERS)):
        (tmp_path / name).mkdir()
        lines = ["file,lat,lon,sequence"]
        for drive in range(4):
            for k in range(6):
                noise = rng_for("street", name, drive, k).integers(0, 255, (32, 48, 3), dtype=np.uint8)
                Image.fromarray(noise).save(tmp_path / name / f"{drive}-{k}.png")
                lines.append(f"{drive}-{k}.png,{46 + city + 0.0005 * k},7.4,{drive}")
        (tmp_path / name / "photos.csv").write_text("\n".join(lines))
    task = street_task(tmp_path / "all")
    here = experiment(task)
    assert at(task, tmp_path / "anna").samples == 24 > task.samples  # the server holds a query sequence back
    summary = run_job(Grid(tmp_path, state=tmp_path / "state"), job(here, tmp_path / "run"), said([]))
    assert summary["refused"] == 0 and summary["metrics"]["test/R@5"] >= 0
    lines = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    spreads = [line["metrics"]["test/spread"] for line in lines if "test/spread" in line["metrics"]]
    assert len(spreads) == 2 and spreads[0] != spreads[1]


@needs_flower
def test_a_run_that_no_node_can_do_names_a_node(identity, tmp_path):
    """Photographs a kilometre apart: nothing shows the same place, so there is nothing to train on."""
    from wayfare.deploy.server_run import run_job

    for name in ("all", *OWNERS):
        (tmp_path / name).mkdir()
        step = 0.0002 if name == "all" else 0.01
        lines = ["file,lat,lon,sequence"]
        for k in range(8):
            Image.new("RGB", (48, 32), (k, 99, 99)).save(tmp_path / name / f"{k}.png")
            lines.append(f"{k}.png,{46 + step * k},7.4,{k % 2}")
        (tmp_path / name / "photos.csv").write_text("\n".join(lines))
    task = street_task(tmp_path / "all")
    with pytest.raises(
        WayfareError, match=r"^node '(anna': device 'c0|bert': device 'c1|carl': device 'c2)', program 'train'"
    ):
        run_job(Grid(tmp_path, state=tmp_path / "state"), job(experiment(task), tmp_path / "run"), said([]))


def test_a_device_with_one_city_that_is_not_the_one_tested_on(tmp_path):
    """The cities that the server tests on need not be in a device's folder, nor be held back there."""

    def drives(role):
        return [Photo(place, role == "query", 30.0 * place, 0.0, f"{place % 2}") for place in range(4)]

    cities = {city: {role: drives(role) for role in ("query", "database")} for city in ("alba", "mura", "zeta")}
    task = replace(
        Places.example(), data=MslsPhotos(str(write_msls(tmp_path / "all", cities)), 32, 48, test_cities=("zeta",))
    )
    assert task.samples == 16  # all of the two other cities
    for city in cities:
        mine = write_msls(tmp_path / city, {city: cities[city]})
        assert at(task, mine).samples == 8


# ---- faces, and classes


def test_faces_of_a_device_need_no_parts(tmp_path):
    lines = ["4", "Smiling Male", *(f"{k}.jpg {1 if k % 2 else -1} -1" for k in range(4))]
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(lines))
    with pytest.raises(DataError, match="add the partition file"):
        _ = Attributes(CelebA(str(tmp_path))).samples
    device = at(Attributes(CelebA(str(tmp_path))), tmp_path)
    assert device.samples == 4 and device.labels.tolist() == [0, 1, 0, 1]
    parts = "\n".join(f"{k}.jpg {0 if k < 3 else 2}" for k in range(4))
    (tmp_path / "list_eval_partition.txt").write_text(parts)
    assert at(Attributes(CelebA(str(tmp_path))), tmp_path).samples == 3
    table = (tmp_path / "list_attr_celeba.txt").read_text()
    before = digest_of(device)
    (tmp_path / "list_attr_celeba.txt").write_text(table.replace("Male", "Young"))
    assert digest_of(at(Attributes(CelebA(str(tmp_path))), tmp_path)) != before


def test_a_folder_with_some_of_the_classes(tmp_path):
    device_folders.photograph(tmp_path)
    server = Objects(ClassFolders(str(tmp_path / "all"), image_size=8))
    mine = tmp_path / "mine"
    for kind in ("dog", "owl"):
        shutil.copytree(tmp_path / "anna/train" / kind, mine / kind)
    device = at(server, mine)
    assert device.classes == server.classes == ("cat", "dog", "owl") and digest_of(device) == digest_of(server)
    held = {kind: len(list((mine / kind).iterdir())) for kind in ("dog", "owl")}
    assert np.bincount(device.labels, minlength=3).tolist() == [0, held["dog"], held["owl"]]  # none is held back
    alone = replace(server, data=replace(server.data, path=str(mine)))
    assert alone.samples < device.samples and alone.classes == ("dog", "owl")
    assert device.network().state_dict().keys() == server.network().state_dict().keys()
    (mine / "owl").rename(mine / "wol")
    with pytest.raises(DataError, match="'wol' is none of the 3 classes of this experiment; did you mean 'owl'"):
        _ = at(server, mine).samples
