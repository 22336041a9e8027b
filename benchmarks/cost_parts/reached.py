"""Bytes until a run's metric is within a point of where FedAvg ends."""

import os
import statistics
from itertools import accumulate
from pathlib import Path

from rich.table import Table

from hashing_parts import rivals
from places_parts import common
from wayfare.experiment import Experiment
from wayfare.recipe import override, read_table

POINT, TUNING_SEED, LAST = 0.01, 1000, 3
WAYS = {
    "8 bits up, 8 down": {"name": "quantise", "bits": 8, "down": 8},
    "4 bits up, 4 down": {"name": "quantise", "bits": 4, "down": 4},
    "2 bits up, 4 down": {"name": "quantise", "bits": 2, "down": 4},
    "2 bits up, 3 down": {"name": "quantise", "bits": 2, "down": 3},
    "top 10 % up, 4 bits down": {"name": "topk", "share": 0.1, "down": 4},
    "top 5 % up, 4 bits down": {"name": "topk", "share": 0.05, "down": 4},
    "4 bits up, 8 down": {"name": "quantise", "bits": 4, "down": 8},
    "2 bits up, 8 down": {"name": "quantise", "bits": 2, "down": 8},
}
CANDIDATES = {  # a run on places takes minutes: fewer are tried, once each
    "objects": tuple(WAYS)[:6], "hashing": tuple(WAYS)[:6], "places": tuple(WAYS)[6:],
}  # fmt: skip
TRIED = {"objects": 3, "hashing": 3, "places": 1}  # times
METRIC = {"objects": "test/accuracy", "hashing": "test/R@10", "places": "test/R@1"}
CHOSEN_BY = {  # for hashing of queries, for places of a town that judges nothing
    "objects": "clients/accuracy", "hashing": "test/R@10", "places": "test/R@1",
}  # fmt: skip
LEAST = {"objects": 10.0, "hashing": 10.0, "places": 4.0}  # times fewer bytes
PLAIN, RECIPES = "plain", Path(__file__).resolve().parents[2] / "recipes"
SHARED = Path(os.environ.get("WAYFARE_SHARED") or Path(__file__).resolve().parents[3] / "shared")
ARCHIVE = SHARED / "data" / "hashing" / "fashion_products.zip"


def measure(name, quick, seeds, folder, workers):
    """What was chosen, by what, and for each seed the bytes without and with it."""
    tables = rivals.tables_of(ARCHIVE, folder / "photos") if name == "hashing" and not quick else (None, None)
    tried = _tried(name, quick, tables[0], folder, workers)
    way = max(tried, key=lambda each: (len(tried[each]), statistics.fmean(tried[each])))
    plan = {
        f"judged/{each}-{seed}": _experiment(name, quick, each, seed, tables[1])
        for seed in range(seeds) for each in (PLAIN, way)
    }  # fmt: skip
    made, _ = common.play(plan, folder, workers, METRIC[name])
    rows = []
    for seed in range(seeds):
        plain, packed = made[f"judged/{PLAIN}-{seed}"], made[f"judged/{way}-{seed}"]
        rows.append({
            "plain": _end(plain, METRIC[name]), "packed": _end(packed, METRIC[name]),
            "bytes": _bytes(plain, METRIC[name], _end(plain, METRIC[name]) - POINT),
            "packed bytes": _bytes(packed, METRIC[name], _end(plain, METRIC[name]) - POINT),
            "fewer": _fewer(plain, packed, METRIC[name]),
        })  # fmt: skip
    return {"name": name, "way": way, "tried": tried, "rows": rows, "metric": METRIC[name]}


def _tried(name, quick, table, folder, workers):
    """By way how many times fewer bytes: all with one seed; the best three with two more, for single runs swing."""
    tried = {way: [] for way in CANDIDATES[name]}
    for seed in range(TUNING_SEED, TUNING_SEED + (1 if quick else TRIED[name])):
        if seed > TUNING_SEED:
            left = sorted(tried, key=lambda way: -tried[way][0])[:3]
        else:
            left = list(tried)
        names = {way: f"choosing/{way}" + (f"-{seed}" if seed > TUNING_SEED else "") for way in (PLAIN, *left)}
        plan = {names[way]: _experiment(name, quick, way, seed, table) for way in names}
        made, _ = common.play(plan, folder, workers, METRIC[name])
        for way in left:
            tried[way].append(_fewer(made[names[PLAIN]], made[names[way]], CHOSEN_BY[name]) or 0.0)
    return tried


def _experiment(name, quick, way, seed, table):
    if name == "hashing":
        base = rivals.recipe_of(table)
        base["task"]["base"] = "contrastive"
        base = override(base, {"evaluation.every": 1, "rounds": 12, "training.lr": 3e-3})
    else:
        recipe = {"objects": "quickstart.toml", "places": "demo/places.toml"}[name]
        base = {key: value for key, value in read_table(RECIPES / recipe).items() if key != "cells"}
        town = 1 if seed >= TUNING_SEED else 0
        more = {"objects": {"rounds": 60}, "places": {"rounds": 24, "evaluation.every": 2, "data.seed": town}}
        base = override(base, more[name])
    rounds = 2 if quick else base["rounds"]
    base = override(base, {"rounds": rounds if way == PLAIN else 2 * rounds, "name": f"cost-{name}"})
    base = base if way == PLAIN else {**base, "compression": WAYS[way]}
    return Experiment.from_table(base).with_seed(seed)


def _curve(record, metric):
    """Of each round that was evaluated: the bytes that had travelled by then, and the metric."""
    travelled = accumulate(line.bytes_up + line.bytes_down for line in record.rounds)
    return [(sent, line.metrics[metric]) for sent, line in zip(travelled, record.rounds, strict=True)
            if metric in line.metrics]  # fmt: skip


def _end(record, metric):
    """The mean of the last values: one round alone swings."""
    return statistics.fmean(value for _, value in _curve(record, metric)[-LAST:])


def _bytes(record, metric, level):
    return next((sent for sent, value in _curve(record, metric) if sent and value >= level), None)


def _fewer(plain, packed, metric):
    """How many times fewer bytes; None where the level is not reached."""
    level = _end(plain, metric) - POINT
    ours, theirs = _bytes(packed, metric, level), _bytes(plain, metric, level)
    return theirs / ours if ours and theirs else None


def targets(figures):
    """What is judged: the mean over seeds; a run that does not get there counts as none fewer."""
    mean = statistics.fmean(row["fewer"] or 0.0 for row in figures["rows"])
    least = LEAST[figures["name"]]
    return [common.at_least(f"{figures['name']}: times fewer bytes to FedAvg's {figures['metric']}", mean, least)]


def show(figures, console):
    """Print them."""
    for way, fewer in figures["tried"].items():
        console.print(f"  chosen from: {way}: {', '.join(f'{each:.1f}' for each in fewer)} times fewer; 0: not reached")
    columns = (f"FedAvg, {figures['metric']}", "compressed", "MB, FedAvg", "MB, compressed", "times fewer")
    table = Table(*columns, title=f"{figures['name']}: {figures['way']}")
    for row in figures["rows"]:
        sent = ("not reached" if b is None else f"{b / 1e6:.2f}" for b in (row["bytes"], row["packed bytes"]))
        table.add_row(
            f"{row['plain']:.3f}", f"{row['packed']:.3f}", *sent,
            "" if row["fewer"] is None else f"{row['fewer']:.1f}",
        )  # fmt: skip
    console.print(table)
