"""Wayfare doing the work of `work.py`.

    python wayfare_peer.py --work DIR --size small|large --rounds R [--processes P] [--engine E]

One process is the engine `local`, more are the engine `pool`, if none is named. Everything is as a user gets it:
checkpoints, the admission gate, the log of rounds. Clients and batches are those of the other peers, so the final
weights can be held against theirs: Wayfare's own random numbers are looked up to learn which round and client they are
for.
"""

# ruff: noqa: E402  (what imports torch comes after the workers were started)
import sys
import tempfile
from contextlib import ExitStack

from wayfare.engines import open_engine

STACK = ExitStack()
if __name__ == "__main__":  # as the command line does it: workers start before torch is imported here
    PROCESSES = int(sys.argv[sys.argv.index("--processes") + 1]) if "--processes" in sys.argv else 1
    ENGINE = sys.argv[sys.argv.index("--engine") + 1] if "--engine" in sys.argv else ""
    MACHINE = STACK.enter_context(open_engine(ENGINE or ("local" if PROCESSES == 1 else "pool"), PROCESSES))

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import work as common
from torch.nn import functional

from wayfare import Evaluation, Experiment, Training
from wayfare.core.bundle import Bundle
from wayfare.core.protocols import Batch, Output, Partition, Task
from wayfare.core.seeds import rng_for
from wayfare.partition.split import Split
from wayfare.runner import run
from wayfare.strategies.fedavg import FedAvg
from wayfare.topologies.server import Server

SEED = 0


def mark(rng: np.random.Generator) -> int:
    return int(rng.integers(2**62))


@dataclass(frozen=True)
class Images(Task):
    """The benchmark's data and network as a task."""

    folder: str
    size: str
    rounds: int

    provides: ClassVar[frozenset[str]] = frozenset()

    @cached_property
    def data(self):
        return common.read(Path(self.folder))

    @property
    def classes(self):
        return tuple(map(str, range(common.CLASSES)))

    @property
    def samples(self):
        return len(self.data[1])

    @property
    def labels(self):
        return self.data[2].numpy()

    @cached_property
    def orders(self):
        """Which round and client a generator is for."""
        return {
            mark(rng_for(SEED, turn + 1, f"c{client}", "pass 0")): (turn, client)
            for turn in range(self.rounds)
            for client in self.data[0].sample(turn)
        }

    def network(self):
        return common.network(self.size, self.data[0].seed)

    def views(self, net):
        return {}

    def steps(self, net, client, batch_size, memo, rng):
        work, images, labels = self.data
        rows = work.order(*self.orders[mark(rng)])
        for some, their in zip(images[rows].split(batch_size), labels[rows].split(batch_size)):
            yield Batch(common.pixels(some, common.LAYOUT[self.size]), their)

    def forward(self, net, batch):
        return Output({}, net(batch.inputs))

    def loss(self, output, batch, memo):
        return functional.cross_entropy(output.logits, batch.labels)

    def scan(self, net, client):
        raise NotImplementedError("this work evaluates nothing")

    def evaluate(self, net, samples):
        raise NotImplementedError("this work evaluates nothing")


@dataclass(frozen=True)
class ByRows(Partition):
    """Client k has the k-th block of rows."""

    clients: int

    def __call__(self, labels, rng):
        return Split.from_parts(np.array_split(np.arange(len(labels)), self.clients))


@dataclass(frozen=True)
class SameClients(FedAvg):
    """FedAvg that asks the clients of `work.sample`."""

    folder: str = ""
    rounds: int = 0

    @cached_property
    def work(self):
        return common.read(Path(self.folder))[0]

    @cached_property
    def turns(self):
        return {mark(rng_for(SEED, turn + 1, "choose")): turn for turn in range(self.rounds)}

    def choose(self, sizes, count, rng):
        return self.work.sample(self.turns[mark(rng)])


def main():
    parser = common.arguments("FedAvg by Wayfare.")
    parser.add_argument("--engine")
    args = parser.parse_args()
    common.one_thread()
    out = common.claim_stdout()
    clock = common.Clock(args.rounds, args.started)
    work = common.read(args.work)[0]
    # workers import this file under its own name
    from wayfare_peer import ByRows, Images, SameClients

    folder = str(args.work)
    experiment = Experiment(
        task=Images(folder, args.size, args.rounds),
        partition=ByRows(work.clients),
        strategy=SameClients(folder=folder, rounds=args.rounds),
        topology=Server(work.cohort),
        training=Training(batch_size=work.batch, lr=work.rate),
        evaluation=Evaluation(every=0, holdout=0),
        rounds=args.rounds,
        seed=SEED,
    )
    losses = []

    def listen(event, data):
        if event == "round" and data["round"]:
            losses.append(data["metrics"]["train/loss"])
            clock.lap()

    with STACK, tempfile.TemporaryDirectory() as place:
        run(experiment, Path(place) / "run", MACHINE, listen=listen)
        model = Bundle.unpack((Path(place) / "run" / "model.safetensors").read_bytes())["model"]
    name = f"wayfare x{args.processes}"
    common.report(name, args.size, work, clock, losses=losses, weights=list(model.values()), out=out)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    main()
