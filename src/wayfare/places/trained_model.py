"""A trained place model, taken out of its run: a network, how pictures are brought to it, and a name for both.

The name (`TrainedPlaceModel.digest`) is made of everything that changes descriptors: all weights, frozen ones too, the
scaling of pixels, the size of pictures and the way features are pooled. Descriptors are only comparable under one name.
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

import numpy as np
import torch

from wayfare.components import build, find, settings_of
from wayfare.core.bundle import Bundle, digest, load_into
from wayfare.core.errors import ConfigError, StoreError
from wayfare.experiment import Experiment
from wayfare.io.images import decode_all
from wayfare.io.pictures import Skipped
from wayfare.places.descriptor import Descriptor
from wayfare.places.task import Places
from wayfare.recipe import OF_TASK
from wayfare.trained import trained, untrained

_FORM = 1  # of pictures on their way to the network: raise it when the same file comes to give another descriptor
_SETTINGS = ("backbone", "pooling", "l2", "linear")  # of the model, beside its weights
_CHUNK = 256  # photographs in memory at a time


@dataclass(frozen=True)
class TrainedPlaceModel:
    """A network in evaluation mode, and its task."""

    name: str  # of the run that trained it
    recipe: str  # the experiment as TOML
    task: Places
    net: Descriptor

    @cached_property
    def digest(self) -> str:
        """The name under which descriptors are comparable."""
        weights = {**self.net.state_dict(), "(mean)": self.net.mean, "(deviation)": self.net.deviation}
        settings = settings_of(self.task.model)
        facts = [_FORM, digest(weights), *(settings[name] for name in _SETTINGS), *self.size]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of pictures as the network sees them."""
        return self.task.data.height, self.task.data.width

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


def load_model(run: Path | str, device: str = "auto") -> TrainedPlaceModel:
    """The model of a finished run of the task places."""
    found = trained(run, Places, "only models of 'places' find places", "an index")
    net = untrained(found.experiment)
    if not isinstance(net, Descriptor):
        raise ConfigError(f"{run}: the strategy makes a {type(net).__name__} of the network, not a Descriptor")
    load_into(net, found.weights)
    return TrainedPlaceModel(found.record.name, found.record.recipe, found.task, _ready(net, device))


def unpack(file: Path, device: str = "auto") -> TrainedPlaceModel:
    """What `TrainedPlaceModel.pack` wrote."""
    try:
        bundle = Bundle.unpack(file.read_bytes())
        recipe = str(bundle.values["recipe"])
        task = _task(recipe)
        with torch.random.fork_rng(devices=[]):
            net = replace(task, model=replace(task.model, weights="random")).network()  # all weights are in the file
        net.load_state_dict(bundle["network"])
    except (OSError, StoreError, ConfigError, KeyError, AttributeError, RuntimeError, tomllib.TOMLDecodeError) as error:
        raise StoreError(f"{file}: the model cannot be read: {error}; restore it, or make the index again") from error
    return TrainedPlaceModel(str(bundle.values.get("name", "")), recipe, task, _ready(net, device))


def _task(recipe: str) -> Places:
    """The task of a recipe, whatever else it names: a strategy of the user's own need not be there."""
    tables = tomllib.loads(recipe)
    settings = tables["task"] | {key: tables[key] for key in OF_TASK}
    task = build(find("task", settings.pop("name")), settings, "task 'places'", (), Places.moved)
    if not isinstance(task, Places):
        raise ConfigError("expected a recipe of places")
    return task


def describe(model: TrainedPlaceModel, files: Sequence[Path]) -> Iterator[Described]:
    """Descriptors of picture files, part by part; the next part is decoded meanwhile."""

    def decoded(start: int) -> tuple[np.ndarray, np.ndarray, list[Skipped], float]:
        began = time.perf_counter()
        images, kept, skipped = decode_all(files[start : start + _CHUNK], model.size)
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
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    net.to(chosen).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    return net
