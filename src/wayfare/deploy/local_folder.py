"""An experiment as a node sees it: the same, on the node's own folder."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from wayfare.components import name_of
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Task
from wayfare.experiment import Experiment
from wayfare.io.cache import cache_dir
from wayfare.io.outside import settings_outside
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
    if experiment.topology.overlaps:
        raise ConfigError(
            f"the topology {name_of('topology', experiment.topology)!r} works in virtual time, in a simulation: real "
            "devices would make another model each time, and a resumed run too (docs/clock.md). Use topology 'server'"
        )
    if experiment.clock is not None:
        raise ConfigError("[clock] simulates how fast devices are, and real ones are as fast as they are: leave it out")
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
    for name, text in settings_outside(mine, [Path(photos), cache_dir()]):
        raise ConfigError(
            f"the server's recipe names a file of this machine: {name} = {text!r}. A node reads its photos and "
            f"Wayfare's cache, {cache_dir().resolve()}: files for all runs, such as weights, belong there"
        )
    return mine


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
