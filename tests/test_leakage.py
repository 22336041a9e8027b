"""wayfare leakage: the attacks by hand, and what they find in small federations."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from faults import tiny
from wayfare.cli import main
from wayfare.experiment import Evaluation, Experiment, Training
from wayfare.hashing.task import Hashing
from wayfare.leakage import measure
from wayfare.leakage.classes import counted, last_layer, rising
from wayfare.leakage.figures import LeakFigure, NotMeasured
from wayfare.leakage.membership import MembershipScores, wins
from wayfare.leakage.reconstruction import best, correlations, listening, rebuilt
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.partition.dirichlet import Dirichlet
from wayfare.partition.random import Random
from wayfare.strategies.centralised import Centralised
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedproto import FedProto
from wayfare.strategies.fedvc import FedVC
from wayfare.strategies.local import Local
from wayfare.topologies.server import Server

ROOT = Path(__file__).parents[1]
SECTIONS = ("classes", "membership", "reconstruction")


def skewed(strategy=None, clients=6, **rest):
    """Devices that hold few kinds of digit, with a fifth held out."""
    settings = {"rounds": 3, "evaluation": Evaluation(holdout=0.2, clients=2, test=False), **rest}
    return Experiment(
        Objects(model=CnnClassifier(width=4, hidden=16)),
        Dirichlet(clients, alpha=0.2),
        strategy or FedAvg(),
        Server(3),
        Training(epochs=1, batch_size=16, lr=0.1),
        **settings,
    )


@pytest.fixture(scope="module")
def found():
    return measure(skewed())


def figures(section):
    return {figure["name"]: figure for figure in section["figures"]}


# ---- membership by hand


def test_an_auc_by_hand():
    """Members 3, 1 against 2, 1, 0: 3 wins all three; 1 loses, draws, wins. (3 + 1.5) / 6."""
    comparison = MembershipScores(2, 3)
    comparison.add(np.array([3.0, 1.0, 2.0, 1.0, 0.0]))
    assert comparison.auc() == pytest.approx(4.5 / 6)
    comparison.add(np.array([3.0, 3.0, 0.0, 0.0, 0.0]))  # a second reply, AUC 1
    assert comparison.auc() == pytest.approx((4.5 / 6 + 1) / 2)


def test_wins_by_hand():
    assert wins(np.array([1.0, 2.0, 1.0])).tolist() == [[0.5, 0, 0.5], [1, 0.5, 1], [0.5, 0, 0.5]]


def test_chance_is_a_half_and_drawing_anew_keeps_the_kinds_apart():
    comparison, rng = MembershipScores(20, 10), np.random.default_rng(0)
    comparison.add(np.concatenate([np.arange(20) + 100, np.arange(10)]))
    assert comparison.auc() == 1
    assert comparison.redrawn(rng, 20).tolist() == [1.0] * 20
    chance = comparison.by_chance(rng, 300)
    assert np.mean(chance) == pytest.approx(0.5, abs=0.02)
    assert min(chance) < 0.4 and max(chance) > 0.6


# ---- classes by hand


def test_what_rises_is_held():
    assert rising(torch.tensor([-1.0, 2.0, 0.0])) == {1}
    assert rising(torch.tensor([[-1.0, -2.0], [-3.0, 0.5], [0.0, 0.0]])) == {1}


def test_classes_are_counted():
    """Three classes. The first guess is exact, the second misses one and names one falsely."""
    held, guesses = [frozenset({0}), frozenset({0, 1})], [frozenset({0}), frozenset({0, 2})]
    assert counted("rule", held, guesses, 3) == [
        LeakFigure("rule: exact set", 1, 0, 2),
        LeakFigure("rule: classes found", 2, 3, 3),
        LeakFigure("rule: false alarms", 1, 3, 3),
    ]
    assert counted("rule", [frozenset({0, 1, 2})], [frozenset()], 3)[0].baseline == 1


def test_a_step_of_sgd_raises_only_classes_that_are_held():
    """One sample of class 1 at W = 0: p = 1/3, so the bias changes by lr (y - p)."""
    head, x = nn.Linear(2, 3), torch.tensor([[1.0, 2.0]])
    with torch.no_grad():
        head.weight.zero_()
        head.bias.zero_()
    nn.functional.cross_entropy(head(x), torch.tensor([1])).backward()
    change = -0.3 * head.bias.grad
    assert change.tolist() == pytest.approx([-0.1, 0.2, -0.1])
    assert rising(change) == rising(-0.3 * head.weight.grad) == {1}


def test_the_last_layer_is_the_one_with_a_row_for_each_class():
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3), nn.Linear(3, 3, bias=False))
    assert last_layer(net, 3) == "2"
    with pytest.raises(NotMeasured, match="no linear layer"):
        last_layer(net, 5)


# ---- reconstruction by hand


def test_one_sample_is_rebuilt_exactly():
    """z = W x + b with gradient d at z: dW = d x', db = d. Rows with d = 0 say nothing; the largest comes first."""
    d, x = torch.tensor([0.5, 0.0, -2.0]), torch.tensor([3.0, -1.0, 4.0, 0.25])
    assert rebuilt(d[:, None] * x, d).tolist() == [x.tolist(), x.tolist()]


