"""What is learnt: data, network, loss and metric. A task knows nothing of federation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from torch import Tensor, nn

from wayfare.core.bundle import Weights
from wayfare.core.values import ANY_METRIC, Kind

if TYPE_CHECKING:
    from wayfare.core.protocols.population import Population


@dataclass(frozen=True)
class Client:
    """What one device holds: positions in the task's pool of samples."""

    id: str
    train: np.ndarray
    holdout: np.ndarray


@dataclass(frozen=True)
class SampleFiles:
    """The files of a task's pool of samples, in their order, as names below a folder."""

    root: Path
    files: tuple[str, ...]


@dataclass
class Batch:
    """A step's samples; `labels` are class numbers (B,) or multi-hot rows (B, C), None where a task has none."""

    inputs: Any
    labels: Tensor | None = None
    rows: Tensor | None = None  # places among the client's training samples, where a task says them


@dataclass
class Output:
    """What a network says: one feature tensor per view ("image", "text", ...), and logits where there are classes."""

    features: dict[str, Tensor]
    logits: Tensor | None = None
    extra: Tensor | None = None  # a loss that the network brings itself


Extra = Callable[[Output, Batch], Tensor]
"""A term that a strategy adds to the task's loss."""


Progress = Callable[[str, int, int], None]
"""Told how far long work is: what is done, how much of it, of how much."""


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


class Data:
    """Where samples come from: a frozen dataclass of settings, one for each layout, with no network or loss in sight.

    Each task says in a class of its own, which extends this one, what `load` must give it.
    """

    def load(self, progress: Progress) -> Any:
        """Read the samples; what takes long reports to `progress`."""
        raise NotImplementedError

    def on_folder(self, path: str) -> Self | None:
        """The same layout in a device's own folder, of which nothing is held back to test with; None if it has none."""
        return None


class Model:
    """What is trained: a frozen dataclass of settings. Each task says in a class of its own how its network is made."""

    def missing_files(self) -> list[str]:
        """Files that the settings name and that do not exist, such as weights."""
        return []


