"""A tour small enough to follow on paper: a model is one number, its accuracy is that number, and merging halves.

Every device brings its number: the strategy's `client` gives it instead of training. The task counts `100 * w` right
answers of 100, so that accuracies are exact in hundredths as long as the numbers are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from wayfare import Evaluation, Experiment
from wayfare.components import allow_code
from wayfare.core.bundle import Bundle
from wayfare.core.device import Device
from wayfare.core.exchange import Columns, Meeting, MergeOutcome
from wayfare.core.protocols import Batch, Client, Output, Task
from wayfare.encounters.policies.always import Always
from wayfare.encounters.topology import Encounters
from wayfare.partition.random import Random
from wayfare.strategies.fedavg import FedAvg


class Number(nn.Module):
    """One number."""

    feature_dim = 1

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))


@dataclass(frozen=True)
class Numbers(Task):
    """A model is as good as its number says, on every picture."""

    size: int = 40

    provides: ClassVar[frozenset[str]] = frozenset({"features", "classes", "tally"})
    classes: ClassVar[tuple[str, ...]] = ("a", "b")

    @property
    def samples(self) -> int:
        return self.size

    @property
    def labels(self) -> np.ndarray:
        return np.arange(self.size) % 2

    def network(self) -> nn.Module:
        return Number()

    def views(self, net: nn.Module) -> dict[str, int]:
        return {"x": 1}

    def steps(self, net: nn.Module, client: Client, batch_size: int, memo: Any, rng: np.random.Generator) -> Any:
        yield Batch(torch.ones(1))

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        return Output({"x": batch.inputs * net.w})

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        return (output.features["x"] - 1).square().sum() / 2  # a step of lr 0.1 takes w to w + 0.1 (1 - w)

    def scan(self, net: nn.Module, client: Client) -> Any:
        yield Batch(torch.ones(1))

    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        return {"accuracy": float(net.w.detach().clamp(0, 1))}

    def tally(self, net: nn.Module, samples: np.ndarray | None, limit: int = 0) -> tuple[np.ndarray, np.ndarray]:
        right = int(np.rint(10_000 * float(net.w.detach().clamp(0, 1))))
        return np.array([right, 0]), np.array([10_000, 0])


@dataclass(frozen=True)
class Given(FedAvg):
    """Device ck brings the k-th of these hundredths, and does not train unless it is told how often."""

    hundredths: tuple[int, ...] = (10, 30, 60)

    def client(self, device: Device, message: Bundle) -> Bundle:
        if message.number("iterations"):
            return super().client(device, message)
        number = self.hundredths[int(device.id[1:])] / 100
        return Bundle({"model": {"w": torch.tensor([number])}}, {"n": len(device.client.train), "loss": 0.0})


@dataclass(frozen=True)
class Broken(Given):
    """The same, but this device's first model is not a number."""

    device: str = "c1"

    def client(self, device: Device, message: Bundle) -> Bundle:
        reply = super().client(device, message)
        return reply if device.id != self.device else reply.with_(model={"w": torch.tensor([math.nan])})


@dataclass(frozen=True)
class LongWay(Given):
    """The same, but its merging might be more than a mean, for all that anybody can know."""

    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle:
        return super().merge(state, replies)


@dataclass(frozen=True)
class Picky(Always):
    """Asks everybody, looks, and keeps nothing."""

    scored: ClassVar[bool] = True

    def accept(self, columns: Columns, outcome: MergeOutcome) -> np.ndarray:
        return np.zeros(len(outcome.me), bool)


class Hopeful:
    """Predicts the better of the two accuracies: too much, as a merge gives their mean."""

    def __init__(self, laboratory: object) -> None:
        pass

    def predict(self, mine: np.ndarray, meeting: Meeting) -> np.ndarray:
        return np.maximum(mine, meeting.score)


HOPEFUL = "tour_parts:Hopeful"
allow_code("tour_parts")


def written(folder: Path, contacts: Sequence[tuple[int, int, int]]) -> str:
    """Contacts (slot, one, other) as a list with a slot of 30 s."""
    file = folder / "contacts.dat"
    file.write_text("".join(f"{30 * slot} {one} {other}\n" for slot, one, other in contacts))
    return str(file)


def tour(
    folder: Path, contacts: Sequence[tuple[int, int, int]], exchange: Any, hundredths: tuple[int, ...] = (10, 30, 60),
    task: Task | None = None, strategy: Any = None, **settings: Any,
) -> Experiment:  # fmt: skip
    """A tour over these contacts. Devices are numbered in the order in which the list names them."""
    return Experiment(
        task or Numbers(), Random(len(hundredths)), strategy or Given("uniform", hundredths),
        Encounters(written(folder, contacts), **{"probe": 2, "judge": 2, **settings}), exchange=exchange,
        evaluation=Evaluation(every=1000, holdout=0.0), rounds=0,
    )  # fmt: skip


def columns_of(folder: Path) -> dict[str, np.ndarray]:
    """The columns after the last slot of a run."""
    last = sorted((folder / "checkpoints").glob("*.safetensors"))[-1]
    return {name: column.numpy() for name, column in Bundle.unpack(last.read_bytes())["columns"].items()}


def events_of(folder: Path) -> list[dict[str, Any]]:
    """What happened in each slot."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [line["events"] for line in lines if "events" in line]
