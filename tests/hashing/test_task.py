"""The task `hashing`: passes and buffers, awkward clients, labels of all kinds, rankings, strategies."""

import inspect
import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from wayfare import Evaluation, Experiment, Training, run
from wayfare.components import find
from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Client
from wayfare.core.seeds import rng_for
from wayfare.hashing import dcmh, ranking, shdch
from wayfare.hashing.data.base import PairData
from wayfare.hashing.data.csv_pairs import TablePairs
from wayfare.hashing.data.pairs import Paired
from wayfare.hashing.data.town_pairs import TownFashion
from wayfare.hashing.dcmh import DCMH
from wayfare.hashing.dealing import dealt
from wayfare.hashing.images import FrozenImages, GivenImages, PixelImages
from wayfare.hashing.model import BagOfWords, PairEncoders
from wayfare.hashing.nets import Encoders, Layers, signs
from wayfare.hashing.shdch import SHDCH
from wayfare.hashing.task import Hashing
from wayfare.nets import frozen
from wayfare.nets.efficientnet import EfficientNetLite0
from wayfare.pages.record import Record
from wayfare.partition.random import Random
from wayfare.testing import TASK_CHECKS, check_task

EXAMPLE = Hashing.example()
NONE = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Given(PairData):
    """Pairs that are there already."""

    pairs: Paired

    def load(self, progress, size=(224, 224)):
        return self.pairs


def with_pairs(task=EXAMPLE, **changes):
    """The task on the sample with something changed."""
    return replace(task, data=Given(replace(task.pairs, **changes)))


def with_image(image, task=EXAMPLE):
    return replace(task, model=replace(task.model, image=image))


def one_level(task=EXAMPLE):
    return with_pairs(task, labels=task.pairs.labels[:, 2:], names=task.pairs.names[2:], levels=(4,))


def several_labels(task=EXAMPLE):
    """Coarse and fine ones on one level: two labels each."""
    return with_pairs(task, levels=(6,))


def network(task):
    torch.manual_seed(0)
    return task.network()


def client(count, first=0):
    return Client("c", np.arange(first, first + count), NONE)


def train(task, net, held, batch_size=8, epochs=1, lr=0.01):
    """Adam on passes as a device makes them; returns the batches' views and the buffers."""
    memo, views = {}, []
    optimizer = torch.optim.Adam(net.parameters(), lr)
    step = inspect.unwrap(type(optimizer).step)  # without torch's compiler, as `core.device` does
    for epoch in range(epochs):
        for batch in task.steps(net, held, batch_size, memo, rng_for(epoch)):
            loss = task.loss(task.forward(net, batch), batch, memo)
            optimizer.zero_grad()
            loss.backward()
            with torch.no_grad():
                step(optimizer)
            views.append(next(iter(batch.inputs)))
    return views, memo["buffers"]


# ---- data


def test_labels_and_categories():
    assert EXAMPLE.classes == ("flower", "tree", "sea", "snow") and EXAMPLE.samples == 128
    fine = EXAMPLE.pairs.labels[EXAMPLE.pairs.train, 2:]
    assert np.array_equal(EXAMPLE.labels, fine.argmax(1))
    assert np.array_equal(one_level().labels, EXAMPLE.labels)
    many = several_labels()
    assert many.labels is None and len(many.classes) == 6
    assert np.array_equal(many.categories.values, many.pairs.labels[many.pairs.train].astype(np.float32))
    assert "32 queries, 128 to find" in EXAMPLE.protocol and "4 labels" in EXAMPLE.protocol
    three = with_pairs(levels=(1, 1, 4))  # of more than two levels the two finest count
    assert [part.shape[1] for part in three.loaded.labels(np.arange(3))] == [1, 4] and three.classes == EXAMPLE.classes
    assert np.array_equal(EXAMPLE.loaded.within.numpy(), [[1, 1, 0, 0], [0, 0, 1, 1]])


