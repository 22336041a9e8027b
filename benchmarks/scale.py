"""A million clients: seconds per round and peak memory, beside the same with ten thousand.

    python benchmarks/scale.py [--quick] [--json]

1,000 clients per round of a population that is a rule, not a list; each in a process of its own, whose peak memory is
read when it ends. The target: memory within 20 % of each other. Exit status 1 when it is missed.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from figures import target


def work(clients, per_round, rounds):
    """One run in this process; prints its figures."""
    from wayfare import Evaluation, Experiment, Training
    from wayfare.objects.models import CnnClassifier
    from wayfare.objects.task import Objects
    from wayfare.partition.virtual import Virtual
    from wayfare.runner import run
    from wayfare.topologies.server import Server

    seconds = []
    experiment = Experiment(
        task=Objects(model=CnnClassifier(width=8, hidden=32)),
        partition=Virtual(clients, 20),
        topology=Server(per_round),
        training=Training(batch_size=10),
        evaluation=Evaluation(every=0, holdout=0),
        rounds=rounds,
    )
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run(experiment, Path(folder) / "run", "local",
            listen=lambda event, data: seconds.append(data["seconds"]) if event == "round" else None)  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"clients": clients, "seconds_per_round": min(seconds[1:]), "peak_mib": peak,
                      "total_seconds": time.monotonic() - begun}))  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under a minute: 200 clients per round")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--clients", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    per_round, rounds = (200, 2) if args.quick else (1000, 3)
    if args.clients:
        return work(args.clients, per_round, rounds)
    rows = []
    for clients in (10_000, 1_000_000):
        command = [sys.executable, __file__, "--clients", str(clients)] + (["--quick"] if args.quick else [])
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    ratio = rows[1]["peak_mib"] / rows[0]["peak_mib"]
    row = target("peak memory, 1,000,000 over 10,000 clients", ratio, most=1.2)
    if args.json:
        each = [
            target(f"{name}, {run['clients']:,} clients", run[key])
            for key, name in (("peak_mib", "peak memory in MiB"), ("seconds_per_round", "seconds per round"))
            for run in rows
        ]
        print(json.dumps({"quick": args.quick, "runs": rows, "targets": [row, *each], "met": row["met"]}))
    else:
        table = Table("clients", "per round", "s/round", "peak MiB")
        for run in rows:
            figures = f"{run['seconds_per_round']:.2f}", f"{run['peak_mib']:.0f}"
            table.add_row(f"{run['clients']:,}", str(per_round), *figures)
        console = Console()
        console.print(table)
        mark = "[green]met[/green]" if row["met"] else "[red]MISSED[/red]"
        console.print(f"{mark}  {row['name']}: {ratio:.3f} (at most 1.2)", highlight=False)
    return 0 if row["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
