"""Messages of more than 240 MB go through: MOTIFS at paper width, one round in the simulation, one deployed.

On the town's annotations it has 148 MB in SGDet, and SCAFFOLD sends as much again beside it. The model must be the one
that the local engine gives.
"""

import time
from dataclasses import replace

from rich.table import Table

from flower_parts.stage import played
from wayfare import Evaluation, Experiment, Training, run
from wayfare.engines.flower.engine import Flower
from wayfare.partition.joined import Joined
from wayfare.partition.random import Random
from wayfare.scenes.data.scene_data import TownScenes
from wayfare.scenes.models import MotifsModel
from wayfare.scenes.modes import SGDet
from wayfare.scenes.task import Scenes
from wayfare.strategies.scaffold import Scaffold

LEAST = 240e6  # bytes


def measure(quick, out):
    """Seconds and digests of each engine."""
    folder = out / "large"
    data, model = TownScenes(size="tiny", test=4), MotifsModel(widths="paper")
    town = Scenes(data=data, model=model, mode=SGDet(), pairs=16, positive=8)
    pictures = data.folder(lambda *_: None)  # a folder like anybody's
    task = replace(town, data=data.at(str(pictures)))
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