@pytest.mark.parametrize(
    "task", [replace(EXAMPLE, base=SHDCH()), one_level(replace(EXAMPLE, base=SHDCH())), several_labels()]
)
def test_conforms(task):
    assert len(check_task(task)) == len(TASK_CHECKS)


def test_settings_survive_toml_and_nonsense_is_refused():
    task = Hashing(
        TownFashion(drop=("untexted",), town="tiny"), PairEncoders(PixelImages(lrn="ports")), SHDCH(gamma=2.0)
    )
    assert Experiment.from_toml(Experiment(task=task).to_toml()).task == task
    for make, message in {
        lambda: PairEncoders(bits=0): "model.bits = 0",
        lambda: SHDCH(alpha=-1.0): "task.base.alpha = -1.0",
        lambda: SHDCH(sweeps=0): "task.base.sweeps = 0",
        lambda: DCMH(eta=float("nan")): "task.base.eta = nan",
        lambda: FrozenImages(side=8): "model.image.side = 8: expected at least 32",
        lambda: GivenImages(hidden=-1): "model.image.hidden = -1",
        lambda: BagOfWords(hidden=-1): "model.text.hidden = -1",
        lambda: Hashing(scale=-1.0): "task.scale = -1.0",
    }.items():
        with pytest.raises(ConfigError, match=message):
            make()
    with pytest.raises(ConfigError, match="has no features of pictures"):
        with_pairs(features=None).network()
    with pytest.raises(ConfigError, match="has no pictures"):
        with_image(FrozenImages(side=32), with_pairs(pictures=None)).network()


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("path", "x", "data.path"),
        ("bits", 16, "model.bits"),
        ("features", "pixels", "model.image"),
        ("label_source", "kind", "data.labels"),
        ("names", ["a"], "data.terms.names"),
        ("eta", 1.0, "task.base.eta"),
    ],
)
def test_settings_of_old_recipes_say_where_they_are_now(key, value, place):
    with pytest.raises(ConfigError, match=f"^task.{key} has moved: it is {place} now"):
        Experiment.from_table({"task": {"name": "hashing", key: value}})


def test_a_recipe_names_the_parts():
    table = {
        "data": {"name": "table", "path": "shop", "labels": "kind:50"},
        "model": {"bits": 16, "image": {"name": "pixels", "lrn": "ports"}, "text": {"hidden": 8}},
        "task": {"name": "hashing", "base": "shdch"},
    }
    model = PairEncoders(PixelImages(lrn="ports"), BagOfWords(hidden=8), bits=16)
    assert Experiment.from_table(table).task == Hashing(TablePairs(path="shop", labels="kind:50"), model, SHDCH())


def test_what_is_shown_of_pictures(tmp_path, monkeypatch):
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path))
    monkeypatch.setattr(frozen, "imagenet_weights", lambda: EfficientNetLite0().state_dict())
    rows = np.array([5, 2])
    colours = EXAMPLE.pairs.pictures.read(rows)
    pixels = with_image(PixelImages()).loaded.of("image", rows)
    assert pixels.shape == (2, 3, 8, 8) and float(pixels[1, 2, 3, 4]) == colours[1, 3, 4, 2]
    task = with_image(FrozenImages(side=32))
    messages = []
    task.prepare(lambda *args: messages.append(args))
    assert messages[-1] == ("features of the pictures", 160, 160)
    shown = task.loaded.of("image", rows)
    assert shown.shape == (2, 1280) and task.network().image.hidden.in_features == 1280
    assert torch.allclose(shown.mean(1), torch.zeros(2), atol=1e-4)


# ---- passes


