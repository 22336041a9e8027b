"""Kill -9 at the system calls of a run, resume, compare: crash points, identical models, rounds lost.

    python benchmarks/crashes.py [--quick] [--json] [--points N] [--parallel N]

A real `wayfare run` (SCAFFOLD on the digits, 3 rounds, devices that remember) is killed by strace when it enters its
n-th write, pwrite64, fsync, rename, openat, unlink, ftruncate or mkdir that touches the run folder, for every n. Each
folder is resumed, with one process or with a pool of two in turn. The targets: the same SHA-256 of the model as
without a crash, and every round that was on record still there, byte for byte. Exit status 1 when one is missed.
A process takes seconds to import torch, longer under strace, so --quick tries six points only.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from figures import target

RECIPE = """
rounds = 3
model = { width = 2, hidden = 4 }
task = { name = "objects" }
partition = { name = "random", clients = 4 }
strategy = { name = "scaffold" }
training = { iterations = 2, batch_size = 8 }
evaluation = { every = 0 }
"""
CALLS = (
    "write", "pwrite64", "fsync", "rename", "renameat", "renameat2", "openat", "unlink", "unlinkat",
    "ftruncate", "mkdir",
)  # fmt: skip
QUICK = 6
# what strace says of a call: its name, and the file behind its handle or its path
LINE = re.compile(r'\d+ +(\w+)\((?:\d+<([^>]*)>|(?:AT_FDCWD(?:<[^>]*>)?, )?"([^"]*)")')


def unavailable():
    """Why this cannot be measured here, if it cannot."""
    if shutil.which("strace") is None:
        return "strace is not installed here"
    tried = subprocess.run(["strace", "-f", "-o", os.devnull, "true"], capture_output=True, text=True)
    return f"strace may not trace here: {tried.stderr.strip()}" if tried.returncode else ""


def command(folder):
    wayfare = [sys.executable, "-c", "from wayfare.cli import main; main()"]
    recipe = str(folder.with_name("recipe.toml"))
    return [*wayfare, "run", recipe, "--out", str(folder), "--engine", "local", "--track", "none", "--json"]


def strace(folder, *options):
    """Run the experiment under strace."""
    folder.parent.mkdir()
    folder.with_name("recipe.toml").write_text(RECIPE)
    whole = ["strace", "-f", *options, *command(folder)]
    return subprocess.run(whole, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def enumerate_points(place):
    """An undisturbed run: its model, and for each call the files it touched, in their order."""
    folder, log = place / "whole" / "run", place / "log"
    done = strace(folder, "--seccomp-bpf", "-y", "-o", str(log), "-e", f"trace={','.join(CALLS)}")
    if done.returncode:
        raise RuntimeError(f"the run without a crash failed (status {done.returncode}): {done.stderr[-2000:]}")
    touched = collections.defaultdict(list)
    for call, behind, path in LINE.findall(log.read_text(errors="replace")):
        inside = Path(behind or path)
        drawn = inside.name.startswith((".report.html", "report.html"))  # from the rest, under a name of its process
        if (inside == folder or folder in inside.parents) and not drawn:
            touched[call].append(str(inside.relative_to(folder)))
    return json.loads(done.stdout)["model_sha256"], dict(touched)


def crash(place, call, number, files):
    """Kill a run at the `number`-th such call; returns its folder, or None if it was not killed."""
    folder = place / f"{call}-{number}" / "run"
    paths = [option for file in files for option in ("-P", os.path.normpath(folder / file))]
    inject = f"inject={call}:signal=KILL:when={number}"
    done = strace(folder, "-o", os.devnull, *paths, "-e", f"trace={call}", "-e", inject)
    return folder if done.returncode == -9 else None


def mend(folder, engine, model):
    """Go on: whether the model is the same, and how many rounds that were on record are gone."""
    from wayfare import Experiment, WayfareError, resume, run

    before = record(folder)
    try:
        if (folder / "experiment.toml").exists():
            summary = resume(folder, engine)
        else:
            summary = run(Experiment.read(folder.with_name("recipe.toml")), folder, engine)
    except WayfareError as error:
        print(f"{folder.parent.name}: {error}", file=sys.stderr)
        summary = {"model_sha256": None}
    after = record(folder)
    return summary["model_sha256"] == model, sum(line not in after for line in before)


def record(folder):
    """The complete lines of a run."""
    path = folder / "rounds.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [line for line in lines if line.endswith(b"\n")]


def sample(touched, count):
    """Some of the points, spread over the calls, the frequent ones first, and over the run."""
    rng, chosen = random.Random(0), []
    frequent = sorted(touched, key=lambda call: -len(touched[call]))
    points = {call: [(call, n) for n in range(1, len(touched[call]) + 1)] for call in frequent}
    while len(chosen) < count and any(points.values()):
        for call in points:
            if points[call] and len(chosen) < count:
                chosen.append(points[call].pop(rng.randrange(len(points[call]))))
    return chosen


def measure(place, wanted, parallel, tick):
    from wayfare.engines.pool.engine import Pool

    model, touched = enumerate_points(place)
    files = sorted({file for names in touched.values() for file in names})
    count = sum(map(len, touched.values()))
    points = sample(touched, wanted or count)
    rows = {call: collections.Counter(points=0, reached=0, identical=0, lost=0) for call, _ in points}
    with contextlib.ExitStack() as stack:
        engines = ["local", *([] if wanted == QUICK else [stack.enter_context(Pool(2))])]
        threads = stack.enter_context(concurrent.futures.ThreadPoolExecutor(parallel))
        crashed = {threads.submit(crash, place, call, number, files): (call, number) for call, number in points}
        for tried, future in enumerate(concurrent.futures.as_completed(crashed), start=1):
            row, folder = rows[crashed[future][0]], future.result()
            row["points"] += 1
            if folder is not None:
                row["reached"] += 1
                same, lost = mend(folder, engines[tried % len(engines)], model)
                row["identical"] += same
                row["lost"] += lost
                shutil.rmtree(folder.parent)
            tick(tried, len(points))
    return model, count, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="six points, under a minute")
    parser.add_argument("--json", action="store_true", help="figures, targets and which are met, as JSON")
    parser.add_argument("--points", type=int, default=0, help="a sample of so many points")
    parser.add_argument("--parallel", type=int, default=os.cpu_count() or 1, help="runs at a time")
    args = parser.parse_args()
    began, console, errors = time.monotonic(), Console(), Console(stderr=True)

    def tick(done, of):
        if errors.is_terminal:
            errors.print(f"{done} of {of}", end="\r")

    reason = unavailable()
    if reason:
        print(json.dumps({"benchmark": "crashes", "skipped": reason}) if args.json else f"skipped: {reason}")
        return 0
    with tempfile.TemporaryDirectory(prefix="crashes-") as place:
        model, count, rows = measure(Path(place), args.points or (QUICK if args.quick else 0), args.parallel, tick)
    total = sum(rows.values(), collections.Counter())
    figures = {"points in the run": count, "points tried": total["points"], "killed there": total["reached"],
               "identical models": total["identical"], "rounds lost": total["lost"],
               "seconds": round(time.monotonic() - began, 1)}  # fmt: skip
    targets = {"killed there": total["points"], "identical models": total["points"], "rounds lost": 0}
    met = {name: figures[name] == wanted for name, wanted in targets.items()}
    if args.json:
        calls = {call: dict(row) for call, row in rows.items()}
        rows = [target("points in the run", count), target("points tried", total["points"])]
        rows += [target(name, figures[name], wanted, wanted) for name, wanted in targets.items()]
        print(json.dumps({"quick": args.quick, "model_sha256": model, "calls": calls, "figures": figures,
                          "targets": rows, "met": all(met.values())}))  # fmt: skip
    else:
        table = Table("system call", "points", "killed there", "identical models", "rounds lost")
        for call, row in [*sorted(rows.items()), ("all", total)]:
            table.add_row(call, *(str(row[key]) for key in ("points", "reached", "identical", "lost")))
        console.print(table)
        for name, wanted in targets.items():
            mark = "[green]met[/green]" if met[name] else "[red]MISSED[/red]"
            console.print(f"{mark}  {name}: {figures[name]} (target {wanted})", highlight=False)
        console.print(f"{total['points']} of {count} points, {figures['seconds']} s", highlight=False)
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
