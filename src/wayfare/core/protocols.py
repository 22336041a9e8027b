"""The contracts between the parts. `core` knows no task, strategy, topology or engine by name; they know only this.

A *task* knows data, network, loss and metric, and nothing of federation. A *strategy* is both halves of an algorithm.
A *topology* says who talks to whom. An *engine* is the one door between those who ask and the devices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

import numpy as np
from torch import Tensor, nn

from wayfare.core.bundle import Bundle, Weights
from wayfare.core.values import ANY_METRIC, Kind

if TYPE_CHECKING:
    from wayfare.core.device import Bench, Device, GradientGuard
    from wayfare.core.federation import Federation, Round


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


class Strategy(Protocol):
    """A federated algorithm: a frozen dataclass of hyper-parameters. `strategies.fedavg` gives every default."""

    requires: ClassVar[frozenset[str]]
    topologies: ClassVar[frozenset[str]]
    personal: ClassVar[bool]  # every device keeps a model of its own: there is no global one to evaluate
    pooled: ClassVar[bool]  # all data is brought to one place first
    ordered: ClassVar[bool]  # merging in another order gives another result (up to rounding it does not)
    linear: ClassVar[bool]  # `merge` uses nothing of the replies but means or sums of their sections

    @property
    def averages(self) -> bool:
        """Whether `merge` is the plain weighted mean of the models."""

    # the model
    def prepare(self, task: Task, net: nn.Module) -> nn.Module: ...

    # the server
    def start(self, task: Task, net: nn.Module) -> Bundle: ...
    def choose(self, sizes: Sequence[int] | np.ndarray, count: int, rng: np.random.Generator) -> list[int]: ...
    def send(self, state: Bundle, device: str) -> Bundle: ...
    def expects(self, state: Bundle) -> dict[str, Weights]: ...
    def values(self, state: Bundle) -> Mapping[str, Kind]: ...
    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle: ...

    # the client
    def resume(self, device: Device, message: Bundle) -> Weights: ...
    def extra(self, device: Device, net: nn.Module, message: Bundle) -> Extra | None: ...
    def client(self, device: Device, message: Bundle) -> Bundle: ...

    # a server among servers
    def relay(self) -> Strategy: ...
    def report(self, state: Bundle, examples: int) -> Bundle: ...
    def adopt(self, state: Bundle, message: Bundle) -> Bundle: ...


@dataclass(frozen=True)
class MergeContext:
    """What an aggregation knows beside the state and the replies."""

    round: int
    seed: int = 0
    folder: Path = Path()  # of the run
    clients: int = 0  # who could be asked
    expected: int = 0  # how many of them are, on average
    sizes: tuple[int, ...] = ()  # how many samples clients train on, each number once
    training: Training = field(default_factory=lambda: Training())


class MergeRule:
    """What stands between the gate and a strategy's merge: a robust rule, or clipping and noise.

    By default nothing does, and the strategy merges the replies themselves. A frozen dataclass of settings.
    """

    private: ClassVar[bool] = False
    """Single replies leave no trace but through the noise: no metric, count or name of theirs is recorded."""
    unit: ClassVar[str] = ""
    """What the privacy is that of, in words."""

    def misfit(self, strategy: Strategy, topology: Topology) -> str:
        """Why it cannot stand before this strategy; "" if it can."""
        return ""

    def task_misfit(self, task: Task) -> str:
        """Why it cannot be used with this task; "" if it can."""
        return ""

    def check_network(self, net: nn.Module) -> None:
        """Refuse a network that it cannot handle."""

    def guard(self, folder: Path) -> GradientGuard | None:
        """What devices do with the gradients of single samples; `folder` is of the process that trains."""
        return None

    def choose(self, ids: Sequence[str], context: MergeContext) -> list[str] | None:
        """Who is asked in a round; None leaves it to the strategy."""
        return None

    def merge(
        self, strategy: Strategy, state: Bundle, replies: Iterable[tuple[str, Bundle]], context: MergeContext
    ) -> Bundle:
        """The next state."""
        return strategy.merge(state, replies)

    def spent(self, context: MergeContext) -> dict[str, float]:
        """What the rounds so far have cost: epsilon and delta, where there is noise."""
        return {}

    def is_spent(self, context: MergeContext) -> bool:
        """Whether the round of this context, the next one, would cost more than is allowed."""
        return False

    def warnings(self, like: Mapping[str, Weights], context: MergeContext) -> list[str]:
        """What speaks against these settings, of replies like this: told when a run begins."""
        return []

    def check_continued(self, context: MergeContext, rounds: Collection[int]) -> None:
        """Refuse to continue a run of which these rounds are committed and what it keeps of its own is lost."""


class Compression:
    """How a model is written for its way to a device and back. By default as it is. A frozen dataclass of settings."""

    def misfit(self, strategy: Strategy, topology: Topology) -> str:
        """Why it cannot be used with these; "" if it can."""
        return ""

    def pack_message(self, message: Bundle, rng: np.random.Generator) -> Bundle:
        """What travels to a device in place of a message to `train`."""
        return message

    def unpack_message(self, message: Bundle, like: Weights) -> Bundle:
        """On the device: the message again; `like` has the names, shapes and types of the model."""
        return message

    def pack_reply(self, reply: Bundle, message: Bundle, device: Device) -> Bundle:
        """On the device: what travels in place of a reply to `train`, which answers this message."""
        return reply

    def unpack_reply(self, reply: Bundle, message: Bundle) -> Bundle:
        """The reply again, from what came and what was sent."""
        return reply

    def message_bytes(self, message: Bundle) -> int:
        """What a message weighs when it is packed."""
        return message.nbytes

    def reply_bytes(self, reply: Bundle) -> int:
        """What a reply weighs when it is packed."""
        return reply.nbytes


AS_IS = Compression()


@dataclass(frozen=True)
class Failure:
    """A device that gave no reply, and why."""

    reason: str
    detail: str = ""  # the traceback from there, if there was one


Prefetch = Literal["", "evaluation", "commit"]


class Engine:
    """Runs programs on devices. `core/gate.py` asks; nothing else calls it."""

    workers: int = 1
    prefetches: Prefetch = ""
    """Before which part of a round it wants to know the next round's requests; "" if never."""

    def open(self, spec: str, folder: str, bench: Callable[[], Bench]) -> None:
        """Serve this experiment from now on."""

    def set_client_sizes(self, size: Callable[[str], int]) -> None:
        """How many samples each client has: large ones can be started first."""

    def call(
        self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float
    ) -> Iterator[tuple[str, Bundle | Failure]]:
        """Run a program on each device; replies in the order asked, as they become available."""
        raise NotImplementedError

    def bytes_down(self, program: str, message: Bundle) -> int:
        """What a message weighs on its way to a device."""
        return message.nbytes

    def bytes_up(self, program: str, reply: Bundle) -> int:
        """What a reply weighed on its way here."""
        return reply.nbytes

    def prefetch(self, program: str, requests: Iterable[tuple[str, Bundle]], round: int, seconds: float) -> None:
        """Begin what the next `call` will ask; only for engines that say when (`prefetches`)."""

    def finish(self) -> None:
        """The run is over: drop what was prefetched."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of workers and connections."""


