"""Experiment: the specification of a run. TOML <-> this; it is rebuilt from its text on every node.

Its parts are independent, so not all of them fit each other: what does not fit is refused here, saying why.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wayfare.components import build, chosen_settings, find, name_of, settings_of
from wayfare.core.device import Bench
from wayfare.core.exchange import Exchange
from wayfare.core.federation import Topology
from wayfare.core.memory import Memories
from wayfare.core.protocols import Client, Policy, Strategy, Task, Training
from wayfare.core.seeds import rng_for
from wayfare.data.partition.heterogeneity import by_main_class
from wayfare.data.partition.random import Random
from wayfare.data.partition.split import Population, Split, load_split
from wayfare.errors import ConfigError, unknown
from wayfare.policies.fedtour import FedTour
from wayfare.strategies.fedavg import FedAvg
from wayfare.tasks.objects import Objects
from wayfare.topologies.server import Server

COMPONENTS = ("task", "partition", "strategy", "topology", "exchange")
SECTIONS = (*COMPONENTS, "training", "evaluation", "policy")
_PLAIN = ("name", "seed", "rounds", "device")
POOLED = "everyone"  # the one client of a pooled strategy


@dataclass(frozen=True)
class Evaluation:
    """When and on what the model is judged."""

    every: int = 1  # rounds between two evaluations; the last round is always evaluated; 0: never
    test: bool = True  # on the task's test set
    clients: int = 20  # on the held-out samples of this many clients (the same ones each time)
    holdout: float = 0.1  # the share of each client's samples that it never trains on
    validation_clients: int = 0  # clients set aside: they never train, all their samples validate
    monitor: str = ""  # the metric to watch, "validation/accuracy" for instance: its best round gives the model
    patience: int = 0  # stop after this many evaluations without a better one; 0: never


@dataclass(frozen=True)
class Experiment:
    """Everything that determines a result."""

    task: Task = field(default_factory=Objects)
    partition: Any = field(default_factory=lambda: Random(10))
    strategy: Strategy = field(default_factory=FedAvg)
    topology: Topology = field(default_factory=Server)
    training: Training = Training()
    evaluation: Evaluation = Evaluation()
    policy: Policy = Policy()
    rounds: int = 10
    seed: int = 0
    name: str = ""
    device: str = "auto"
    exchange: Exchange | None = None  # the policy of devices that meet: for the topology "encounters"

    def __post_init__(self) -> None:
        if self.exchange is None and hasattr(self.topology, "cast"):
            object.__setattr__(self, "exchange", FedTour())
        _check_fit(self)
        _check_ranges(self)

    # ---- TOML

    @classmethod
    def read(cls, path: Path, overrides: dict[str, Any] | None = None) -> Experiment:
        """From a recipe file; `overrides` are dotted keys ("training.lr")."""
        return cls.from_table(override(read_table(path), overrides or {}), path.stem)

    @classmethod
    def from_toml(cls, text: str) -> Experiment:
        """From the text of a recipe."""
        try:
            return cls.from_table(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"not a readable recipe: {error}") from error

    @classmethod
    def from_table(cls, table: dict[str, Any], name: str = "") -> Experiment:
        """From nested tables."""
        parts: dict[str, Any] = {}
        sections = {"training": Training, "evaluation": Evaluation, "policy": Policy}
        plain = {"rounds", "seed", "name", "device"}
        for key, value in table.items():
            if key in (*COMPONENTS, *sections):
                if not isinstance(value, dict):
                    raise ConfigError(f"{key} = {value!r}: a table is wanted, [{key}]")
                parts[key] = build(sections[key], value, key) if key in sections else _component(key, dict(value))
            elif key in plain:
                parts[key] = value
            elif key not in ("cells", "about", "paper", "small"):  # what `wayfare reproduce` reads
                raise unknown("setting", key, {*COMPONENTS, *sections, *plain, "cells", "about"}, "recipe")
        settings = {key: parts.pop(key) for key in list(parts) if key in plain}
        scalars = build(_Scalars, settings, "recipe")
        return cls(**parts, rounds=scalars.rounds, seed=scalars.seed, name=scalars.name or name, device=scalars.device)

    def to_toml(self) -> str:
        """The whole specification, every default written out; `from_toml` gives the same experiment."""
        lines = [f"{key} = {_toml(getattr(self, key))}" for key in _PLAIN]
        for section in SECTIONS:
            part = getattr(self, section)
            if part is None:
                continue
            lines += ["", f"[{section}]"]
            if section in COMPONENTS:
                lines.append(f"name = {_toml(name_of(section, part))}")
            lines += [f"{key} = {_toml(value)}" for key, value in settings_of(part).items()]
        return "\n".join(lines) + "\n"

    def is_in(self, text: str) -> bool:
        """Whether a text is of this experiment. It may be an earlier version's, which had fewer settings."""
        try:
            return Experiment.from_toml(text) == self
        except ConfigError:
            return False

    def chosen(self) -> dict[str, Any]:
        """The settings that are not as by default: new ones of a later version are none of these."""
        parts = {section: part for section in SECTIONS if (part := getattr(self, section)) is not None}
        found = {key: getattr(self, key) for key in _PLAIN}
        for section, part in parts.items():
            if section in COMPONENTS:
                found[f"{section}.name"] = name_of(section, part)
            found |= {f"{section}.{key}": value for key, value in chosen_settings(part).items()}
        return found

    def with_seed(self, seed: int) -> Experiment:
        """The same experiment with other random numbers."""
        return replace(self, seed=seed)

    # ---- who takes part

    def split(self) -> Population:
        """Draw the partition."""
        labels, source = self.task.labels, _source(self.partition)
        dealt = getattr(self.task, source)
        dealt = np.zeros(self.task.samples, np.int64) if dealt is None else dealt
        rng = rng_for(self.seed, "partition")
        if reserved := len(self.reserved()):
            if source != "labels":
                raise ConfigError(
                    f"the topology keeps {reserved} samples back, which a partition of {source} cannot do"
                )
            kept = np.setdiff1d(np.arange(self.task.samples), self.reserved())
            split: Population = _moved(self.partition(dealt[kept], rng), kept)
        else:
            split = self.partition(dealt, rng)
        wanted = getattr(self.topology, "groups", None) == 0 and split.groups is None
        if wanted and labels is not None and isinstance(split, Split):
            return by_main_class(split, labels, self.task.classes)  # the data brings no other groups
        return split

    def reserved(self) -> np.ndarray:
        """Samples of the pool that the topology keeps for itself (public pictures, say): no client gets them."""
        count = int(getattr(self.topology, "reserve", 0))
        if not count:
            return np.empty(0, np.int64)
        if count >= self.task.samples:
            raise ConfigError(f"the topology keeps {count} samples back, but the task has only {self.task.samples}")
        return rng_for(self.seed, "reserved").permutation(self.task.samples)[:count]

    def crowd(self, split: Population) -> Crowd:
        """Training and validation clients of this split."""
        return Crowd(split, self.evaluation, self.seed, self.strategy.pooled, hasattr(self.topology, "cast"))

    @property
    def where(self) -> str:
        """The torch device."""
        if self.device != "auto":
            return self.device
        return "cuda" if torch.cuda.is_available() else "cpu"

    def bench(self, folder: Path) -> Bench:
        """What a process needs to act as any device of the run in this folder."""
        file = folder / "partition.safetensors"
        crowd = self.crowd(load_split(file.read_bytes()) if file.exists() else self.split())
        memories = Memories(folder / "memory")
        return Bench(
            self.task, self.strategy, self.training, crowd.clients, crowd.client, self.seed, memories, self.where
        )


