"""Pairs of an image and a text small enough to compute by hand: two linear encoders, z = W x, of `bits` numbers each.

The loss of a view is mean(|z - target|^2) / 2, over images first and then over texts, as hashing alternates. With the
targets that the encoders begin at, only a strategy's terms move them. Lab of toy.py makes a federation of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.components import parts_of
from wayfare.core.protocols import Batch, Client, Output, Progress, Task
from wayfare.hashing.data.base import PairData, PairFiles
from wayfare.hashing.data.pairs import Paired
from wayfare.hashing.task import Hashing
from wayfare.io.findings import Problems

VIEWS = ("image", "text")


def pair_data(name: str, path: Path | str = "", **settings: Any) -> PairData:
    """The data of this name, as a recipe's [data] gives it."""
    place = {"path": str(path)} if str(path) else {}
    found: PairData = parts_of(Hashing)["data"].find(name, "data")(**place, **settings)
    return found


def load_pairs(
    name: str,
    path: Path | str = "",
    *,
    size: tuple[int, int] = (224, 224),
    progress: Progress = lambda *_: None,
    strict: bool = False,
    **settings: Any,
) -> Paired:
    """Its pairs; if `strict`, the first problem of its files is raised."""
    data = pair_data(name, path, **settings)
    if strict:
        assert isinstance(data, PairFiles)
        data.read(Path(path), Problems(strict=True))
    return data.load(progress, size)


class Line(nn.Module):
    """One hash layer, and nothing before it."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.hash = nn.Linear(start.shape[1], len(start), bias=False)
        with torch.no_grad():
            self.hash.weight.copy_(start)


class Encoders(nn.Module):
    """What hashing's networks offer, and no more."""

    def __init__(self, starts: dict[str, Tensor]) -> None:
        super().__init__()
        self.image, self.text = (Line(starts[view]) for view in VIEWS)
        self.bits = len(starts["image"])

    def encode(self, view: str, inputs: Tensor) -> Tensor:
        raw: Tensor = getattr(self, view).hash(inputs)
        return raw

    def enhance(self, view: str, raw: Tensor) -> Tensor:
        return raw


@dataclass(frozen=True, eq=False)
class Pairs(Task):
    """Pairs with labels; `passes` notes the size of every batch that goes through a network without a gradient."""

    inputs: dict[str, Tensor]
    hot: Tensor
    targets: dict[str, Tensor]
    starts: dict[str, Tensor]
    passes: list[int] = field(default_factory=list)

    provides: ClassVar[frozenset[str]] = frozenset({"features", "classes", "codes"})

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(f"class {i}" for i in range(self.hot.shape[1]))

    @property
    def samples(self) -> int:
        return len(self.hot)

    @property
    def labels(self) -> np.ndarray | None:
        return self.hot.argmax(1).numpy()

    def network(self) -> nn.Module:
        return Encoders(self.starts)

    def views(self, net: nn.Module) -> dict[str, int]:
        return {view: len(self.starts[view]) for view in VIEWS}

    def steps(
        self, net: nn.Module, client: Client, batch_size: int, memo: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[Batch]:
        for view in VIEWS:
            order = rng.permutation(len(client.train))
            for at in range(0, len(order), batch_size):
                yield self.batch(client, order[at : at + batch_size], view)

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        for at in range(0, len(client.train), 3):
            yield self.batch(client, np.arange(at, min(at + 3, len(client.train))), *VIEWS)

    def batch(self, client: Client, rows: np.ndarray, *views: str) -> Batch:
        at = torch.from_numpy(client.train[rows])
        inputs = {view: (self.inputs[view][at], self.targets[view][at]) for view in views}
        return Batch(inputs, self.hot[at], torch.from_numpy(rows))

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        if not torch.is_grad_enabled():
            self.passes.append(len(batch.labels))
        return Output({view: net.encode(view, x) for view, (x, _) in batch.inputs.items()})

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        errors = [(z - batch.inputs[view][1]).square().sum(1).mean() / 2 for view, z in output.features.items()]
        return torch.stack(errors).sum()

    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        everything = Client("", np.arange(self.samples) if samples is None else samples, np.empty(0, np.int64))
        batch = self.batch(everything, np.arange(len(everything.train)), *VIEWS)
        with torch.no_grad():
            return {"loss": float(self.loss(self.forward(net, batch), batch, {}))}


def pairs(
    images: Sequence[tuple[float, float]], texts: Sequence[tuple[float, float]], hot: Sequence[Any], *counts: int
) -> tuple[Pairs, list[np.ndarray]]:
    """Two bits; the encoders are the identity and begin where they should end."""
    inputs = {"image": torch.tensor(images).float(), "text": torch.tensor(texts).float()}
    starts = {view: torch.eye(2) for view in VIEWS}
    parts = [np.arange(a, b) for a, b in pairwise(np.cumsum([0, *counts]))]
    return Pairs(inputs, torch.tensor(hot).float(), inputs, starts), parts


@dataclass(frozen=True)
class Drawn(Pairs):
    """Random pairs, described by a few numbers only, so that a recipe can name them."""

    inputs: dict[str, Tensor] = field(init=False, repr=False, compare=False)
    hot: Tensor = field(init=False, repr=False, compare=False)
    targets: dict[str, Tensor] = field(init=False, repr=False, compare=False)
    starts: dict[str, Tensor] = field(init=False, repr=False, compare=False)
    passes: list[int] = field(init=False, default_factory=list, repr=False, compare=False)
    count: int = 96
    kinds: int = 6
    bits: int = 8
    seed: int = 1

    def __post_init__(self) -> None:
        made = torch.Generator().manual_seed(self.seed)
        kind = torch.arange(self.count) % self.kinds
        hot = torch.eye(self.kinds)[kind]
        for name, value in (
            ("hot", hot),
            ("inputs", {v: hot @ torch.randn(self.kinds, 10, generator=made) for v in VIEWS}),
            ("targets", dict.fromkeys(VIEWS, hot @ torch.randn(self.kinds, self.bits, generator=made))),
            ("starts", {v: 0.3 * torch.randn(self.bits, 10, generator=made) for v in VIEWS}),
        ):
            object.__setattr__(self, name, value)
        for view in VIEWS:
            self.inputs[view].add_(0.5 * torch.randn(self.count, 10, generator=made))

    @cached_property
    def parts(self) -> list[np.ndarray]:
        """Three clients, unlike in size and in what they hold."""
        order = np.argsort(self.labels, kind="stable")
        return [np.sort(order[:40]), np.sort(order[30:50]), np.sort(order[50:])]
