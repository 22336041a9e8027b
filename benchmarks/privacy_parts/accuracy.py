"""Accuracy at several epsilons, on digits, on fashion pairs and on the town's places; membership inference on digits.

Clients are many and have little each, as client-level privacy needs them. The clip of a task is chosen by one run of
each at epsilon 8 on data that judges nothing: a fifth of the digits to train on, queries of their own, another town.
The attack says that a sample was trained on if the model's loss on it is small: the AUC compares the clients' samples
with the test set. The other two tasks have no loss of a single sample.
"""

import statistics
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from rich.table import Table
from sklearn.metrics import roc_auc_score
from torch.nn.functional import cross_entropy

from cost_parts.reached import ARCHIVE, RECIPES
from hashing_parts import rivals
from wayfare import Evaluation, Experiment, Training
from wayfare.core.bundle import Bundle
from wayfare.io.pictures import Pictures
from wayfare.objects.data.digits import Digits
from wayfare.objects.loaded import POOL, TEST
from wayfare.objects.task import Objects
from wayfare.pages.record import Record
from wayfare.partition.random import Random
from wayfare.privacy.accounting import noise_for
from wayfare.privacy.client_level import ClientLevel
from wayfare.recipe import override, read_table
from wayfare.runner import run_all
from wayfare.topologies.server import Server

BUDGETS = (None, 100.0, 32.0, 8.0, 2.0)
CHOSEN_AT, TUNING_SEED = 8.0, 1000
CLIPS = {  # the more weights, the longer the noise beside the clip; places has a hundred times those of digits
    "digits": (0.1, 0.3, 1.0, 3.0), "hashing": (0.1, 0.3, 1.0, 3.0), "places": (0.003, 0.01, 0.03, 0.1),
}  # fmt: skip
DELTA = {"digits": 1e-4, "hashing": 1e-4, "places": 1e-3}
METRIC = {"digits": "accuracy", "hashing": "R@10", "places": "R@1"}


def measure(args, out):
    """By task the mean accuracy over seeds for each epsilon; None stands for no noise."""
    tasks = ["digits"] if args.quick or not ARCHIVE.is_file() else list(METRIC)
    budgets = (None, 50.0) if args.quick else BUDGETS
    return {"tasks": {task: _by_epsilon(task, budgets, args, out / task) for task in tasks}}


@dataclass(frozen=True)
class HeldBack(Digits):
    """The digits to train on, without a fifth that stands for the test set."""

    def load(self, progress):
        pictures, _ = super().load(progress)
        held_back = np.arange(len(pictures.labels)) % 5 == 4
        return tuple(
            Pictures(pictures.images[part], pictures.labels[part], pictures.classes)
            for part in (~held_back, held_back)
        )  # fmt: skip


def _by_epsilon(task, budgets, args, out):
    clip, tried = _clip(task, args.quick, out)
    base, rows = _base(task, args.quick, out), []
    clients, asked = len(base.split()), base.topology.per_round
    for budget in budgets:
        privacy = _privacy(task, base, budget, clip) if budget else None
        made = [_run(base.with_seed(seed), privacy, out / f"{budget}-{seed}") for seed in range(args.seeds)]
        scores = [_final(task, summary) for summary, _ in made]
        aucs = [_auc(*each) for _, each in made] if task == "digits" else []
        rows.append({"epsilon": budget, "noise": privacy.noise if privacy else 0.0,
                     "accuracy": statistics.fmean(scores), "scores": scores,
                     "auc": statistics.fmean(aucs) if aucs else None})  # fmt: skip
    untrained = [_untrained(task, out / f"None-{seed}") for seed in range(args.seeds)]
    return {"rounds": base.rounds, "clients": clients, "per_round": asked, "delta": DELTA[task], "clip": clip,
            "tried": tried, "untrained": statistics.fmean(untrained), "rows": rows}  # fmt: skip


def _clip(task, quick, out):
    """The best of some clips on data that judges nothing, and how good each was."""
    if quick:
        return 0.3, {}
    base, tried = _base(task, quick, out, choosing=True).with_seed(TUNING_SEED), {}
    for clip in CLIPS[task]:
        summary, _ = _run(base, _privacy(task, base, CHOSEN_AT, clip), out / f"clip-{clip:g}")
        tried[clip] = _final(task, summary)
    return max(tried, key=tried.get), tried


def _privacy(task, base, budget, clip):
    noise = noise_for(base.topology.per_round / len(base.split()), base.rounds, DELTA[task], budget)
    return ClientLevel(noise=noise, clip=clip, delta=DELTA[task])


