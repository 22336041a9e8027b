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
from wayfare.encounters.policies import Plain
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.encounters.topology import Encounters
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
    at_most: bool = False  # whether the traffic is what the run may send, where nobody knows who will meet

    def text(self) -> str:
        time = (
            f"about {human_seconds(float(f'{self.seconds:.2g}'))} of computing" if self.seconds else "time not measured"
        )
        traffic = f"{'at most ' if self.at_most else ''}{human_bytes(self.traffic)} of traffic in all"
        return (
            f"{time} in one process, {human_bytes(self.memory)} of memory for each process, "
            f"{traffic} ({human_bytes(self.message)} a message)"
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
    steps, evaluations = _steps(experiment, split), _evaluations(experiment)
    meets = experiment.topology if isinstance(experiment.topology, Encounters) else None
    if meets is not None:
        exchanged = len(split) * _most_taken(experiment, len(split))
        seconds = (len(split) * steps + exchanged * meets.iterations) * step + evaluations * len(split) * judging
        return RunEstimate(seconds, _memory(), reply.nbytes, exchanged * reply.nbytes, at_most=True)
    asked = _asked(experiment, len(split)) * experiment.rounds
    return RunEstimate(asked * steps * step + evaluations * judging, _memory(), reply.nbytes, asked * 2 * reply.nbytes)


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


def _most_taken(experiment: Experiment, devices: int) -> int:
    """How many models a device takes at most where devices meet."""
    exchange = experiment.exchange
    limit = exchange.limit if isinstance(exchange, FedTour | Plain) and exchange.limit >= 0 else 2 * devices
    return limit // 2


def _asked(experiment: Experiment, clients: int) -> int:
    """How many devices a round asks."""
    return (experiment.topology.per_round if isinstance(experiment.topology, Server) else 0) or clients


def _evaluations(experiment: Experiment) -> int:
    every = experiment.evaluation.every
    return 8 if experiment.topology.meets else 1 + experiment.rounds // every if every else 0


def _memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
