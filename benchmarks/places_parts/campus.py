"""The recipe `photos` with DINOv2 on real photographs of a campus: night queries in a day database."""

from pathlib import Path

import numpy as np
from rich.table import Table

from places_parts.common import at_least, at_most, play
from wayfare import Experiment
from wayfare.core.errors import WayfareError
from wayfare.recipe import override, read_table

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "photos.toml"
# name -> how the test is chosen, and the folds that are tested on: folds 0 and 1 were looked at for settings
PROTOCOLS = {
    "new dates": ({"name": "sequences", "folds": 3}, (2,)),
    "new places": ({"name": "strips", "folds": 4, "strip": 40.0}, (2, 3)),
}
SETTINGS = {
    "model": {"backbone": "dinov2-s", "pooling": "vlad", "whiten": 0.5, "adapters": 8, "adapter_stages": 1},
    "task.radius": 10.0,
    "partition.radius": 30.0,  # metres: the campus is small
    "topology.per_round": 4,
    "rounds": 10,
    "training.batch_size": 16,
    "training.lr": 1e-3,
    "evaluation.every": 100,
}
UNTRAINED = {"training.lr": 1e-9, "training.iterations": 1}  # ten rounds of K-means and whitening only
CELLS = {
    "grid": ("untrained, grid, half whitened", {**UNTRAINED, "model.pooling": "grid"}),
    "plain": ("untrained, VLAD", {**UNTRAINED, "model.whiten": 0.0}),
    "vlad": ("untrained, VLAD, half whitened", UNTRAINED),
    "fedavg": ("FedAvg, VLAD, half whitened", {}),
}
WANTED = {"new dates": 45, "new places": 60}


def planned(photos):
    """The runs by name."""
    data = {"name": "photos", "path": str(photos), "queries": "night", "height": 224, "width": 168, "piece": 40.0}
    plan = {}
    for test, folds in PROTOCOLS.values():
        for fold in folds:
            base = override(read_table(RECIPE), {"data": {**data, "test": {**test, "fold": fold}}, **SETTINGS})
            for cell, (_, changes) in CELLS.items():
                name = f"{test['name']}/fold-{fold}/{cell}"
                plan[name] = Experiment.from_table(override(base, changes), cell)
    return plan


def campus(photos, folder, side_by_side):
    """R@1 of each protocol, row and fold, and the bytes that a client sends in a round."""
    records, failed = play(planned(photos), folder, side_by_side)
    if failed:
        raise WayfareError("; ".join(f"{name}: {why}" for name, why in failed.items()))
    figures = {}
    for protocol, (test, folds) in PROTOCOLS.items():
        found = {cell: [records[f"{test['name']}/fold-{fold}/{cell}"] for fold in folds] for cell in CELLS}
        figures[protocol] = {cell: [100 * one.final("test/R@1") for one in own] for cell, own in found.items()}
    sent = records["sequences/fold-2/fedavg"].rounds[1:]
    figures["bytes"] = sum(line.bytes_up for line in sent) / sum(line.clients for line in sent)
    return figures


def targets(figures):
    found = [at_most("campus: MB that a client sends in a round", figures["bytes"] / 1e6, 2)]
    for protocol, wanted in WANTED.items():
        rows = {cell: float(np.mean(values)) for cell, values in figures[protocol].items()}
        trained = rows.pop("fedavg")
        found.append(at_least(f"campus, {protocol}: FedAvg, R@1", trained, wanted))
        found.append(at_least(f"campus, {protocol}: above the best untrained", trained - max(rows.values()), 5))
    return found


def show(figures, out):
    out.print(f"campus, dinov2-s, 224x168, 10 m; {figures['bytes'] / 1e6:.2f} MB sent by a client", highlight=False)
    table = Table("", *(f"{name}, folds {', '.join(map(str, folds))}" for name, (_, folds) in PROTOCOLS.items()))
    for cell, (label, _) in CELLS.items():
        cells = [figures[protocol][cell] for protocol in PROTOCOLS]
        table.add_row(label, *(f"{np.mean(own):.1f} ({', '.join(f'{one:.1f}' for one in own)})" for own in cells))
    out.print(table)
