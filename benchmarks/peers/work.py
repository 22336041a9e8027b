"""The federated work that every peer of `rounds.py` does, and how it is timed.

100 clients with 200 images each, 10 of them per round, one local pass of SGD in batches of 20, then the weighted mean.
Everything random comes from numpy seeds, so each peer trains the same clients on the same batches from the same
initial weights, and their results can be held against each other. Nothing is evaluated.

    python work.py --work DIR            writes the data once; the peers memory-map it

Linux only: CPU seconds and the process's start are read from /proc.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 10
SIDE = 32
SIZES = ("small", "large")

# The faster memory layout of each network, for all peers. Measured by training clients with each in turn in one
# process, CPU milliseconds per client, least of many: small 35 channels_last, 41 contiguous; large 147 and 208.
LAYOUT = {"small": "channels_last", "large": "channels_last"}
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}

PATTERNS, IMAGES, WEIGHTS = 1_000_000_001, 1_000_000_002, 1_000_000_003  # seed words apart from round numbers


@dataclass(frozen=True)
class Work:
    """What is done. It is written beside the data, so no peer can be run with other settings by mistake."""

    clients: int = 100
    images: int = 200  # of each client
    cohort: int = 10
    batch: int = 20
    rate: float = 0.05
    seed: int = 0

    def sample(self, turn: int) -> list[int]:
        """The clients of a round (counted from 0)."""
        chosen = np.random.default_rng([self.seed, turn]).choice(self.clients, self.cohort, replace=False)
        return [int(client) for client in chosen]

    def order(self, turn: int, client: int) -> Tensor:
        """Row numbers of a client's images in the order in which it trains on them in this round."""
        shuffled = np.random.default_rng([self.seed, turn, client]).permutation(self.images)
        return torch.from_numpy(shuffled + client * self.images)


# ---- data


def write(folder: Path, work: Work) -> None:
    """Write the data into the folder, unless it is there already."""
    described = folder / "work.json"
    if described.exists() and json.loads(described.read_text()) == asdict(work):
        return
    folder.mkdir(parents=True, exist_ok=True)
    described.unlink(missing_ok=True)  # it comes back when the data is whole
    coarse = np.random.default_rng([work.seed, PATTERNS]).standard_normal((CLASSES, 8, 8, 3), dtype=np.float32)
    patterns = coarse.repeat(SIDE // 8, axis=1).repeat(SIDE // 8, axis=2)
    shape = (work.clients * work.images, SIDE, SIDE, 3)
    images = np.lib.format.open_memmap(folder / "images.npy", mode="w+", dtype=np.uint8, shape=shape)
    labels = np.empty(len(images), dtype=np.int64)
    for client in range(work.clients):
        rng = np.random.default_rng([work.seed, IMAGES, client])
        rows = slice(client * work.images, (client + 1) * work.images)
        labels[rows] = rng.integers(CLASSES, size=work.images)
        contrast = rng.uniform(4, 20, size=(work.images, 1, 1, 1)).astype(np.float32)
        noise = rng.standard_normal((work.images, SIDE, SIDE, 3), dtype=np.float32)
        images[rows] = (128 + contrast * patterns[labels[rows]] + 48 * noise).clip(0, 255).astype(np.uint8)
    images.flush()
    np.save(folder / "labels.npy", labels)
    described.write_text(json.dumps(asdict(work)) + "\n")


def read(folder: Path) -> tuple[Work, Tensor, Tensor]:
    """The settings, the images (memory-mapped uint8, rows x 32 x 32 x 3) and the labels."""
    work = Work(**json.loads((folder / "work.json").read_text()))
    # "c": private pages; torch warns of tensors over read-only memory, and nothing writes to these
    images = torch.from_numpy(np.load(folder / "images.npy", mmap_mode="c"))
    return work, images, torch.from_numpy(np.load(folder / "labels.npy"))


# ---- network and local training


def network(size: str, seed: int, layout: str | None = None) -> nn.Sequential:
    """About 17k parameters ("small") or 0.9M ("large"), with initial weights that depend on numpy only."""
    if size == "small":
        net = nn.Sequential(
            nn.Conv2d(3, 8, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 32), nn.ReLU(), nn.Linear(32, CLASSES),
        )  # fmt: skip
    else:
        net = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(4096, 216), nn.ReLU(), nn.Linear(216, CLASSES),
        )  # fmt: skip
    rng = np.random.default_rng([seed, WEIGHTS])
    with torch.no_grad():
        for layer in net:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                bound = layer.weight[0].numel() ** -0.5  # torch's own default range
                for parameter in (layer.weight, layer.bias):
                    parameter.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(parameter.shape))))
    return net.to(memory_format=FORMATS[layout or LAYOUT[size]])


