"""The task `attributes`, its recipes (Tab. 3 of the federated PSG benchmark), and the rounds to a target."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from wayfare import Evaluation, Experiment, Training, runner
from wayfare.attributes.categories import attribute_categories
from wayfare.attributes.data import celeba
from wayfare.attributes.data.celeba import CelebA
from wayfare.attributes.data.synthetic import SyntheticFaces
from wayfare.attributes.models import FaceCnn, TablePerceptron
from wayfare.attributes.task import Attributes
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Client
from wayfare.pages.compare import RunGroup
from wayfare.pages.reach import TargetValue
from wayfare.papers.paper import Scale
from wayfare.papers.plan import read_plan
from wayfare.papers.reproduction import Cell, Paper, cost_to, reproduction
from wayfare.partition.semantic import Semantic
from wayfare.topologies.server import Server

RECIPES = Path(__file__).parents[2] / "recipes" / "psg"
LIST = """8
Smiling Young Hat
a.png  1 -1 -1
b.png -1  1 -1
c.png -1 -1 -1
d.png  1  1  1
e.png  1 -1  1
f.png -1  1  1
g.png -1 -1  1
h.png  1  1 -1
"""
PARTS = "a.png 0\nb.png 1\nc.png 0\nd.png 2\ne.png 0\nf.png 2\ng.png 2\nh.png 0\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    home = tmp_path / "celeba"
    home.mkdir()
    (home / "list_attr_celeba.txt").write_text(LIST)
    (home / "list_eval_partition.txt").write_text(PARTS)
    return home


def with_pictures(folder):
    """White for those who smile; c is missing and e is broken."""
    (folder / "img_align_celeba").mkdir()
    for name in "abdfgh":
        colour = "white" if name in "adh" else "black"
        Image.new("RGB", (12, 10), colour).save(folder / "img_align_celeba" / f"{name}.png")
    (folder / "img_align_celeba" / "e.png").write_bytes(b"nothing")
    return folder


# ---- what it learns from


def test_the_table_by_hand(folder):
    task = Attributes(CelebA(str(folder)))
    assert (task.samples, task.labels.tolist()) == (4, [1, 0, 1, 1])  # a, c, e, h
    assert task.classes == ("not Smiling", "Smiling")
    net = task.network()
    [batch] = task.scan(net, Client("c0", np.array([2, 0, 3]), np.empty(0, np.int64)))
    assert batch.inputs.tolist() == [[-1, 1], [-1, -1], [1, -1]], "Young and Hat of e, a, h: the target is not seen"
    assert batch.labels.tolist() == [1, 1, 1]
    assert task.views(net) == {"attributes": 64}
    assert "other 2 attributes of the table, not the paper's task; 3 rows" in task.protocol


def test_clusters_see_the_target_or_not(folder):
    task = Attributes(CelebA(str(folder)))
    assert task.categories.values.tolist() == [[-1, -1], [-1, -1], [-1, 1], [1, -1]]
    seen = replace(task, clusters_see_target=True)
    assert seen.categories.values.tolist() == [[1, -1, -1], [-1, -1, -1], [1, -1, 1], [1, 1, -1]]
    assert seen.categories.names == ("Smiling", "Young", "Hat")
    assert "the target is among" in seen.protocol and "the target is left out of" in task.protocol


def test_accuracies_by_hand(folder):
    """Everybody smiles: right for d, wrong for f and g."""
    task = Attributes(CelebA(str(folder)))
    net = task.network()
    with torch.no_grad():
        net.head.weight.zero_()
        net.head.bias.copy_(torch.tensor([0.0, np.log(3)]))
    found = task.evaluate(net, None)
    assert found["accuracy"] == pytest.approx(1 / 3) and found["balanced_accuracy"] == 0.5
    assert found["more_frequent_answer"] == pytest.approx(2 / 3)
    assert found["loss"] == pytest.approx((np.log(4 / 3) + 2 * np.log(4)) / 3, abs=1e-6)
    some = task.evaluate(net, np.array([0, 2]))  # both smile
    assert some["accuracy"] == some["balanced_accuracy"] == some["more_frequent_answer"] == 1
    assert task.evaluate(net, np.empty(0, np.int64))["accuracy"] == 0
    validated = replace(task, judged_on="validate")
    assert validated.evaluate(net, None)["accuracy"] == 0 and "1 rows of the part to validate" in validated.protocol


def test_pictures_where_there_are_any(folder):
    task = Attributes(CelebA(str(with_pictures(folder))), FaceCnn(image_size=8, width=2, hidden=4))
    net = task.network()
    assert (task.samples, task.labels.tolist()) == (2, [1, 1])  # a, h
    assert sorted(Path(item["file"]).name for item in task.skipped) == ["c.png", "e.png"]
    [batch] = list(task.loaded.scan(np.arange(6), torch.device("cpu")))  # a b d f g h
    assert batch.inputs.shape == (6, 3, 8, 8) and batch.labels.tolist() == [1, 0, 1, 0, 0, 1]
    assert (batch.inputs.flatten(1) == (2 * batch.labels - 1)[:, None]).all(), "white is 1, black is -1"
    assert task.views(net) == {"image": 4} and "pictures of 8x8 pixels" in task.protocol
    uncached = replace(task, data=replace(task.data, cache=0.0))
    (folder / "img_align_celeba" / "e.png").unlink()
    assert uncached.loaded.inputs.pictures.rows is None and uncached.labels.tolist() == [1, 1]
    assert replace(task, model=TablePerceptron()).samples == 4


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"name": "cnn"}}, "this model sees pictures, and the data is a synthetic table, not of real people"),
        ({"model": {"hidden": 0}}, "model.hidden = 0: expected at least 1"),
        (
            {"data": {"name": "celeba"}, "model": {"name": "cnn", "image_size": 4}},
            "image_size = 4: expected at least 5",
        ),
        ({"data": {"faces": 5}}, "data.faces = 5: expected at least 100"),
        ({"data": {"name": "celeba", "cache": -1.0}}, "data.cache = -1.0: expected at least 0"),
        ({"task": {"path": "x"}}, "task.path has moved: it is data.path of celeba now"),
        ({"task": {"inputs": "table"}}, r"task.inputs has moved: it is model.name \('cnn' sees pictures"),
        ({"task": {"made_up": 100}}, "task.made_up has moved: it is data.faces of synthetic now"),
    ],
)
def test_misfits_are_refused(sections, message):
    with pytest.raises(ConfigError, match=message):
        Experiment.from_table({**sections, "task": {"name": "attributes", **sections.get("task", {})}})


def test_every_setting_that_moved_exists_where_it_is_said_to_be():
    parts = {"data": (CelebA, SyntheticFaces), "model": (FaceCnn, TablePerceptron)}
    for key, now in Attributes.moved.items():
        section, name = now.split()[0].split(".")
        assert name == "name" or any(name in cls.__dataclass_fields__ for cls in parts[section]), key


def test_data_that_does_not_do(folder):
    with pytest.raises(DataError, match=r"no attribute 'Old'.*; there are Smiling, Young, Hat"):
        Attributes(CelebA(str(folder)), target="Old").samples  # noqa: B018
    with pytest.raises(ConfigError, match=r"data\.path is missing: expected CelebA's folder"):
        Attributes(CelebA()).samples  # noqa: B018
    with pytest.raises(DataError, match="no attribute 'Smilling'; did you mean 'Smiling'"):
        Attributes(target="Smilling").samples  # noqa: B018
    with pytest.raises(DataError, match=r'no pictures here.*model.name = "table"'):
        Attributes(CelebA(str(folder)), FaceCnn()).samples  # noqa: B018
    (folder / "list_eval_partition.txt").write_text(PARTS.replace(" 2", " 1"))
    with pytest.raises(DataError, match="no face is in the part 'test'"):
        Attributes(CelebA(str(folder))).samples  # noqa: B018
    (folder / "list_eval_partition.txt").unlink()
    with pytest.raises(DataError, match="add the partition file"):
        Attributes(CelebA(str(folder))).samples  # noqa: B018


# ---- without any data


def test_the_made_up_table_is_the_seeds():
    one, again, other = (SyntheticFaces(500, seed).load(lambda *_: None) for seed in (1, 1, 2))
    assert (one.values == again.values).all() and (one.partition == again.partition).all()
    assert (one.values != other.values).any()
    assert one.select(one.part("train")).values.shape[1] == 40 and set(one.partition) == {0, 1, 2}


def test_it_is_learnt_and_the_split_is_by_clusters(tmp_path):
    task = replace(Attributes.example(), clusters_see_target=True, model=TablePerceptron(16))
    experiment = Experiment(
        task, Semantic(10, "shard", shards=1, n_init=2), topology=Server(5), rounds=8,
        training=Training(batch_size=8, lr=0.1), evaluation=Evaluation(every=4, holdout=0.0),
    )  # fmt: skip
    split = experiment.split()
    shares = [float(task.labels[split[i]].mean()) for i in range(len(split))]
    assert min(shares) < 0.15 and max(shares) > 0.85, "clusters that see the target are nearly pure in it"
    found = runner.run(experiment, tmp_path / "run", "local")
    assert found["metrics"]["test/accuracy"] > 0.8 > 0.65 > found["metrics"]["test/more_frequent_answer"]
    assert "synthetic table, not of real people" in found["protocol"]


# ---- the real table


@pytest.mark.parametrize(
    ("drop", "sizes", "smiling", "least"),
    [
        ((), [43.9, 35.8, 33.2, 28.1, 21.8], [0.98, 0.94, 0.22, 0.08], (0.01, 0.07)),
        (("Smiling",), None, [0.89, 0.59, 0.35, 0.31], (0.12, 0.22)),
    ],
)
def test_clusters_of_the_real_table(drop, sizes, smiling, least):
    """Sizes in thousands and how many smile, as described for the whole table, from every eighth face.

    Without Smiling, K-means ends in optima whose inertias differ by 0.05 %: the cluster that smiles least has 0.125,
    0.15 (the described value) or 0.21 of smiles, as the start has it. The other four are the same in all of them.
    """
    shared = Path(os.environ.get("WAYFARE_SHARED") or Path(__file__).parents[3] / "shared")
    file = shared / "data" / "scenes" / "celeba_attr_packed.npz"
    if not file.is_file():
        pytest.skip(f"{file} is absent: set WAYFARE_SHARED to the folder that holds data/scenes/{file.name}")
    table = celeba.load(file)
    some = table.select(table.part("train")[::8])
    found = Semantic(100, n_init=10).find(attribute_categories(some, drop=drop), 0)
    smiles = some.column("Smiling")
    *shares, last = sorted((float(smiles[found.labels == k].mean()) for k in range(5)), reverse=True)
    assert shares == pytest.approx(smiling, abs=0.03) and least[0] < last < least[1]
    if sizes:
        assert found.sizes / len(some) == pytest.approx(np.array(sizes) / sum(sizes), abs=0.015)


# ---- Tab. 3

TABLE_3 = {  # accuracy and rounds to 85 %, IID, non-IID, Dirichlet 10, 1, 0.2
    "fedavg": [(90.94, 32), (90.43, 52), (91.56, 32), (91.65, 37), (91.03, 47)],
    "fedavgm": [(92.93, 27), (91.22, 32), (93.4, 27), (92.93, 27), (91.32, 37)],
    "fedadam": [(91.84, 52), (91.03, 52), (91.71, 52), (91.77, 52), (90.79, 52)],
}
SPLITS = {"iid": ("shard", 5), "shard": ("shard", 1), "dir10": ("dirichlet", 10), "dir1": ("dirichlet", 1),
          "dir02": ("dirichlet", 0.2)}  # fmt: skip


@pytest.mark.parametrize("scale", list(Scale))
@pytest.mark.parametrize(("name", "seen"), [("table3", True), ("celeba-unseen", False)])
def test_the_recipes_have_the_papers_table(name, seen, scale, tmp_path):
    plan = read_plan(RECIPES / f"{name}.toml", scale, tmp_path if scale is Scale.paper else None)
    wanted = {f"{s}-{k}": row for s, rows in TABLE_3.items() for k, row in zip(SPLITS, rows)}
    assert {n: (c.paper, c.also["rounds_to"]) for n, c in plan.cells.items()} == wanted
    assert (plan.paper.reach, plan.paper.metric) == (85.0, "test/accuracy")
    for cell, e in plan.experiments.items():
        strategy, split = cell.split("-")
        amount = e.partition.shards if e.partition.rule == "shard" else e.partition.alpha
        assert ((e.partition.rule, amount), type(e.strategy).__name__.lower()) == (SPLITS[split], strategy)
        assert (e.partition.clients, e.partition.clusters, e.topology.per_round) == (100, 5, 5)
        assert (e.task.target, e.task.clusters_see_target) == ("Smiling", seen)
        assert (e.training.lr, e.training.momentum, e.training.batch_size, e.training.clip) == (0.02, 0.9, 16, 35.0)
        assert strategy != "fedadam" or e.strategy.server_lr == 1e-4
        if scale is Scale.small:
            assert (e.task.data, e.task.model, e.rounds) == (SyntheticFaces(), TablePerceptron(32), 40)
        else:
            cnn = FaceCnn(image_size=64, width=32, hidden=128)
            assert (e.task.data, e.task.model, e.rounds) == (CelebA(str(tmp_path)), cnn, 100)


# ---- rounds to a target


def run_of(*values, every=5):
    """A run that was judged every so many rounds."""
    rounds = [every * place for place in range(len(values))]
    return SimpleNamespace(series=lambda metric: (rounds, list(values)), done=rounds[-1] if rounds else 0)


@pytest.mark.parametrize(
    ("runs", "metric", "threshold", "expected"),
    [
        ([run_of(0.5, 0.8, 0.85, 0.7)], "test/accuracy", 0.85, 10),
        ([run_of(0.5, 0.8, 0.849, 0.7)], "test/accuracy", 0.85, "not in 15"),
        ([run_of(0.5, 0.9), run_of(0.5, 0.8, 0.9)], "test/accuracy", 0.85, (7.5, 12.5**0.5)),  # 5 and 10
        ([run_of(0.5, 0.9), run_of(0.5, 0.8)], "test/accuracy", 0.85, "5 (1 of 2 seeds)"),
        ([run_of(0.9, 0.3, 0.2)], "test/loss", 0.3, 5),
        ([run_of()], "test/accuracy", 0.85, None),
    ],
)
def test_rounds_to_a_target_by_hand(runs, metric, threshold, expected):
    found = cost_to(RunGroup("a", tuple(runs)), TargetValue(metric, threshold), "rounds")
    assert found == (pytest.approx(expected) if isinstance(expected, tuple) else expected)


def test_the_column_says_to_what_and_shows_words():
    run = run_of(0.5, 0.8)
    run.final, run.summary = (lambda metric: 0.8), {}
    group = RunGroup("a", (run,))
    paper = Paper("T", "test/accuracy", "%", reach=85.0)
    found = reproduction(paper, {"a": Cell(paper=90.0, also={"rounds_to": 32.0})}, SimpleNamespace(groups=[group]), "")
    assert found._heads[4] == "rounds to 85 %, paper / here"
    assert found._cells(found.rows[0], 1.0)[4] == "32 / not in 5"
    assert found.as_dict()["cells"]["a"]["also"]["rounds_to"] == {"paper": 32.0, "measured": "not in 5"}


def test_rounds_to_needs_a_target(tmp_path):
    (tmp_path / "r.toml").write_text('[paper]\nmetric = "test/accuracy"\n[cells.a]\nalso.rounds_to = 3\n')
    with pytest.raises(ConfigError, match=r"also\.rounds_to needs paper\.reach"):
        read_plan(tmp_path / "r.toml")


def test_the_data_may_be_one_file(tmp_path):
    (tmp_path / "table.npz").touch()
    plan = read_plan(RECIPES / "table3.toml", Scale.small, tmp_path / "table.npz")
    assert {e.task.data.path for e in plan.experiments.values()} == {str(tmp_path / "table.npz")}
    with pytest.raises(ConfigError, match="no such file or folder"):
        read_plan(RECIPES / "table3.toml", None, tmp_path / "nowhere")


def test_table_3_runs_on_pictures_in_the_real_layout(tmp_path, monkeypatch):
    """Made faces of CelebA's size under its names; those who smile are bright. The cell of the recipe learns it."""
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    home, rng = tmp_path / "celeba", np.random.default_rng(0)
    (home / "img_align_celeba").mkdir(parents=True)
    values = rng.integers(0, 2, (80, 4))
    lines, parts = ["80", "Smiling Young Hat Male"], []
    for number, row in enumerate(values, 1):
        name = f"{number:06d}.jpg"
        noise = rng.integers(0, 40, (218, 178, 3)) + (180 if row[0] else 20)
        Image.fromarray(noise.astype(np.uint8)).save(home / "img_align_celeba" / name)
        lines.append(f"{name} " + " ".join("1" if value else "-1" for value in row))
        parts.append(f"{name} {0 if number <= 60 else 2}")
    (home / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    (home / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    small = {"partition.clients": 4, "partition.clusters": 2, "topology.per_round": 4, "rounds": 10,
             "model.image_size": 16, "model.width": 8, "model.hidden": 16, "training.lr": 0.05}  # fmt: skip
    experiment = read_plan(RECIPES / "table3.toml", Scale.paper, home, small).experiments["fedavgm-shard"]
    summary = runner.run(experiment, tmp_path / "run", "local")
    assert summary["metrics"]["test/accuracy"] > 0.9 and "pictures of 16x16" in summary["protocol"]