class Topology:
    """Who talks to whom: a generator of rounds that continues from any state. Inherit from it, as from `Task`."""

    meets: ClassVar[bool] = False  # devices exchange models with each other: an [exchange] policy is needed
    reserve: int = 0  # samples of the pool that the topology keeps: no client gets them

    @property
    def needs_groups(self) -> bool:
        """Whether clients are to be in the data's own groups."""
        return False

    def check(self, clients: int) -> None:
        """Refuse what cannot be done with this many clients."""

    def length(self, clients: int) -> int | None:
        """All the rounds there are, where that is known; `rounds = 0` then takes all of them."""
        return None

    def doubt(self, lines: Sequence[Mapping[str, Any]]) -> str:
        """What to tell the user of a run in which nothing was exchanged; `lines` are those of its rounds."""
        return ""

    def start(self, federation: Federation, state: Bundle) -> Bundle:
        """The topology's own state around the strategy's."""
        raise NotImplementedError

    def rounds(self, federation: Federation, state: Bundle, first: int) -> Iterator[Round]:
        """The rounds from `first` on."""
        raise NotImplementedError

    def expected(self, federation: Federation) -> int:
        """How many clients are asked in a round, on average; 0 where that is not one number."""
        return 0

    def next_requests(self, federation: Federation, state: Bundle, round: int) -> Iterable[tuple[str, Bundle]] | None:
        """What devices are asked in this round if this is the state before it; None if that is not known yet."""
        return None

    def evaluate(self, federation: Federation, round: Round) -> bool:
        """Evaluate the models of devices, where there is no one model. False: there is one, the runner evaluates it."""
        return False

    def final_model(self, federation: Federation, state: Bundle) -> tuple[Weights, str] | None:
        """The model to use, and a digest of all models, where there are several; None where the state has the one."""
        return None


