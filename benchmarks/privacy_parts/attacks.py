"""Attacks against rules: accuracy on the digits of ten devices of which some lie, with the gate's own bound as well."""

import statistics

from rich.table import Table

from wayfare import Evaluation, Experiment, Training
from wayfare.components import find, names
from wayfare.partition.dirichlet import Dirichlet
from wayfare.runner import run_all

RULES = ("none", "median", "trimmed", "geometric", "krum", "clipping", "nearest + trimmed")
SHARES = (0.2, 0.4)


def measure(args, out):
    """Mean accuracy over seeds of each attack, share and rule."""
    attacks = ("signflip",) if args.quick else ("none", *names("attack"))
    rules = ("none", "median") if args.quick else RULES
    rounds, cells = (3 if args.quick else 20), []
    for attack in attacks:
        for share in SHARES[:1] if args.quick or attack == "none" else SHARES:
            for rule in rules:
                folder = out / f"{attack}-{share}-{rule.replace(' ', '')}"
                found = [_accuracy(attack, share, rule, rounds, folder / str(s), s) for s in range(args.seeds)]
                cells.append({"attack": attack, "share": share, "rule": rule, "accuracy": statistics.fmean(found)})
    return {"rounds": rounds, "cells": cells}


def _accuracy(attack, share, rule, rounds, folder, seed):
    mixed, _, plain = rule.rpartition(" + ")
    robust = None if rule == "none" else find("robust", plain)(share=share, mix=mixed or "none")
    experiment = Experiment(
        partition=Dirichlet(clients=10, alpha=1.0),
        training=Training(epochs=2, batch_size=16, lr=0.1),
        evaluation=Evaluation(every=rounds, clients=0),
        attack=None if attack == "none" else find("attack", attack)(share=share),
        robust=robust,
        rounds=rounds,
        seed=seed,
    )
    (summary,) = run_all({folder.name: experiment}, folder.parent, "local")  # what is finished is left as it is
    return summary["metrics"]["test/accuracy"]


def targets(figures):
    """What is judged: with a fifth of liars the best rule loses at most 10 points to no attack."""
    by = {(cell["attack"], cell["share"], cell["rule"]): cell["accuracy"] for cell in figures["cells"]}
    calm = by.get(("none", 0.2, "none"))
    if calm is None:
        return []
    attacks = {attack for attack, share, _ in by if attack != "none"}
    worst = {rule: min(by[attack, 0.2, rule] for attack in attacks) for rule in RULES}
    best = max(worst, key=worst.get)
    return [
        {
            "name": f"worst case of the best rule ({best}), a fifth lie", "value": worst[best],
            "target": f"at least {calm - 0.1:.3f}", "met": worst[best] >= calm - 0.1,
        }
    ]  # fmt: skip


def show(figures, console):
    """Print them."""
    rules = list(dict.fromkeys(cell["rule"] for cell in figures["cells"]))
    table = Table("attack", "share", *rules, title=f"digits, ten devices, Dirichlet 1, {figures['rounds']} rounds")
    rows = {}
    for cell in figures["cells"]:
        rows.setdefault((cell["attack"], cell["share"]), {})[cell["rule"]] = f"{cell['accuracy']:.3f}"
    for (attack, share), found in rows.items():
        table.add_row(attack, f"{share:g}" if attack != "none" else "", *(found[rule] for rule in rules))
    console.print(table)
