"""Where the time of a deployed round goes: one node, a model of 0.4 MB, with a warm process on the node and without.

All clocks are this machine's. In a round
- picked up: from the server's asking until the node's process for it began (Flower's polls, one of 3 s);
- made ready: until training began (imports where it is not warm, the message from Flower's node, the photographs);
- trained;
- sent back: until it was merged (Flower's polls and ours, the reply's way);
- recorded: until the next round was asked for.
CPU seconds are those of the node's process for a message until training ended. Beside it what imports take in a fresh
process. Only one thing has a target: the warm process takes less CPU time than half of a fresh one.
"""

import os
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from rich.table import Table

from flower_parts.stage import photograph, played
from flower_parts.watched import Watched
from wayfare import Evaluation, Experiment, Training
from wayfare.objects.data.folder import ClassFolders
from wayfare.objects.task import Objects

STEPS = ("picked up", "made ready", "trained", "sent back", "recorded")
MOMENTS = ("asked", "process", "began", "ended", "merged")
PROGRAM = "import flwr.supernode.cli.flwr_clientapp"
IMPORTS = {
    "Flower's program for a message": PROGRAM,
    "the same and our app": f"{PROGRAM}, wayfare.deploy.client_app",
    "the same, torch and experiments": f"{PROGRAM}, wayfare.deploy.client_app, wayfare.experiment",
}


def measure(quick, out):
    """Median seconds of each step, the first round left out; CPU seconds of processes and of imports."""
    here = str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])  # nodes import `watched` too
    rounds = 7
    ways = {name: _rounds(out / f"time-{name}", rounds, name == "warm") for name in ("warm", "cold")}
    return {"rounds": ways, "imports": {name: _imported(code) for name, code in IMPORTS.items()}}


def _rounds(folder, count, warm):
    photos, notes = folder / "photos" / "anna", folder / "notes"
    photograph(photos)
    notes.mkdir(parents=True)
    experiment = Experiment(
        Objects(ClassFolders(str(photos))), strategy=Watched(notes=str(notes)),
        training=Training(iterations=20, batch_size=8), evaluation=Evaluation(every=0, holdout=0.0), rounds=count,
    )  # fmt: skip
    played(experiment, folder, {"anna": photos}, warm=warm)
    said = {name: list(map(float, (notes / name).read_text().split())) for name in (*MOMENTS, "cpu")}
    rows = [[said[moment][n] for moment in MOMENTS] + [said["asked"][n + 1]] for n in range(1, count - 1)]
    steps = [[later - earlier for earlier, later in pairwise(row)] for row in rows]
    medians = {name: statistics.median(values) for name, values in zip(STEPS, zip(*steps))}
    return {**medians, "round": sum(medians.values()), "cpu": statistics.median(said["cpu"][1:])}


def _imported(code):
    timed = f"import time\n{code}\nprint(time.process_time())"
    return min(
        float(subprocess.run([sys.executable, "-c", timed], check=True, capture_output=True, text=True).stdout)
        for _ in range(3)
    )


def targets(figures):
    ratio = figures["rounds"]["warm"]["cpu"] / figures["rounds"]["cold"]["cpu"]
    name = "CPU time of a message on a node, warm beside a fresh process"
    return [{"name": name, "value": ratio, "target": "at most 0.5", "met": ratio <= 0.5}]


def show(figures, console):
    table = Table(title="a deployed round, seconds", title_justify="left")
    for column in ("", *STEPS, "round", "CPU s on the node"):
        table.add_column(column, justify="right" if column else "left")
    for name, row in figures["rounds"].items():
        table.add_row(name, *(f"{row[step]:.2f}" for step in (*STEPS, "round", "cpu")))
    console.print(table)
    for name, seconds in figures["imports"].items():
        console.print(f"imports of {name}: {seconds:.2f} CPU s", highlight=False)