class Task:
    """Data, network, loss, metric. Inherit from it: what has a body here is a default."""

    sources: ClassVar[frozenset[str]] = frozenset({"labels"})
    """What partitions can divide the samples by: `labels`, or what `source(name)` gives."""
    finished: ClassVar[str] = "wayfare.finished:FinishedRun"
    """What `wayfare.load` makes of a finished run: a class that extends this one and says what it offers."""
    moved: ClassVar[Mapping[str, str]] = {}
    """Settings that an earlier version had in the task, and where they are now."""

    @property
    def provides(self) -> frozenset[str]:
        """What strategies and topologies may rely on: "features", "classes", "codes", "tally", "heads"."""
        return frozenset()

    # ---- data

    @property
    def classes(self) -> tuple[str, ...]:
        return ()

    @property
    def samples(self) -> int:
        """The size of the pool that partitions divide."""
        raise NotImplementedError

    @property
    def labels(self) -> np.ndarray | None:
        """One class per sample of the pool; None where a sample has none, or several."""
        return None

    def source(self, name: str) -> Any:
        """What a partition with this `source` divides the samples by."""
        return self.labels

    def describe_split(self, split: Population) -> dict[str, Any]:
        """What to show of a split beside sizes and labels, ready for JSON; its "table" has further columns."""
        return {}

    def read(self, progress: Progress) -> None:
        """Read the samples, so that it is known whether they fit the settings before `prepare` takes long."""

    def save_split(self, split: Population, path: Path) -> bool:
        """Write a split in a form that this task's field uses, if the path's name asks for it; False if not."""
        return False

    def prepare(self, progress: Progress) -> None:
        """Do what takes long before the first round: read pictures, compute features of frozen layers."""

    @property
    def skipped(self) -> list[dict[str, str]]:
        """Files that were left out, and why."""
        return []

    def missing_files(self) -> list[str]:
        """Files that the settings name and that do not exist, such as weights."""
        return []

    def data_digest(self) -> dict[str, int | str]:
        """What tells these samples from others, by part, at little cost: a run that is resumed compares it.

        Files and folders that settings name are digested beside it: see `manifest.py`.
        """
        labels = self.labels
        found: dict[str, int | str] = {"samples": self.samples, "classes": _sha256("\n".join(self.classes).encode())}
        return found if labels is None else found | {"labels": _sha256(np.ascontiguousarray(labels).tobytes())}

    # ---- devices that have only their own folder

    def fixed(self) -> Self:
        """The same task with what its data decides, such as class names, written into its settings."""
        return self

    def on_folder(self, path: str) -> Self | None:
        """The same task on a device's own folder; None if the task reads no folder."""
        return None

    def among(self, examples: int) -> Self:
        """The same task on a device of a federation that has this many examples in all."""
        return self

    @property
    def terms(self) -> tuple[str, ...]:
        """What must be the same on every device: by default the classes."""
        return self.classes

    # ---- learning

    def network(self) -> nn.Module:
        raise NotImplementedError

    def views(self, net: nn.Module) -> dict[str, int]:
        """The width of the features of each view."""
        raise NotImplementedError

    def steps(
        self, net: nn.Module, client: Client, batch_size: int, memo: dict[str, Any], rng: np.random.Generator
    ) -> Iterator[Batch]:
        """One local pass. A generator, so that mining or alternating phases can sit between its yields."""
        raise NotImplementedError

    def steps_in_pass(self, client: Client, batch_size: int) -> int:
        """How many steps one local pass takes, as far as that is known beforehand: a [clock] plans with it."""
        return -(-len(client.train) // batch_size)

    def cannot_train(self, samples: np.ndarray) -> str:
        """Why a client that has these samples of the pool can never train; "" if it can."""
        return "" if len(samples) else "it holds nothing to train on"

    def forward(self, net: nn.Module, batch: Batch) -> Output:
        raise NotImplementedError

    def loss(self, output: Output, batch: Batch, memo: dict[str, Any]) -> Tensor:
        raise NotImplementedError

    def scan(self, net: nn.Module, client: Client) -> Iterator[Batch]:
        """The client's training samples once, in order."""
        raise NotImplementedError

    # ---- counts that devices contribute once, before the first round

    @property
    def counted(self) -> bool:
        """Whether the network begins with counts over all devices: `core/counting.py` asks for them."""
        return False

    @property
    def about_counts(self) -> str:
        """What a device's counts tell about it, in words."""
        return ""

    def counts(self, client: Client) -> Weights:
        """What this client counts among its training samples; of a client without samples, zeros in the same form."""
        return {}

    def blurred(self, counts: Weights, rng: np.random.Generator) -> Weights:
        """The counts as a device sends them: as they are, or with noise."""
        return counts

    def counts_fault(self, counts: Weights, examples: int) -> str:
        """Why these cannot be the counts of so many samples; "" if they can."""
        return ""

    def adopt_counts(self, net: nn.Module, sums: Weights) -> None:
        """Put the sums over all devices into the untrained network."""

    def baseline(self, sums: Weights) -> dict[str, float]:
        """What the counts alone score on the test set, with nothing trained; metrics for the first line of a run."""
        return {}

    # ---- evaluation

    @property
    def protocol(self) -> str:
        """What the figures on the test set mean, in words."""
        return ""

    @property
    def metrics(self) -> Mapping[str, Kind]:
        """Names and ranges of what `evaluate` gives; a device's reply with anything else is refused.

        By default any 100 finite numbers, none beyond 1e9 in size, with names of at most 64 letters, digits and signs.
        """
        return ANY_METRIC

    def evaluate(self, net: nn.Module, samples: np.ndarray | None) -> dict[str, float]:
        """Metrics on these samples of the pool, or on the task's own test set."""
        raise NotImplementedError

    def evaluate_client(self, net: nn.Module, client: Client, samples: np.ndarray) -> dict[str, float]:
        """Metrics of a client's model by these of its own samples, or by what the task deals to a client like it."""
        return self.evaluate(net, samples)

    by_sample: ClassVar[bool] = False
    """Whether the loss of a batch is the mean over its samples, each of which can be a batch alone."""

    @property
    def told(self) -> str:
        """What a trained model tells of all clients' data beside its weights: a vocabulary, say; "" if nothing."""
        return ""

    @property
    def warnings(self) -> list[str]:
        """What speaks against these settings: told when a run begins."""
        return []

    def alarm(self, now: dict[str, float], start: dict[str, float]) -> str:
        """What to tell the user of a run whose metrics were `start` before training; "" if nothing."""
        return ""

    def doubt(self, now: dict[str, float], start: dict[str, float]) -> str:
        """What to tell the user at the end of a run that has learnt nothing, as "no better than chance"; "" if it has.

        `now` are the metrics of the model, `start` those before training; both are called `test/accuracy` and so on.
        """
        return ""

    def tally(self, net: nn.Module, samples: np.ndarray | None, limit: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Right and all answers per class; for tasks that provide "tally"."""
        raise NotImplementedError

    def tally_many(
        self, heads: Tensor, biases: Tensor, samples: np.ndarray | None = None, limit: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """`tally` of many linear heads at once; for tasks that provide "heads"."""
        raise NotImplementedError


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
