"""What the demo trains: four recipes on one town, each together, alone and with all data in one place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wayfare.experiment import Experiment
from wayfare.recipe import flatten, override, read_table, with_data
from wayfare.town.make import Spec

TASKS = ("places", "objects", "scenes", "hashing")
OBJECTS_POOLED = "objects-pooled"
RECIPES = (*TASKS, OBJECTS_POOLED)
TOGETHER, ALONE, POOLED = "federated", "local", "centralised"
LAYOUTS = ("msls", "cifar", "psg", "fashion")  # that the four read
_FOLDER = {"places": "msls", "objects": "", "scenes": "psg", "hashing": "fashion"}  # in the town's
_DATA = {"scenes": "psg"}  # what reads the demo's town; the recipe alone makes a town of its own
# Settings of --quick: everything runs, and hardly anything is learnt.
_QUICK: dict[str, dict[str, Any]] = {
    "places": {
        "model.backbone.name": "cnn", "model.backbone.width": 8, "data.height": 48, "data.width": 64,
        "partition.radius": 40.0, "partition.least": 1, "topology.per_round": 2, "evaluation.validation_clients": 1,
    },
    "objects": {
        "model.name": "cnn", "model.width": 4, "model.hidden": 16, "partition.clients": 8, "partition.min_size": 1,
        "topology.traces": "town:8", "topology.public": 6, "topology.probe": 6, "topology.judge": 6,
        "topology.slots": 60, "exchange.lab": 8, "training.epochs": 1, "evaluation.every": 8,
    },
    "scenes": {"partition.clients": 4, "partition.clusters": 2, "topology.per_round": 2, "data.test": 20},
    "hashing": {"model.bits": 16, "model.text.hidden": 32, "model.image.hidden": 32, "training.epochs": 1,
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
    quickly = {key: value for key, value in _QUICK["objects"].items() if key.startswith(("model.", "training."))}
    found["objects"][POOLED] = _experiment("objects", POOLED, override(pooled, quickly if quick else {}), {}, out)
    return found


def _cells(task: str, table: dict[str, Any], out: Path, quick: bool) -> dict[str, Experiment]:
    cells: dict[str, dict[str, Any]] = table.pop("cells", {TOGETHER: {}})
    table = override(table, {"data.name": _DATA[task]} if task in _DATA else {})
    if quick:
        table = override(table, _QUICK[task])
        short = {} if task == "objects" else _QUICK_CELLS  # a day has as many rounds as it has
        cells = {cell: dict(flatten(own)) | short for cell, own in cells.items()}
    return {cell: _experiment(task, cell, table, dict(flatten(own)), out) for cell, own in cells.items()}


def _experiment(task: str, cell: str, table: dict[str, Any], own: dict[str, Any], out: Path) -> Experiment:
    changed = override(table, {**own, "name": f"demo-{task}-{cell}"})
    return Experiment.from_table(with_data(changed, out / "town" / _FOLDER[task]))
