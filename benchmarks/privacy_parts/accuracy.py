"""Accuracy and membership inference at several epsilons: many clients with a few digits each.

The attack says that a sample was trained on if the model's loss on it is small: the AUC compares the clients' samples
with the test set. The clip was set once and not tuned.
"""

import statistics
from itertools import pairwise

import numpy as np
import torch
from rich.table import Table
from sklearn.metrics import roc_auc_score
from torch.nn.functional import cross_entropy

from wayfare import Evaluation, Experiment, Training
from wayfare.core.bundle import Bundle
from wayfare.objects.loaded import POOL, TEST
from wayfare.partition.random import Random
from wayfare.privacy.accounting import noise_for
from wayfare.privacy.client_level import ClientLevel
from wayfare.runner import run_all
from wayfare.topologies.server import Server

CLIENTS, PER_ROUND, DELTA = 300, 100, 1e-4


def measure(args, out):
    """Mean accuracy over seeds for each epsilon; None stands for no noise."""
    rounds = 10 if args.quick else 60
    rows = []
    for budget in (None, 50.0) if args.quick else (None, 100.0, 32.0, 8.0, 2.0):
        noise = noise_for(PER_ROUND / CLIENTS, rounds, DELTA, budget) if budget else 0.0
        found = [_accuracy(noise, rounds, seed, out / f"{budget}-{seed}") for seed in range(args.seeds)]
        accuracy, auc = (statistics.fmean(values) for values in zip(*found, strict=True))
        rows.append({"epsilon": budget, "noise": noise, "accuracy": accuracy, "auc": auc, "seeds": found})
    return {"rounds": rounds, "clients": CLIENTS, "per_round": PER_ROUND, "delta": DELTA, "rows": rows}


def _accuracy(noise, rounds, seed, folder):
    experiment = Experiment(
        partition=Random(CLIENTS),
        topology=Server(PER_ROUND),
        training=Training(epochs=2, batch_size=4, lr=0.1),
        evaluation=Evaluation(every=rounds, clients=0, holdout=0.0),
        privacy=ClientLevel(noise=noise, clip=0.3, delta=DELTA) if noise else None,
        rounds=rounds,
        seed=seed,
    )
    (summary,) = run_all({folder.name: experiment}, folder.parent, "local")  # what is finished is left as it is
    return summary["metrics"]["test/accuracy"], _auc(experiment, folder)


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
    by = {row["epsilon"]: row["accuracy"] for row in figures["rows"]}
    order = [by[None], *(by[key] for key in sorted((k for k in by if k), reverse=True))]
    gained = max(after - before for before, after in pairwise(order))
    return [{"name": "most gained by more noise", "value": gained, "target": "at most 0.03", "met": gained <= 0.03}]


def show(figures, console):
    """Print them."""
    title = f"digits, {figures['clients']} clients, {figures['per_round']} a round, {figures['rounds']} rounds"
    table = Table("epsilon", "noise", "accuracy", "membership AUC", title=f"{title}, delta {figures['delta']:g}")
    for row in figures["rows"]:
        name = "none: no noise" if row["epsilon"] is None else f"{row['epsilon']:g}"
        table.add_row(name, f"{row['noise']:.2f}", f"{row['accuracy']:.3f}", f"{row['auc']:.3f}")
    console.print(table)
