"""Tab. 1 and 2 of the federated scene-graph benchmark on real annotations: four heads, seven ways to deal them out.

The experiments are the cells of recipes/psg/table1.toml and table2.toml at small scale (annotations alone, PredCls),
with 100 clients in the paper's clusters, as the paper ran them; and those of table1-bias.toml, in which every head
begins with counts over the clients, has its logits adjusted, and trains for 30 rounds: each must be above the frequency
baseline. With --quick it is one head on the town with 20 clients: the machinery, not the figures.
"""

import statistics
from pathlib import Path

from rich.table import Table

from places_parts import common
from scenes_parts.metrics import SHARED
from wayfare.core.errors import ConfigError
from wayfare.papers.paper import Scale
from wayfare.papers.plan import read_plan

RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "psg"
HEADS = {"imp": "IMP", "motifs": "MOTIFS", "vctree": "VCTree", "gpsnet": "GPS-Net"}
COLUMNS = {"cl": "CL", "random": "Random", "iid": "Shard IID", "shard": "Shard non-IID", "dir10": "Dir 10",
           "dir1": "Dir 1", "dir02": "Dir 0.2"}  # fmt: skip
SERVERS = {"shard": "FedAvg", "fedavgm": "FedAvgM", "fedadam": "FedAdam"}
BIASED = "-bias"  # after the name of a cell of table1-bias
CUTOFFS = (20, 50, 100)
METRICS = [f"{kind}@{k}" for k in CUTOFFS for kind in ("R", "mR")]
FLOORS = [f"frequency {name}" for name in METRICS]  # of what the clients of that run hold
# what the paper expects, from the best to the worst; the last two are Dirichlet's
ORDERS = {"CL over Shard IID": ("cl", "iid"), "Shard IID over Random": ("iid", "random"),
          "Random over Shard non-IID": ("random", "shard"), "Dir 10 over Dir 1": ("dir10", "dir1"),
          "Dir 1 over Dir 0.2": ("dir1", "dir02")}  # fmt: skip


def experiments(quick, seeds, only=frozenset()):
    """Run -> experiment; of the cells in `only`, or of all."""
    data = None if quick else SHARED / "psg_union_24378.json.gz"
    changes = {"partition.clients": 100, "partition.centroids": "paper"}
    if quick:
        changes = {"data.size": "tiny", "data.test": 20, "partition.clients": 5, "rounds": 2}
    cells = {}
    for recipe, end in (("table1", ""), ("table2", ""), ("table1-bias", BIASED)):
        plan = read_plan(RECIPES / f"{recipe}.toml", Scale.small, data, changes)
        cells |= {name + end: experiment for name, experiment in plan.experiments.items()}
    if quick:
        cells = {name: cells[name] for name in cells if name.startswith("gpsnet")}
    return seeded(chosen(cells, only), seeds)


def chosen(cells, only):
    """Those that `only` names; all, if it names none."""
    if wrong := set(only) - set(cells):
        raise ConfigError(f"no cell {', '.join(sorted(wrong))}: there are {', '.join(cells)}")
    return {name: experiment for name, experiment in cells.items() if not only or name in only}


def seeded(cells, seeds):
    """Run -> experiment, seed after seed."""
    return {f"{name}/seed-{s}": e.with_seed(s) for s in range(seeds) for name, e in cells.items()}


def measure(quick, seeds, out, workers, only=frozenset()):
    """By cell and metric the values of all seeds, per cent; "frequency" is the baseline; seconds of everything.

    The runs are where `wayfare claims --paper psg --scale small --data ...` looks for them.
    """
    records, failed = common.play(experiments(quick, seeds, only), out / "psg" / "small", workers, "test/mR@20")
    found = {}
    for run, record in records.items():
        cell = found.setdefault(run.partition("/")[0], {name: [] for name in (*METRICS, *FLOORS, "seconds")})
        for name in (*METRICS, *FLOORS):
            cell[name].append(100 * record.final(f"test/{name}"))
        cell["seconds"].append(record.seconds)
    floor = {name: 100 * next(iter(records.values())).final(f"test/frequency {name}") for name in METRICS}
    return {"cells": found, "frequency": floor, "failed": failed, "seeds": seeds,
            "protocol": next(iter(records.values())).summary.get("protocol", "")}  # fmt: skip


def targets(figures):
    cells = figures["cells"]
    found = [
        {"name": f"{run} ended early: {why}", "value": None, "target": "above 0", "met": False}
        for run, why in figures["failed"].items()
        if BIASED in run
    ]
    for head, label in HEADS.items():
        for column, words in COLUMNS.items():
            cell = cells.get(f"{head}-{column}{BIASED}")
            for metric in ("R@20", "mR@20") if cell else ():
                worst = min(have - floor for have, floor in zip(cell[metric], cell[f"frequency {metric}"]))
                of = f"points, worst seed of {figures['seeds']}"
                name = f"{label}, {words}, with bias: {metric} above the baseline's, {of}"
                found.append({"name": name, "value": worst, "target": "above 0", "met": worst > 0})
    return found


def show(figures, out):
    cells, floor = figures["cells"], figures["frequency"]
    biased = {column + BIASED: words for column, words in COLUMNS.items()}
    tables = (("Tab. 1, as run", COLUMNS), ("Tab. 1, with bias", biased), ("Tab. 2, Shard non-IID, as run", SERVERS))
    for title, columns in tables:
        for k in CUTOFFS:
            table = Table(
                title=f"{title}: R / mR @{k}, per cent; ± over {figures['seeds']} seeds", title_justify="left"
            )
            for head in ("", *columns.values()):
                table.add_column(head, justify="right" if head else "left")
            for head, label in HEADS.items():
                row = [_pair(cells.get(f"{head}-{column}"), k) for column in columns]
                table.add_row(label, *row)
            table.add_row("frequency baseline", f"{floor[f'R@{k}']:.1f} / {floor[f'mR@{k}']:.1f}")
            out.print(table)
    for words in [figures["protocol"], *_orders(cells)]:
        out.print(words, highlight=False, soft_wrap=True)
    for run, why in figures["failed"].items():
        out.print(f"{run} ended early: {why}", highlight=False, soft_wrap=True)


def _pair(cell, k):
    if cell is None:
        return ""
    return " / ".join(common.plus_minus(common.spread(cell[f"{kind}@{k}"])) for kind in ("R", "mR"))


def _orders(cells):
    """Whether the paper's order holds in mR@20, over heads and seeds, with its uncertainty."""
    for words, (above, below) in ORDERS.items():
        pairs = {
            (head, seed): (a, b)
            for head in HEADS
            if f"{head}-{above}" in cells and f"{head}-{below}" in cells
            for seed, (a, b) in enumerate(zip(cells[f"{head}-{above}"]["mR@20"], cells[f"{head}-{below}"]["mR@20"]))
        }
        gaps = [a - b for a, b in pairs.values()]
        if not gaps:
            continue
        found = common.difference({p: a for p, (a, _) in pairs.items()}, {p: b for p, (_, b) in pairs.items()})
        doubt = "" if found is None else f" ± {found['error']:.2f} (standard error over heads and seeds)"
        so = f"so in {sum(gap > 0 for gap in gaps)} of {len(gaps)}"
        yield f"{words}: mR@20 {statistics.fmean(gaps):+.2f} points{doubt}; {so}"
