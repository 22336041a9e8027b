"""A peer from a recipe and a folder of photographs."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wayfare.clients import hold_out
from wayfare.components import name_of
from wayfare.core.bundle import digest
from wayfare.core.device import Bench
from wayfare.core.errors import ConfigError
from wayfare.core.gate import Gate
from wayfare.core.locks import folder_held
from wayfare.core.memory import Memories
from wayfare.core.protocols import Client, Task
from wayfare.encounters.alone import LoneDevice, Parts
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.encounters.scenario import limit_of
from wayfare.encounters.topology import Encounters
from wayfare.engines.local import Local
from wayfare.experiment import Experiment
from wayfare.io.address import Address
from wayfare.io.cache import cache_dir
from wayfare.io.outside import settings_outside
from wayfare.meeting.diary import BUDGET, Diary
from wayfare.meeting.discovery import GivenAddresses, Mdns, PeerLink
from wayfare.meeting.identity import Credentials, Identity, Pins
from wayfare.meeting.peer import Habits, MeetingPeer
from wayfare.meeting.published import PublishedRecord
from wayfare.partition.split import Split


@dataclass(frozen=True, kw_only=True)
class MeetingPlan:
    """Who meets, with what."""

    experiment: Experiment
    photos: Path | None  # None: signage that holds none
    name: str
    home: Path
    listen: Address
    peers: tuple[Address, ...] = ()
    probe: Path | None = None  # pictures that say how good a model is; None: its own held-out ones
    discover: bool = False
    signage: bool = False
    strangers: bool = True
    invited: Credentials | None = None
    published: PublishedRecord | None = None
    trusts: tuple[str, ...] = ()  # names of devices whose published record is believed
    new_day: bool = False  # another budget, for the model that there is
    meetings: int = 0
    slot: float = 0.0  # seconds; 0: the recipe's
    deadline: float = 120.0


@contextmanager
def opened(plan: MeetingPlan, notify: Callable[[str], None] = print) -> Iterator[MeetingPeer]:
    """The peer, ready to run: trained, if this is its first start; else as it was after its last step."""
    experiment = plan.experiment
    settings = experiment.topology
    if not isinstance(settings, Encounters) or experiment.exchange is None:
        raise ConfigError(
            f"the topology {name_of('topology', settings)!r} has no meetings: set topology.name = 'encounters'"
        )
    if settings.base_iterations:
        raise ConfigError("topology.base_iterations needs public pictures: start from model.weights instead")
    for option, folder in (("--photos", plan.photos), ("--probe", plan.probe)):
        if folder is not None and not folder.is_dir():
            raise ConfigError(f"{option} {folder}: no such folder")
    if plan.signage == (plan.photos is not None):
        raise ConfigError(
            "signage holds no photos: give --photos to a device that trains, or --signage to one that does not"
        )
    if plan.invited is not None:
        _check_files(plan)
    plan.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.ExitStack() as stack:
        stack.enter_context(folder_held(plan.home))  # two processes would send with one budget
        identity = Identity(plan.home, plan.name)
        identity.settle(plan.invited)
        parts = _parts(plan, settings, lambda: stack.enter_context(Local()))
        diary = Diary(plan.home, identity.key)
        known = diary.load(parts.initial)
        if known is None and not plan.signage:
            notify(f"training on {len(parts.client.train)} samples of {plan.photos}")
        device = LoneDevice(parts, known, plan.published.ends if plan.published else None)
        _begin_day(plan, device, diary, is_first=known is None)
        links: list[PeerLink] = [GivenAddresses(plan.peers), *([Mdns(plan.listen)] if plan.discover else [])]
        for link in links:
            stack.enter_context(link)
        habits = Habits(
            listen=plan.listen, slot=plan.slot or settings.slot, deadline=plan.deadline, meetings=plan.meetings,
            about=_about(parts, experiment), trusts=plan.trusts,
        )  # fmt: skip
        pins = Pins(plan.home / "known.json", identity.key, plan.strangers)
        yield MeetingPeer(identity, pins, device, diary, habits, notify=notify, links=links)


def _check_files(plan: MeetingPlan) -> None:
    """Refuse an invitation whose recipe reads other files of this machine than its owner has named."""
    own = [folder for folder in (plan.photos, plan.probe) if folder is not None]
    for name, text in settings_outside(plan.experiment, [*own, cache_dir()]):
        raise ConfigError(
            f"the invitation's recipe names a file of this machine: {name} = {text!r}. A device reads its photos and "
            f"Wayfare's cache, {cache_dir().resolve()}: what all devices need, such as weights, belongs there"
        )


def _begin_day(plan: MeetingPlan, device: LoneDevice, diary: Diary, is_first: bool) -> None:
    """The first day, or another one: with what was published, or else with what was heard on the day before."""
    if plan.new_day and not is_first:
        diary.record = plan.published or diary.record_of_day()
        diary.day += 1
        device.begin_anew(diary.record.ends if diary.record else None)
    elif plan.published:
        diary.record = plan.published
    if is_first or plan.new_day:
        diary.begin_day(float(device.state.columns["score"][0]))
        diary.save(device.state)


def _parts(plan: MeetingPlan, settings: Encounters, engines: Callable[[], Local]) -> Parts:
    """The device on its own folder, and what it measures models with."""
    experiment, exchange, nothing = plan.experiment, plan.experiment.exchange, np.empty(0, np.int64)
    if exchange is None or (folder := plan.photos or plan.probe) is None:
        raise ConfigError("signage needs --probe, pictures to test models on")
    task = _task(experiment, folder)
    everything = np.arange(task.samples)
    client = Client(plan.name, nothing, nothing)
    if not plan.signage:
        client = hold_out(plan.name, everything, experiment.evaluation.holdout, experiment.seed)
    bench = _bench(plan, task, client)
    gate = measures = _gates(plan, engines(), bench, len(everything))
    probe = client.holdout
    if plan.probe is not None:
        other = _task(experiment, plan.probe)
        probe = np.arange(other.samples)
        measures = _gates(plan, engines(), _bench(plan, other, Client(plan.name, nothing, nothing)), len(probe))
        if other.terms != task.terms:
            raise ConfigError(f"{plan.probe} and {folder} have different classes: set data.names in the recipe")
    if exchange.scored and not len(probe):
        raise ConfigError("nothing to test models on: set evaluation.holdout, or give --probe DIR")
    return Parts(
        id=plan.name,
        task=task,
        strategy=experiment.strategy,
        exchange=exchange,
        initial=experiment.strategy.start(task, bench.loaded(0, bench.initial)),
        client=client,
        gate=gate,
        measures=measures,
        probe=probe,
        tells_labels=not (isinstance(exchange, FedTour) and exchange.predict_with in ("regressor", "chance")),
        limit=limit_of(exchange.limit, settings.signage_limit if plan.signage else 0),
        stationary=plan.signage,
        iterations=0 if plan.signage else settings.iterations,
    )


def _task(experiment: Experiment, folder: Path) -> Task:
    task = experiment.task.on_folder(str(folder))
    if task is None:
        raise ConfigError("the task of this recipe reads no folder: choose data with a path, as data.name = 'folder'")
    task.prepare(lambda text, done, total: None)
    return task


def _bench(plan: MeetingPlan, task: Task, client: Client) -> Bench:
    experiment = plan.experiment
    return Bench(
        task,
        experiment.strategy,
        training=experiment.training,
        population=Split.from_parts([np.arange(task.samples)], {"rule": "own"}),
        clients=lambda id: client,
        seed=experiment.seed,
        memories=Memories(plan.home / "memory"),
        where=experiment.where,
    )


def _gates(plan: MeetingPlan, engine: Local, bench: Bench, most: int) -> Callable[[int], Gate]:
    engine.open("", str(plan.home), lambda: bench)
    return lambda round: Gate(engine, plan.experiment.policy, round, size_of=lambda id: max(1, most))


def _about(parts: Parts, experiment: Experiment) -> str:
    """The same on devices whose models can be merged: same base model, same classes, same strategy."""
    words = [*parts.task.terms, digest(parts.initial["model"]), repr(experiment.strategy)]
    return hashlib.sha256("\0".join(words).encode(errors="surrogatepass")).hexdigest()


def budget(peer: MeetingPeer) -> dict[str, int]:
    """What the device has sent and taken, and what it still may."""
    columns = peer.device.state.columns
    return {name: int(columns[name][0]) for name in BUDGET}
