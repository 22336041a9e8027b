"""The task `scenes`: what it learns from, what it is judged by, and that a federation of it runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from wayfare import Evaluation, Experiment, Training, runner
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Client
from wayfare.partition.semantic import Semantic
from wayfare.scenes import frequency, recall
from wayfare.scenes.batch import HeadOutput
from wayfare.scenes.data.scene_data import PsgScenes, TownScenes
from wayfare.scenes.models import GPSNetModel, ImpModel, MotifsModel, RelationModel, VCTreeModel
from wayfare.scenes.task import Scenes
from wayfare.strategies.fedavg import FedAvg
from wayfare.topologies.server import Server

HEADS = (ImpModel, MotifsModel, VCTreeModel, GPSNetModel)


@pytest.fixture
def scenes(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Scenes:
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    return Scenes.example()


def test_no_test_picture_is_trained_on_and_none_is_without_relations(scenes: Scenes) -> None:
    train, test = scenes.loaded.train.truth, scenes.loaded.test.truth
    assert len(train) and len(test) and not set(train.image_ids) & set(test.image_ids)
    assert (np.diff(train.relation_offsets) > 0).all() and (np.diff(test.relation_offsets) > 0).all()
    assert len(scenes.source("categories").values) == scenes.samples


def everything(task: Scenes) -> Client:
    return Client("", np.arange(task.samples), np.empty(0, np.int64))


def test_the_floor_is_the_frequency_baseline(scenes: Scenes) -> None:
    train, test = scenes.loaded.train.truth, scenes.loaded.test.truth
    guesses = frequency.guesses(frequency.count(train), test)
    expected = recall.tally(guesses, test).metrics
    found = scenes.baseline(scenes.counts(everything(scenes)))
    assert found["frequency R@20"] == expected["R@20"] > 0.1
    assert found["frequency mR@100"] == expected["mR@100"]


def test_a_perfect_network_finds_everything(scenes: Scenes) -> None:
    """A network that is told the truth: R@100 is 1 where no picture has more than 100 relations, or pairs with two."""
    train = scenes.loaded.train.truth
    plain = [i for i in range(len(train)) if len({tuple(r[:2]) for r in train[i].relations}) == len(train[i].relations)]

    class Told(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(1))

        def forward(self, graphs):
            logits = torch.zeros(len(graphs.pairs), len(scenes.classes) + 1)
            logits[:, 0] = 5
            place = {tuple(pair): k for k, pair in enumerate(graphs.pairs.tolist())}
            chosen = train.select(np.array(plain[:16]))
            for image, (s, o, p) in zip(chosen.relation_images, chosen.relations):
                start = chosen.object_offsets[image]
                logits[place[(s + start, o + start)], p + 1] = 10
            return HeadOutput(logits, logits)

    assert scenes.evaluate(Told().eval(), np.array(plain[:16]))["R@100"] == 1.0


@pytest.mark.parametrize("head", HEADS)
def test_every_head_learns(scenes: Scenes, head: type[RelationModel]) -> None:
    """Thirty steps on a handful of pictures make the loss smaller."""
    torch.manual_seed(0)
    task = replace(scenes, model=head())
    net, client = task.network().train(), Client("c0", np.arange(16), np.empty(0, np.int64))
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.05, momentum=0.9)
    losses = []
    for step in range(30):
        [batch] = task.steps(net, client, 16, {}, np.random.default_rng(step % 3))
        loss = task.loss(task.forward(net, batch), batch, {})
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 35.0)
        optimizer.step()
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


def test_vctrees_own_loss_counts(scenes: Scenes) -> None:
    """The tree's binary cross-entropy is added to that of the predicates."""
    task = replace(scenes, model=VCTreeModel())
    net = task.network().train()
    [batch] = task.steps(net, Client("c0", np.arange(4), np.empty(0, np.int64)), 4, {}, np.random.default_rng(0))
    output = task.forward(net, batch)
    alone = torch.nn.functional.cross_entropy(output.logits, batch.inputs.targets)
    assert output.extra.item() > 0
    assert task.loss(output, batch, {}).item() == pytest.approx((alone + output.extra).item())


