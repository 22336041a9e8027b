"""Experiment: the specification of a run. TOML <-> this; it is rebuilt from its text on every node.

Its parts are independent, so not all of them fit each other: what does not fit is refused here, saying why.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wayfare.clients import Clients
from wayfare.components import allow_code, build, chosen_settings, code_of, find, name_of, parts_of, settings_of
from wayfare.core.clock import Clock, Timetable
from wayfare.core.device import Bench
from wayfare.core.errors import ConfigError, unknown
from wayfare.core.exchange import Exchange
from wayfare.core.memory import Memories
from wayfare.core.protocols import (
    AS_IS,
    Compression,
    Evaluation,
    MergeRule,
    Partition,
    Policy,
    Population,
    Strategy,
    Task,
    Topology,
    Training,
)
from wayfare.core.seeds import rng_for
from wayfare.partition.heterogeneity import by_main_class
from wayfare.partition.random import Random
from wayfare.partition.split import Split, VirtualSplit, load_split
from wayfare.privacy.attacks import Attack
from wayfare.ranges import EVERY_ROUND, NO_FRACTION, RANGES
from wayfare.recipe import COMPONENTS, DEFAULTS, OF_TASK, as_table, override, read_table, table_lines, toml
from wayfare.strategies.fedavg import FedAvg
from wayfare.topologies.server import Server

SECTIONS = (*COMPONENTS, "training", "evaluation", "policy")
_LOOKED_AT = 5000  # clients, to see who can train
_PLAIN = ("name", "seed", "rounds", "device")


@dataclass(frozen=True)
class Experiment:
    """Everything that determines a result."""

    task: Task = field(default_factory=lambda: find("task", "objects")())
    partition: Partition = field(default_factory=lambda: Random(10))
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
    privacy: MergeRule | None = None  # differential privacy
    robust: MergeRule | None = None  # what replaces the mean where devices may lie
    attack: Attack | None = None  # devices that do lie, to try the others against
    compression: Compression | None = None  # how models are written on their way
    clock: Clock | None = None  # virtual time, for devices that are not alike

    def __post_init__(self) -> None:
        if self.exchange is None and self.topology.meets:
            object.__setattr__(self, "exchange", find("exchange", "fedtour")())
        if self.clock is None and self.topology.overlaps:
            object.__setattr__(self, "clock", find("clock", "drawn")())
        allow_code(*self.code())  # whoever made these objects has run their code already; the workers must be able to
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
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigError(f"not a readable recipe: {error}") from error

    @classmethod
    def from_table(cls, table: dict[str, Any], name: str = "") -> Experiment:
        """From nested tables."""
        parts: dict[str, Any] = {}
        sections = {"training": Training, "evaluation": Evaluation, "policy": Policy}
        plain = {"rounds", "seed", "name", "device"}
        tables = {*COMPONENTS, *sections, *OF_TASK}
        table = _with_parts(table)
        for key, value in table.items():
            if key in tables:
                settings = as_table(key, value)
                parts[key] = build(sections[key], settings, key) if key in sections else _component(key, settings)
            elif key in plain:
                parts[key] = value
            elif key not in ("cells", "about", "paper", "small"):  # what `wayfare reproduce` reads
                raise unknown("setting", key, {*tables, *plain, "cells", "about"}, "recipe")
        settings = {key: parts.pop(key) for key in list(parts) if key in plain}
        scalars = build(_Scalars, settings, "recipe")
        return cls(**parts, rounds=scalars.rounds, seed=scalars.seed, name=scalars.name or name, device=scalars.device)

    def to_toml(self) -> str:
        """The whole specification, every default written out; `from_toml` gives the same experiment."""
        lines = [f"{key} = {toml(getattr(self, key))}" for key in _PLAIN]
        for section in SECTIONS:
            part = getattr(self, section)
            if part is None:
                continue
            name = {"name": name_of(section, part)} if section in COMPONENTS else {}
            settings = settings_of(part)
            if section == "task":
                for key in OF_TASK:
                    if key in parts_of(type(part)):
                        lines += table_lines(key, _named(settings.pop(key)))
            lines += table_lines(section, name | settings)
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

    def code(self) -> set[str]:
        """The classes of the user's own that it is made of, as `package.module:Name`."""
        parts = {section: part for section in COMPONENTS if (part := getattr(self, section)) is not None}
        names = {name_of(section, part) for section, part in parts.items()}
        return {name for name in names if ":" in name}.union(*map(code_of, parts.values()))

    def with_seed(self, seed: int) -> Experiment:
        """The same experiment with other random numbers."""
        return replace(self, seed=seed)

    # ---- who takes part

    def split(self) -> Population:
        """Draw the partition."""
        labels, source = self.task.labels, self.partition.source
        dealt = self.task.source(source)
        if dealt is None and source == "files":
            raise ConfigError("this partition needs data that is files: this data has none")
        dealt = np.zeros(self.task.samples, np.int64) if dealt is None else dealt
        rng = rng_for(self.seed, "partition")
        if reserved := len(self.reserved()):
            if source != "labels":
                raise ConfigError(
                    f"the topology reserves {reserved} samples, which a partition by {source} cannot leave out"
                )
            kept = np.setdiff1d(np.arange(self.task.samples), self.reserved())
            split: Population = _moved(self.partition(dealt[kept], rng), kept)
        else:
            split = self.partition(dealt, rng)
        wanted = self.topology.needs_groups and split.groups is None
        if wanted and labels is not None and isinstance(split, Split):
            return by_main_class(split, labels, self.task.classes)  # the data brings no other groups
        return split

    def able(self, split: Population) -> tuple[Population, dict[str, str]]:
        """The clients of a split that can train, and why each of the others never can.

        Of very many clients none is looked at; and if not one could train, all stay, so that the run says why.
        """
        if self.strategy.pooled or self.topology.meets or len(split) > _LOOKED_AT or not isinstance(split, Split):
            return split, {}
        if self.aggregation.private:  # how many clients there are is public, so it may not depend on what they have
            return split, {}
        if split.provenance.get("rule") == "joined":  # its samples are on the devices
            return split, {}
        clients = self.clients(split)
        ids = [split.id(place) for place in range(len(split))]
        reasons = {id: self.task.cannot_train(clients.client(id).train) for id in ids}
        unable = {id: why for id, why in reasons.items() if why}
        if not unable or len(unable) == len(ids):
            return split, {}
        return split.select([place for place, id in enumerate(ids) if id not in unable]), unable

    def reserved(self) -> np.ndarray:
        """Samples of the pool that the topology keeps for itself (public pictures, say): no client gets them."""
        count = self.topology.reserve
        if not count:
            return np.empty(0, np.int64)
        if count >= self.task.samples:
            raise ConfigError(f"the topology reserves {count} samples, but the task has only {self.task.samples}")
        return rng_for(self.seed, "reserved").permutation(self.task.samples)[:count]

    def clients(self, split: Population) -> Clients:
        """Training and validation clients of this split."""
        return Clients(split, self.evaluation, self.seed, self.strategy.pooled, self.topology.meets)

    def timetable(self, clients: Clients) -> Timetable | None:
        """How long devices take, if there is a clock."""
        if self.clock is None:
            return None

        def steps(device: str) -> int:
            one_pass = self.task.steps_in_pass(clients.client(device), self.training.batch_size)
            return max(1, self.strategy.steps(self.training, one_pass))

        return Timetable(self.clock, self.clock.devices(self.seed), steps)

    @property
    def aggregation(self) -> MergeRule:
        """What stands between the gate and the strategy's merge."""
        return self.privacy or self.robust or MergeRule()

    @property
    def where(self) -> str:
        """The torch device."""
        if self.device != "auto":
            return self.device
        return "cuda" if torch.cuda.is_available() else "cpu"

    def bench(self, folder: Path) -> Bench:
        """What a process needs to act as any device of the run in this folder."""
        file = folder / "partition.safetensors"
        clients = self.clients(load_split(file.read_bytes()) if file.exists() else self.split())
        memories = Memories(folder / "memory")
        return Bench(
            self.task,
            self.strategy,
            training=self.training,
            population=clients.population,
            clients=clients.client,
            seed=self.seed,
            memories=memories,
            where=self.where,
            compression=self.compression or AS_IS,
            guard=self.aggregation.guard(folder),
        )


