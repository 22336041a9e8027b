"""An experiment as a node sees it: the same, on the node's own folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from wayfare.components import name_of
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Task
from wayfare.experiment import Experiment
from wayfare.io.cache import cache_dir
from wayfare.partition.joined import Joined


def check_federable(experiment: Experiment) -> None:
    """Refuse what real devices with folders of their own cannot do."""
    if experiment.task.on_folder("") is None:
        raise ConfigError(
            f"the task {name_of('task', experiment.task)!r} of this recipe reads no folder, but each device has its "
            "own: choose data with a path, for instance data.name = 'folder'"
        )
    if experiment.strategy.pooled:
        raise ConfigError(
            "this strategy collects all samples in one place, but in a federation they stay on the devices"
        )
    if name_of("topology", experiment.topology) != "server":
        raise ConfigError(
            f"the topology {name_of('topology', experiment.topology)!r} runs in a simulation only; "
            "a federation over Flower is a server and its devices: topology.name = 'server'"
        )


def settled(experiment: Experiment) -> Experiment:
    """The same with all that the server's data decides written out, so that devices without it mean the same."""
    return replace(experiment, task=experiment.task.fixed())


def own(experiment: Experiment, photos: str) -> Experiment:
    """The experiment on this folder."""
    check_federable(experiment)
    task = experiment.task.on_folder(photos)
    mine = experiment if task is None else replace(experiment, task=task)
    allowed = [Path(photos).resolve(), cache_dir().resolve()]
    for name, text in _paths(mine):
        if not any(Path(text).expanduser().resolve().is_relative_to(each) for each in allowed):
            raise ConfigError(
                f"the server's recipe names a file of this machine: {name} = {text!r}. A node reads its photos and "
                f"Wayfare's cache, {allowed[1]}: files for all runs, such as weights, belong there"
            )
    return mine


def _paths(part: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Settings that lead out of the current folder, by name."""
    for field in fields(part):
        value, full = getattr(part, field.name), f"{name}.{field.name}".lstrip(".")
        if is_dataclass(value):
            yield from _paths(value, full)
        elif isinstance(value, str | Path):
            path = Path(value)
            if path.is_absolute() or ".." in path.parts or str(value).startswith("~"):
                yield full, str(value)


def checked(experiment: Experiment, name: str) -> Experiment:
    """What this device takes part in, if it is one of its devices and has what it had when it joined."""
    partition = experiment.partition
    if not isinstance(partition, Joined) or name not in partition.names:
        raise ConfigError(f"{name!r} has not joined this run")
    then, now = partition.sizes[partition.names.index(name)], experiment.task.samples
    if then != now:
        raise DataError(
            f"{now} samples, and {then} when this device joined",
            remedy="restore the folder, or start a new run",
        )
    return replace(experiment, task=experiment.task.among(sum(partition.sizes)))


def digest_of(task: Task) -> str:
    """The same on every device, if they mean the same by the numbers of classes, words and whatever there is."""
    return hashlib.sha256("\0".join(task.terms).encode(errors="surrogatepass")).hexdigest()
