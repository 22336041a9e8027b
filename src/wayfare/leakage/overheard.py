"""A short run of an experiment in which somebody reads what the server sends and receives."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from wayfare.core.bundle import Bundle
from wayfare.core.device import Bench
from wayfare.core.protocols import Failure, Training
from wayfare.engines.local import Local
from wayfare.engines.programs import perform
from wayfare.experiment import Experiment
from wayfare.leakage.classes import ClassesHeld
from wayfare.leakage.figures import Finding
from wayfare.leakage.membership import Membership
from wayfare.leakage.reconstruction import Reconstruction
from wayfare.runner import run

Hear = Callable[[Bench, str, Bundle, Bundle], None]

CAUTION = (
    "These are plain attacks that train nothing: a figure near its baseline does not show that nothing leaks.",
    "They hold for this experiment: other data, fewer samples or more rounds give other figures.",
)


class Overheard(Local):
    """The local engine with a listener for every reply to `train`."""

    def __init__(self, hear: Hear) -> None:
        super().__init__()
        self._hear = hear

    def open(self, spec: str, folder: str, bench: Callable[[], Bench]) -> None:
        """Serve this experiment from now on."""
        super().open(spec, folder, bench)
        self._devices = bench

    def call(
        self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float
    ) -> Iterator[tuple[str, Bundle | Failure]]:
        for id, message in requests:
            reply = perform(self._devices(), program, id, message, deadline)
            if program == "train" and isinstance(reply, Bundle):
                self._hear(self._devices(), id, message, reply)
            yield id, reply


def measure(experiment: Experiment, rounds: int = 12) -> dict[str, Any]:
    """What the server of this experiment learns in its first rounds; no more than the experiment has."""
    rounds = min(rounds, experiment.rounds) or rounds
    about = {
        "strategy": type(experiment.strategy).__name__.lower(),
        "topology": type(experiment.topology).__name__.lower(),
        "seed": experiment.seed,
        "caution": list(CAUTION),
    }
    why = _why_not(experiment)
    if why:
        nothing = Finding("", "", not_measured=[why]).table()
        names = ("classes", "membership", "reconstruction")
        return about | {"rounds": 0, "replies": 0, **dict.fromkeys(names, nothing)}
    with tempfile.TemporaryDirectory() as folder:
        return about | {"rounds": rounds, **_measured(experiment, rounds, Path(folder) / "run")}


def _why_not(experiment: Experiment) -> str:
    if experiment.strategy.pooled:
        return "this strategy brings all samples to one place: the server has everything"
    if experiment.topology.meets:
        return "devices that meet have no server; whoever receives a device's model can try the same attacks on it"
    return ""


def _measured(experiment: Experiment, rounds: int, folder: Path) -> dict[str, Any]:
    classes, membership = ClassesHeld(), Membership(experiment.seed)
    reconstruction, replies = Reconstruction(experiment.seed), 0

    def hear(bench: Bench, device: str, message: Bundle, reply: Bundle) -> None:
        nonlocal replies
        replies += 1
        for attack in (classes, membership, reconstruction):
            attack.hear(bench, device, message, reply)

    # without evaluation; but what is held out stays, because it decides who trains on what
    silent = replace(experiment.evaluation, every=0, monitor="", patience=0)
    with Overheard(hear) as engine:
        run(replace(experiment, rounds=rounds, evaluation=silent), folder, engine)
        benches = {size: _one_step(experiment, size).bench(folder) for size in _sizes(experiment.training)}
        bench = next(iter(benches.values()))
        trained = None
        if not experiment.strategy.personal:
            trained = Bundle.unpack((folder / "model.safetensors").read_bytes())["model"]
        state = experiment.strategy.start(experiment.task, bench.loaded(0, bench.initial))
        state = Bundle(state.tensors, {**state.values, "population": len(bench.population)})
        return {
            "replies": replies,
            "classes": classes.finding().table(),
            "membership": membership.finding(bench, trained).table(),
            "reconstruction": reconstruction.finding(benches, state).table(),
        }


def _sizes(training: Training) -> list[int]:
    return sorted({1, 4, training.batch_size})


def _one_step(experiment: Experiment, size: int) -> Experiment:
    """The same experiment, in which a device makes one step of plain SGD on so many samples."""
    return replace(experiment, training=Training(iterations=1, batch_size=size, lr=experiment.training.lr))
