"""A federation of three devices over Flower's programs, and what can happen to it. A program:

    python federation.py FOLDER [--alone] [--runs peace,trouble,simulation]

Every server and node is a process of its own, started by the command line as people start it, on the loopback address,
through the fence, with invitations, and there is a stranger at the door.
- peace: nothing happens.
- trouble: in round 1, a node sends what is no number; in round 2, a node is killed with all its processes, and started
  again, and another is stopped until after the deadline; in round 3, the server is killed, and resumed. Somebody has
  begun to speak to the fence then and does not go on, and Flower's own program is stopped, so that it cannot end.
- simulation: no programs, but Flower's simulation, over Ray.
What came of it is printed as JSON. With --alone there is no network but the loopback (start it with `unshare -rn`), and
it is counted how often somebody tried to reach any other.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import device_folders
from failing_devices import Troubled
from offline import alone, tried_elsewhere
from wayfare.core.locks import holder
from wayfare.core.protocols import Policy
from wayfare.deploy.fence_log import read_fence_log
from wayfare.deploy.flower_tools import _end_with_parent, tail
from wayfare.deploy.invite import invite, read_invite
from wayfare.deploy.node import Node
from wayfare.deploy.supernode import free_port
from wayfare.experiment import Evaluation, Experiment
from wayfare.io.address import Address
from wayfare.runner import run

NAN, KILLED, STOPPED, CUT = "c0@1", "c1@2", "c2@2", "c0@3"
# A node is stopped for so long and a second. Its last sign of life, one every 30 s, may be that old already, and after
# 60 s without one Flower takes a node for gone: it must not be so when the next round begins.
DEADLINE = 26.0
REFUSED = "no certificate of this federation"


class Stage:
    """The devices, their keys, and all processes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.homes = folder, folder / "photos"
        self.address = Address("127.0.0.1", free_port())
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.begun: list[subprocess.Popen[bytes]] = []
        device_folders.photograph(self.homes)
        for name in device_folders.NAMES:
            invite(folder / "keys", name, self.address, 365, folder / f"{name}.invite")
        invite(folder / "strangers", "anna", self.address, 365, folder / "stranger.invite")

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.begun:
            signal_tree(process, signal.SIGCONT)
            process.terminate()
        for process in self.begun:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(40)
            signal_tree(process, signal.SIGKILL)

    def begin(self, *arguments: object, log: str) -> subprocess.Popen[bytes]:
        """One of our own commands, in the background."""
        with (self.folder / f"{log}.log").open("ab") as out:
            command = [sys.executable, "-m", "wayfare", "federate", *map(str, arguments)]
            place = self.folder / "beside"  # a folder called like the program, as beside a clone, harms nobody
            (place / "wayfare").mkdir(parents=True, exist_ok=True)
            self.begun.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=_end_with_parent, cwd=place
                )
            )
            return self.begun[-1]

    def join(self, name: str) -> None:
        """Start a node."""
        self.nodes[name] = self.begin(
            "join", self.folder / f"{name}.invite", "--photos", self.homes / name,
            "--home", self.folder / "homes" / name, "--allow-code", "failing_devices", log=name,
        )  # fmt: skip

    def gather(self) -> None:
        """Start the nodes that are not there yet."""
        for name in device_folders.NAMES:
            if name not in self.nodes:
                self.join(name)

    def serve(self, run: str, *arguments: object) -> subprocess.Popen[bytes]:
        """Start a server."""
        where = ["--listen", self.address, "--certificates", self.folder / "keys", "--out", self.folder / run]
        return self.begin("server", *where, "--allow-code", "failing_devices", "--wait", 240, *arguments, log=run)

    def finish(self, server: subprocess.Popen[bytes], run: str) -> dict[str, Any]:
        """Wait for the end of a run; its summary."""
        if server.wait(400):
            raise RuntimeError(f"{run} failed:\n{tail(self.folder / f'{run}.log', 40)}")
        return dict(json.loads((self.folder / run / "summary.json").read_text()))

    def said(self, run: str) -> str:
        """All that the servers of a run have said, on one line."""
        return " ".join((self.folder / f"{run}.log").read_text().split())

    @contextlib.contextmanager
    def half_a_request(self) -> Any:
        """Somebody who has begun to speak to the server, and does not go on."""
        home = self.folder / "homes/anna"
        context = ssl.create_default_context(cafile=str(home / "ca.crt"))
        context.load_cert_chain(home / "node.crt", home / "node.key")
        with (
            socket.create_connection((self.address.host, self.address.port)) as wire,
            context.wrap_socket(wire, server_hostname=self.address.host) as line,
        ):
            line.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
            time.sleep(0.5)
            yield

    @contextlib.contextmanager
    def stranger(self) -> Any:
        """A node whose key nobody knows; it calls itself anna."""
        found = replace(
            read_invite(self.folder / "stranger.invite"), authority=(self.folder / "keys/ca.crt").read_text()
        )
        node = Node(found, self.homes / "anna", self.folder / "homes/stranger")
        with node.running() as start, start() as process:
            yield process