def test_two_samples_give_their_mixture():
    """Rows (1, 1) and (1, 0) of two samples' gradients: the mean of both, and the first."""
    a, b = torch.tensor([2.0, 0.0]), torch.tensor([0.0, 6.0])
    assert rebuilt(torch.stack([a + b, a]), torch.tensor([2.0, 1.0])).tolist() == [[1, 3], [2, 0]]


def test_correlations_by_hand():
    guesses = torch.tensor([[0.0, 1.0, 2.0], [5.0, 5.0, 5.0]])
    truths = torch.tensor([[10.0, 20.0, 30.0], [3.0, 2.0, 1.0], [0.0, 1.0, 0.0]])
    assert correlations(guesses, truths).tolist() == [pytest.approx([1, -1, 0]), pytest.approx([0, 0, 0])]
    assert best(guesses, truths) == pytest.approx(1 / 3)  # 1, 0 (of the constant one), 0


def test_inputs_are_listened_to_in_the_order_of_use():
    net = nn.ModuleDict({"late": nn.Linear(3, 1), "early": nn.Linear(2, 3)})
    x = torch.tensor([[1.0, 2.0]])
    with listening(net) as seen:
        net["late"](net["early"](x))
    assert list(seen) == ["early", "late"] and torch.equal(seen["early"], x)
    net["early"](x + 1)
    assert torch.equal(seen["early"], x)  # nobody listens any more


# ---- whole experiments


def test_classes_of_a_small_federation(found):
    rows = figures(found["classes"])
    exact, alarms = rows["head.weight, one reply: exact set"], rows["head.weight, one reply: false alarms"]
    assert exact["of"] == found["replies"] == 9
    assert exact["value"] > exact["baseline"]
    assert alarms["value"] == 0 < alarms["baseline"]  # behind a ReLU, with plain SGD, there can be none


def test_membership_of_a_small_federation(found):
    rows = figures(found["membership"])
    kinds = rows["one reply, others' samples: mean"]
    assert kinds["low"] > 0.6 and kinds["baseline"] == 0.5
    for figure in rows.values():
        assert 0 <= figure["low"] <= figure["value"] <= figure["high"] <= 1
    worst = next(figure for name, figure in rows.items() if "held-out samples: worst" in name)
    assert worst["baseline"] > 0.5  # the highest of several is above a half by chance
    assert "merged model, held-out samples" in rows


def test_a_model_that_learns_by_heart_is_found_out():
    """Six samples each, fifty passes: those trained on are told from those held out."""
    by_heart = Training(epochs=50, batch_size=4, lr=0.1)
    memorised = replace(skewed(), partition=Random(200), topology=Server(10), training=by_heart, rounds=1)
    row = figures(measure(memorised)["membership"])["one reply, held-out samples: mean"]
    assert row["low"] > 0.7


