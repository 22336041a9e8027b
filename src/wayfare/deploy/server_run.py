"""The server's half of a federation, in the process that Flower starts for it: gather the nodes, then run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from wayfare.components import allow_code
from wayfare.core import disk
from wayfare.core.errors import ConfigError, DeviceError, WayfareError
from wayfare.deploy.local_folder import digest_of, settled
from wayfare.engines.flower.deployment import Deployment, Greetings, NodeInfo
from wayfare.engines.flower.engine import Flower
from wayfare.experiment import Experiment
from wayfare.partition.joined import Joined
from wayfare.runner import resume, run

Listener = Callable[[str, dict[str, Any]], None]
_LOOK = 1.0  # seconds between two looks for nodes


def run_job(grid: Any, job: dict[str, Any], listen: Listener) -> dict[str, Any]:
    """Run, or go on with, the experiment of a job; returns the summary.

    A job has `experiment` (text), `folder`, `run` (what nodes call it), `nodes` (how many to wait for), `wait`
    (seconds), `rounds` (a new total, or 0), `allow_code` and `allow_changed` (what the owner has allowed).
    """
    folder = Path(job["folder"])
    begun = folder / "experiment.toml"
    allow_code(*job.get("allow_code", ()))
    text = begun.read_text(encoding="utf-8") if begun.exists() else str(job["experiment"])
    experiment = settled(Experiment.from_toml(text))
    joined = experiment.partition if isinstance(experiment.partition, Joined) else None
    wanted = joined.names if joined else ()
    found = gather(grid, experiment, count=job["nodes"], wanted=wanted, wait=job["wait"], listen=listen)
    if joined is None or not wanted:
        names = tuple(sorted(found))
        joined = Joined(names, tuple(found[name][1].samples for name in names))
        experiment = replace(experiment, partition=joined)
    nodes_by_name = {name: node for name, (node, _) in found.items()}
    ids = {name: joined.client(name) for name in joined.names}
    _note_nodes(folder, joined, nodes_by_name)
    link = Deployment(grid, experiment.to_toml(), job["run"], nodes_by_name, ids)
    with Flower(workers=len(nodes_by_name), link=link) as engine:
        try:
            if begun.exists():
                allowed = job.get("allow_changed", ())
                return resume(folder, engine, rounds=job["rounds"] or None, listen=listen, allow_changed=allowed)
            return run(experiment, folder, engine, listen=listen)
        except DeviceError as error:
            who = {id: name for name, id in ids.items()}.get(error.device, error.device)
            raise WayfareError(f"node {who!r}: {error}") from error


def gather(
    grid: Any, experiment: Experiment, count: int, wanted: tuple[str, ...], wait: float, listen: Listener
) -> dict[str, tuple[int, NodeInfo]]:
    """Wait until this many nodes have joined, or the named ones."""
    found: dict[str, tuple[int, NodeInfo]] = {}
    heard: set[int] = set()
    classes, greetings = digest_of(experiment.task), Greetings(grid, experiment.to_toml())
    need = len(wanted) or count
    end = time.monotonic() + wait
    while len(found) < need:
        greetings.ask(sorted(set(grid.get_node_ids()) - heard - greetings.waiting), max(1.0, end - time.monotonic()))
        for node, info in sorted(greetings.answers().items()):
            heard.add(node)
            problem = _problem(info, classes, found, wanted)
            if problem:
                who = repr(info.name) if isinstance(info, NodeInfo) else node
                listen("warning", {"text": f"node {who} does not take part: {problem}"})
            elif isinstance(info, NodeInfo):
                found[info.name] = node, info
                listen("node", {"name": info.name, "samples": info.samples, "found": len(found), "need": need})
        if len(found) < need and time.monotonic() > end:
            missing = f": {', '.join(sorted(set(wanted) - set(found)))} did not" if wanted else ""
            raise ConfigError(
                f"{len(found)} of {need} nodes came within {wait:.0f} s{missing}. Start them with `wayfare federate "
                "join`, or raise --wait"
            )
        time.sleep(_LOOK if len(found) < need else 0)
    return found


def _problem(info: Any, classes: str, found: dict[str, tuple[int, NodeInfo]], wanted: tuple[str, ...]) -> str:
    if not isinstance(info, NodeInfo):
        return str(info.reason)
    if info.classes != classes:
        return f"{info.name!r} has other classes or words than the server's data"
    if info.name in found:
        return f"there is another {info.name!r}"
    if wanted and info.name not in wanted:
        return f"{info.name!r} was not there when this run began"
    return ""


def _note_nodes(folder: Path, joined: Joined, nodes_by_name: dict[str, int]) -> None:
    """For `wayfare federate status`."""
    rows = [
        {"device": joined.client(name), "name": name, "samples": size, "node": str(nodes_by_name.get(name, ""))}
        for name, size in zip(joined.names, joined.sizes)
    ]
    disk.write(folder / "flower" / "nodes.json", json.dumps(rows, indent=1).encode())
