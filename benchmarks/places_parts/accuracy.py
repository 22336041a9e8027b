"""Accuracy: the table of the synthetic town beside the paper's values, and that of real photographs."""

import math
import zipfile
from dataclasses import replace
from itertools import combinations

import numpy as np
from rich.table import Table

from places_parts.common import beyond_noise, difference, note, play, plus_minus, spread, trained_clients
from town import hog
from wayfare import Evaluation, Experiment, Training
from wayfare.core.errors import WayfareError
from wayfare.core.protocols import Policy
from wayfare.places.partition.clustering import Clustering
from wayfare.places.partition.proximity import Proximity
from wayfare.places.partition.sequences import Sequences
from wayfare.places.recall import recalls
from wayfare.strategies.centralised import Centralised
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedvc import FedVC
from wayfare.strategies.local import Local
from wayfare.topologies.hierarchy import Hierarchy
from wayfare.topologies.server import Server

# cell: what it is, and the paper's R@1 (Tab. 1 to 4) from mean - sd to mean + sd
TOWN_CELLS = {
    "untrained": ("untrained", None),
    "local": ("local only", None),
    "fedavg": ("FedAvg, proximity", (60.4, 61.6)),
    "random": ("FedAvg, random split", (40.2, 40.2)),
    "clustering": ("FedAvg, clustering", (56.1, 58.5)),
    "hierarchy": ("hierarchy by city", (33.2, 48.2)),  # by city 33.3, by continent 46.9: the town's are the same
    "fedvc": ("FedVC", (67.3, 68.1)),
    "centralised": ("centralised", (65.6, 66.4)),
}
BGU_CELLS = {
    "hog": "HOG", "untrained": "untrained network", "local": "local only", "fedavg": "FedAvg",
    "centralised": "centralised",
}  # fmt: skip
CUTOFFS = ("R@1", "R@5", "R@10")
JUDGED = ("fedavg", "random", "local")


def _fedavg(task, settings, seed):
    """FedAvg on the proximity split, from which the other cells differ."""
    return Experiment(
        task, Proximity(settings.radius), strategy=FedAvg(), topology=Server(settings.per_round),
        training=Training(batch_size=settings.batch_size, optimizer="adam", lr=settings.lr, at_most=settings.at_most),
        # judged before the first round and after the last; never chosen by what the test says
        evaluation=Evaluation(every=settings.rounds, clients=settings.judges, holdout=0.0,
                   validation_clients=settings.validation_clients),
        policy=Policy(quorum=0.0, max_void=settings.rounds, deadline=86400.0), rounds=settings.rounds, seed=seed,
    )  # fmt: skip


def _alone_and_pooled(base, settings):
    """Local only and centralised, with as many passes over everything as FedAvg's clients make all together."""
    clients, _ = trained_clients(base)
    passes = max(1, round(settings.rounds * settings.per_round / clients))
    pooled = replace(base.training, at_most=clients * base.training.at_most)
    return {
        "local": _changed(base, passes, strategy=Local(), topology=Server()),
        "centralised": _changed(base, passes, strategy=Centralised(), topology=Server(), training=pooled),
    }


def _changed(base, rounds, **changes):
    return replace(base, rounds=rounds, evaluation=replace(base.evaluation, every=rounds), **changes)


# ---- the town


def _town_task(settings, path, cities=()):
    data = {"name": "town", "path": path, "size": settings.town, "test_cities": cities}
    size = {"height": settings.height, "width": settings.width}
    return _task(settings, data | size, {"backbone": settings.backbone}, {})


def _task(settings, data, model, task):
    """Places with what both tables have in common."""
    trained = {"statistics": settings.statistics, "train": settings.train, "linear": settings.linear}
    learnt = {"augment": settings.augment, "loss": {"name": "triplet", "margin": settings.margin}}
    table = {
        "data": data,
        "model": model | trained | {"whiten": settings.whiten},
        "task": {"name": "places", **learnt, **task},
    }
    return Experiment.from_table(table).task


