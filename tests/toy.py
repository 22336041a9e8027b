"""A federation small enough to compute by hand: least squares, z = W x, with the loss mean(|z - y|^2) / 2.

With one input that is always 1 and one output it is a point on a line: loss (w - a)^2 / 2, gradient w - a.
It is a whole task, and everything else (bench, device, engine, gate, topology) is the real thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.core.bundle import Bundle, digest
from wayfare.core.clock import ALWAYS, Clock, Devices, Pace, Timetable, Window
from wayfare.core.device import Bench, Device
from wayfare.core.federation import Federation, Round
from wayfare.core.memory import Memories
from wayfare.core.protocols import Batch, Client, Engine, Output, Policy, Strategy, Task, Topology, Training
from wayfare.engines.local import Local as LocalEngine
from wayfare.topologies.server import Server

torch.set_num_threads(1)  # as on every device
ONE_BATCH = 10_000  # a batch size that makes every local pass one step


class Net(nn.Module):
    """z = W x; a norm only looks at z, so that there are buffers and the numbers stay simple."""

    def __init__(self, start: Tensor, norm: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(start.clone())
        self.norm = nn.BatchNorm1d(len(start), affine=False) if norm else None

    def forward(self, x: Tensor) -> Tensor:
        z = x @ self.weight.T
        if self.norm is not None:
            self.norm(z.detach())
        return z


@dataclass(frozen=True, eq=False)
class Toy(Task):
    """Samples x -> y, with labels where a strategy wants some."""

    x: Tensor
    y: Tensor
    start: Tensor
    labels_: Tensor | None = None
    norm: bool = False
    names: tuple[str, ...] = ("a", "b", "c")

    provides: ClassVar[frozenset[str]] = frozenset({"features", "classes"})

    @property
    def classes(self) -> tuple[str, ...]:
        return self.names

    @property
    def samples(self) -> int:
        return len(self.x)

    @property
    def labels(self) -> np.ndarray | None:
        return None if self.labels_ is None or self.labels_.ndim > 1 else self.labels_.numpy()

    def network(self) -> nn.Module:
        return Net(self.start, self.norm)

    def views(self, net: nn.Module) -> dict[str, int]:
        return {"z": len(self.start)}

    def steps(
        self, net: nn.Module, client: Client, batch_size: int, memo: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[Batch]:
        order = rng.permutation(client.train)
        for at in range(0, len(order), batch_size):
            yield self.batch(order[at : at + batch_size])

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        for at in range(0, len(client.train), 2):
            yield self.batch(client.train[at : at + 2])

    def batch(self, samples: np.ndarray) -> Batch:
        at = torch.from_numpy(np.asarray(samples))
        return Batch((self.x[at], self.y[at]), None if self.labels_ is None else self.labels_[at])

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        z = net(batch.inputs[0])
        return Output({"z": z}, z)

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        return (output.features["z"] - batch.inputs[1]).square().sum(1).mean() / 2

    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        batch = self.batch(np.arange(self.samples) if samples is None else samples)
        with torch.no_grad():
            return {"loss": float(self.loss(self.forward(net, batch), batch, {}))}


@dataclass
class People:
    """Clients c0, c1, ... with these samples."""

    parts: Sequence[np.ndarray]
    groups: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.parts)

    def id(self, position: int) -> str:
        return f"c{position}"

    def find(self, id: str) -> int | None:
        return int(id[1:])

    def size(self, position: int) -> int:
        return len(self.parts[position])

    @property
    def sizes(self) -> np.ndarray:
        return np.array([len(part) for part in self.parts])

    def client(self, id: str) -> Client:
        return Client(id, self.parts[int(id[1:])], np.empty(0, np.int64))

    def size_of(self, id: str) -> int:
        return len(self.parts[int(id[1:])])


def line(*targets: Sequence[float], start: float = 0.0) -> tuple[Toy, list[np.ndarray]]:
    """A task with one weight, and per client the values a that its samples pull it to."""
    values = [a for part in targets for a in part]
    edges = np.cumsum([0, *(len(part) for part in targets)])
    parts = [np.arange(a, b) for a, b in pairwise(edges)]
    y = torch.tensor(values, dtype=torch.float32).view(-1, 1)
    return Toy(torch.ones(len(values), 1), y, torch.full((1, 1), start)), parts


def plane(
    samples: Sequence[tuple[float, float]], labels: Sequence[Any], *counts: int, norm: bool = False
) -> tuple[Toy, list[np.ndarray]]:
    """A task in two dimensions that begins where it should end, W = I and y = x: only a strategy's term moves it."""
    x = torch.tensor(samples, dtype=torch.float32)
    edges = np.cumsum([0, *counts])
    parts = [np.arange(a, b) for a, b in pairwise(edges)]
    return Toy(x, x.clone(), torch.eye(2), torch.tensor(labels), norm), parts


