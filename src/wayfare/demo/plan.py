"""What the demo trains: four recipes on one town, each together, alone and with all data in one place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wayfare.data.town.make import Spec
from wayfare.experiment import Experiment, flatten, override, read_table

TASKS = ("places", "objects", "scenes", "hashing")
OBJECTS_POOLED = "objects-pooled"
RECIPES = (*TASKS, OBJECTS_POOLED)
TOGETHER, ALONE, POOLED = "federated", "local", "centralised"
LAYOUTS = ("msls", "cifar", "psg", "fashion")  # that the four read
_FOLDER = {"places": "msls", "objects": "", "scenes": "psg", "hashing": "fashion"}  # in the town's
# Settings of --quick: everything runs, and hardly anything is learnt.
_QUICK: dict[str, dict[str, Any]] = {
    "places": {
        "task.architecture": "cnn", "task.cnn_width": 8, "task.height": 48, "task.width": 64,
        "partition.radius": 40.0, "partition.least": 1, "topology.per_round": 2, "evaluation.validation_clients": 1,
    },
    "objects": {
        "task.architecture": "cnn", "task.width": 4, "task.hidden": 16, "partition.clients": 8, "partition.min_size": 1,
        "topology.traces": "town:8", "topology.public": 6, "topology.probe": 6, "topology.judge": 6,
        "topology.slots": 60, "exchange.lab": 8, "training.epochs": 1, "evaluation.every": 8,
    },
    "scenes": {"partition.clients": 4, "partition.clusters": 2, "topology.per_round": 2, "task.test": 20},
    "hashing": {"task.bits": 16, "task.text_hidden": 32, "task.image_hidden": 32, "training.epochs": 1,
                "partition.clients": 4},
}  # fmt: skip
_QUICK_CELLS = {"rounds": 2, "evaluation.every": 1}


def town_spec(quick: bool) -> Spec:
    """The town that all four learn from."""
    return Spec("tiny" if quick else "small", layouts=LAYOUTS)


def experiments(recipes: Mapping[str, Path], out: Path, quick: bool) -> dict[str, dict[str, Experiment]]:
    """The runs of each task by cell, those of the federation first; each goes to `out / task / cell`."""
    out = out.resolve()
    found = {task: _cells(task, read_table(recipes[task]), out, quick) for task in TASKS}
    pooled = read_table(recipes[OBJECTS_POOLED])  # of devices that meet this is no cell: hardly a setting is the same
    pooled["partition"]["path"] = str(out / "objects" / TOGETHER / "partition.safetensors")
    quickly = {key: value for key, value in _QUICK["objects"].items() if key.startswith(("task.", "training."))}
    found["objects"][POOLED] = _experiment("objects", POOLED, override(pooled, quickly if quick else {}), {}, out)
    return found


def _cells(task: str, table: dict[str, Any], out: Path, quick: bool) -> dict[str, Experiment]:
    cells: dict[str, dict[str, Any]] = table.pop("cells", {TOGETHER: {}})
    if quick:
        table = override(table, _QUICK[task])
        short = {} if task == "objects" else _QUICK_CELLS  # a day has as many rounds as it has
        cells = {cell: dict(flatten(own)) | short for cell, own in cells.items()}
    return {cell: _experiment(task, cell, table, dict(flatten(own)), out) for cell, own in cells.items()}


def _experiment(task: str, cell: str, table: dict[str, Any], own: dict[str, Any], out: Path) -> Experiment:
    place = {"name": f"demo-{task}-{cell}", "task.path": str(out / "town" / _FOLDER[task])}
    return Experiment.from_table(override(table, {**own, **place}))
