"""Policies side by side: three real traces, each policy on the same meetings and first models, with L = 40 and L = 10.

    WAYFARE_TRACES=DIR python benchmarks/encounters.py --only policies --seeds 10 --out OUT

CIFAR-10 on a frozen network: all 50,000 pictures on 92 walkers of KAIST's campus, or the 150 visitors of a theme park
or of a conference (SFHH) who meet each other most. Two passes of training instead of five, so that many seeds are
affordable. The settings of `budgeted` were chosen on other traces and another seed (the town and a museum, seed 100).
`greedy` tries every merge before it asks, with the least gain chosen afterwards: one seed. WAYFARE_TRACES is a folder
with kaist.zip, themepark_visits.csv.gz and themepark_pois.csv, and SFHH_tij.dat.gz.
"""

import math
import os
import shutil
from pathlib import Path

from rich.table import Table

from encounters_parts.accuracy import RECIPES
from places_parts import common
from wayfare.papers.paper import Scale
from wayfare.papers.plan import read_plan

CELLS = {"never": "initial", "gossip": "gossip", "fedtour": "FedTour as written", "fedtour-floor": "FedTour, floor",
         "upward": "upward", "upward-5-points": "upward, 5 points", "upward-10-points": "upward, 10 points",
         "upward-strangers": "upward, each peer once", "budgeted": "budgeted", "gossip-10": "gossip, L = 10",
         "fedtour-10": "FedTour, L = 10", "upward-10": "upward, L = 10", "budgeted-10": "budgeted, L = 10"}  # fmt: skip
OF_FORTY, OF_TEN = ("gossip", "fedtour", "fedtour-floor", "upward", "upward-5-points", "upward-10-points",
                    "upward-strangers"), ("gossip-10", "fedtour-10", "upward-10")  # fmt: skip
LEASTS = (0.0, 0.01, 0.03)
TRACES = {"kaist": (92, "kaist.zip"), "park": (150, "themepark"), "sfhh": (150, "SFHH_tij.dat.gz")}
SHARED = {"training.epochs": 2, "topology.window": "", "topology.draw": "dense", "topology.slots": 60,
          "topology.test": 2000, "evaluation.every": 1_000_000}  # fmt: skip


def traces_of(folder):
    """Where each trace is; the park's two files in a folder of their own."""
    source = Path(os.environ["WAYFARE_TRACES"])
    found = {name: source / file for name, (_, file) in TRACES.items()}
    found["park"] = folder / "themepark"
    found["park"].mkdir(parents=True, exist_ok=True)
    for file in source.glob("themepark_*"):
        shutil.copy(file, found["park"])
    return found


def is_possible():
    return bool(os.environ.get("WAYFARE_TRACES")) and Path(os.environ["WAYFARE_TRACES"], "kaist.zip").is_file()


def experiments(trace, file, seeds):
    changes = SHARED | {"topology.traces": str(file.resolve()), "partition.clients": TRACES[trace][0],
                        "topology.fold": trace == "park"}  # fmt: skip
    plan = read_plan(RECIPES / "fedtour" / "policies.toml", Scale.small, changes=changes, only=list(CELLS))
    runs = {f"{trace}/seed-{s}/{name}": plan.experiments[name].with_seed(s) for s in range(seeds) for name in CELLS}
    for least in LEASTS:
        more = changes | {"exchange.least": least}
        found = read_plan(RECIPES / "fedtour" / "policies.toml", Scale.small, changes=more, only=["greedy"])
        runs[f"{trace}/seed-0/greedy-{least}"] = found.experiments["greedy"].with_seed(0)
    return runs


def measure(quick, seeds, out, machine):
    """By trace and policy, by seed: mean and best accuracy in percent, transmissions and receptions per device."""
    if quick:
        return {}
    files = traces_of(out)
    runs = {name: e for trace in TRACES for name, e in experiments(trace, files[trace], seeds).items()}
    by_seed = sorted(runs, key=lambda name: (int(name.split("/")[1].removeprefix("seed-")), "greedy" in name))
    records, _ = common.play({name: runs[name] for name in by_seed}, out / "policies", machine, "test/accuracy")
    figures = {}
    for name, record in records.items():
        trace, seed, cell = name.split("/")
        of = figures.setdefault(trace, {}).setdefault(cell, {"mean": {}, "best": {}, "exchanges": {}, "mape": {}})
        number = seed.removeprefix("seed-")
        of["mean"][number] = 100 * record.final("test/accuracy")
        of["best"][number] = 100 * record.final("test/accuracy_max")
        of["exchanges"][number] = record.final("tour/sent") + record.final("tour/taken")
        if "tour/mape" in record.final_metrics:
            of["mape"][number] = 100 * record.final("tour/mape")
    return figures


def targets(figures):
    """Budgeted is at least as good as each other policy with the same L, on each trace, in the mean over seeds."""
    found = []
    for trace, cells in figures.items():
        for own, others in (("budgeted", OF_FORTY), ("budgeted-10", OF_TEN)):
            best = max((mean(cells[name]["mean"]), name) for name in others if name in cells)
            least = mean(cells[own]["mean"]) - best[0]
            words = f"{trace}: {CELLS[own]} above the best other policy ({CELLS[best[1]]}), points"
            found.append(common.at_least(words, least, 0))
    return found


def mean(by_seed):
    return sum(by_seed.values()) / len(by_seed) if by_seed else math.nan


def show(figures, out):
    for trace, cells in figures.items():
        table = Table(title=f"{trace}: accuracy after the day, percent; ± over seeds", title_justify="left")
        for head in ("", "seeds", "mean", "best", "exchanges", "error of predictions"):
            table.add_column(head, justify="right" if head else "left")
        for cell, of in cells.items():
            spread = [common.plus_minus(common.spread(list(of[key].values()))) if of[key] else ""
                      for key in ("mean", "best", "exchanges", "mape")]  # fmt: skip
            table.add_row(CELLS.get(cell, cell), str(len(of["mean"])), *spread)
        out.print(table)
