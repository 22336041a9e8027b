"""Seconds per federated round, side by side in one go: a hand-written torch loop, Wayfare, Apple's pfl and Flower.

    python benchmarks/rounds.py [--quick] [--json]

The same work everywhere (benchmarks/peers/work.py): 100 clients, 10 of them per round, a small CNN on 32x32x3 images,
two model sizes. Every peer runs in a process of its own, in an environment of its own where they conflict. Repeats are
interleaved, and a ratio is the median over repeats of ratios within one repeat, because machines are noisy; CPU
seconds stand beside wall seconds.
`moved` is the norm of what the weights changed by: equal where the arithmetic is.
Exit status 1 when a target is missed; one whose peer is not installed is not measured, and not missed. With --quick
only the arithmetic is judged.
"""

import argparse
import compileall
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

PEERS = Path(__file__).resolve().parent / "peers"
SOURCE = PEERS.parent.parent / "src"
sys.path.insert(0, str(PEERS))
import environments  # noqa: E402

from figures import target  # noqa: E402

CORES = 2
MARKS = {True: "[green]met[/green]", False: "[red]MISSED[/red]", None: "[yellow]not judged[/yellow]"}
# name -> (script, environment or None for ours, processes)
RUNNERS = {
    "plain": ("plain.py", None, 1),
    "plain x2": ("plain.py", None, CORES),
    "wayfare local": ("wayfare_peer.py", None, 1),
    "wayfare pool": ("wayfare_peer.py", None, CORES),
    "pfl x2": ("pfl_peer.py", "pfl", CORES),
    "flower x2": ("flower_peer.py", "flower", CORES),  # started by run_simulation: quick, and deprecated
    "flwr run x2": ("flower_run_peer.py", "flower", CORES),  # started as Flower's users are told to
}
STARTS_ONLY = {"flwr run x2"}  # two rounds are enough: its steady ones are those of `flower x2`
# what is claimed: (label, of whom, compared with whom, of what, at least)
TARGETS = [
    ("local against the plain loop", "wayfare local", "plain", "round", 0.95),
    ("pool against the plain loop", "wayfare pool", "plain", "round", 1.7),
    ("pool against pfl", "wayfare pool", "pfl x2", "round", 0.95),
    ("pool against Flower, steady round", "wayfare pool", "flower x2", "round", 1.3),
    ("pool against Flower's run_simulation, end of first round", "wayfare pool", "flower x2", "first", 3.0),
    ("pool against `flwr run`, end of first round", "wayfare pool", "flwr run x2", "first", 3.0),
]
EXACT = ("plain x2", "wayfare local", "wayfare pool")  # whose weights move as those of the plain loop do
NEAR = 1e-6  # of how far they moved
note = Console(stderr=True)


def interpreters(names, install):
    """The Python of each environment that a runner needs; those that cannot be had are left out, saying so."""
    found = {None: sys.executable}
    for name in sorted({RUNNERS[runner][1] for runner in names} - {None}):
        try:
            found[name] = str(environments.python(name, install=install))
        except environments.Unavailable as error:
            note.print(f"[yellow]left out: {name}[/yellow] {error}", highlight=False)
    return found


def measure(runner, python, work, size, rounds):
    script, _, processes = RUNNERS[runner]
    command = [python, script, "--work", str(work), "--size", size, "--rounds", str(rounds)]
    for last in (False, True):  # pfl's workers sometimes abort at their end
        begun = ["--processes", str(processes), "--started", str(time.time())]
        done = subprocess.run([*command, *begun], cwd=PEERS, capture_output=True, text=True, timeout=900)
        if not done.returncode:
            break
        note.print(f"{runner} failed with status {done.returncode}: {done.stderr[-2000:]}", markup=False)
        if last:
            raise RuntimeError(f"{runner} failed twice")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    steady = len(result["seconds_per_round"])
    return {
        "round": statistics.median(result["seconds_per_round"]),
        "first": result["first_round_end"],
        "cpu": result["cpu_seconds"] / steady,
        "moved": result["moved"],
        "parameters": result["parameters"],
    }