@pytest.mark.parametrize(("held", "batch_size", "count"), [(20, 8, 2), (20, 20, 1), (5, 8, 1), (1, 8, 1), (9, 1, 9)])
def test_batches_of_a_pass(held, batch_size, count):
    """floor(n / b) fresh batches of each view, at least one, of no more than n pairs; one view in each."""
    net, owner = network(EXAMPLE), client(held, first=7)
    batches = list(EXAMPLE.steps(net, owner, batch_size, {}, rng_for(0)))
    assert [list(batch.inputs) for batch in batches] == [["image"]] * count + [["text"]] * count
    for batch in batches:
        assert len(batch.rows) == len(batch.rows.unique()) == min(batch_size, held)
        rows = EXAMPLE.pairs.train[owner.train[batch.rows.numpy()]]
        view = next(iter(batch.inputs))
        assert torch.equal(batch.inputs[view], EXAMPLE.loaded.of(view, rows))
        assert np.array_equal(batch.labels.numpy(), EXAMPLE.pairs.labels[rows][:, 2:])
    scanned = list(EXAMPLE.scan(net, owner))
    assert [sorted(batch.inputs) for batch in scanned] == [["image", "text"]]
    assert scanned[0].rows.tolist() == list(range(held))


def test_the_order_of_views():
    for order, views in {"image": "iitt", "text": "ttii", "alternate": "itit"}.items():
        task = replace(EXAMPLE, order=order)
        batches = task.steps(network(task), client(20), 10, {}, rng_for(0))
        assert "".join(next(iter(batch.inputs))[0] for batch in batches) == views
    assert list(EXAMPLE.steps(network(EXAMPLE), client(0), 8, {}, rng_for(0))) == []


class Turned(Encoders):
    """What a strategy may do: what codes are made of is not the raw output."""

    def enhance(self, view, raw):
        return 3 - raw


def test_buffers_follow_the_training():
    """Filled by one look, written by each step with what codes are made of; B is anew after the pass."""
    torch.manual_seed(0)
    net, owner, memo = Turned(Layers(3, 0, 16), Layers(20, 0, 16), 16), client(20), {}
    steps = EXAMPLE.steps(net, owner, 8, memo, rng_for(0))
    first = next(steps)
    buffers, rows = memo["buffers"], EXAMPLE.pairs.train[:20]
    with torch.no_grad():
        seen = {view: 3 - net.encode(view, EXAMPLE.loaded.of(view, rows)) for view in ("image", "text")}
        assert all(torch.allclose(buffers.features[view], seen[view], atol=1e-6) for view in seen)
        for p in net.parameters():
            p.add_(0.5)
    output = EXAMPLE.forward(net, first)
    raw, text = output.features["image"], buffers.features["text"]
    similar = torch.from_numpy((EXAMPLE.labels[:20][first.rows][:, None] == EXAMPLE.labels[:20]).astype(np.float32))
    rest = buffers.features["image"].sum(0) - buffers.features["image"][first.rows].sum(0)
    wanted = dcmh.objective(
        raw, other=text, similar=similar, codes=buffers.codes[first.rows], rest=rest, gamma=1.0, eta=1.0
    )
    found = replace(EXAMPLE, scale=0.1).loss(output, first, memo)
    assert float(found.detach()) == pytest.approx(0.1 * float(wanted.detach()), rel=1e-5)
    assert torch.equal(buffers.features["image"][first.rows], 3 - raw.detach())
    before = buffers.codes
    assert before is memo["buffers"].codes
    buffers.features["image"].neg_().sub_(100)
    for _ in steps:
        pass
    assert torch.equal(buffers.codes, -torch.ones(20, 16)) and not torch.equal(before, buffers.codes)


@pytest.mark.parametrize("base", [DCMH(), SHDCH()])
def test_one_look_at_all_pairs_per_round(base, monkeypatch):
    task, looks = replace(EXAMPLE, base=base), []
    monkeypatch.setattr(Hashing, "features", _counted(Hashing.features, looks))
    views, buffers = train(task, network(task), client(20), epochs=3)
    assert looks == ["image", "text"] and len(views) == 12
    assert len(buffers.classes) == (2 if base == SHDCH() else 0)


