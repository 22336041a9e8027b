"""The study of merged models: its data sets, its shares, the laboratory it is made in, the command and the page."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from wayfare.core.bundle import Bundle
from wayfare.core.device import Bench
from wayfare.core.errors import ConfigError, DataError, DeviceError
from wayfare.core.gate import Gate
from wayfare.core.memory import Memories
from wayfare.core.protocols import Batch, Engine, Failure, Output, Policy, Task, Training
from wayfare.core.seeds import rng_for
from wayfare.encounters.laboratory import LAB_ROUND, Lab, base_model
from wayfare.encounters.predictors.regressor import from_study
from wayfare.encounters.predictors.study import Study, divisions, draw_counts, pack, study, unpack
from wayfare.engines.local import Local
from wayfare.experiment import Experiment
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.papers.study import conduct
from wayfare.strategies.fedavg import FedAvg

torch.set_num_threads(1)  # as on every device


class Fake:
    """A laboratory on paper: a model is as good as it has pictures, and a mean is the mean and a tenth."""

    classes = 2

    def __init__(self, key: str = "") -> None:
        self.labels = np.repeat([0, 1], 500)
        self.key, self.trained, self.sets, self.pairs = key, 0, [], np.empty((0, 2))

    def rng(self, purpose: str) -> np.random.Generator:
        return rng_for(1, purpose)

    def train(self, samples):
        self.trained += 1
        self.sets = self.sets or samples
        return [len(chosen) / 2000 for chosen in samples]

    def mixed(self, models, groups):
        self.groups = groups
        return [sum(models[k] for k in group) / len(group) + 0.2 for group in groups]

    def merged(self, models, pairs):
        self.pairs = pairs if not len(self.pairs) else self.pairs
        return np.array([models[i] if i == j else (models[i] + models[j]) / 2 + 0.1 for i, j in pairs])


# ---- data sets


def test_ten_classes_are_divided_in_66_and_11_ways():
    ways = divisions(10, 3)
    assert ways.shape == (66, 3) and len({tuple(way) for way in ways}) == 66
    assert (ways.sum(1) == 10).all() and ways[0].tolist() == [10, 0, 0] and ways[-1].tolist() == [0, 0, 10]
    assert divisions(10, 2).shape == (11, 2)
    assert divisions(2, 3).tolist() == [[2, 0, 0], [1, 1, 0], [0, 2, 0], [1, 0, 1], [0, 1, 1], [0, 0, 2]]


def test_the_paper_s_data_sets():
    """5000 pictures of each class: 198 sets of 0-1000, 1001-3000 and 3001-5000, three of each division, and 33 poor."""
    counts = draw_counts(231, np.full(10, 5000), rng_for(0, "test"))
    assert counts.shape == (231, 10)
    rich, poor = counts[:198], counts[198:]
    size = np.digitize(rich, [1001, 3001])  # small, medium, large
    for at in range(0, 198, 3):
        assert (size[at] == size[at + 1]).all() and (size[at] == size[at + 2]).all()
        assert (rich[at] != rich[at + 1]).any()
    found = [tuple(np.bincount(row, minlength=3)) for row in size[::3]]
    assert sorted(found) == sorted(map(tuple, divisions(10, 3)))
    assert poor.max() <= 100
    some = [int((row > 10).sum()) for row in poor]
    assert some == [number for number in range(11) for _ in range(3)]


def test_sizes_follow_what_there_is():
    """50 and 500 of two classes: large is 31-50 and 301-500; poor ends at 2 and 10, as a hundredth would be nothing."""
    counts = draw_counts(42, np.array([50, 500]), rng_for(0, "test"))
    assert counts[:3].max(0).tolist() <= [10, 100]
    assert (counts[33:36] > [30, 300]).all() and (counts[33:36] <= [50, 500]).all()
    assert (counts[36:] <= 10).all()
    assert draw_counts(24, np.full(3, 100), rng_for(0, "test")).shape == (24, 3)
    assert (draw_counts(24, np.array([9, 0]), rng_for(0, "test"))[:, 1] == 0).all()


def test_what_cannot_be_studied_is_refused():
    with pytest.raises(ConfigError, match="at least 8"):
        draw_counts(7, np.full(2, 10), rng_for(0, "test"))
    with pytest.raises(ConfigError, match="has none"):
        draw_counts(8, np.zeros(2, np.int64), rng_for(0, "test"))


# ---- the study


def test_every_two_are_merged_once():
    lab = Fake()
    found = study(lab, 14)
    assert len(lab.pairs) == 14 + 91 and (lab.pairs[:, 0] <= lab.pairs[:, 1]).all()
    assert found.distinct == 91 and found.matrix.size == 196
    for row, chosen in zip(found.counts, lab.sets):
        assert np.bincount(lab.labels[chosen], minlength=2).tolist() == row.tolist()
        assert len(np.unique(chosen)) == len(chosen)
    assert found.accuracy == pytest.approx(found.counts.sum(1) / 2000)
    i, j = 2, 9
    assert found.matrix[i, j] == found.matrix[j, i] == pytest.approx((found.accuracy[i] + found.accuracy[j]) / 2 + 0.1)
    assert found.about["models"] == 14


def test_the_base_and_means_of_several_are_studied_too():
    """14 models, so 4 means, of 2, 4, 8 and 2. A mean is 0.2 better than its members' mean here, and the base 0."""
    lab = Fake()
    found = study(lab, 14)
    assert [len(group) for group in lab.groups] == [2, 4, 8, 2]
    own, peer, merged = found.further.T
    assert merged == pytest.approx((own + peer) / 2 + 0.1)
    # with the base each of 14 models, with each mean all 14 (fewer than 24), and 10 pairs of these five; in both orders
    assert len(found.further) == 2 * (14 + 4 * 14 + 10)
    best = max(np.mean([found.accuracy[k] for k in group]) for group in lab.groups) + 0.2
    assert found.reach == pytest.approx((0.0, max(best, found.accuracy.max())))
    assert found.matrix.size == 196, "the paper's numbers do not count them"