def town_plan(settings, seeds, path):
    """Every run of the town's table: "city+city/cell/seed-0" -> experiment. Each city is tested on, some at a time."""
    names = sorted(set(_town_task(settings, path).loaded.table.city.tolist()))
    plan = {}
    for cities in (names[at : at + settings.tested] for at in range(0, len(names), settings.tested)):
        task = _town_task(settings, path, tuple(cities))
        for seed in range(max(seeds, settings.judged_seeds)):
            base = _fedavg(task, settings, seed)
            plan |= {
                f"{'+'.join(cities)}/{cell}/seed-{seed}": make()
                for cell, make in _cells(base, settings).items()
                if cell in settings.cells and (seed < seeds or cell in JUDGED)
            }
    return plan


def _cells(base, settings):
    """What the rows of the table are, each made when it is asked for."""

    def hierarchy():
        meetings = max(1, round(settings.rounds * settings.per_round / (len(set(base.split().groups)) * per_group)))
        return _changed(base, meetings, topology=Hierarchy(0, settings.interval, per_group))

    def fedvc():
        steps = settings.fedvc_steps or max(1, round(trained_clients(base)[1]))
        training = replace(base.training, at_most=0, iterations=steps)
        return _changed(base, settings.rounds, strategy=FedVC(examples=0), training=training)

    per_group = settings.per_group
    return {
        "fedavg": lambda: base,
        "random": lambda: _changed(base, settings.rounds, partition=Sequences(radius=settings.radius)),
        "clustering": lambda: _changed(base, settings.rounds, partition=Clustering(radius=settings.radius)),
        "hierarchy": hierarchy,
        "fedvc": fedvc,
        "local": lambda: _alone_and_pooled(base, settings)["local"],
        "centralised": lambda: _alone_and_pooled(base, settings)["centralised"],
    }


def town(settings, seeds, path, folder, machine):
    """The runs, a row for each cell: for each seed the mean over tests, and for each test the mean over seeds."""
    records, failed = play(town_plan(settings, seeds, path), folder, machine)
    tests = list(dict.fromkeys(name.split("/")[0] for name in (*records, *failed)))
    rows = {}
    for cell, (label, paper) in TOWN_CELLS.items():
        run = "fedavg" if cell == "untrained" else cell
        if run not in settings.cells:
            continue
        own = {tuple(name.split("/")[::2]): r for name, r in records.items() if name.split("/")[1] == run}
        values = {}
        for name in CUTOFFS:
            found = {key: 100 * r.rounds[0 if cell == "untrained" else -1].metrics[f"test/{name}"]
                     for key, r in own.items()}  # fmt: skip
            seeded = {s: [found[test, s] for test in tests if (test, s) in found] for _, s in found}
            values[name] = {s: float(np.mean(of)) for s, of in seeded.items() if len(of) == len(tests)}
            if name == "R@1":
                by_test = {test: [value for key, value in found.items() if key[0] == test] for test in tests}
        trained = [] if cell == "untrained" else list(own.values())
        rows[cell] = {
            "label": label, "paper": paper, **values, "tests": by_test,
            "refused": sum(len(r.refused) for r in trained), "void": sum(len(r.void) for r in trained),
            "rounds": [r.done for r in trained],
            "seconds": float(np.mean([r.seconds for r in trained])) if trained else 0.0,
            "failed": [why for name, why in failed.items() if name.split("/")[1] == run],
        }  # fmt: skip
    protocol = next(iter(records.values())).summary["protocol"]
    return {"rows": rows, "town": settings.town, "protocol": protocol, "orders": _orders(rows)}


def town_targets(figures):
    rows = figures["rows"]
    return [
        beyond_noise(f"town {figures['town']}: FedAvg by proximity over {rows[cell]['label']}, points of R@1",
                     rows["fedavg"]["R@1"], rows[cell]["R@1"], "seeds")
        for cell in ("local", "random")
    ]  # fmt: skip


