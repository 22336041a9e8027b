"""Counts before the first round: what devices contribute, how it is added up, and what begins with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from scene_parts import scenes as made
from wayfare import Evaluation, Experiment, Training, runner
from wayfare.core.bundle import Bundle
from wayfare.core.counting import counted, form
from wayfare.core.errors import ConfigError, QuorumError
from wayfare.core.federation import Federation
from wayfare.core.protocols import Client, Engine, Policy
from wayfare.core.seeds import rng_for
from wayfare.core.store import Store
from wayfare.engines import open_engine
from wayfare.partition.random import Random
from wayfare.scenes import frequency
from wayfare.scenes.counting import NoisedSum, PlainSum
from wayfare.scenes.models import GPSNetModel, MotifsModel, VCTreeModel
from wayfare.scenes.task import Scenes
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.local import Local
from wayfare.topologies.server import Server
from wayfare.traffic import explain

NOBODY = np.empty(0, np.int64)
BOX = [0, 0, 10, 10]


@pytest.fixture
def task(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Scenes:
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    return replace(Scenes.example(), model=MotifsModel(frequency_bias=True))


def experiment(task: Scenes, rounds: int = 2, **parts: object) -> Experiment:
    settings = {
        "task": task,
        "partition": Random(4),
        "strategy": FedAvg(),
        "topology": Server(2),
        "training": Training(batch_size=8, at_most=2, lr=0.1),
        "evaluation": Evaluation(every=1, clients=0, holdout=0.0, validation_clients=1),
        "rounds": rounds,
    }
    return Experiment(**(settings | parts))


def table_of(folder: Path, name: str = "pairing.frequency.table") -> np.ndarray:
    store = Store(folder)
    store.load_lines(lambda text: None)
    return Bundle.unpack(store.read("model.safetensors"))["model"][name].numpy()


def test_the_network_begins_with_what_training_clients_hold(task: Scenes, tmp_path: Path) -> None:
    e = experiment(task, rounds=1, training=Training(lr=1e-12, at_most=1, batch_size=8))
    runner.run(e, tmp_path, "local")
    held = e.clients(e.split()).held()
    assert len(held) < task.samples  # a client validates and does not count
    expected = frequency.count(task.loaded.train.truth.select(held)).log_table()
    np.testing.assert_allclose(table_of(tmp_path), expected, atol=1e-5)


def test_the_floor_is_of_what_training_clients_hold(task: Scenes, tmp_path: Path) -> None:
    plain = replace(task, model=MotifsModel())
    found = [runner.run(experiment(t, 1), tmp_path / str(i), "local") for i, t in enumerate((task, plain))]
    e = experiment(task)
    held = frequency.count(task.loaded.train.truth.select(e.clients(e.split()).held()))
    floor = task.loaded.baseline(held)["frequency R@20"]
    assert [one["metrics"]["test/frequency R@20"] for one in found] == [floor, floor]


def test_one_model_on_every_engine_and_after_a_stop(task: Scenes, tmp_path: Path) -> None:
    e = experiment(replace(task, model=GPSNetModel(frequency_bias=True)))
    local = runner.run(e, tmp_path / "local", "local")
    pool = runner.run(e, tmp_path / "pool", "pool", 2)
    runner.run(replace(e, rounds=1), tmp_path / "stopped", "local")
    resumed = runner.resume(tmp_path / "stopped", "local", rounds=2)
    assert local["model_sha256"] == pool["model_sha256"] == resumed["model_sha256"]
    assert local["bytes_up"] == pool["bytes_up"]


def test_bytes_are_those_that_explain_traffic_names(task: Scenes, tmp_path: Path) -> None:
    e = experiment(task, rounds=1, topology=Server(0))
    counts, model, *_ = explain(e)["messages"]
    assert counts["when"] == "once, before the first round" and "exactly" in counts["reveals"]["counts"]
    assert {t["name"] for t in counts["tensors"]} == {"triplets", "overlapping", "unrelated", "devices"}
    runner.run(e, tmp_path, "local")
    store = Store(tmp_path)
    store.load_lines(lambda text: None)
    assert [line["bytes_up"] for line in store.lines] == [3 * counts["bytes"], 3 * model["bytes"]]
    assert store.lines[0]["clients"] == [] and "train/loss" not in store.lines[0]["metrics"]


def test_without_a_part_that_begins_with_counts_nobody_is_asked(task: Scenes, tmp_path: Path) -> None:
    e = experiment(replace(task, model=MotifsModel()), rounds=1)
    assert all("counts" not in message["reveals"] for message in explain(e)["messages"])
    runner.run(e, tmp_path, "local")
    store = Store(tmp_path)
    store.load_lines(lambda text: None)
    assert store.lines[0]["bytes_up"] == 0


def test_who_learns_alone_begins_with_its_own_counts(task: Scenes, tmp_path: Path) -> None:
    e = experiment(
        task, rounds=1, strategy=Local(), topology=Server(0), training=Training(lr=1e-12, at_most=1, batch_size=8)
    )
    runner.run(e, tmp_path, "local")
    clients = e.clients(e.split())
    id = clients.trained.id(0)
    memory = e.bench(tmp_path).memories.load(id, 1)
    assert memory is not None
    own = frequency.count(task.loaded.train.truth.select(clients.client(id).train)).log_table()
    np.testing.assert_allclose(memory["model"]["pairing.frequency.table"].numpy(), own, atol=1e-5)


def test_vctree_weighs_its_scores_by_the_prior(task: Scenes) -> None:
    task = replace(task, model=VCTreeModel(prior=True))
    net = task.network()
    assert task.counted and net.scores.prior.min() == 1
    task.adopt_counts(net, {n: t.long() for n, t in task.counts(Client("", np.arange(30), NOBODY)).items()})
    counts = frequency.count(task.loaded.train.truth.select(np.arange(30)))
    assert net.scores.prior.numpy() == pytest.approx(counts.related_shares())


def test_shares_by_hand() -> None:
    """Two pictures: 0 does0 1; 0 and 1 unrelated. Either way round 1 related and 3 unrelated, 1 added to both."""
    found = frequency.count(made(([0, 1], [BOX, BOX], [[0, 1, 0]]), ([0, 1], [BOX, BOX], [])))
    shares = found.related_shares()
    assert shares[0, 1] == shares[1, 0] == pytest.approx(2 / 6)
    assert shares[2, 3] == 0.5
    assert found.predicate_shares() == pytest.approx([2 / 4, 1 / 4, 1 / 4])


# ---- noise


def test_a_picture_counts_with_its_largest_objects_and_first_relations() -> None:
    """Objects 10, 20 and 30 wide; of the two largest one relation is left."""
    boxes = [[0, 0, 10, 10], [0, 0, 20, 20], [0, 0, 30, 30]]
    one = made(([0, 1, 2], boxes, [[0, 1, 0], [1, 2, 1], [2, 1, 2]]))
    counts = NoisedSum(objects=2, relations=1).counted(one)
    assert int(counts["triplets"].sum()) == 1 and int(counts["triplets"][1, 2, 1]) == 1
    assert int(counts["overlapping"].sum()) == 2 and int(counts["unrelated"].sum()) == 1


def test_noise_has_the_scale_that_epsilon_asks_for() -> None:
    """Discrete Laplace of scale b has the variance 2 p / (1 - p)^2, p = exp(-1/b); here b = 3 * 10 / 6 = 5."""
    sum = NoisedSum(epsilon=6.0, relations=10)
    zeros = {"triplets": torch.zeros(100, 100, 20, dtype=torch.int32), "devices": torch.ones(1, dtype=torch.int32)}
    noised = sum.blurred(zeros, rng_for(1, "noise"))
    p = np.exp(-1 / 5)
    assert float(noised["triplets"].double().var()) == pytest.approx(2 * p / (1 - p) ** 2, rel=0.03)
    assert abs(float(noised["triplets"].double().mean())) < 0.1 and int(noised["devices"]) == 1
    assert noised["triplets"].dtype == torch.int32


def test_what_may_be_noise_is_dropped() -> None:
    """Four devices, b = 3: three standard deviations of the sum are 3 * sqrt(2 * 4) * 3 = 25.5."""
    sum = NoisedSum(epsilon=10.0, relations=10, objects=2)
    table = torch.tensor([[[25, 26]]])
    sums = {"triplets": table, "overlapping": torch.zeros(1, 1), "unrelated": torch.zeros(1, 1)}
    found = sum.frequencies(sums | {"devices": torch.tensor([4])})
    assert found.triplets.tolist() == [[[0, 26]]]


def test_a_noised_sum_says_its_epsilon(task: Scenes) -> None:
    messages = explain(experiment(replace(task, sum=NoisedSum(epsilon=2.0))))["messages"]
    assert "epsilon = 2 for each picture" in messages[0]["reveals"]["counts"]


@pytest.mark.parametrize("settings", [{"epsilon": 0.0}, {"epsilon": float("inf")}, {"objects": 1}, {"relations": 0}])
def test_settings_that_promise_nothing_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"task\.sum"):
        NoisedSum(**settings)


# ---- devices that lie


class Liars(Engine):
    """Counts as given, one for each device."""

    def __init__(self, replies: list[Bundle]) -> None:
        self.replies = replies

    def call(self, program, requests, deadline):
        for (id, message), reply in zip(requests, self.replies):
            yield id, Bundle(reply.tensors, {**reply.values, "round": int(message.number("round"))})


def asked(task: Scenes, replies: list[Bundle]) -> tuple[dict[str, torch.Tensor], list[str]]:
    e = experiment(task)
    federation = Federation(
        strategy=e.strategy, population=Random(len(replies))(np.arange(task.samples), rng_for(0)), task=task,
        engine=Liars(replies), policy=Policy(), seed=0, rounds=1, size_of=lambda id: 5,
    )  # fmt: skip
    gate = federation.gate(0)
    return counted(federation, gate), [refused["reason"] for refused in gate.refused]


@pytest.mark.parametrize("sum", [PlainSum(), NoisedSum()])
def test_impossible_counts_are_refused_and_the_rest_is_added(task: Scenes, sum: PlainSum) -> None:
    task = replace(task, sum=sum)
    honest = task.counts(Client("", np.arange(5), NOBODY))
    far = honest | {"triplets": honest["triplets"] - 2**10}
    twice = honest | {"devices": honest["devices"] * 2}
    sums, reasons = asked(task, [Bundle({"counts": c}, {"n": 5}) for c in (honest, far, twice, honest)])
    assert torch.equal(sums["triplets"], 2 * honest["triplets"].long()) and int(sums["devices"]) == 2
    assert ["triplets must be" in reasons[0], "count as one" in reasons[1]] == [True, True]


def test_below_the_quorum_the_run_does_not_begin(task: Scenes) -> None:
    wrong = {name: tensor.double() for name, tensor in form(task).items()}
    with pytest.raises(QuorumError):
        asked(task, [Bundle({"counts": wrong}, {"n": 1})] * 3)


def test_an_engine_knows_the_program(task: Scenes, tmp_path: Path) -> None:
    e = experiment(task)
    with open_engine("local", 1) as engine:
        engine.open(e.to_toml(), str(tmp_path), lambda: e.bench(tmp_path))
        [(id, reply)] = engine.call("count", [("c0", Bundle({}, {"round": 0}))], float("inf"))
    assert isinstance(reply, Bundle) and reply["counts"]["triplets"].sum() > 0 and id == "c0"
