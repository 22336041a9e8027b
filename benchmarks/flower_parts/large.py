"""Messages of more than 240 MB go through: MOTIFS at paper width, one round in the simulation, one deployed.

On the town's annotations it has 148 MB in SGDet, and SCAFFOLD sends as much again beside it. The model must be the one
that the local engine gives.
"""

import time
from dataclasses import replace

from rich.table import Table

from flower_parts.stage import played
from wayfare import Evaluation, Experiment, Training, run
from wayfare.data.partition.joined import Joined
from wayfare.data.partition.random import Random
from wayfare.engines.flower import Flower
from wayfare.strategies.scaffold import Scaffold
from wayfare.tasks.scenes import Scenes

LEAST = 240e6  # bytes


def measure(quick, out):
    """Seconds and digests of each engine."""
    folder = out / "large"
    town = Scenes(town="tiny", test=4, head="motifs", widths="paper", mode="sgdet", pairs=16, positive=8)
    pictures = town._town()  # a folder like anybody's
    task = replace(town, path=str(pictures))
    plan = Experiment(
        task, Joined(("anna",), (task.samples,)), Scaffold(), training=Training(iterations=1, batch_size=1), rounds=1,
        evaluation=Evaluation(every=0, holdout=0.0),
    )  # fmt: skip
    figures = {"local": _timed(lambda: run(plan, folder / "local", "local"))}
    with Flower(1) as engine:
        figures["simulation"] = _timed(lambda: run(plan, folder / "simulation", engine))
    figures["deployed"] = _timed(lambda: played(replace(plan, partition=Random(1)), folder, {"anna": pictures}))
    return figures


def _timed(call):
    began = time.monotonic()
    summary = call()
    return {"seconds": time.monotonic() - began, "bytes_up": summary["bytes_up"], "sha": summary["model_sha256"]}


def targets(figures):
    size = figures["deployed"]["bytes_up"]
    same = len({row["sha"] for row in figures.values()})
    return [
        {"name": "bytes of a message", "value": size, "target": f"at least {LEAST:.3g}", "met": size >= LEAST},
        {"name": "different models on local, simulation, deployed", "value": same, "target": "1", "met": same == 1},
    ]


def show(figures, console):
    table = Table(title="one round of one client", title_justify="left")
    for column in ("", "MB", "seconds, start included"):
        table.add_column(column, justify="right" if column else "left")
    for name, row in figures.items():
        table.add_row(name, f"{row['bytes_up'] / 1e6:.1f}", f"{row['seconds']:.0f}")
    console.print(table)