def _final(task, summary):
    return summary["metrics"][f"test/{METRIC[task]}"]


def _untrained(task, folder):
    return Record.read(folder).rounds[0].metrics[f"test/{METRIC[task]}"]


def _base(task, quick, out, choosing=False):
    """The experiment without privacy. Only its end is evaluated."""
    if task == "digits":
        rounds = 10 if quick else 60
        training, evaluation = (
            Training(epochs=2, batch_size=4, lr=0.1),
            Evaluation(every=rounds, clients=0, holdout=0.0),
        )
        return Experiment(
            task=Objects(data=HeldBack() if choosing else Digits()), partition=Random(300), topology=Server(100),
            training=training, evaluation=evaluation, rounds=rounds,
        )  # fmt: skip
    if task == "hashing":
        recipe = rivals.recipe_of(rivals.tables_of(ARCHIVE, out / "photos")[0 if choosing else 1])
        recipe["task"]["base"], recipe["partition"] = "contrastive", {"name": "random", "clients": 500}
        more = {"rounds": 20, "topology.per_round": 250, "training.lr": 3e-3, "evaluation.every": 20}
    else:
        recipe = {key: value for key, value in read_table(RECIPES / "demo/places.toml").items() if key != "cells"}
        more = {
            "data.seed": int(choosing), "model.whiten": 0.0,  # whitening is learnt from clients' data: it is refused
            "partition.radius": 25.0, "partition.least": 1, "topology.per_round": 20, "evaluation.every": 12,
        }  # fmt: skip
    return Experiment.from_table(override(recipe, more))


def _run(base, privacy, folder):
    experiment = replace(base, privacy=privacy)
    (summary,) = run_all({folder.name: experiment}, folder.parent, "local")  # what is finished is left as it is
    return summary, (experiment, folder)


def _auc(experiment, folder):
    """How well a small loss tells the samples that were trained on from those of the test set."""
    net = experiment.bench(folder).loaded(0, Bundle.unpack((folder / "model.safetensors").read_bytes())["model"]).eval()
    task, found = experiment.task, {}
    for part in (POOL, TEST):
        batch = task.loaded.batch(part, np.arange(len(task.loaded.parts[part])), torch.device("cpu"))
        with torch.no_grad():
            found[part] = cross_entropy(task.forward(net, batch).logits, batch.labels, reduction="none").numpy()
    is_member = np.repeat([1, 0], [len(found[POOL]), len(found[TEST])])
    return float(roc_auc_score(is_member, -np.concatenate([found[POOL], found[TEST]])))


def targets(figures):
    """What is judged: more noise does not help, beyond what seeds differ by. The figures themselves have no target."""
    return [row for task, each in figures["tasks"].items() for row in (_target(task, each), *_shown(task, each))]


def _target(task, figures):
    by = {row["epsilon"]: row["accuracy"] for row in figures["rows"]}
    order = [by[None], *(by[key] for key in sorted((k for k in by if k), reverse=True))]
    gained = max(after - before for before, after in pairwise(order))
    name = f"{task}: most {METRIC[task]} gained by more noise"
    return {"name": name, "value": gained, "target": "at most 0.03", "met": gained <= 0.03}


def _shown(task, figures):
    found = {f"{METRIC[task]}, untrained": figures["untrained"]}
    for row in figures["rows"]:
        name = "without privacy" if row["epsilon"] is None else f"epsilon {row['epsilon']:g}"
        found[f"{METRIC[task]}, {name}"] = row["accuracy"]
        if row["auc"] is not None:
            found[f"AUC of membership, {name}"] = row["auc"]
    return [{"name": f"{task}: {name}", "value": value, "target": "", "met": None} for name, value in found.items()]


def show(figures, console):
    """Print them."""
    for task, each in figures["tasks"].items():
        title = f"{task}, {each['clients']} clients, {each['per_round']} a round, {each['rounds']} rounds"
        if each["tried"]:
            scores = ", ".join(f"{clip:g}: {score:.3f}" for clip, score in each["tried"].items())
            console.print(f"  {task}: clip {each['clip']:g}, chosen from {scores}", highlight=False)
        table = Table("epsilon", "noise", METRIC[task], "membership AUC", title=f"{title}, delta {each['delta']:g}")
        table.add_row("untrained", "", f"{each['untrained']:.3f}", "")
        for row in each["rows"]:
            name = "none: no noise" if row["epsilon"] is None else f"{row['epsilon']:g}"
            auc = "" if row["auc"] is None else f"{row['auc']:.3f}"
            table.add_row(name, f"{row['noise']:.2f}", f"{row['accuracy']:.3f}", auc)
        console.print(table)
