"""A trained place model, taken out of its run: a network, how pictures are brought to it, and a name for both.

The name (`Model.digest`) is made of everything that changes descriptors: all weights, frozen ones too, the scaling of
pixels, the size of pictures and the way features are pooled. Descriptors are only comparable under one name.
"""

from __future__ import annotations

import hashlib
import json
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch

from wayfare.components import build, find
from wayfare.core.bundle import Bundle, digest, load_into
from wayfare.core.device import seed_torch
from wayfare.core.seeds import seed_for
from wayfare.data.images import decode_all
from wayfare.data.pictures import Skipped
from wayfare.errors import ConfigError, StoreError
from wayfare.experiment import Experiment
from wayfare.reports.record import Record
from wayfare.tasks.nets.descriptor import Descriptor
from wayfare.tasks.places import Places

_FORM = 1  # of pictures on their way to the network: raise it when the same file comes to give another descriptor
_SETTINGS = ("architecture", "cnn_width", "pooling", "l2", "linear", "height", "width")
_CHUNK = 256  # photographs in memory at a time


@dataclass(frozen=True)
class Model:
    """A network in evaluation mode, and its task."""

    name: str  # of the run that trained it
    recipe: str  # the experiment as TOML
    task: Places
    net: Descriptor

    @cached_property
    def digest(self) -> str:
        """The name under which descriptors are comparable."""
        weights = {**self.net.state_dict(), "(mean)": self.net.mean, "(deviation)": self.net.deviation}
        facts = [_FORM, digest(weights), *(getattr(self.task, name) for name in _SETTINGS)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    @property
    def title(self) -> str:
        """For messages that name one model beside another."""
        return f"{self.digest[:12]} ({self.name})"

    @cached_property
    def experiment(self) -> Experiment:
        return Experiment.from_toml(self.recipe)

    def pack(self) -> bytes:
        """One file from which `unpack` makes the model again, without its run."""
        return Bundle({"network": self.net.state_dict()}, {"recipe": self.recipe, "name": self.name}).pack()


@dataclass(frozen=True)
class Described:
    """Some photographs: those that could be read, as places in the list asked for, and the others with a reason."""

    kept: np.ndarray
    descriptors: np.ndarray  # float32 (n, D)
    skipped: list[Skipped]
    decoding: float  # seconds
    embedding: float


def load_model(run: Path | str, device: str = "auto") -> Model:
    """The model of a finished run of the task places."""
    found = trained(run, Places, "only models of 'places' find places", "an index")
    net = untrained(found.experiment)
    if not isinstance(net, Descriptor):
        raise ConfigError(f"{run}: the strategy makes a {type(net).__name__} of the network, not a Descriptor")
    load_into(net, found.weights)
    return Model(found.record.name, found.record.recipe, found.task, _ready(net, device))


Kind = TypeVar("Kind")


class Trained(NamedTuple, Generic[Kind]):
    """What a finished run left."""

    record: Record
    experiment: Experiment
    task: Kind
    weights: dict[str, torch.Tensor]


def trained(run: Path | str, task: type[Kind], only: str, product: str) -> Trained[Kind]:
    """What a finished run of a task left, verified; `only` and `product` are said of a run that will not do."""
    folder = Path(run)
    record = Record.read(folder)
    if not record.finished:
        raise StoreError(f"{folder} has no result yet, {record.done} rounds are done: `wayfare resume {folder}` first")
    experiment = Experiment.from_toml(record.recipe)
    if not isinstance(experiment.task, task):
        raise ConfigError(f"{folder} is a run of {record.component('task')!r}: {only}")
    if experiment.strategy.personal:
        raise ConfigError(
            f"{folder}: {record.component('strategy')!r} trains a model for each client, and none for all; "
            f"{product} needs the one model of a run with fedavg, centralised, ..."
        )
    file = folder / "model.safetensors"
    try:
        weights = Bundle.unpack(file.read_bytes())["model"]
    except (OSError, StoreError, KeyError) as error:
        raise StoreError(f"{file}: the model cannot be read: {error}; restore it, or run again") from error
    if digest(weights) != record.model_sha256:
        raise StoreError(f"{file} is not the model that summary.json speaks of: it is damaged, or of another run")
    return Trained(record, experiment, experiment.task, weights)


def untrained(experiment: Experiment) -> torch.nn.Module:
    """The network that the experiment began with, into which its weights can be loaded."""
    with torch.random.fork_rng(devices=[]):
        seed_torch(seed_for(experiment.seed, "network"), torch.device("cpu"))  # frozen layers may be random ones
        return experiment.strategy.prepare(experiment.task, experiment.task.network())


def unpack(file: Path, device: str = "auto") -> Model:
    """What `Model.pack` wrote."""
    try:
        bundle = Bundle.unpack(file.read_bytes())
        recipe = str(bundle.values["recipe"])
        settings = tomllib.loads(recipe)["task"]
        task = build(find("task", settings.pop("name")), settings, "task")
        with torch.random.fork_rng(devices=[]):
            net = replace(task, weights="random").network()  # all weights are in the file
        net.load_state_dict(bundle["network"])
    except (OSError, StoreError, ConfigError, KeyError, AttributeError, RuntimeError, tomllib.TOMLDecodeError) as error:
        raise StoreError(f"{file}: the model cannot be read: {error}; restore it, or make the index again") from error
    return Model(str(bundle.values.get("name", "")), recipe, task, _ready(net, device))


def describe(model: Model, files: Sequence[Path]) -> Iterator[Described]:
    """Descriptors of picture files, part by part; the next part is decoded meanwhile."""

    def decoded(start: int) -> tuple[np.ndarray, np.ndarray, list[Skipped], float]:
        began = time.perf_counter()
        size = (model.task.height, model.task.width)
        images, kept, skipped = decode_all(files[start : start + _CHUNK], size)
        return images, start + kept, skipped, time.perf_counter() - began

    starts = range(0, len(files), _CHUNK)
    with ThreadPoolExecutor(1) as ahead:
        coming = [ahead.submit(decoded, start) for start in starts[:1]]
        for number in range(len(starts)):
            images, kept, skipped, decoding = coming.pop().result()
            coming += [ahead.submit(decoded, start) for start in starts[number + 1 : number + 2]]
            began = time.perf_counter()
            descriptors = model.task.describe(model.net, images)
            yield Described(kept, descriptors, skipped, decoding, time.perf_counter() - began)


def _ready(net: Descriptor, device: str) -> Descriptor:
    where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    return net.to(where).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload, no-any-return]