@dataclass(frozen=True)
class _Scalars:
    rounds: int = 10
    seed: int = 0
    name: str = ""
    device: str = "auto"


def _moved(split: Population, kept: np.ndarray) -> Population:
    """A split of some samples as one of the whole pool."""
    if isinstance(split, VirtualSplit):
        split = split.drawn()
    if not isinstance(split, Split):
        raise ConfigError("a topology that reserves samples needs a partition that lists each client's samples")
    return Split(split.offsets, kept[split.indices], split.provenance | {"samples": None}, split.groups, split.numbers)


# ---- TOML


def _with_parts(table: dict[str, Any]) -> dict[str, Any]:
    """The tables with [data] and [model] in [task], whose parts they are."""
    own = {key: table[key] for key in OF_TASK if key in table}
    task = as_table("task", table.get("task", {}))
    if inside := [key for key in OF_TASK if key in task]:
        parts = parts_of(find("task", task.get("name") or DEFAULTS["task"]))
        for key in inside:
            if key in parts:
                raise ConfigError(f"task.{key} has moved: it is {key}.name now, in a table [{key}]")
    if not own:
        return table
    return {key: value for key, value in table.items() if key not in OF_TASK} | {"task": task | own}


def _component(kind: str, settings: dict[str, Any]) -> Any:
    name = settings.pop("name", None) or DEFAULTS[kind]
    if not isinstance(name, str):
        raise ConfigError(f"{kind}.name = {name!r}: expected text")
    cls = find(kind, name)
    return build(cls, settings, f"{kind} {name!r}", ["name"], cls.moved if kind == "task" else None)