def _orders(rows):
    """Pairs of cells that the paper has clearly one above the other, and what came out here."""
    found = []
    for pair in combinations([cell for cell in rows if rows[cell]["paper"] and rows[cell]["R@1"]], 2):
        above, below = sorted(pair, key=lambda cell: -rows[cell]["paper"][0])
        if rows[above]["paper"][0] > rows[below]["paper"][1]:
            gap = difference(rows[above]["R@1"], rows[below]["R@1"])
            mean = gap["mean"] if gap else float(
                np.mean(list(rows[above]["R@1"].values())) - np.mean(list(rows[below]["R@1"].values()))
            )  # fmt: skip
            error = gap["error"] if gap else None
            found.append({"above": above, "below": below, "gap": mean, "error": error, "as_in_paper": mean > 0})
    return found


def show_town(figures, out):
    rows = figures["rows"]
    protocol = f"town {figures['town']}: {figures['protocol']}; means over all tests, ± standard deviation over seeds"
    out.print(protocol, highlight=False, soft_wrap=True)
    table = Table()
    for head in ("", "seeds", "R@1", "R@5", "paper's R@1", "rounds", "refused", "void", "s"):
        table.add_column(head, justify="right" if head else "left")
    for row in rows.values():
        paper = "" if row["paper"] is None else f"{sum(row['paper']) / 2:.1f}"
        if row["label"].startswith("hierarchy"):
            paper = "33.3 (46.9 by continent)"
        shown = [plus_minus(spread(list(row[name].values()))) if row[name] else "none" for name in CUTOFFS[:2]]
        rounds = "/".join(map(str, sorted(set(row["rounds"]))))
        counts = (str(row["refused"]), str(row["void"]), f"{row['seconds']:.0f}")
        table.add_row(row["label"], str(len(row["R@1"])), *shown, paper, rounds, *counts)
    out.print(table)
    for row in rows.values():
        for why in row["failed"]:
            out.print(f"{row['label']}: a run ended early: {why}", highlight=False, soft_wrap=True)
    orders = figures["orders"]
    same = sum(order["as_in_paper"] for order in orders)
    out.print(f"pairs that the paper has clearly apart: {len(orders)}, of which in the same order here: {same}")
    for order in orders:
        if not order["as_in_paper"]:
            above, below = rows[order["above"]], rows[order["below"]]
            noise = "" if order["error"] is None else f" ± {order['error']:.1f} (standard error over seeds)"
            out.print(f"  not as in the paper: {above['label']} over {below['label']}: {order['gap']:+.1f}{noise}",
                      highlight=False, soft_wrap=True)  # fmt: skip
    out.print("each test, R@1 (mean and standard deviation over seeds); the other cities are trained on:")
    table = Table("", *rows["fedavg"]["tests"])
    for row in rows.values():
        table.add_row(row["label"], *(plus_minus(spread(of)) if of else "none" for of in row["tests"].values()))
    out.print(table)


# ---- real photographs


def unpacked(archive, folder):
    """The photographs of the campus, below `folder`; unpacked once."""
    target = folder / "bgu_campus"
    if not target.exists():
        with zipfile.ZipFile(archive) as content:
            content.extractall(folder / "unpacking")
        (folder / "unpacking" / "bgu_campus").rename(target)
    return target


def bgu_protocols(settings):
    """Name -> (how the test is chosen, number of folds)."""
    return {"new dates": ("sequences", settings.date_folds), "new places": ("strips", settings.place_folds)}


def _bgu_task(settings, path, test, folds, fold):
    held_out = {"name": test, "folds": folds, "fold": fold} | ({"strip": settings.strip} if test == "strips" else {})
    data = {"name": "photos", "path": str(path), "queries": "night", "test": held_out, "piece": settings.piece}
    mining = {"name": "partial", "radius": 10.0, "negative_radius": settings.negative_radius}
    task = {"radius": 10.0, "warmup": settings.warmup, "mining": mining}
    return _task(settings, data | {"height": 192, "width": 144}, {}, task)