def test_one_sample_in_one_step_is_rebuilt(found):
    rows = figures(found["reconstruction"])
    one, error = rows["one step on 1 sample"], rows["one step on 1 sample: largest error of an entry"]
    assert one["value"] > 0.9999 > one["baseline"]
    assert error["value"] < 1e-3 < error["baseline"]
    assert one["value"] > rows["one step on 4 samples"]["value"] > rows["one step on 16 samples"]["value"]
    assert "a whole round, as in the run" in rows


def test_the_same_seed_gives_the_same_figures(found):
    assert measure(skewed()) == found
    assert measure(replace(skewed(), seed=1)) != found


def test_class_means_tell_exactly():
    found = measure(skewed(FedProto()))
    rows = figures(found["classes"])
    assert rows["counts, one reply: exact set"]["value"] == found["replies"]
    assert "replies hold no model" in found["membership"]["not_measured"][0]
    means = figures(found["reconstruction"])["class means of one sample: that sample's own features"]
    assert means["of"] == rows["counts, one reply: classes found"]["of"]


@pytest.mark.parametrize(
    ("strategy", "why"), [(Local(), "replies hold n"), (Centralised(), "brings all samples to one place")]
)
def test_what_cannot_be_measured_says_why(strategy, why):
    found = measure(tiny(strategy, clients=4, rounds=1))
    for name in SECTIONS:
        assert not found[name]["figures"] and why in found[name]["not_measured"][0]


def test_more_than_one_step_is_not_called_one():
    found = measure(skewed(FedVC(20), rounds=1))["reconstruction"]
    assert "one step on 1 sample" not in figures(found)
    assert "more than one step" in found["not_measured"][0]


def test_without_held_out_samples_the_rest_is_measured():
    found = measure(skewed(rounds=1, evaluation=Evaluation(holdout=0.0, test=False)))
    assert set(figures(found["membership"])) == {f"one reply, others' samples: {of}" for of in ("mean", "worst of 3")}
    assert "held-out" in found["membership"]["not_measured"][0]


def test_a_task_without_a_loss_for_each_sample():
    settings = {"training": Training(iterations=1, batch_size=8), "evaluation": Evaluation(clients=0, test=False)}
    found = measure(Experiment(Hashing.example(), Random(2), FedAvg(), **settings, rounds=1))
    assert found["classes"]["not_measured"] == ["no linear layer has one row and one bias for each class"]
    assert "samples have no loss of their own" in found["membership"]["not_measured"][0]
    assert not found["classes"]["figures"] and not found["membership"]["figures"]
    assert figures(found["reconstruction"])["one step on 1 sample"]["value"] > 0.999  # of the pictures' features


def test_the_command(capsys):
    given = ["leakage", "quickstart", "--rounds", "1", "--set", "model.width=2"]
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rounds"] == 1 and found["replies"] == 5
    assert main(given) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "head.weight, one reply: exact set" in shown and "baseline: guessing" in shown
    assert main([*given, "--set", "strategy.name=local"]) == 0
    assert "not measured: replies hold no model" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("column", "settings"), [(1, {}), (3, {"partition.clients": 300})])
def test_the_figures_in_the_docs_are_the_commands(column, settings):
    """Up to a little: another processor may round otherwise."""
    found = measure(Experiment.read(ROOT / "recipes" / "quickstart.toml", settings))
    rows = {re.sub(r"worst of \d+", "worst device", n): f for s in SECTIONS for n, f in figures(found[s]).items()}
    page = (ROOT / "docs" / "privacy.md").read_text().partition("## What a curious server learns")[2]
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    told = {row[0]: row[column : column + 2] for row in table if len(row) == 5 and row[column] not in ("", "–")}
    told.pop("figure")
    assert told.keys() == rows.keys()
    for name, cells in told.items():
        for cell, value in zip(cells, (rows[name]["value"], rows[name]["baseline"])):
            number, _, of = cell.partition(" of ")
            assert of == (str(rows[name]["of"]) if of else "")
            assert float(number) == pytest.approx(value, abs=0.05 * max(1, rows[name]["of"])), name
