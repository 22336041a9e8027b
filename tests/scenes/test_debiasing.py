"""Seldom predicates: logit adjustment, weights in the loss, total direct effect; thirds and unseen triplets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from scene_parts import scenes as made
from wayfare import Evaluation, Experiment, Training, runner
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Client
from wayfare.core.seeds import rng_for
from wayfare.partition.random import Random
from wayfare.scenes import detections, frequency, recall
from wayfare.scenes.batch import HeadOutput
from wayfare.scenes.debiasing import (
    Adjusted,
    DirectEffect,
    LogitAdjustment,
    Reweighted,
    Reweighting,
    TotalDirectEffect,
    better_tau,
    chosen_tau,
    renamed,
)
from wayfare.scenes.models import MotifsModel
from wayfare.scenes.modes import SGDet
from wayfare.scenes.task import Scenes
from wayfare.strategies.fedavg import FedAvg
from wayfare.topologies.server import Server

BOX = [0, 0, 10, 10]
FEW = Client("c0", np.arange(12), np.empty(0, np.int64))


@pytest.fixture
def task(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Scenes:
    monkeypatch.setenv("WAYFARE_CACHE", str(shared_cache))
    return Scenes.example()


class Says(nn.Module):
    """Logits that depend on the looks of a pair and on a constant."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([logits]))

    def forward(self, graphs):
        said = self.logits + graphs.u[:, : self.logits.shape[1]]
        return HeadOutput(said, said)


def batch(task: Scenes):
    net = task.network()
    return next(iter(task.steps(net, FEW, 2, {}, rng_for(1)))).inputs


def counted() -> frequency.Frequencies:
    """Predicates 0, 1, 2 with 7, 1 and 0 relations: with 1 added 8, 2 and 1 of 11."""
    relations = [[0, 1, 0]] * 7 + [[0, 1, 1]]
    return frequency.count(made(([0, 1], [BOX, BOX], relations)))


def test_the_pair_stays_as_related_as_it_was() -> None:
    """p = 1/2, 3/8, 1/8 with the related half shared out 1 : 3 instead of 3 : 1."""
    logits = torch.tensor([[4.0, 3.0, 1.0]]).log()
    chosen = torch.tensor([[1.0, 3.0]]).log()
    assert renamed(logits, chosen).exp().tolist()[0] == pytest.approx([1 / 2, 1 / 8, 3 / 8])


def test_adjustment_by_hand(task: Scenes) -> None:
    """Of the shares 8, 2, 1 of 11: e^0 : e^0 : e^0 becomes 1/8 : 1/2 : 1 at tau 1, of a related share of 3/4."""
    graphs = replace(batch(task), u=torch.zeros_like(batch(task).u))
    net = Adjusted(Says([0.0, 0.0, 0.0, 0.0]), 3, tau=1.0)
    with torch.no_grad():
        net.adopt(counted())
    assert torch.equal(net.train()(graphs).predicates, torch.zeros(len(graphs.pairs), 4))
    said = net.eval()(graphs).predicates.softmax(1)[0].tolist()
    whole = 1 / 8 + 1 / 2 + 1
    assert said == pytest.approx([1 / 4, *(3 / 4 * part / whole for part in (1 / 8, 1 / 2, 1))])
    with net.using(0.0):
        assert net(graphs).predicates[0].tolist() == [0, 0, 0, 0]


def test_weights_by_hand_change_the_gradient(task: Scenes) -> None:
    """power 1/2: shares 8, 2, 1 of 11 give weights in the ratio 8^-1/2 : 2^-1/2 : 1, 1 in the mean over relations."""
    net = Reweighted(Says([0.0] * 4), 3, power=0.5)
    with torch.no_grad():
        net.adopt(counted())
    weights = net.weights[1:].double()
    assert weights[1] / weights[0] == pytest.approx(2) and weights[2] / weights[1] == pytest.approx(2**0.5)
    assert float((torch.tensor([8.0, 2, 1]) / 11 * weights).sum()) == pytest.approx(1)
    assert net.weights[0] == 1
    gradients = []
    for debias in (Scenes().debias, Reweighting(power=1.0)):
        other = replace(task, model=MotifsModel(), debias=debias)
        torch.manual_seed(0)
        net = other.network()
        if debias.counted:
            other.adopt_counts(net, other.counts(FEW))
        one = next(iter(other.steps(net, FEW, 12, {}, rng_for(1))))
        other.loss(other.forward(net, one), one, {}).backward()
        head = net.head if isinstance(net, Reweighted) else net
        gradients.append(head.pairing.predicate_out.bias.grad)
    assert not torch.allclose(*gradients, atol=1e-3)


def test_the_direct_effect_is_what_looks_add(task: Scenes) -> None:
    """Labels alone say predicate 0; looks speak for predicate 1: their effect alone names it."""
    graphs = batch(task)
    graphs = replace(graphs, u=torch.zeros_like(graphs.u))
    graphs.u[:, 2] = 1.0
    net = TotalDirectEffect(Says([0.0, 3.0, 0.0, 0.0])).eval()
    head, effect = (one(graphs).predicates.softmax(1)[0].detach() for one in (net.head, net))
    assert int(head[1:].argmax()) == 0 and int(effect[1:].argmax()) == 1
    assert effect[0] == pytest.approx(float(head[0]))
    e = float(np.e)
    assert (effect[1:] / effect[1:].sum()).tolist() == pytest.approx([1 / (2 + e), e / (2 + e), 1 / (2 + e)])


