"""What a finished run left: its record, its experiment and its weights, verified; and the network they go into."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import torch

from wayfare.core import disk
from wayfare.core.bundle import Bundle, digest
from wayfare.core.errors import ConfigError, StoreError
from wayfare.core.seeds import seed_for
from wayfare.experiment import Experiment
from wayfare.pages.record import Record

Kind = TypeVar("Kind")


class Trained(NamedTuple, Generic[Kind]):
    """What a finished run left."""

    record: Record
    experiment: Experiment
    task: Kind
    weights: dict[str, torch.Tensor]


def trained(run: str | PathLike[str], task: type[Kind], only: str, product: str) -> Trained[Kind]:
    """What a finished run of a task left, verified; `only` and `product` are said of a run that will not do."""
    folder = Path(run)
    record = Record.read(folder)
    if not record.finished:
        raise StoreError(f"{folder} is not finished ({record.done} rounds done): run `wayfare resume {folder}` first")
    experiment = Experiment.from_toml(record.recipe)
    if not isinstance(experiment.task, task):
        raise ConfigError(f"{folder} is a run of {record.component('task')!r}: {only}")
    if experiment.strategy.personal:
        raise ConfigError(
            f"{folder}: {record.component('strategy')!r} trains a model for each client and no common one; "
            f"{product} needs the one model of a run with fedavg, centralised, ..."
        )
    file = folder / "model.safetensors"
    try:
        weights = Bundle.unpack(disk.read(file))["model"]
    except (OSError, StoreError, KeyError) as error:
        raise StoreError(f"{file}: the model cannot be read: {error}; restore it, or run again") from error
    if digest(weights) != record.weights_sha256:
        raise StoreError(f"{file} is not the model that summary.json names: it is damaged, or from another run")
    return Trained(record, experiment, experiment.task, weights)


def untrained(experiment: Experiment) -> torch.nn.Module:
    """The network that the experiment began with, into which its weights can be loaded."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(experiment.seed, "network"))  # frozen layers may be random ones
        return experiment.strategy.prepare(experiment.task, experiment.task.network())
