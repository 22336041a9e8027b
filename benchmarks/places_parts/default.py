"""The recipe `places` as it is shipped, on cities that nobody trained on."""

from pathlib import Path

import numpy as np
from rich.table import Table

from places_parts.common import at_least, at_most, note, play, plus_minus, shown, spread
from wayfare import Experiment
from wayfare.io.cache import cache_dir
from wayfare.recipe import override, read_table
from wayfare.town.make import Spec, make

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "places.toml"
TEST, TRAIN = 0, (3, 4, 5)  # seeds of towns; settings were chosen on those of seeds 1 and 2

# what differs from FedAvg by proximity; every row takes as many steps as all clients of FedAvg together
CELLS = {
    "gem": ("untrained, GeM", {"rounds": 1, "training.lr": 1e-9, "model.pooling": "gem", "model.whiten": 0.0}),
    "grid": ("untrained, grid", {"rounds": 1, "training.lr": 1e-9, "model.whiten": 0.0}),
    "fedavg": ("FedAvg, proximity", {}),
    "local": ("local only", {"strategy.name": "local", "topology.per_round": 0, "rounds": 3}),
    "random": ("FedAvg, random split", {"partition": {"name": "sequences", "radius": 150.0}}),
    "clustering": ("FedAvg, clustering", {"partition": {"name": "clustering", "radius": 150.0}}),
    "fedprox": ("FedProx", {"strategy.name": "fedprox"}),
    "fedvc": ("FedVC", {"strategy": {"name": "fedvc", "examples": 0}}),
    "hierarchy": ("hierarchy by city", {"rounds": 13,
                                        "topology": {"name": "hierarchy", "interval": 2, "per_group": 1}}),
    "centralised": ("centralised", {"strategy.name": "centralised", "topology.per_round": 0, "rounds": 6,
                                    "training.iterations": 100}),
}  # fmt: skip
SEEDED = ("fedavg", "local", "random", "clustering", "centralised")  # with all seeds; one of the others


def tree(folder):
    """An MSLS tree of the cities of all these towns; the names of those that are tested on."""
    tested = []
    for seed in (TEST, *TRAIN):
        spec = Spec("small", seed, layouts=("msls",))
        made = cache_dir() / "towns" / f"{spec.size}-{spec.seed}-form{spec.form}"
        make(made, spec, progress=lambda *_: None)
        for city in sorted(made.glob("msls/*/*/")):
            target = folder / "train_val" / f"{city.name}{seed}"
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.is_symlink():
                target.symlink_to(city.resolve())
            if seed == TEST:
                tested.append(target.name)
    return tuple(tested)


def planned(seeds, folder, cells=tuple(CELLS)):
    """The runs by name, of these rows."""
    tested = tree(folder / "tree")
    base = override(read_table(RECIPE), {
        "data": {"name": "msls", "path": str(folder / "tree"), "test_cities": list(tested)},
        "rounds": 30,
        "evaluation": {"every": 100, "holdout": 0.0, "clients": 12},
    })  # fmt: skip
    plan = {}
    for seed in range(seeds):
        for cell, (_, changes) in CELLS.items():
            if cell in cells and (seed == 0 or cell in SEEDED):
                plan[f"{cell}/seed-{seed}"] = Experiment.from_table(override(base, {**changes, "seed": seed}), cell)
    return plan


def default(seeds, folder, side_by_side, cells=tuple(CELLS)):
    """R@1 of each row and seed, and the bytes that a client sends in a round."""
    plan = planned(seeds, folder, cells)
    records, failed = play(plan, folder / "runs", side_by_side)
    rows = {}
    for cell, (label, _) in CELLS.items():
        if cell not in cells:
            continue
        own = [record for name, record in records.items() if name.split("/")[0] == cell]
        rows[cell] = {
            "label": label,
            "R@1": [100 * record.final("test/R@1") for record in own],
            "cities": _cities(own),
            "bytes": _message(own[0]) if own else None,
            "failed": [why for name, why in failed.items() if name.split("/")[0] == cell],
        }
    return rows


def _cities(records):
    found = {}
    for record in records:
        for name, value in record.rounds[-1].metrics.items():
            if name.startswith("test/R@1/"):
                found.setdefault(name.rpartition("/")[2], []).append(100 * value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def _message(record):
    """Bytes that one client sends in a round, on average."""
    replies = sum(line.clients for line in record.rounds[1:])
    return sum(line.bytes_up for line in record.rounds[1:]) / replies if replies else None


def targets(rows):
    """What is judged, as far as its rows were run, and the figures of all rows."""
    means = {cell: float(np.mean(row["R@1"])) for cell, row in rows.items() if row["R@1"]}
    found = []
    if "fedavg" in means:
        federated = means["fedavg"]
        found.append(at_least("default: FedAvg on four unseen cities, R@1", federated, 52))
        if "centralised" in means:
            found.append(
                at_most("default: centralised above FedAvg, points of R@1", means["centralised"] - federated, 5)
            )
        if "local" in means:
            found.append(at_least("default: FedAvg above local only, points of R@1", federated - means["local"], 0))
        found.append(at_most("default: MB that a client sends in a round", rows["fedavg"]["bytes"] / 1e6, 2))
    return found + [shown(_named(rows[cell]), mean) for cell, mean in means.items()]


def _named(row):
    each = f" ({', '.join(f'{value:.1f}' for value in row['R@1'])})" if len(row["R@1"]) > 1 else ""
    return f"R@1: {row['label']}{each}"


def show(rows, out):
    out.print("recipe places, 12 cities of other towns -> the four cities of town small; 25 m, 96x128", highlight=False)
    table = Table("", "seeds", "R@1", "MB sent by a client in a round", *next(iter(rows.values()))["cities"])
    for row in rows.values():
        sent = "" if row["bytes"] is None else f"{row['bytes'] / 1e6:.1f}"
        found = plus_minus(spread(row["R@1"])) if row["R@1"] else "none"
        cities = [f"{value:.1f}" for value in row["cities"].values()]
        table.add_row(row["label"], str(len(row["R@1"])), found, sent, *cities)
    out.print(table)
    for row in rows.values():
        for why in row["failed"]:
            note.print(f"{row['label']}: a run ended early: {why}", highlight=False, soft_wrap=True)
