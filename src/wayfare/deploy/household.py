"""An experiment as a node sees it: the same, on the node's own folder."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from wayfare.components import name_of
from wayfare.data.partition.joined import Joined
from wayfare.errors import ConfigError, DataError
from wayfare.experiment import Experiment


def check_federable(experiment: Experiment) -> None:
    """Refuse what real devices with folders of their own cannot do."""
    task: Any = experiment.task
    if not hasattr(task, "path") or getattr(task, "data", "") == "digits":
        raise ConfigError(
            f"the task {name_of('task', task)!r} of this recipe reads no folder, and devices bring theirs: "
            "choose one with task.path, for instance task.data = 'folder'"
        )
    if experiment.strategy.pooled:
        raise ConfigError("this strategy brings all samples to one place, and here they stay where they are")
    if name_of("topology", experiment.topology) != "server":
        raise ConfigError(
            f"the topology {name_of('topology', experiment.topology)!r} runs in a simulation only; "
            "a federation over Flower is a server and its devices: topology.name = 'server'"
        )


def settled(experiment: Experiment) -> Experiment:
    """The same with all that the server's data decides written out, so that devices without it mean the same."""
    task: Any = experiment.task
    return replace(experiment, task=task.settled()) if hasattr(task, "settled") else experiment


def own(experiment: Experiment, photos: str) -> Experiment:
    """The experiment on this folder."""
    check_federable(experiment)
    task: Any = experiment.task
    whole = {"own": True} if hasattr(task, "own") else {}
    return replace(experiment, task=replace(task, path=photos, **whole))


def checked(experiment: Experiment, name: str) -> Experiment:
    """What this device takes part in, if it is one of its devices and has what it had when it joined."""
    partition = experiment.partition
    if not isinstance(partition, Joined) or name not in partition.names:
        raise ConfigError(f"{name!r} has not joined this run")
    then, now = partition.sizes[partition.names.index(name)], experiment.task.samples
    if then != now:
        raise DataError(
            f"{now} samples, and {then} when this device joined",
            file=str(getattr(experiment.task, "path", "")),
            remedy="bring the folder back to what it was, or begin a new run",
        )
    task: Any = experiment.task
    if hasattr(task, "everybody"):
        return replace(experiment, task=replace(task, everybody=sum(partition.sizes)))
    return experiment


def digest_of(task: Any) -> str:
    """The same on every device, if they mean the same by the numbers of classes, words and whatever there is."""
    terms = task.terms if hasattr(task, "terms") else task.classes
    return hashlib.sha256("\0".join(terms).encode(errors="surrogatepass")).hexdigest()
