"""Every strategy on a small experiment of each task: the local engine beside Flower's simulation, bit for bit."""

import warnings
from collections import Counter

from rich.table import Table

from wayfare import Evaluation, Experiment, Training, run
from wayfare.components import find, names
from wayfare.engines.flower.engine import Flower
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.partition.random import Random
from wayfare.topologies.hierarchy import Hierarchy
from wayfare.topologies.server import Server

# tasks and strategies of --quick; the devices of the last two remember something
QUICK = {("objects", "fedavg"), ("objects", "scaffold"), ("hashing", "fedcafe")}
COMPARED = ("model_sha256", "metrics", "bytes_up", "bytes_down", "refused")


def experiments(quick):
    """By task, strategy and topology: all that fit each other."""
    for task_name in names("task"):
        kind = find("task", task_name)
        small = CnnClassifier(width=4, hidden=8, norm="batch")
        task = Objects(model=small) if kind is Objects else kind.example()
        for name in names("strategy"):
            strategy = find("strategy", name)()
            if not strategy.requires <= task.provides or (quick and (task_name, name) not in QUICK):
                continue
            shapes = {"server": Server(0 if strategy.pooled else 3)}
            if "hierarchy" in strategy.topologies and task_name == "objects":
                shapes["hierarchy"] = Hierarchy(groups=2, interval=2)
            for shape, topology in shapes.items():
                yield (
                    (task_name, name, shape),
                    Experiment(
                        task, Random(4), strategy, topology=topology, training=Training(iterations=2, batch_size=8),
                        evaluation=Evaluation(clients=2, holdout=0.1), rounds=2,
                    ),
                )  # fmt: skip


def measure(quick, out):
    """Whether each pair of runs is equal."""
    rows = []
    warnings.simplefilter("ignore", ResourceWarning)  # Ray leaves files open
    with Flower(2) as engine:
        for place, experiment in experiments(quick):
            folder = out / "equal" / "-".join(place)
            one, other = run(experiment, folder / "local", "local"), run(experiment, folder / "flower", engine)
            task, strategy, topology = place
            different = [key for key in COMPARED if one[key] != other[key]]
            rows.append({"task": task, "strategy": strategy, "topology": topology, "different": different})
    return {"rows": rows}


def targets(figures):
    different = sum(bool(row["different"]) for row in figures["rows"])
    return [
        {
            "name": f"runs in the simulation that differ from local, of {len(figures['rows'])}",
            "value": different, "target": "0", "met": different == 0,
        }
    ]  # fmt: skip


def show(figures, console):
    table = Table(title="equal to the local engine", title_justify="left")
    for column in ("task", "runs", "equal", "differ"):
        table.add_column(column, justify="left" if column in ("task", "differ") else "right")
    runs, equal = Counter(), Counter()
    for row in figures["rows"]:
        runs[row["task"]] += 1
        equal[row["task"]] += not row["different"]
    for task in runs:
        wrong = [f"{r['strategy']}/{r['topology']}" for r in figures["rows"] if r["task"] == task and r["different"]]
        table.add_row(task, str(runs[task]), str(equal[task]), ", ".join(wrong))
    console.print(table)
