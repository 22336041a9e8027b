"""Tab. 1 and 2 of the federated scene-graph benchmark on real annotations: four heads, seven ways to deal them out.

The experiments are the cells of recipes/psg/table1.toml and table2.toml at small scale (annotations alone, PredCls),
with 100 clients in the paper's clusters; beside them each centralised head with the part that knows how frequent
predicates are (MOTIFS' and VCTree's bias, GPS-Net's ARM), which the paper's code had switched off. With --quick it is
one head on the town with 20 clients: the machinery, not the figures.
"""

import statistics
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from places_parts import common
from scenes_parts.metrics import SHARED
from wayfare.papers.paper import Scale
from wayfare.papers.plan import read_plan

RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "psg"
HEADS = {"imp": "IMP", "motifs": "MOTIFS", "vctree": "VCTree", "gpsnet": "GPS-Net"}
COLUMNS = {"cl": "CL", "random": "Random", "iid": "Shard IID", "shard": "Shard non-IID", "dir10": "Dir 10",
           "dir1": "Dir 1", "dir02": "Dir 0.2"}  # fmt: skip
SERVERS = {"shard": "FedAvg", "fedavgm": "FedAvgM", "fedadam": "FedAdam"}
BIASED = "cl-bias"
CUTOFFS = (20, 50, 100)
METRICS = [f"{kind}@{k}" for k in CUTOFFS for kind in ("R", "mR")]
# what the paper expects, from the best to the worst; the last two are Dirichlet's
ORDERS = {"CL over Shard IID": ("cl", "iid"), "Shard IID over Random": ("iid", "random"),
          "Random over Shard non-IID": ("random", "shard"), "Dir 10 over Dir 1": ("dir10", "dir1"),
          "Dir 1 over Dir 0.2": ("dir1", "dir02")}  # fmt: skip


def experiments(quick, seeds):
    """Run -> experiment."""
    data = None if quick else SHARED / "psg_union_24378.json.gz"
    changes = {"partition.clients": 100, "partition.centroids": "paper"}
    if quick:
        changes = {"data.size": "tiny", "data.test": 20, "partition.clients": 5, "rounds": 2}
    cells = {}
    for recipe in ("table1", "table2"):
        cells |= read_plan(RECIPES / f"{recipe}.toml", Scale.small, data, changes).experiments
    if quick:
        cells = {name: cells[name] for name in cells if name.startswith("gpsnet")}
    for head in HEADS:
        if head != "imp" and f"{head}-cl" in cells:  # IMP has no such part
            plain = cells[f"{head}-cl"]
            cells[f"{head}-{BIASED}"] = replace(
                plain, task=replace(plain.task, model=replace(plain.task.model, frequency_bias=True))
            )
    return {f"{name}/seed-{s}": e.with_seed(s) for s in range(seeds) for name, e in cells.items()}


def measure(quick, seeds, out, workers):
    """By cell and metric the values of all seeds, per cent; "frequency" is the baseline; seconds of everything.

    The runs are where `wayfare claims --paper psg --scale small --data ...` looks for them.
    """
    records, failed = common.play(experiments(quick, seeds), out / "psg" / "small", workers, "test/mR@20")
    found = {}
    for run, record in records.items():
        cell = found.setdefault(run.partition("/")[0], {name: [] for name in (*METRICS, "seconds")})
        for name in METRICS:
            cell[name].append(100 * record.final(f"test/{name}"))
        cell["seconds"].append(record.seconds)
    floor = {name: 100 * next(iter(records.values())).final(f"test/frequency {name}") for name in METRICS}
    return {"cells": found, "frequency": floor, "failed": failed, "seeds": seeds,
            "protocol": next(iter(records.values())).summary.get("protocol", "")}  # fmt: skip


def targets(figures):
    found, cells, floor = [], figures["cells"], figures["frequency"]
    for head, label in HEADS.items():
        name = f"{head}-cl" if head == "imp" else f"{head}-{BIASED}"
        for metric in ("R@20", "R@100"):
            worst = min(cells[name][metric]) - floor[metric]
            told = f"{label}, centralised{'' if head == 'imp' else ' with its bias'}: {metric} above the baseline's"
            found.append({"name": f"{told}, points, worst seed", "value": worst, "target": "above 0",
                          "met": worst > 0})  # fmt: skip
    return found


def show(figures, out):
    cells, floor = figures["cells"], figures["frequency"]
    for title, columns in (("Tab. 1", {**COLUMNS, BIASED: "CL, bias"}), ("Tab. 2, Shard non-IID", SERVERS)):
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