def test_the_paper_s_numbers_of_pairs():
    found = Study(np.full((231, 231), 0.5), np.ones((231, 10), np.int64))
    assert found.matrix.size == 53_361 and found.distinct == 26_565


def test_shares_by_hand():
    """Gains of the first: 0.1 and 0.2 with model 2, but 1 loses 0.1; 0 and 1 end at 0.5. Ties are no gain."""
    matrix = np.array([[0.4, 0.5, 0.6], [0.5, 0.6, 0.6], [0.6, 0.6, 0.3]])
    found = Study(matrix, np.ones((3, 1), np.int64))
    gains = [[0.0, 0.1, 0.2], [-0.1, 0.0, 0.0], [0.3, 0.3, 0.0]]
    assert found.change == pytest.approx(np.array(gains))
    assert found.improving == 4 / 9  # (0,1), (0,2), (2,0), (2,1)
    assert found.better_than_both == 2 / 9  # (0,2) and (2,0): 0.6 is above 0.4 and 0.3


@pytest.mark.parametrize(
    "matrix", [np.ones((2, 3)), np.array([[0.1, 0.2], [0.3, 0.1]]), np.full((2, 2), 1.5), np.full((2, 2), np.nan)]
)
def test_a_matrix_that_is_none_is_refused(matrix):
    with pytest.raises(DataError):
        Study(matrix, np.ones((2, 1), np.int64))


def test_the_same_laboratory_gives_the_same_study():
    first, second = study(Fake(), 9), study(Fake(), 9)
    assert pack(first).pack() == pack(second).pack()
    again = unpack(Bundle.unpack(pack(first).pack()))
    assert (again.matrix == first.matrix).all() and (again.counts == first.counts).all() and again.about == first.about


def test_a_study_is_made_once_for_a_laboratory(tmp_path, monkeypatch):
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path))
    lab, other = Fake("abc"), Fake("def")
    first = from_study(lab, 8)
    second = from_study(lab, 8)
    assert lab.trained == 2 and (first.table == second.table).all()
    from_study(other, 8)
    assert other.trained == 2
    [file] = tmp_path.glob("studies/abc-8-*/study.safetensors")
    file.write_bytes(b"damaged")
    with pytest.raises(DataError, match="made again if you remove"):
        from_study(lab, 8)


def test_without_a_key_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path))
    from_study(Fake(), 8)
    assert not list(tmp_path.iterdir())


# ---- the laboratory