@pytest.mark.parametrize("head", HEADS)
def test_the_frequency_bias_is_a_good_start(scenes: Scenes, head: type[RelationModel]) -> None:
    """An untrained network that knows how often which labels are related does better than one that does not."""
    rows, found = np.arange(40), []
    for bias in (False, True):
        torch.manual_seed(0)
        found.append(replace(scenes, model=head(frequency_bias=bias)))
    nets = [task.network().eval() for task in found]
    found[1].adopt_counts(nets[1], found[1].counts(everything(scenes)))
    without, with_it = (task.evaluate(net, rows)["R@20"] for task, net in zip(found, nets))
    assert with_it > 2 * without


def test_a_federation_by_semantics_is_the_same_on_every_engine(scenes: Scenes, tmp_path: Path, pool) -> None:
    experiment = Experiment(
        replace(scenes, model=ImpModel()),
        Semantic(6, "shard", clusters=3, shards=1),
        FedAvg(),
        topology=Server(3),
        training=Training(batch_size=8, lr=0.05, clip=35.0),
        evaluation=Evaluation(every=2, clients=2, holdout=0.2),
        rounds=2,
    )
    runs = [runner.run(experiment, tmp_path / str(i), engine) for i, engine in enumerate(("local", pool))]
    assert runs[0]["model_sha256"] == runs[1]["model_sha256"]
    assert {"test/R@20", "test/mR@20", "test/frequency R@20", "clients/R@50"} <= runs[0]["metrics"].keys()
    assert "PredCls" in runs[0]["protocol"]


def test_misfits_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.test = 0: expected at least 1"):
        Scenes(data=TownScenes(test=0))
    with pytest.raises(ConfigError, match=r"data\.path: expected a psg\.json"):
        _ = Scenes(data=PsgScenes()).samples


@pytest.mark.parametrize(
    "text, message",
    [
        ("[model]\nname = 'imp'\nword_vectors = 'x'", "unknown setting 'word_vectors'"),
        ("[model]\nname = 'imp'\nword_vectors = 'glove.txt'", "unknown setting 'word_vectors'"),
        ("[model]\nname = 'motifs'\nnps = true", "unknown setting 'nps'"),
        ("[model]\nname = 'motifs'\norder = 'parallel'", "order = "),
        ("[model]\nfeatures = 'file'", "path must be given"),
        ("[model]\nfeatures = 'geometri'", "did you mean 'geometry'"),
        ("[data]\nname = 'town'\npath = 'x'", "unknown setting 'path'"),
        ("[task]\nmode = {name = 'predcls', detections = 'x'}", "unknown setting 'detections'"),
    ],
)
def test_options_of_another_part_are_refused(text: str, message: str) -> None:
    text = text if text.startswith("[task]") else f"[task]\n{text}"
    with pytest.raises(ConfigError, match=message):
        Experiment.from_toml(text.replace("[task]\n", "[task]\nname = 'scenes'\n"))


@pytest.mark.parametrize(
    "key, value, place",
    [
        ("path", "'psg.json'", "data.path"),
        ("town", "'tiny'", "data.size"),
        ("data_seed", "1", "data.test_seed"),
        ("head", "'imp'", "model.name"),
        ("layers", "2", "model.layers"),
        ("features_path", "'x'", "model.features.path"),
        ("detections", "'x'", "task.mode.detections"),
    ],
)
def test_an_old_recipe_is_told_where_settings_are_now(key: str, value: str, place: str) -> None:
    with pytest.raises(ConfigError, match=rf"task\.{key} has moved: it is {place} now"):
        Experiment.from_toml(f"[task]\nname = 'scenes'\n{key} = {value}")