def bgu(settings, seeds, path, folder, machine):
    """For each protocol and cell the recalls of each fold, means over seeds."""
    figures = {}
    for protocol, (test, folds) in bgu_protocols(settings).items():
        rows = {cell: {name: {} for name in CUTOFFS} for cell in BGU_CELLS}
        for fold in range(folds):
            task = _bgu_task(settings, path, test, folds, fold)
            plan = {}
            for seed in range(seeds):
                base = _fedavg(task, settings, seed)
                for cell, experiment in {"fedavg": base, **_alone_and_pooled(base, settings)}.items():
                    plan[f"{test}/fold-{fold}/{cell}/seed-{seed}"] = experiment
            records, failed = play(plan, folder, machine)
            if failed:
                raise WayfareError("; ".join(f"{name}: {why}" for name, why in failed.items()))
            note.print(f"{protocol}, fold {fold}: HOG", highlight=False)
            found = {"hog": [_hog_recalls(task)]}
            for name, record in records.items():
                found.setdefault(name.split("/")[2], []).append(record.rounds[-1].metrics)
            found["untrained"] = [next(iter(records.values())).rounds[0].metrics]
            for cell, name in ((cell, name) for cell in BGU_CELLS for name in CUTOFFS):
                rows[cell][name][fold] = 100 * float(np.mean([metrics[f"test/{name}"] for metrics in found[cell]]))
        gain = difference(rows["fedavg"]["R@1"], rows["untrained"]["R@1"], 0.975)
        figures[protocol] = {"rows": rows, "folds": folds, "seeds": seeds, "gain": gain}
    return figures


def _hog_recalls(task):
    """Nearest neighbours by HOG under the task's own protocol."""
    divided, images = task.loaded.divided, task.loaded.images
    photos, queries, database = divided.photos, divided.test_queries, divided.test_database
    features = [np.stack([hog(picture) for picture in images[rows]]) for rows in (queries, database)]
    features = [(rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32) for rows in features]
    places = np.stack((photos.easting, photos.northing), 1)
    result = recalls(
        *features,
        query_positions=places[queries],
        database_positions=places[database],
        query_groups=photos.group[queries],
        database_groups=photos.group[database],
        protocol=task._protocol(divided.test_name),
    )
    return {f"test/{name}": value for name, value in result.metrics.items()}


def bgu_targets(figures):
    rows = figures["new dates"]["rows"]
    name = "bgu, new dates: FedAvg over the untrained network, points of R@1"
    return [beyond_noise(name, rows["fedavg"]["R@1"], rows["untrained"]["R@1"], "folds")]


def show_bgu(figures, out):
    for protocol, found in figures.items():
        title = (
            f"bgu campus, {protocol}: day database, night queries, 10 m; seeds: {found['seeds']}, folds: "
            f"{len(found['rows']['hog']['R@1'])} of {found['folds']}; ± standard error over folds, of each the mean "
            "over its seeds (which share their queries)"
        )
        out.print(title, highlight=False, soft_wrap=True)
        table = Table()
        for head in ("", *CUTOFFS):
            table.add_column(head, justify="right" if head else "left")
        for cell, row in found["rows"].items():
            shown = []
            for name in CUTOFFS:
                mean, sd = spread(list(row[name].values()))
                shown.append(plus_minus((mean, None if sd is None else sd / math.sqrt(len(row[name])))))
            table.add_row(BGU_CELLS[cell], *shown)
        out.print(table)
        if gain := found["gain"]:
            half = gain["t"] * gain["error"]
            text = f"{gain['mean'] - half:+.1f} to {gain['mean'] + half:+.1f}"
            out.print(f"  FedAvg over untrained, R@1: {gain['mean']:+.1f}, 95 % interval {text} (paired over folds)",
                      highlight=False)  # fmt: skip