def tree(pid: int) -> list[int]:
    """A process and all that it started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def signal_tree(process: subprocess.Popen[bytes], sign: signal.Signals) -> None:
    """To a process and all that it started, the parents first."""
    if process.poll() is None:
        for pid in tree(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)


def until(what: str, there: Callable[[], bool], seconds: float = 240.0) -> None:
    """Wait for something to be there."""
    end = time.monotonic() + seconds
    while not there():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not so after {seconds:.0f} s")
        time.sleep(0.1)


def lines(folder: Path) -> list[dict[str, Any]]:
    """What is on record of a run."""
    path = folder / "rounds.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def recipe(experiment: Experiment, file: Path) -> Path:
    """The experiment as a file."""
    file.write_text(experiment.to_toml())
    return file


def in_peace(stage: Stage) -> dict[str, Any]:
    """A run to which nothing happens, beside the same on the local engine."""
    plan = replace(device_folders.experiment(stage.homes, Troubled()), evaluation=Evaluation(every=0, holdout=0.2))
    local = run(replace(plan, partition=device_folders.dealt(stage.homes)), stage.folder / "peace-local", "local")
    server = stage.serve("peace", "--recipe", recipe(plan, stage.folder / "peace.toml"))
    stage.gather()
    return {"local": local, "summary": stage.finish(server, "peace")}


def in_trouble(stage: Stage) -> dict[str, Any]:
    """The other run, beside the same on the local engine where those devices are away."""
    marks, folder = stage.folder / "cache/marks", stage.folder / "trouble"  # nodes can write there
    marks.mkdir(parents=True)
    plan = replace(
        device_folders.experiment(stage.homes, rounds=3),
        strategy=Troubled(nan=(NAN,), pause=(KILLED, STOPPED, CUT), marks=str(marks), seconds=15.0),
        evaluation=Evaluation(every=3, holdout=0.2),
        policy=Policy(deadline=DEADLINE, quorum=0.3),
    )
    same = replace(
        plan, strategy=Troubled(nan=(NAN,), away=(KILLED, STOPPED)), partition=device_folders.dealt(stage.homes)
    )
    local = run(same, stage.folder / "trouble-local", "local")
    server = stage.serve("trouble", "--recipe", recipe(plan, stage.folder / "trouble.toml"))
    stage.gather()
    until("two nodes are at work", lambda: (marks / STOPPED).exists() and (marks / KILLED).exists())
    signal_tree(stage.nodes["carl"], signal.SIGSTOP)
    signal_tree(stage.nodes["bert"], signal.SIGKILL)
    stage.nodes["bert"].wait()
    stage.join("bert")
    until("round 2 is on record", lambda: any(line["round"] == 2 for line in lines(folder)))
    # by its own clock it is late only so long after it began, and what it does before that it remembers
    time.sleep(max(0.0, (marks / STOPPED).stat().st_mtime + DEADLINE + 1 - time.time()))
    signal_tree(stage.nodes["carl"], signal.SIGCONT)
    until("a node is at work", (marks / CUT).exists)
    with stage.half_a_request():
        os.kill(holder(folder / "flower/superlink.lock") or 0, signal.SIGSTOP)  # it cannot end by itself
        server.kill()
        server.wait()
        before = len(lines(folder))
        server = stage.serve("trouble", "--resume")
        until("a new server waits for nodes", lambda: stage.said("trouble").count("waiting for 3 nodes") == 2)
    with stage.stranger():
        until("the stranger has tried", lambda: REFUSED in (folder / "flower/fence.jsonl").read_text(), 60)
        summary = stage.finish(server, "trouble")
    seen = read_fence_log(folder / "flower/fence.jsonl")
    waited = "waiting until its process" in stage.said("trouble")
    refused = [{"round": line["round"], **each} for line in lines(folder) for each in line["refused"]]
    return {
        "local": local, "summary": summary, "refused": refused, "lines_before_the_cut": before,
        "seen": seen, "waited_for_the_old_one": waited,
    }  # fmt: skip


def in_simulation(stage: Stage) -> dict[str, Any]:
    """A run in Flower's simulation, beside the same on the local engine."""
    plan = replace(device_folders.experiment(stage.homes, Troubled()), partition=device_folders.dealt(stage.homes))
    local = run(plan, stage.folder / "simulation-local", "local")
    return {"local": local, "summary": run(plan, stage.folder / "simulation", "flower", workers=2)}


RUNS = {"peace": in_peace, "trouble": in_trouble, "simulation": in_simulation}


def main() -> None:
    """Play what is asked for, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--runs", default=",".join(RUNS))
    args = parser.parse_args()
    devices = alone() if args.alone else []
    folder = args.folder.resolve()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    os.environ["WAYFARE_CACHE"] = str(folder / "cache")
    began = time.monotonic()
    with Stage(folder) as stage:
        found: dict[str, Any] = {name: RUNS[name](stage) for name in args.runs.split(",")}
    if args.alone:
        found |= {"devices": devices, "tried_elsewhere": tried_elsewhere()}
    print(json.dumps({**found, "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main()