def test_a_device_has_its_share_of_the_hierarchy(monkeypatch):
    """So that the terms of all devices add up to that of the pool: 20 of 128 pairs, 100 * 20 / 128 = 15.625."""
    seen = []
    monkeypatch.setattr(shdch, "better_codes", lambda codes, *_, **settings: seen.append(settings) or codes)
    task = replace(EXAMPLE, base=SHDCH(sweeps=7))
    for some in (task, one_level(task)):
        assert list(some.steps(network(some), client(20), 8, {}, rng_for(0)))
    assert (seen[0]["weights"], seen[0]["eta"], seen[0]["sweeps"]) == ((0.3, 0.7), 15.625, 7)
    assert seen[1]["weights"] == (0.7,) and seen[1]["within"] is None
    alone = replace(task, examples=40)  # on a device that has only its own pairs: 20 of 40
    assert list(alone.steps(network(alone), client(20), 8, {}, rng_for(0))) and seen[2]["eta"] == 50.0


def test_class_codes_travel_with_the_network():
    """A round begins with the signs of the received ones and leaves those of the last pass; DCMH has none."""
    task = one_level(replace(EXAMPLE, base=SHDCH()))
    net, memo = network(task), {}
    first = shdch.first_codes(16, 4)
    assert torch.equal(net.class_codes.double(), first)
    net.class_codes.copy_(0.2 * first).neg_()  # what is left of votes on both sides
    steps = task.steps(net, client(20), 8, memo, rng_for(0))
    next(steps)
    assert torch.equal(memo["buffers"].classes[0], -first)
    list(steps)
    assert torch.equal(net.class_codes.double(), memo["buffers"].classes[0])
    assert not torch.equal(net.class_codes.double(), -first)
    assert not dict(network(EXAMPLE).named_buffers())


def test_the_server_counts_votes_on_class_codes():
    """Of three clients two with 10 pairs each outvote one with 15: 20 / 35 - 15 / 35 = 1 / 7."""
    votes = {"a": (10, 1.0), "b": (15, -1.0), "c": (10, 1.0)}
    net, replies = network(replace(EXAMPLE, base=SHDCH())), []
    for name, (n, vote) in votes.items():
        model = {**net.state_dict(), "class_codes": torch.full((16, 6), vote)}
        replies.append((name, Bundle({"model": model}, {"n": n})))
    strategy = find("strategy", "fedavg")()
    found = strategy.merge(strategy.start(EXAMPLE, net), replies)["model"]["class_codes"]
    assert torch.allclose(found, torch.full((16, 6), 1 / 7))


def _counted(function, looks):
    def counted(self, net, view, rows):
        looks.append(view)
        return function(self, net, view, rows)

    return counted


@pytest.mark.parametrize("base", [DCMH(), SHDCH()])
@pytest.mark.parametrize("change", [EXAMPLE, one_level(), several_labels()])
def test_awkward_clients(base, change):
    """One pair, and pairs without a word or a label."""
    changed = change.pairs
    silent = with_pairs(change, bags=csr_array(changed.bags.shape, dtype=np.float32), labels=changed.labels & False)
    for task, held in ((change, 1), (silent, 3)):
        task = with_pairs(replace(EXAMPLE, base=base), **vars(task.pairs))
        net = network(task)
        train(task, net, client(held), epochs=2)
        assert all(bool(torch.isfinite(p).all()) for p in net.parameters())
    found = task.evaluate(net, None)
    assert {value for name, value in found.items() if "MAP" in name} == {0.0}  # nothing is relevant to anything
    assert 0 < found["R@1"] < found["R@5"] < found["R@10"] < 1  # but each has a text of its own


def test_only_batches_to_train_on_have_a_loss():
    net = network(EXAMPLE)
    batch = next(EXAMPLE.scan(net, client(3)))
    with pytest.raises(TypeError, match="steps"):
        EXAMPLE.loss(EXAMPLE.forward(net, batch), batch, {})


