"""The server's half of a federation, in the process that Flower starts for it: gather the nodes, then run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from wayfare.core import disk
from wayfare.data.partition.joined import Joined
from wayfare.deploy.household import digest_of, settled
from wayfare.engines.flower import Flower
from wayfare.engines.flower_deployment import Deployment, Guest, greet
from wayfare.errors import ConfigError, DeviceError, WayfareError
from wayfare.experiment import Experiment
from wayfare.runner import resume, run

Listener = Callable[[str, dict[str, Any]], None]
_LOOK = 1.0  # seconds between two looks for nodes


def play(grid: Any, job: dict[str, Any], listen: Listener) -> dict[str, Any]:
    """Run, or go on with, the experiment of a job; returns the summary.

    A job has `experiment` (text), `folder`, `run` (what nodes call it), `nodes` (how many to wait for), `wait`
    (seconds), `rounds` (a new total, or 0).
    """
    folder = Path(job["folder"])
    begun = folder / "experiment.toml"
    text = begun.read_text(encoding="utf-8") if begun.exists() else str(job["experiment"])
    experiment = settled(Experiment.from_toml(text))
    wanted = experiment.partition.names if isinstance(experiment.partition, Joined) else ()
    found = gather(grid, experiment, job["nodes"], wanted, job["wait"], listen)
    if not wanted:
        names = tuple(sorted(found))
        partition = Joined(names, tuple(found[name][1].samples for name in names))
        experiment = replace(experiment, partition=partition)
    joined: Joined = experiment.partition
    homes = {name: node for name, (node, _) in found.items()}
    ids = {name: joined.client(name) for name in joined.names}
    _note_nodes(folder, joined, homes)
    link = Deployment(grid, experiment.to_toml(), job["run"], homes, ids)
    with Flower(workers=len(homes), link=link) as engine:
        try:
            if begun.exists():
                return resume(folder, engine, rounds=job["rounds"] or None, listen=listen)
            return run(experiment, folder, engine, listen=listen)
        except DeviceError as error:
            who = {id: name for name, id in ids.items()}.get(error.device, error.device)
            raise WayfareError(f"node {who!r}: {error}") from error


def gather(
    grid: Any, experiment: Experiment, count: int, wanted: tuple[str, ...], wait: float, listen: Listener
) -> dict[str, tuple[int, Guest]]:
    """Wait until so many nodes have come, or those that are wanted; by name."""
    found: dict[str, tuple[int, Guest]] = {}
    heard: set[int] = set()
    classes, text = digest_of(experiment.task), experiment.to_toml()
    need = len(wanted) or count
    end = time.monotonic() + wait
    while len(found) < need:
        new = sorted(set(grid.get_node_ids()) - heard)
        for node, guest in sorted(greet(grid, new, text, max(1.0, end - time.monotonic())).items()):
            heard.add(node)
            problem = _problem(guest, classes, found, wanted)
            if problem:
                listen("warning", {"text": f"node {node} does not take part: {problem}"})
            elif isinstance(guest, Guest):
                found[guest.name] = node, guest
                listen("node", {"name": guest.name, "samples": guest.samples, "found": len(found), "need": need})
        if len(found) < need and time.monotonic() > end:
            missing = f": {', '.join(sorted(set(wanted) - set(found)))} did not" if wanted else ""
            raise ConfigError(
                f"{len(found)} of {need} nodes came within {wait:.0f} s{missing}. Start them with `wayfare federate "
                "join`, or raise --wait"
            )
        time.sleep(_LOOK if len(found) < need else 0)
    return found


def _problem(guest: Any, classes: str, found: dict[str, tuple[int, Guest]], wanted: tuple[str, ...]) -> str:
    if not isinstance(guest, Guest):
        return str(guest.reason)
    if guest.classes != classes:
        return f"{guest.name!r} means other classes, or words, than the server's data"
    if guest.name in found:
        return f"there is another {guest.name!r}: start it with another --as"
    if wanted and guest.name not in wanted:
        return f"{guest.name!r} was not there when this run began"
    return ""


def _note_nodes(folder: Path, joined: Joined, homes: dict[str, int]) -> None:
    """For `wayfare federate status`."""
    rows = [
        {"device": joined.client(name), "name": name, "samples": size, "node": str(homes.get(name, ""))}
        for name, size in zip(joined.names, joined.sizes)
    ]
    disk.write(folder / "flower" / "nodes.json", json.dumps(rows, indent=1).encode())