def pixels(rows: Tensor, layout: str) -> Tensor:
    """A batch of uint8 images as the network wants it: float, centred, channels first."""
    batch = rows.permute(0, 3, 1, 2).to(torch.float32, memory_format=FORMATS[layout])
    return batch.mul_(1 / 64).sub_(2)


def train(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    images: Tensor,
    labels: Tensor,
    order: Tensor,
    batch: int,
    layout: str,
) -> float:
    """One pass over one client's images; returns the mean loss."""
    total = 0.0
    for rows in order.split(batch):
        loss = functional.cross_entropy(net(pixels(images[rows], layout)), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(rows)
    return total / len(order)


# ---- timing and the result


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--work", type=Path, required=True, help="folder made by work.py")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--rounds", type=int, default=10, help="rounds in all; the steady ones are all but the first")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--started", type=float, help="time.time() when the command was given; else from /proc")
    return parser


def one_thread() -> None:
    """One torch thread in this process and in those it starts."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


def process_start() -> float:
    """When this process began, as time.time() counts."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def cpu_seconds() -> float:
    """User and system seconds of this process and of all its descendants, living or waited for."""
    spent: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        pid = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        spent[pid] = sum(int(ticks) for ticks in fields[11:15])
    total, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += spent.get(pid, 0)
        waiting += children.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


class Clock:
    """Told at the end of each round; keeps the time of the first and the length of the steady ones."""

    def __init__(self, rounds: int, started: float | None) -> None:
        self.rounds = rounds
        self.started = process_start() if started is None else started
        self.first_round_end = 0.0
        self.seconds: list[float] = []
        self.cpu = 0.0
        self._last: float | None = None

    def lap(self) -> None:
        now = time.perf_counter()
        if self._last is None:
            self.first_round_end = time.time() - self.started
            self.cpu = -cpu_seconds()
        else:
            self.seconds.append(now - self._last)
        if len(self.seconds) == self.rounds - 1:
            self.cpu += cpu_seconds()
        self._last = time.perf_counter()


def claim_stdout() -> int:
    """Send whatever a library prints to standard error; returns the real standard output for `report`."""
    real = os.dup(1)
    os.dup2(2, 1)
    return real


def report(
    peer: str, size: str, work: Work, clock: Clock, *, losses: list[float], weights: list[Tensor], out: int
) -> None:
    """Print the result as one line of JSON.

    `final_norm` is the norm of the final weights, `moved` that of their difference from the initial ones (the sharper
    check that two peers did the same arithmetic).
    """
    final = torch.cat([w.detach().double().reshape(-1) for w in weights])
    initial = torch.cat([w.detach().double().reshape(-1) for w in network(size, work.seed).parameters()])
    result = {
        "peer": peer,
        "size": size,
        "rounds": clock.rounds,
        "seconds_per_round": clock.seconds,
        "first_round_end": clock.first_round_end,
        "cpu_seconds": clock.cpu,
        "parameters": final.numel(),
        "train_loss": losses,
        "final_norm": final.norm().item(),
        "moved": (final - initial).norm().item(),
        "torch": torch.__version__,
    }
    os.write(out, (json.dumps(result) + "\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the data of the benchmark.")
    parser.add_argument("--work", type=Path, required=True)
    for field, value in asdict(Work()).items():
        parser.add_argument(f"--{field}", type=type(value), default=value)
    settings = vars(parser.parse_args())
    folder = settings.pop("work")
    write(folder, Work(**settings))
    print(folder, file=sys.stderr)


if __name__ == "__main__":
    main()
