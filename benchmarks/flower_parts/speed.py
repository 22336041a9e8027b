"""Seconds per round in Flower's simulation: our engine beside Flower's own FedAvg, the same clients, batches, weights.

It is the work of `rounds.py` (benchmarks/peers), by turns, in two processes; ours with all that a run does: the gate,
checkpoints, the record. That it is the same work shows in the training loss of the third round, which must be nearly
the same; Flower's sums depend on the order of replies, and such differences grow from round to round.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rich.table import Table

from places_parts.common import note

PEERS = Path(__file__).resolve().parents[1] / "peers"
RUNNERS = {"wayfare on Flower": ["wayfare_peer.py", "--engine", "flower"], "Flower's FedAvg": ["flower_peer.py"]}
PROCESSES = 2
NEAR = 1e-3
COMPARED = 2  # the round, counted from 0, whose loss is compared


def measure(quick, out):
    """Seconds of steady rounds by size and runner, one list for each repeat."""
    work = out / "speed"
    subprocess.run([sys.executable, "work.py", "--work", str(work)], cwd=PEERS, check=True, stderr=subprocess.DEVNULL)
    repeats, rounds = (1, 4) if quick else (3, 11)
    sizes = ["small"] if quick else ["small", "large"]
    runs = [{size: {} for size in sizes} for _ in range(repeats)]
    for number, found in enumerate(runs, start=1):
        for size in sizes:
            for name in RUNNERS:
                note.print(f"repeat {number}/{repeats}  {size}  {name}", highlight=False)
                found[size][name] = _once(RUNNERS[name], work, size, rounds)
    return {"runs": runs}


def _once(script, work, size, rounds):
    command = [sys.executable, *script, "--work", str(work), "--size", size, "--rounds", str(rounds)]
    command += ["--processes", str(PROCESSES), "--started", str(time.time())]
    done = subprocess.run(command, cwd=PEERS, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{script[0]} failed:\n{done.stderr[-2000:]}")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    seconds = result["seconds_per_round"]
    return {
        "round": statistics.median(seconds), "cpu": result["cpu_seconds"] / len(seconds),
        "first": result["first_round_end"], "loss": result["train_loss"][COMPARED],
    }  # fmt: skip


def targets(figures):
    ours, theirs = RUNNERS
    rows = []
    for size in figures["runs"][0]:
        ratio = statistics.median(run[size][theirs]["round"] / run[size][ours]["round"] for run in figures["runs"])
        name = f"{size}: speed of a steady round beside Flower's own FedAvg"
        rows.append({"name": name, "value": ratio, "target": "at least 1", "met": ratio >= 1, "timed": True})
        apart = max(abs(run[size][ours]["loss"] / run[size][theirs]["loss"] - 1) for run in figures["runs"])
        name = f"{size}: difference of the training loss in round {COMPARED + 1}"
        rows.append({"name": name, "value": apart, "target": f"at most {NEAR}", "met": apart <= NEAR})
    return rows


def show(figures, console):
    for size in figures["runs"][0]:
        table = Table(title=f"simulation, {size} model", title_justify="left")
        for column in ("", "s/round", "CPU s/round", "first round ends"):
            table.add_column(column, justify="right" if column else "left")
        for name in RUNNERS:
            rows = [run[size][name] for run in figures["runs"]]
            middle = {key: statistics.median(row[key] for row in rows) for key in ("round", "cpu", "first")}
            table.add_row(name, f"{middle['round']:.3f}", f"{middle['cpu']:.3f}", f"{middle['first']:.1f} s")
        console.print(table)
