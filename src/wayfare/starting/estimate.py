"""What a run will take: one device does a step here, and what it took is multiplied."""

from __future__ import annotations

import math
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wayfare.core.bundle import Bundle
from wayfare.core.device import Bench
from wayfare.core.errors import DeviceError
from wayfare.core.protocols import Population
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.engines.programs import perform
from wayfare.experiment import Experiment
from wayfare.pages.tables import human_bytes, human_seconds
from wayfare.topologies.server import Server

_STEPS = 3  # of the trial
_TRIED, _LOOKED_AT = 5, 100  # devices that are tried until one trains, of those that are looked at


@dataclass(frozen=True)
class RunEstimate:
    """Time, memory and traffic of a run."""

    seconds: float  # of all rounds in one process
    memory: int  # bytes of a process
    message: int  # bytes of one message to or from a device
    traffic: int  # bytes, up and down, of the whole run

    def text(self) -> str:
        time = f"about {human_seconds(self.seconds)} of computing" if self.seconds else "time not measured"
        return (
            f"{time} in one process, {human_bytes(self.memory)} of memory for each process, "
            f"{human_bytes(self.traffic)} of traffic in all ({human_bytes(self.message)} a message)"
        )


def estimate(experiment: Experiment, split: Population) -> RunEstimate:
    """Train a few steps on one device, evaluate once, and multiply."""
    with tempfile.TemporaryDirectory() as folder:
        bench = experiment.bench(Path(folder))
        state = experiment.strategy.start(experiment.task, bench.loaded(0, bench.initial))
        state = Bundle(state.tensors, {**state.values, "population": len(bench.population)})
        step, reply = _trial(bench, state)
        began = time.process_time()
        experiment.task.evaluate(bench.loaded(0, bench.initial), None)
        judging = time.process_time() - began
    asked, rounds, evaluations = _amounts(experiment, len(split))
    seconds = asked * _steps(experiment, split) * step + evaluations * judging
    return RunEstimate(seconds, _memory(), reply.nbytes, asked * 2 * reply.nbytes if rounds else asked * reply.nbytes)


def _trial(bench: Bench, state: Bundle) -> tuple[float, Bundle]:
    """Seconds of a step, and what a device sends, from one of middle size that can train."""
    sizes = bench.population.sizes
    order = np.argsort(np.abs(sizes - np.median(sizes)), kind="stable")
    named = [bench.population.id(place) for place in order[:_LOOKED_AT].tolist()]
    able = [device for device in named if not bench.task.cannot_train(bench.clients(device).train)]
    for device in able[:_TRIED] or named[:1]:
        message = bench.strategy.send(state, device)
        for steps in (1, _STEPS):  # the first also reads what is kept afterwards
            began = time.process_time()
            request = Bundle(message.tensors, {**message.values, "round": 1, "iterations": steps})
            reply = perform(bench, "train", device, request)
            spent = (time.process_time() - began) / steps
        if isinstance(reply, Bundle):
            return spent, reply
        failure = DeviceError(device, "train", reply.reason, reply.detail)
    raise failure


def _steps(experiment: Experiment, split: Population) -> float:
    """Steps of a client in a round, in the mean."""
    training = experiment.training
    if training.iterations:
        return training.iterations
    steps = training.epochs * np.maximum(1, np.ceil(split.sizes / training.batch_size))
    return float(np.minimum(steps, training.at_most or math.inf).mean())


def _amounts(experiment: Experiment, clients: int) -> tuple[int, int, int]:
    """How often a device is asked, rounds with a server, and evaluations."""
    if experiment.topology.meets:
        limit = experiment.exchange.limit if isinstance(experiment.exchange, FedTour) else clients
        return clients * (1 + limit // 2), 0, 8
    asked = (experiment.topology.per_round if isinstance(experiment.topology, Server) else 0) or clients
    every = experiment.evaluation.every
    return asked * experiment.rounds, experiment.rounds, 1 + experiment.rounds // every if every else 0


def _memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