# ---- judging


@torch.no_grad()
def test_rankings():
    """MAP both ways by what codes are made of; of a client's own pairs every fifth asks."""
    torch.manual_seed(0)
    net = Turned(Layers(3, 0, 16), Layers(20, 0, 16), 16)
    found = EXAMPLE.evaluate(net, np.arange(50, 61))
    rows = EXAMPLE.pairs.train[50:61]
    queries, database = rows[[0, 5, 10]], rows[[1, 2, 3, 4, 6, 7, 8, 9]]
    codes = {
        (view, which): signs(3 - net.encode(view, EXAMPLE.loaded.of(view, part))).numpy()
        for view in ("image", "text")
        for which, part in (("query", queries), ("database", database))
    }
    labels = EXAMPLE.pairs.labels[:, 2:]
    for name, view, other in (("MAP i2t", "image", "text"), ("MAP t2i", "text", "image")):
        pairs = (ranking.pack(codes[view, "query"]), ranking.pack(codes[other, "database"]))
        assert found[name] == ranking.mean_average_precision(*pairs, labels[queries], labels[database])
    assert found["MAP"] == (found["MAP i2t"] + found["MAP t2i"]) / 2
    assert EXAMPLE.evaluate(net, np.array([4])) == {} and EXAMPLE.evaluate(net, NONE) == {}
    assert 0.2 < EXAMPLE.evaluate(net, None)["random MAP"] < 0.35  # a quarter is relevant


def test_the_common_test_is_dealt_by_the_labels_of_a_client():
    pool = np.array([[1, 0, 0]] * 4 + [[0, 1, 0]] * 2)
    own = np.array([[1, 0, 0]] * 3 + [[0, 1, 0]] * 2)  # three quarters of the first label, all of the second
    labels = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]).repeat(1000, 0)
    shares = dealt(labels, own, pool, rng_for(0)).reshape(4, 1000).mean(1)
    assert shares.tolist() == pytest.approx([0.75, 1, 0.875, 0], abs=0.05) and shares[1] == 1 and shares[3] == 0
    task, net = replace(EXAMPLE, clients_judged="dealt"), network(EXAMPLE)
    everything = Client("all", np.arange(task.samples - 9), np.arange(task.samples - 9, task.samples))
    assert task.evaluate_client(net, everything, everything.holdout) == task.evaluate(net, None)


@pytest.mark.parametrize("base", [DCMH(eta=0.01), SHDCH(eta=1.0)])
def test_it_learns(base):
    task = replace(EXAMPLE, base=base)
    net = network(task)
    train(task, net, client(128), batch_size=16, epochs=12, lr=0.02)
    found = task.evaluate(net, None)
    assert min(found["MAP i2t"], found["MAP t2i"]) > 0.6 > 2 * found["random MAP"]


@pytest.mark.parametrize("strategy", ["fedproto", "moon", "fedprox", "scaffold", "local", "centralised"])
def test_strategies_run(strategy, tmp_path):
    experiment = Experiment(
        task=replace(EXAMPLE, base=SHDCH() if strategy == "moon" else DCMH()),
        strategy=find("strategy", strategy)(),
        partition=Random(3),
        training=Training(batch_size=16, lr=0.01),
        evaluation=Evaluation(holdout=0.2, clients=2),
        rounds=2,
    )
    result = run(experiment, tmp_path, "local")
    assert result["refused"] == 0 and any(name.endswith("MAP i2t") for name in result["metrics"])
    lines = [
        json.loads(line)["per_client"]["MAP i2t"]
        for line in (tmp_path / "rounds.jsonl").read_text().splitlines()
        if "MAP i2t" in line
    ]
    best = Record.read(tmp_path).best_of_clients("MAP i2t")
    assert len(lines) > 1 and best == {id: max(line[id] for line in lines if id in line) for id in best} and best
