"""The models that short runs of every recipe give, as a table of hashes: what should change no result shows it here.

    python benchmarks/hashes.py --write TABLE.json     # before a change
    python benchmarks/hashes.py --check TABLE.json     # after it; exit status 1 where a hash differs
    python benchmarks/hashes.py --quick                # three short runs, twice: exit status 1 where they differ

Every recipe runs at small scale, some of its cells (`--all`: all of them), one round of at most 12 steps; of devices
that meet, 40 slots. The first cell of each recipe is evaluated too, and its metrics are compared. Beside them: a
hierarchy, every strategy, the pool, and Flower's simulation where it is installed.
"""

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from wayfare.components import names
from wayfare.core.errors import WayfareError
from wayfare.experiment import Experiment
from wayfare.papers.paper import Scale
from wayfare.papers.plan import missing_weights, read_plan
from wayfare.recipe import override, read_table
from wayfare.runner import run

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
CELLS = 5
SLOTS = 40
note = Console(stderr=True)


def short(table, judged):
    """A recipe's table with what makes it a check instead of an experiment."""
    meets = table.get("topology", {}).get("name") == "encounters"
    changes = {"rounds": SLOTS if meets else 1, "training.at_most": 12, "name": "", "evaluation.clients": 4}
    if not judged:
        changes["evaluation.every"] = 0
    if table.get("task", {}).get("name") == "places":  # the large town would take an hour
        changes |= {
            "data.size": "small",
            "data.test_cities": (),
            "partition.radius": 60.0,
            "data.height": 48,
            "data.width": 64,
        }
        changes |= {"evaluation.validation_clients": 1}
    changes["evaluation.monitor"], changes["evaluation.patience"] = "", 0
    return override(table, changes)


def again(experiment, judged):
    """The short form of an experiment."""
    import tomllib

    return Experiment.from_table(short(tomllib.loads(experiment.to_toml()), judged))


def cells_of(path, everything):
    """Some experiments of a recipe by cell."""
    table = read_table(path)
    if "cells" not in table and "small" not in table:
        return {"": Experiment.from_table(table)}
    plan = read_plan(path, Scale.small if "small" in table else None)
    found = plan.experiments or {"": Experiment.from_table(whole(table))}
    keys = list(found)
    step = 1 if everything else max(1, -(-len(keys) // CELLS))
    return {key: found[key] for key in keys[::step] if not missing_weights(found[key])}


def whole(table):
    """A recipe without cells at small scale."""
    from wayfare.recipe import flatten

    small = table.pop("small", {})
    more = small.pop("without_data", {})
    small.pop("about", None)
    return override(override(table, dict(flatten(small))), dict(flatten(more)))


def work(everything):
    """(name, experiment, engine) of each run, no two alike."""
    seen = set()
    for path in sorted(RECIPES.rglob("*.toml")):
        name = str(path.relative_to(RECIPES).with_suffix(""))
        if name in ("demo/objects-pooled", "fedtour/base", "fedtour/study", "photos"):  # need another run or photos
            continue
        try:
            cells = cells_of(path, everything)
        except WayfareError as error:
            note.print(f"{name}: {error}")
            continue
        for number, (cell, experiment) in enumerate(cells.items()):
            made = again(experiment, number == 0)
            if (text := made.to_toml()) not in seen:
                seen.add(text)
                yield f"{name}:{cell}", made, "local"
    quick = read_table(RECIPES / "quickstart.toml")
    quick.pop("cells")
    for strategy in names("strategy"):
        try:
            table = override(quick, {"strategy.name": strategy, "rounds": 3, "topology.per_round": 0})
            yield f"strategy {strategy}", Experiment.from_table(table), "local"
        except WayfareError:  # it needs what digits do not have
            continue
    tiers = {"topology.name": "hierarchy", "rounds": 4, "evaluation.every": 2}
    yield "hierarchy", Experiment.from_table(override(quick, tiers)), "local"
    yield "pool", Experiment.from_table(override(quick, {"rounds": 3})), "pool"
    if importlib.util.find_spec("flwr"):
        yield "flower", Experiment.from_table(override(quick, {"rounds": 3})), "flower"


def few():
    """The runs of --quick: one strategy, one that remembers, and the pool."""
    quick = override(read_table(RECIPES / "quickstart.toml"), {"rounds": 2})
    quick.pop("cells")
    yield "strategy fedavg", Experiment.from_table(quick), "local"
    yield "strategy scaffold", Experiment.from_table(override(quick, {"strategy.name": "scaffold"})), "local"
    yield "pool", Experiment.from_table(quick), "pool"


def table(jobs, before):
    """Run them; name -> model and metrics. Prints how each compares with the table from before, if there is one."""
    found = {}
    for name, experiment, engine in jobs:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                summary = run(experiment, Path(folder) / "run", engine, 2 if engine != "local" else 0)
                found[name] = {"model": summary["model_sha256"], "metrics": summary["metrics"]}
            except WayfareError as error:
                found[name] = {"error": str(error)}
        same = alike(found[name], before.get(name)) if before else ""
        text = found[name].get("model", found[name].get("error", ""))
        note.print(f"{time.monotonic() - began:6.1f} s  {text[:60]}  {name}  {same}", highlight=False, markup=False)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--check", type=Path)
    parser.add_argument("--all", action="store_true", help="every cell")
    parser.add_argument("--quick", action="store_true", help="three short runs twice: both must give the same")
    parser.add_argument("--only", default="", help="runs whose names contain this")
    parser.add_argument("--part", default="0/1", help="every Nth run: 0/2 and 1/2 are halves, for two processes")
    args = parser.parse_args()
    part, parts = map(int, args.part.split("/"))
    before = json.loads(args.check.read_text()) if args.check else {}
    if args.quick:
        before = table(few(), {})
        jobs = few()
    else:
        jobs = (job for number, job in enumerate(work(args.all)) if number % parts == part and args.only in job[0])
    found = table(jobs, before)
    wrong = [name for name in found if before and alike(found[name], before.get(name)) != "same"]
    if args.write:
        args.write.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    note.print(f"{len(found)} runs, {len(wrong)} not as before: {', '.join(wrong)}" if before else f"{len(found)} runs")
    return 1 if wrong else 0


def alike(now, before):
    if before is None:
        return "new"
    if "model" not in now or "model" not in before:
        return "same" if ("model" in now) == ("model" in before) else "FAILED"
    if now["model"] != before["model"]:
        return "OTHER MODEL"
    return "same" if now["metrics"] == before["metrics"] else "OTHER METRICS"


if __name__ == "__main__":
    sys.exit(main())