def cloud(
    *sizes: int, inputs: int = 5, outputs: int = 3, norm: bool = True, seed: int = 1
) -> tuple[Toy, list[np.ndarray]]:
    """Random samples, labels and start: for identities, where no number is simple."""
    made = torch.Generator().manual_seed(seed)
    total = sum(sizes)
    x, y = torch.randn(total, inputs, generator=made), torch.randn(total, outputs, generator=made)
    start, labels = torch.randn(outputs, inputs, generator=made), torch.randint(0, 3, (total,), generator=made)
    edges = np.cumsum([0, *sizes])
    return Toy(x, y, start, labels, norm), [np.arange(a, b) for a, b in pairwise(edges)]


@dataclass
class Lab:
    """A federation whose every part can be looked at."""

    toy: tuple[Toy, list[np.ndarray]]
    strategy: Strategy
    folder: Path
    training: Training = Training(lr=0.5, batch_size=ONE_BATCH)
    seed: int = 0
    groups: Sequence[str] | None = None
    policy: Policy = Policy(quorum=1.0, on_error="raise")  # nothing goes wrong unseen
    engine: Engine | None = None  # instead of the local one
    timetable: Timetable | None = None  # with a clock
    people: People = field(init=False)
    bench: Bench = field(init=False)

    def __post_init__(self) -> None:
        self.task, parts = self.toy
        self.people = People(parts, self.groups)
        memories = Memories(self.folder)
        self.bench = Bench(
            self.task,
            self.strategy,
            self.training,
            population=self.people,
            clients=self.people.client,
            seed=self.seed,
            memories=memories,
        )

    def start(self) -> Bundle:
        return self.strategy.start(self.task, self.bench.loaded(0, self.bench.initial))

    def federation(self, engine: Engine, rounds: int) -> Federation:
        return Federation(
            strategy=self.strategy, population=self.people, engine=engine, policy=self.policy, seed=self.seed,
            rounds=rounds, size_of=self.people.size_of, task=self.task, timetable=self.timetable,
        )  # fmt: skip

    def play(
        self, rounds: int = 1, topology: Topology | None = None, first: int = 1, state: Bundle | None = None
    ) -> list[Round]:
        """Rounds `first` to `rounds`, from the start or from a state."""
        topology = topology or Server()
        with LocalEngine() as local:
            local.open("", "", lambda: self.bench)
            federation = self.federation(self.engine or local, rounds)
            topology.check(len(self.people))
            state = state or topology.start(federation, self.start())
            return list(topology.rounds(federation, state, first))

    def device(self, id: str = "c0", round: int = 1) -> Device:
        """A device with the memory it has at the beginning of this round."""
        return self.bench.device(id, round, round - 1)

    def memory(self, id: str, round: int) -> Bundle:
        """What a device remembers after this round."""
        return self.bench.memories.load(id, round) or Bundle()


class Listed(Devices):
    """Devices c0, c1, ... that take so many seconds for a step, and no time to send."""

    def __init__(self, *seconds: float, windows: Mapping[str, Sequence[Window]] | None = None) -> None:
        self.seconds, self.windows = seconds, windows or {}
        self.always = not self.windows

    def pace(self, device: str) -> Pace:
        return Pace(1 / self.seconds[int(device[1:])], up=float("inf"), down=float("inf"))

    def window(self, device: str, time: float) -> Window:
        return next((each for each in self.windows.get(device, [ALWAYS]) if each[1] > time), ALWAYS)


def timetable(*seconds: float, steps: int = 1, windows: Any = None, **settings: Any) -> Timetable:
    """Of devices that take so long for a step."""
    return Timetable(Clock(**settings), Listed(*seconds, windows=windows), lambda device: steps)


def weight(bundle: Bundle, section: str = "model") -> float:
    """The one weight of a line."""
    return float(bundle[section]["weight"])


def bits(bundle: Bundle) -> dict[str, str]:
    """Every section down to the last bit."""
    return {section: digest(weights) for section, weights in bundle.tensors.items()}


def scalar(value: float) -> dict[str, Tensor]:
    """The weights of a line."""
    return {"weight": torch.full((1, 1), float(value))}


def reply(value: float, n: int = 1, **sections: float) -> Bundle:
    """A line's reply, with further sections of the same form."""
    return Bundle({"model": scalar(value), **{name: scalar(v) for name, v in sections.items()}}, {"n": n})