def test_tau_is_chosen_by_validation_clients() -> None:
    """0.5 has the best mR@20 among those that lose at most a point of R@20; the test set has no say."""
    told = {0: (0.50, 0.10), 0.5: (0.495, 0.15), 1: (0.48, 0.20)}
    metrics = {f"validation/{m}, tau {t:g}": v[i] for t, v in told.items() for i, m in enumerate(("R@20", "mR@20"))}
    assert chosen_tau(metrics | {"test/mR@20, tau 1": 1.0}) == 0.5
    assert chosen_tau(metrics, most_lost=0.03) == 1.0
    with pytest.raises(ConfigError, match="validation_clients"):
        chosen_tau({"test/mR@20": 0.1})
    assert [better_tau(metrics, 0.5), better_tau(metrics, 0), better_tau({}, 0)] == [None, 0.5, None]


def test_a_head_below_the_baseline_is_told_of_and_what_to_do(task: Scenes) -> None:
    floor = {"test/frequency R@20": 0.4, "test/frequency mR@20": 0.2}
    assert task.doubt(floor | {"test/R@20": 0.5, "test/mR@20": 0.3}, {}) == ""
    told = task.doubt(floor | {"test/R@20": 0.5, "test/mR@20": 0.1}, {})
    assert "mR@20 0.100, and they have 0.200" in told and " R@20" not in told and "frequency_bias" in told
    counts = replace(task, model=MotifsModel(frequency_bias=True), debias=LogitAdjustment(tau=0.25))
    tried = {f"validation/{m}, tau {t}": t / 10 for m in ("R@20", "mR@20") for t in (0, 0.25, 0.5)}
    told = counts.doubt(floor | tried | {"test/R@20": 0.3, "test/mR@20": 0.1}, {})
    assert "frequency_bias" not in told and told.endswith("task.debias.tau = 0.5")


def test_a_run_tries_taus_on_validation_clients_only(task: Scenes, tmp_path: Path) -> None:
    debias = LogitAdjustment(tau=0.0, tried=(0.0, 1.0))
    e = Experiment(
        replace(task, model=MotifsModel(frequency_bias=True), debias=debias), Random(4), FedAvg(),
        topology=Server(2), training=Training(batch_size=8, at_most=2, lr=0.1), rounds=1,
        evaluation=Evaluation(every=1, clients=0, holdout=0.0, validation_clients=1),
    )  # fmt: skip
    assert Experiment.from_toml(e.to_toml()) == e
    metrics = runner.run(e, tmp_path, "local")["metrics"]
    assert metrics["validation/mR@20, tau 0"] == metrics["validation/mR@20"] != metrics["validation/mR@20, tau 1"]
    assert not any("tau" in name for name in metrics if name.startswith("test/"))
    assert {"test/mR@20/head", "test/mR@20/tail", "test/zR@20"} <= metrics.keys()
    assert chosen_tau(metrics) in (0.0, 1.0)


@pytest.mark.parametrize("make", [lambda: LogitAdjustment(tau=-1), lambda: LogitAdjustment(tried=(3.0,)),
                                  lambda: Reweighting(power=2.0)])  # fmt: skip
def test_senseless_settings_are_refused(make) -> None:
    with pytest.raises(ConfigError, match=r"task\.debias"):
        make()


def test_a_head_without_counts_needs_no_counting(task: Scenes) -> None:
    assert not replace(task, debias=DirectEffect()).counted
    assert replace(task, debias=LogitAdjustment()).counted


# ---- thirds of the predicates, triplets never trained on


def test_thirds_and_unseen_triplets_by_hand() -> None:
    """Predicate 2 is trained on most, 0 next, 1 never: head, body, tail; the second triplet is new in its classes."""
    truth = made(([0, 1, 2], [BOX] * 3, [[0, 1, 2], [1, 2, 0]]))
    trained = made(([0, 1], [BOX] * 2, [[0, 1, 2], [0, 1, 2], [1, 0, 0]]))
    found = recall.Guesses(1, np.zeros(1, np.int64), np.array([[0, 1, 2]]), np.ones(1, np.float32), True)
    tally = recall.tally(found, truth, cutoffs=(20,))
    assert recall.by_thirds(tally, np.array([1, 0, 2])) == {"mR@20/head": 1.0, "mR@20/body": 0.0, "mR@20/tail": 0.0}
    assert recall.seen(truth, trained).tolist() == [True, False]
    assert recall.by_name(tally, truth.predicates, 20) == {"does0": 0.0, "does2": 1.0}


def test_recall_of_each_predicate(task: Scenes) -> None:
    torch.manual_seed(0)
    net = task.network().eval()
    found = task.predicate_recalls(net, 100)
    mean = task.evaluate(net, None)["mR@100/present"]
    assert found.keys() <= set(task.classes) and np.mean(list(found.values())) == pytest.approx(mean)


def test_one_mask_for_an_object() -> None:
    """Two boxes of class 0 with an IoU of 0.8, one of class 1 at the same place: the surer of the two stays."""
    given = made(([0, 0, 1, 0], [[0, 0, 10, 10], [0, 0, 10, 8], [0, 0, 10, 10], [20, 0, 30, 10]], []))
    left = detections.single(detections.Detections(given, np.array([0.5, 0.9, 0.3, 0.2], np.float32)))
    assert left.found.boxes[:, 3].tolist() == [8, 10, 10] and left.scores.tolist() == pytest.approx([0.9, 0.3, 0.2])
    assert "one mask for an object" in SGDet(single=True).protocol