class Line(nn.Module):
    """A linear head on two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.eye(2) / 10)
            self.head.bias.zero_()


@dataclass(frozen=True)
class Dots(Task):
    """Points of two kinds in the plane."""

    frozen: bool = False

    classes = ("left", "right")
    samples = 60

    @property
    def provides(self) -> frozenset[str]:
        return frozenset({"classes", *(("heads",) if self.frozen else ())})

    @property
    def labels(self) -> np.ndarray:
        return np.arange(60) % 2

    @property
    def points(self) -> torch.Tensor:
        noise = torch.from_numpy(rng_for(0, "dots").normal(size=(60, 2))).float()
        return noise + torch.tensor([[-0.7, 0.0], [0.7, 0.3]])[self.labels]

    def network(self) -> nn.Module:
        return Line()

    def steps(self, net, client, batch_size, memo, rng):
        yield Batch(self.points[client.train], torch.from_numpy(self.labels[client.train]))

    def forward(self, net, batch):
        return Output({}, net.head(batch.inputs))

    def loss(self, output, batch, memo):
        return nn.functional.cross_entropy(output.logits, batch.labels)

    def tally(self, net, samples, limit=0):
        assert not self.frozen, "heads are judged together"
        right, total = self.tally_many(net.head.weight[None], net.head.bias[None], samples)
        return right[0], total

    @torch.no_grad()
    def tally_many(self, heads, biases, samples=None, limit=0):
        labels = torch.from_numpy(self.labels[samples])
        logits = torch.einsum("nd,kcd->knc", self.points[samples], heads) + biases[:, None]
        hits = nn.functional.one_hot(labels, 2) * (logits.argmax(2) == labels)[..., None]
        return hits.sum(1).numpy(), np.bincount(labels, minlength=2)


def laboratory(folder: Path, task: Dots = Dots(), engine=None, **changes) -> Lab:
    training = Training(lr=1.0, epochs=3, batch_size=100)
    bench = Bench(task, FedAvg(), training=training, population=[], clients=None, seed=0, memories=Memories(folder))
    local = Local()
    local.open("", "", lambda: bench)
    start = FedAvg().start(task, bench.loaded(0, bench.initial))
    positions = np.arange(40)
    given = {"seed": 0, "train": positions, "labels": task.labels[positions], "judge": np.arange(40, 60)} | changes
    return Lab(Gate(engine or local, Policy(), LAB_ROUND), FedAvg(), task, start, **given)


def test_models_are_trained_on_what_is_named(tmp_path):
    lab = laboratory(tmp_path)
    sets = [np.array([0, 2, 4]), np.empty(0, np.int64), np.arange(40)]
    models = lab.train(sets)
    weights = [lab._get(model)["model"]["head.weight"] for model in models]
    assert (weights[1] == torch.eye(2) / 10).all()  # the base
    left = lab._get(models[0])["model"]["head.bias"]
    assert left[0] > 0 > left[1]  # it has seen one class only
    again = laboratory(tmp_path / "again").train(sets)
    assert [checksum for _, checksum in models] == [checksum for _, checksum in again]


def test_a_mean_is_plain_whatever_the_numbers_of_pictures(tmp_path):
    lab = laboratory(tmp_path)
    models = lab.train([np.arange(1), np.arange(40)])
    mean = {name: (t + lab._get(models[1])["model"][name]) / 2 for name, t in lab._get(models[0])["model"].items()}
    net = Line()
    net.load_state_dict(mean)
    right, total = Dots().tally(net, np.arange(40, 60))
    found = lab.merged(models, np.array([[0, 1], [1, 0], [1, 1]]))
    assert found[0] == found[1] == right.sum() / total.sum()
    net.load_state_dict(lab._get(models[1])["model"])
    assert found[2] == Dots().tally(net, np.arange(40, 60))[0].sum() / 20


def test_heads_are_judged_together_with_the_same_result(tmp_path):
    sets = [rng_for(n, "sets").choice(40, 2 + n, replace=False) for n in range(12)]
    pairs = np.stack(np.triu_indices(12), 1)
    one, all_ = laboratory(tmp_path / "a"), laboratory(tmp_path / "b", Dots(frozen=True))
    apart, together = one.merged(one.train(sets), pairs), all_.merged(all_.train(sets), pairs)
    assert apart.tolist() == together.tolist() and len(set(apart)) > 3


def test_progress_is_told_to_the_end(tmp_path):
    heard = []
    lab = laboratory(tmp_path, progress=lambda *how_far: heard.append(how_far))
    models = lab.train([np.arange(5)] * 20)  # more than go out in one part
    lab.merged(models, np.zeros((70, 2), np.int64))
    assert ("training models", 20, 20) in heard and ("judging means of two", 70, 70) in heard


def test_the_cache_key_depends_on_the_laboratory(tmp_path):
    def key(**changes):
        return laboratory(tmp_path, **({"about": "lr 1"} | changes)).key

    keys = [key(), key(about="lr 2"), key(seed=1), key(judge=np.arange(41, 60)), key(task=Dots(frozen=True))]
    keys.append(key(train=np.arange(39), labels=np.arange(39) % 2))
    assert len(set(keys)) == 6 and key() == keys[0]
    assert key(about="") == ""  # who does not say how models are trained may keep none


def test_a_gap_is_an_error(tmp_path):
    class Broken(Engine):
        def call(self, program, requests, deadline):
            for id, _ in requests:
                yield id, Failure("the battery is empty", "where")

    with pytest.raises(DeviceError, match="'lab-0', program 'train': the battery is empty"):
        laboratory(tmp_path, engine=Broken()).train([np.arange(3)])


def test_a_model_that_is_not_a_number_is_a_gap(tmp_path):
    class Spoilt(Local):
        def call(self, program, requests, deadline):
            for id, reply in super().call(program, requests, deadline):
                yield id, reply.with_(model={n: w * torch.nan for n, w in reply["model"].items()})

    engine = Spoilt()
    engine.open("", "", laboratory(tmp_path)._gate.engine._bench)
    lab = laboratory(tmp_path, engine=engine)
    with pytest.raises(DeviceError, match="'lab-0', program 'train': its reply was refused: not finite: model/head"):
        lab.train([np.arange(3)])
    with pytest.raises(DeviceError, match="'base', program 'train': its reply was refused: not finite"):
        base_model(replace(lab._gate, round=0), FedAvg(), Dots(), start=lab._start, samples=np.arange(40), iterations=2)


def test_judging_by_what_was_trained_on_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not train on"):
        laboratory(tmp_path, judge=np.arange(30, 50)).train([np.arange(3)])
    with pytest.raises(ConfigError, match="needs pictures that nobody holds"):
        laboratory(tmp_path, train=np.arange(0), labels=np.arange(0)).train([np.arange(0)])


def test_the_base_keeps_its_first_head(tmp_path):
    lab = laboratory(tmp_path)
    start, gate = lab._start, replace(lab._gate, round=0)
    base = base_model(gate, FedAvg(), Dots(), start=start, samples=np.arange(40), iterations=2)
    assert (base["model"]["head.weight"] == start["model"]["head.weight"]).all()


# ---- the command


def small() -> Experiment:
    training = Training(lr=0.1, momentum=0.9, batch_size=32, at_most=20)
    return Experiment(task=Objects(model=CnnClassifier(width=4, hidden=16)), training=training)


def test_any_engine_gives_the_same_study(pool):
    with Local() as local:
        here = conduct(small(), 8, 100, engine=local)

    def never(id):
        raise KeyError(id)

    pool.set_client_sizes(never)  # as an earlier run may have left it
    there = conduct(small(), 8, 100, engine=pool)
    assert pack(here).pack() == pack(there).pack()
    assert here.about["judged"] == 100 and len(here.about["key"]) == 32
    assert len(set(here.matrix.ravel())) > 10  # or anything would be the same


def test_the_command_writes_a_file_and_a_page(tmp_path, capsys):
    import typer

    from wayfare.cli import study as command

    app = typer.Typer()
    command.add_to(app)
    recipe = tmp_path / "small.toml"
    recipe.write_text(replace(small(), name="small <b>").to_toml())
    out = tmp_path / "made" / "study.safetensors"
    arguments = [str(recipe), "--out", str(out), "--models", "8", "--judged", "50", "--engine", "local", "--json"]
    app(arguments, standalone_mode=False)
    answer = json.loads(capsys.readouterr().out)
    assert answer["models"] == 8 and answer["pairs"] == 64 and answer["merged"] == 28
    assert 0 <= answer["improving"] <= 1 and answer["mape"] > 0
    page = Path(answer["page"]).read_text()
    assert page.count('class="plot"') == 3 and "69.9 %" in page and "&lt; 6 %" in page
    assert "small &lt;b&gt;" in page and "<b>, 8" not in page
    assert "https://" not in page.split("<script")[0]


def test_a_task_without_classes_is_refused():
    class Other(Task):
        pass

    experiment = small()
    object.__setattr__(experiment, "task", Other())
    with pytest.raises(ConfigError, match="use the task 'objects'"):
        conduct(experiment, 8, 10, engine=Local())