@dataclass(frozen=True)
class _Scalars:
    rounds: int = 10
    seed: int = 0
    name: str = ""
    device: str = "auto"


class Crowd:
    """The clients of an experiment: those that train, those set aside for validation, and what each one holds."""

    def __init__(
        self, split: Population, evaluation: Evaluation, seed: int, pooled: bool, guests: bool = False
    ) -> None:
        self._split, self._evaluation, self._seed, self._pooled = split, evaluation, seed, pooled
        self._guests = guests
        aside = evaluation.validation_clients
        if aside:
            if aside >= len(split):
                raise ConfigError(
                    f"evaluation.validation_clients = {aside} leaves none of {len(split)} clients to train"
                )
            order = rng_for(seed, "validation clients").permutation(len(split))
            self.validation = [split.id(int(i)) for i in order[:aside]]
            self.trained: Population = split.select(np.sort(order[aside:]))
        else:
            self.validation, self.trained = [], split

    @cached_property
    def clients(self) -> Population:
        """Those that the topology asks."""
        return _Everyone(self) if self._pooled else self.trained

    def judges(self) -> list[str]:
        """The clients that judge the model, the same ones every time."""
        count = min(self._evaluation.clients, len(self.trained))
        chosen = rng_for(self._seed, "judges").choice(len(self.trained), count, replace=False)
        return [self.trained.id(int(i)) for i in np.sort(chosen)]

    def client(self, id: str) -> Client:
        """What this client holds, and which part of it is kept from training."""
        if self._pooled and id == POOLED:
            return self._everyone
        if self._is_guest(id):
            return Client(id, np.empty(0, np.int64), np.empty(0, np.int64))
        samples = self._split[self._split.position(id)]
        if id in self.validation:
            return Client(id, samples, samples)
        share = self._evaluation.holdout
        if share == 0 or len(samples) < 5:
            return Client(id, np.sort(samples), np.empty(0, np.int64))
        order = rng_for(self._seed, "holdout", id).permutation(samples)
        kept = max(1, round(share * len(order)))
        return Client(id, np.sort(order[kept:]), np.sort(order[:kept]))

    @cached_property
    def _everyone(self) -> Client:
        parts = [self.client(self.trained.id(i)).train for i in range(len(self.trained))]
        return Client(POOLED, np.unique(np.concatenate(parts)), np.empty(0, np.int64))

    def size_of(self, id: str) -> int:
        """How many samples this client can have trained or judged on."""
        if self._pooled and id == POOLED:
            return int(self.trained.sizes.sum())
        return 0 if self._is_guest(id) else self._split.size(self._split.position(id))

    def _is_guest(self, id: str) -> bool:
        """A device of the topology's own, signage say, holds nothing."""
        return self._guests and self._split.find(id) is None


