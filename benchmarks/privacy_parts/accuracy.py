"""Accuracy at several epsilons, on digits, on fashion pairs and on the town's places; membership inference on digits.

Clients are many and have little each, as client-level privacy needs them. The clip was set once for each task and not
tuned. The attack says that a sample was trained on if the model's loss on it is small: the AUC compares the clients'
samples with the test set. The other two tasks have no loss of a single sample.
"""

import statistics
from dataclasses import replace
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
from wayfare.objects.loaded import POOL, TEST
from wayfare.partition.random import Random
from wayfare.privacy.accounting import noise_for
from wayfare.privacy.client_level import ClientLevel
from wayfare.recipe import override, read_table
from wayfare.runner import run_all
from wayfare.topologies.server import Server

BUDGETS = (None, 100.0, 32.0, 8.0, 2.0)
DELTA = {"digits": 1e-4, "hashing": 1e-4, "places": 1e-3}
METRIC = {"digits": "accuracy", "hashing": "R@10", "places": "R@1"}


def measure(args, out):
    """By task the mean accuracy over seeds for each epsilon; None stands for no noise."""
    tasks = ["digits"] if args.quick or not ARCHIVE.is_file() else list(METRIC)
    budgets = (None, 50.0) if args.quick else BUDGETS
    return {"tasks": {task: _by_epsilon(task, budgets, args, out / task) for task in tasks}}


def _by_epsilon(task, budgets, args, out):
    base, rows = _base(task, args.quick, out), []
    clients, asked = len(base.split()), base.topology.per_round
    for budget in budgets:
        noise = noise_for(asked / clients, base.rounds, DELTA[task], budget) if budget else 0.0
        privacy = ClientLevel(noise=noise, clip=0.3, delta=DELTA[task]) if noise else None
        made = [_run(base.with_seed(seed), privacy, out / f"{budget}-{seed}") for seed in range(args.seeds)]
        scores = [summary["metrics"][f"test/{METRIC[task]}"] for summary, _ in made]
        aucs = [_auc(*each) for _, each in made] if task == "digits" else []
        rows.append({"epsilon": budget, "noise": noise, "accuracy": statistics.fmean(scores), "scores": scores,
                     "auc": statistics.fmean(aucs) if aucs else None})  # fmt: skip
    return {"rounds": base.rounds, "clients": clients, "per_round": asked, "delta": DELTA[task], "rows": rows}


def _base(task, quick, out):
    """The experiment without privacy. Only its end is evaluated."""
    if task == "digits":
        rounds = 10 if quick else 60
        training, evaluation = (
            Training(epochs=2, batch_size=4, lr=0.1),
            Evaluation(every=rounds, clients=0, holdout=0.0),
        )
        return Experiment(
            partition=Random(300), topology=Server(100), training=training, evaluation=evaluation, rounds=rounds
        )
    if task == "hashing":
        recipe = rivals.recipe_of(rivals.tables_of(ARCHIVE, out / "photos")[1])
        recipe["task"]["base"], recipe["partition"] = "contrastive", {"name": "random", "clients": 500}
        more = {"rounds": 20, "topology.per_round": 250, "training.lr": 3e-3, "evaluation.every": 20}
    else:
        recipe = {key: value for key, value in read_table(RECIPES / "demo/places.toml").items() if key != "cells"}
        more = {"model.whiten": 0.0, "evaluation.every": 12}  # whitening is learnt from clients' data: it is refused
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
    """What is judged: more noise does not help, beyond what seeds differ by."""
    return [_target(task, each) for task, each in figures["tasks"].items()]


def _target(task, figures):
    by = {row["epsilon"]: row["accuracy"] for row in figures["rows"]}
    order = [by[None], *(by[key] for key in sorted((k for k in by if k), reverse=True))]
    gained = max(after - before for before, after in pairwise(order))
    name = f"{task}: most {METRIC[task]} gained by more noise"
    return {"name": name, "value": gained, "target": "at most 0.03", "met": gained <= 0.03}


def show(figures, console):
    """Print them."""
    for task, each in figures["tasks"].items():
        title = f"{task}, {each['clients']} clients, {each['per_round']} a round, {each['rounds']} rounds"
        table = Table("epsilon", "noise", METRIC[task], "membership AUC", title=f"{title}, delta {each['delta']:g}")
        for row in each["rows"]:
            name = "none: no noise" if row["epsilon"] is None else f"{row['epsilon']:g}"
            auc = "" if row["auc"] is None else f"{row['auc']:.3f}"
            table.add_row(name, f"{row['noise']:.2f}", f"{row['accuracy']:.3f}", auc)
        console.print(table)