def _named(part: Any) -> dict[str, Any]:
    return part if isinstance(part, dict) else {"name": part}


# ---- what fits and what does not


def _check_fit(e: Experiment) -> None:
    strategy, task, topology = type(e.strategy).__name__, type(e.task).__name__, type(e.topology).__name__
    missing = e.strategy.requires - e.task.provides
    if missing:
        raise ConfigError(
            f"{strategy} needs {_listed(missing)}, which {task} does not provide (it has {_listed(e.task.provides)})"
        )
    if topology.lower() not in e.strategy.topologies and ":" not in name_of("topology", e.topology):
        fits = _listed(e.strategy.topologies)
        raise ConfigError(f"{strategy} does not run on the topology {topology.lower()!r}; it runs on {fits}")
    if e.exchange is not None and not e.topology.meets:
        raise ConfigError(f"[exchange] is for devices that meet, topology 'encounters'; this is {topology.lower()!r}")
    _check_aggregation(e)
    _check_clock(e)
    if e.partition.source not in e.task.sources:
        rule = name_of("partition", e.partition)
        raise ConfigError(f"the partition {rule!r} divides by {e.partition.source}, which {task} does not have")


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _check_aggregation(e: Experiment) -> None:
    if e.privacy is not None and e.robust is not None:
        raise ConfigError(
            "[privacy] and [robust] do not go together: one client can move a robust mean by more than it can move a "
            "sum of clipped changes, and the noise is calibrated for the sum. Choose one"
        )
    if e.privacy is not None and e.evaluation.validation_clients:
        raise ConfigError(
            f"evaluation.validation_clients = {e.evaluation.validation_clients}: their metrics would be published "
            "without noise. With [privacy] set it to 0 and judge the model on the test set"
        )
    if e.privacy is not None and e.task.counted:
        raise ConfigError(
            "[privacy] devices would count relations before the first round, and the ledger does not know what that "
            "costs: choose a model and a debiasing that need no counts, or leave [privacy] out"
        )
    if e.compression is not None and (reason := e.compression.misfit(e.strategy, e.topology)):
        raise ConfigError(f"[compression] {reason}")
    if reason := e.aggregation.misfit(e.strategy, e.topology) or e.aggregation.task_misfit(e.task):
        raise ConfigError(f"[{'privacy' if e.privacy is not None else 'robust'}] {reason}")


def _check_clock(e: Experiment) -> None:
    topology = name_of("topology", e.topology)
    if e.clock is not None and (reason := e.clock.misfit(e.strategy, e.topology)):
        raise ConfigError(f"[clock] {reason}")
    if e.clock is not None and e.privacy is not None:
        raise ConfigError("[privacy] and [clock] do not go together: how long a round takes tells who was asked")
    if e.clock is not None and e.clock.weak and e.attack is not None:
        raise ConfigError("[attack] does not go with clock.weak: weak devices send a part of the model only")
    if e.topology.overlaps and e.attack is not None:
        raise ConfigError(
            f"[attack] does not go with the topology {topology!r}: attacks know what the honest devices of a round "
            "were sent, and here each may have been sent another model"
        )
    if e.topology.overlaps and e.robust is not None and topology == "async":
        raise ConfigError("[robust] needs several replies in a merge, and 'async' has one: use topology 'buffered'")


def _check_ranges(e: Experiment) -> None:
    v, allowed = e.evaluation, RANGES | ({"rounds": EVERY_ROUND} if e.topology.meets else {})
    for name, span in allowed.items():
        section, _, key = name.rpartition(".")
        value = getattr(getattr(e, section) if section else e, key)
        if not span.holds(value):
            raise ConfigError(f"{name} = {value} is out of range: expected {span}")
    if NO_FRACTION.holds(e.policy.max_ratio):
        raise ConfigError(f"policy.max_ratio = {e.policy.max_ratio} is out of range: expected 0, or at least 1")
    if min(e.training.drops, default=1) < 1:
        raise ConfigError(f"training.drops = {list(e.training.drops)}: expected rounds, each at least 1")
    if v.patience and not v.monitor:
        raise ConfigError("evaluation.patience needs evaluation.monitor, the metric to watch")
    if e.device.partition(":")[0] not in ("auto", "cpu", "cuda"):
        raise unknown("device", e.device, ("auto", "cpu", "cuda"))
    if e.where.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError("device = 'cuda', but torch finds no CUDA device here; use 'auto' or 'cpu'")