class Population:
    """Who takes part, and which samples of the pool each client has. `partition/split.py` has the two forms of it.

    A position, from 0 to len - 1, is a place in this object; an id outlives `select`.
    """

    provenance: dict[str, Any]
    """Where it comes from: rule, settings, seed, number of samples."""
    groups: tuple[str, ...] | None
    """The group of each client, where there are groups."""
    numbers: np.ndarray | None
    """The k of each id "ck"; None stands for 0 to len - 1."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, position: int) -> np.ndarray:
        """The samples of the client at this position, as an array of the caller's own."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[position] for position in range(len(self)))

    def id(self, position: int) -> str:
        raise NotImplementedError

    def find(self, id: str) -> int | None:
        """The position of an id, or None."""
        raise NotImplementedError

    def position(self, id: str) -> int:
        """The position of an id; ConfigError if there is no such client."""
        raise NotImplementedError

    def size(self, position: int) -> int:
        raise NotImplementedError

    @property
    def sizes(self) -> np.ndarray:
        """Samples per client, (N,) int64."""
        raise NotImplementedError

    def pool(self) -> np.ndarray:
        """The samples that all clients together have, or draw from."""
        raise NotImplementedError

    def select(self, positions: Sequence[int] | np.ndarray) -> Population:
        """The clients at these positions, in this order; they keep their ids, samples and groups."""
        raise NotImplementedError

    def pack(self) -> bytes:
        """Bytes that `partition.split.load_split` reads; equal populations give equal bytes."""
        raise NotImplementedError


class Partition:
    """Who gets which samples: a frozen dataclass of settings, called with what it divides the samples by."""

    source: ClassVar[str] = "labels"

    def __call__(self, dealt: Any, rng: np.random.Generator) -> Population:
        raise NotImplementedError


@dataclass(frozen=True)
class Training:
    """How every device trains: the settings of the one training loop."""

    epochs: int = 1
    iterations: int = 0  # if > 0: this many steps whatever the client's size, instead of epochs
    at_most: int = 0  # if > 0: no more steps than this, however many epochs that is
    batch_size: int = 32
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: float = 0.05
    decay: float = 1.0  # the learning rate of round t is lr * decay^(t-1)
    momentum: float = 0.0  # of sgd
    beta1: float = 0.9  # of adam and adamw: decay of the first moment; 0: no momentum
    beta2: float = 0.999  # of adam and adamw: decay of the second moment
    weight_decay: float = 0.0
    clip: float = 0.0  # if > 0: bound on the gradient's L2 norm


@dataclass(frozen=True)
class Evaluation:
    """When and on what the model is evaluated."""

    every: int = 1  # rounds between two evaluations; the last round is always evaluated; 0: never
    test: bool = True  # on the task's test set
    clients: int = 20  # on the held-out samples of this many clients (the same ones each time)
    holdout: float = 0.1  # the share of each client's samples that it never trains on
    validation_clients: int = 0  # clients set aside: they never train, all their samples validate
    monitor: str = ""  # the metric to watch, "validation/accuracy" for instance: its best round gives the model
    patience: int = 0  # stop after this many evaluations without a better one; 0: never


@dataclass(frozen=True)
class Policy:
    """What is accepted from devices, and how long to wait for them."""

    quorum: float = 0.5  # a round counts if at least this share of those asked gave a usable reply
    deadline: float = 3600.0  # seconds for one round
    on_error: Literal["skip", "raise"] = "skip"  # a program that fails on a device: leave it out and count it, or stop
    max_void: int = 3  # stop after this many rounds in a row without a quorum
    max_ratio: float = 4.0  # shorten a change to max_ratio x the upper quartile of its round's changes; 0: never
    max_change: float = 100.0  # refuse a model with |reply - sent| > max_change * (1 + |sent|)
    max_norm: float = 1e6  # refuse any other section with a norm above this
    max_examples: int = 10_000_000