def _moved(split: Population, kept: np.ndarray) -> Population:
    """A split of some samples as one of the whole pool."""
    if not isinstance(split, Split):
        raise ConfigError(
            "this partition is a rule without drawn samples; a topology that keeps samples back needs those"
        )
    return Split(split.offsets, kept[split.indices], split.provenance | {"samples": None}, split.groups, split.numbers)


class _Everyone(Population):
    """A population of one that has everybody's data."""

    def __init__(self, crowd: Crowd) -> None:
        super().__init__(1, {"rule": "pooled"}, None, None)
        self._crowd = crowd

    def __getitem__(self, i: int) -> np.ndarray:
        return self.pool()

    @property
    def sizes(self) -> np.ndarray:
        return np.array([self._crowd.size_of(POOLED)])

    def pool(self) -> np.ndarray:
        return self._crowd.client(POOLED).train

    def id(self, i: int) -> str:
        return POOLED

    def select(self, positions: Any) -> Population:
        return self

    def _body(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"kind": "pooled"}, {}


# ---- TOML


def read_table(path: Path, readers: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A recipe's tables; errors name file and line. With `base = "other.toml"` it says what differs from that one."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"no recipe {path}: give the path of a TOML file, or a name that `wayfare list recipes` shows"
        ) from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder, not a recipe; to continue a run: wayfare resume {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: not a readable recipe: {error}") from error
    for key in ("cells", "paper", "small"):
        if not isinstance(table.get(key, {}), dict):
            raise ConfigError(f"{path}: {key} = {table[key]!r}: a table is wanted, [{key}]")
    base = table.pop("base", None)
    if base is None:
        return table
    if not isinstance(base, str) or path.resolve() in readers:
        raise ConfigError(f"{path}: base = {base!r}: the name of another recipe beside this one is wanted")
    below = read_table(path.parent / base, (*readers, path.resolve()))
    own: dict[str, Any] = {key: table.pop(key) for key in ("cells", "paper") if key in table}  # not mixed with its
    if "small" in table:
        own["small"] = override(below.get("small", {}), dict(flatten(table.pop("small"))))
    return override(below, dict(flatten(table))) | own


def override(table: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The table with dotted keys replaced. A new component name drops the old one's settings, which are not its own."""
    result = {key: dict(value) if isinstance(value, dict) else value for key, value in table.items()}
    for key, value in sorted(changes.items(), key=lambda item: not item[0].endswith(".name")):
        section, _, name = key.partition(".")
        if not name:
            result[key] = value
            continue
        target = result.setdefault(section, {})
        if not isinstance(target, dict):
            raise ConfigError(f"{key}: {section} is not a table")
        if name == "name" and section in COMPONENTS and target.get("name", _default_name(section)) != value:
            target.clear()
        target[name] = value
    return result


def _default_name(section: str) -> str:
    return "fedtour" if section == "exchange" else name_of(section, getattr(Experiment(), section))


def flatten(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested tables as dotted keys."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _component(kind: str, settings: dict[str, Any]) -> Any:
    name = settings.pop("name", None) or _default_name(kind)
    if not isinstance(name, str):
        raise ConfigError(f"{kind}.name = {name!r}: text is wanted")
    return build(find(kind, name), settings, f"{kind} {name!r}", ["name"])


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return repr(value)


# ---- what fits and what does not


def _check_fit(e: Experiment) -> None:
    strategy, task, topology = type(e.strategy).__name__, type(e.task).__name__, type(e.topology).__name__
    missing = e.strategy.requires - e.task.provides
    if missing:
        raise ConfigError(
            f"{strategy} needs {sorted(missing)}, which {task} does not provide (it has {sorted(e.task.provides)})"
        )
    if topology.lower() not in e.strategy.topologies and ":" not in name_of("topology", e.topology):
        fits = sorted(e.strategy.topologies)
        raise ConfigError(f"{strategy} does not run on the topology {topology.lower()!r}; it runs on {fits}")

    if e.exchange is not None and not hasattr(e.topology, "cast"):
        raise ConfigError(f"[exchange] is for devices that meet, topology 'encounters'; this is {topology.lower()!r}")
    if not hasattr(type(e.task), _source(e.partition)):
        rule = name_of("partition", e.partition)
        raise ConfigError(f"the partition {rule!r} deals out {_source(e.partition)}, which {task} does not have")


def _source(partition: Any) -> str:
    """Which property of the task a partition is called with: its labels, its photographs, ..."""
    return str(getattr(partition, "source", "labels"))


def _check_ranges(e: Experiment) -> None:
    t, v, p = e.training, e.evaluation, e.policy
    for wanted, name, value in [
        (e.rounds >= (0 if hasattr(e.topology, "length") else 1), "rounds", e.rounds),
        (e.seed >= 0, "seed", e.seed),
        (t.epochs >= 1, "training.epochs", t.epochs),
        (t.iterations >= 0, "training.iterations", t.iterations),
        (t.at_most >= 0, "training.at_most", t.at_most),
        (t.batch_size >= 1, "training.batch_size", t.batch_size),
        (t.lr > 0, "training.lr", t.lr),
        (0 < t.decay <= 1, "training.decay", t.decay),
        (0 <= t.momentum < 1, "training.momentum", t.momentum),
        (t.weight_decay >= 0, "training.weight_decay", t.weight_decay),
        (t.clip >= 0, "training.clip", t.clip),
        (v.every >= 0, "evaluation.every", v.every),
        (v.clients >= 0, "evaluation.clients", v.clients),
        (0 <= v.holdout < 1, "evaluation.holdout", v.holdout),
        (v.validation_clients >= 0, "evaluation.validation_clients", v.validation_clients),
        (v.patience >= 0, "evaluation.patience", v.patience),
        (0 <= p.quorum <= 1, "policy.quorum", p.quorum),
        (p.deadline > 0, "policy.deadline", p.deadline),
        (p.max_void >= 1, "policy.max_void", p.max_void),
        (p.max_change > 0, "policy.max_change", p.max_change),
        (p.max_norm > 0, "policy.max_norm", p.max_norm),
        (p.max_examples >= 1, "policy.max_examples", p.max_examples),
    ]:
        if not wanted:
            raise ConfigError(f"{name} = {value} is out of range")
    if v.patience and not v.monitor:
        raise ConfigError("evaluation.patience needs evaluation.monitor, the metric to watch")
    if e.device.partition(":")[0] not in ("auto", "cpu", "cuda"):
        raise unknown("device", e.device, ("auto", "cpu", "cuda"))
    if e.where.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError("device = 'cuda', but torch finds no CUDA device here; use 'auto' or 'cpu'")