def compare(runs, size, quick):
    """The targets for one model size: medians of the ratios within each repeat; None where a peer was left out.

    With --quick there is one short repeat, maybe beside other work: ratios are shown and not judged.
    """
    rows = []
    for label, ours, theirs, what, least in TARGETS:
        ratios = [r[size][theirs][what] / r[size][ours][what] for r in runs if {ours, theirs} <= r[size].keys()]
        ratio = statistics.median(ratios) if ratios else None
        met = None if quick or ratio is None else ratio >= least
        rows.append({"target": label, "size": size, "ratio": ratio, "least": least, "met": met})
    return rows


def same_arithmetic(runs, size):
    """Whether our weights moved as far as those of the plain loop."""
    apart = [
        abs(run[size][name]["moved"] / run[size]["plain"]["moved"] - 1)
        for run in runs
        for name in EXACT
        if {name, "plain"} <= run[size].keys()
    ]
    far = max(apart) if apart else None
    words = "weights move as in the plain loop, relative difference"
    return {"target": words, "size": size, "ratio": far, "most": NEAR, "met": None if far is None else far <= NEAR}


def show(runs, sizes, targets):
    out = Console()
    for size in sizes:
        table = Table(title=f"{size}: {runs[0][size]['plain']['parameters']:,} parameters", title_justify="left")
        for column in ("", "s/round", "CPU s/round", "speed, plain = 1", "first round ends", "moved"):
            table.add_column(column, justify="right" if column else "left")
        for name in runs[0][size]:
            rows = [run[size][name] for run in runs]
            speed = statistics.median(run[size]["plain"]["round"] / run[size][name]["round"] for run in runs)
            medians = {key: statistics.median(row[key] for row in rows) for key in ("round", "cpu", "first")}
            table.add_row(
                name, f"{medians['round']:.3f}", f"{medians['cpu']:.3f}", f"{speed:.2f}", f"{medians['first']:.1f} s",
                f"{rows[0]['moved']:.6f}",
            )  # fmt: skip
        out.print(table)
    for row in targets:
        if row["ratio"] is None:
            out.print(f"[yellow]not measured[/yellow]  {row['size']}: {row['target']}", highlight=False)
            continue
        bound = f"at least {row['least']}" if "least" in row else f"at most {row['most']}"
        out.print(f"{MARKS[row['met']]}  {row['size']}: {row['target']} {row['ratio']:.2f} ({bound})", highlight=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under a minute: one repeat, ready environments only")
    # how fast a process is depends on where its memory happens to lie: many short runs tell more than a few long ones
    parser.add_argument("--repeats", type=int, default=5)
    # rounds of the small network are short, and end with whichever tick of the system's clock lets our server go on
    parser.add_argument(
        "--rounds", type=int, default=7, help="of the large network; the small one makes four times as many"
    )
    parser.add_argument("--only", help="comma-separated peers, for instance 'plain,wayfare pool'")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    sizes = ["small"] if args.quick else ["small", "large"]
    repeats, rounds = (
        (1, {"small": 6}) if args.quick else (args.repeats, {"small": 4 * args.rounds, "large": args.rounds})
    )
    names = [name for name in RUNNERS if not args.only or name in args.only.split(",")]
    if args.quick:
        names = [name for name in names if name not in STARTS_ONLY]
    pythons = interpreters(names, install=not args.quick)
    names = [name for name in names if RUNNERS[name][1] in pythons]
    for folder in (SOURCE, PEERS):  # as pip does for the others: where Python keeps no bytecode, each start would do it
        compileall.compile_dir(folder, quiet=1)
    runs = []
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([sys.executable, "work.py", "--work", work], cwd=PEERS, check=True, stderr=subprocess.DEVNULL)
        for repeat in range(repeats):
            runs.append({})
            for size in sizes:
                runs[-1][size] = {}
                for name in names:
                    note.print(f"repeat {repeat + 1}/{repeats}  {size}  {name}", highlight=False)
                    runs[-1][size][name] = measure(
                        name, pythons[RUNNERS[name][1]], work, size, 2 if name in STARTS_ONLY else rounds[size]
                    )
    targets = [row for size in sizes for row in (*compare(runs, size, args.quick), same_arithmetic(runs, size))]
    met = all(row["met"] is not False for row in targets)
    if args.json:
        rows = [target(f"{r['size']}: {r['target']}", r["ratio"], r.get("least"), r.get("most")) for r in targets]
        print(json.dumps({"quick": args.quick, "runs": runs, "targets": rows, "met": met}))
    else:
        show(runs, sizes, targets)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
