"""Faults over real nodes: tests/federation.py, in a network of its own with nothing but the loopback where it can be.

Three nodes and a server, each a process with TLS and keys. A run in which nothing happens, and one in the simulation,
must give the model of the local engine; a run with a node that sends NaN, one that is killed in mid-round and started
again, one that is stopped beyond the deadline, and a server that is killed in mid-round and resumed must give the model
that the local engine gives where those devices are away from those rounds, and count every fault.
"""

import json
import subprocess
import sys
from pathlib import Path

from rich.table import Table

RUNS = ("peace", "trouble", "simulation")
PROGRAM = Path(__file__).resolve().parents[2] / "tests" / "federation.py"


def measure(quick, out):
    """What that program tells."""
    folder = out / "faults"
    folder.mkdir(parents=True)
    sys.path.append(str(PROGRAM.parent))
    import offline

    fenced = offline.is_possible()
    command = [sys.executable, str(PROGRAM), str(folder), "--runs", ",".join(RUNS)]
    command = [*offline.WITHOUT_NETWORK, *command, "--alone"] if fenced else command
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode:
        raise RuntimeError(f"{PROGRAM.name} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout)


def targets(figures):
    trouble, runs = figures["trouble"], [figures[name] for name in RUNS if name in figures]
    different = sum(run["summary"]["model_sha256"] != run["local"]["model_sha256"] for run in runs)
    told = {f"{each['device']}@{each['round']}" for each in trouble["refused"]}
    counted = trouble["summary"]["refused"]
    lost = len({"c0@1", "c1@2", "c2@2"} ^ told)
    tried = figures.get("tried_elsewhere")
    return [
        {"name": f"models that differ from the local engine's, of {len(runs)}", "value": different, "target": "0",
         "met": different == 0},
        {"name": "faults counted in the summary", "value": counted, "target": "3", "met": counted == 3},
        {"name": "faults not told, or told of others", "value": lost, "target": "0", "met": lost == 0},
        {"name": "strangers let in", "value": int(not trouble["stranger_refused"]), "target": "0",
         "met": trouble["stranger_refused"]},
        {"name": "devices that had forgotten", "value": trouble["summary"]["cold"], "target": "0",
         "met": trouble["summary"]["cold"] == 0},
        {"name": "attempts to go beyond the loopback", "value": tried, "met": None if tried is None else not tried,
         "target": "this system does not let us take the network away" if tried is None else "0"},
    ]  # fmt: skip


def show(figures, console):
    table = Table(title=f"faults, {figures['seconds']:.0f} s in all", title_justify="left")
    for column in ("round", "device", "why it was left out"):
        table.add_column(column)
    for each in figures["trouble"]["refused"]:
        table.add_row(str(each["round"]), each["device"], each["reason"])
    console.print(table)
