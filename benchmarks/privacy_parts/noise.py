"""The released sum: the deviation of its noise over many draws, and how far one client can move it."""

import numpy as np
import torch

from wayfare.core.bundle import Bundle
from wayfare.core.protocols import MergeContext
from wayfare.privacy.changes import Layout
from wayfare.privacy.client_level import ClientLevel
from wayfare.strategies.fedavg import FedAvg


def measure(args, out):
    """The figures of this part."""
    draws, neighbours = (100_000, 200) if args.quick else (1_000_000, 10_000)
    settings = ClientLevel(noise=1.5, clip=0.7)
    context = MergeContext(1, 0, out / "noise", clients=100, expected=10)
    released = settings.merge(FedAvg(), Bundle({"model": {"w": torch.zeros(draws)}}), iter(()), context)["model"]["w"]
    return {
        "draws": draws,
        "deviation": float(released.double().std()),
        "expected": 1.5 * 0.7 / 10,
        "neighbours": neighbours,
        "furthest": max(_moved(np.random.default_rng(case)) for case in range(neighbours)),
    }


def _moved(rng):
    """How far one client more moves the sum, over the clip."""
    clip = float(10 ** rng.uniform(-2, 2))
    size, sums = int(rng.integers(1, 50)), []
    like = {"model": {"w": torch.zeros(size)}}
    drawn = [rng.normal(0, 10 ** rng.uniform(-6, 6), size) for _ in range(int(rng.integers(1, 8)))]
    replies = [("", Bundle({"model": {"w": torch.from_numpy(change)}})) for change in drawn]
    for some in (replies, replies[:-1]):
        total, _ = ClientLevel(clip=clip)._clipped_sum(Layout(like, like), some, clip)
        sums.append(np.concatenate(list(total.values())))
    return float(np.linalg.norm(sums[0] - sums[1])) / clip


def targets(figures):
    """What is judged."""
    off = figures["deviation"] / figures["expected"] - 1
    return [
        {"name": "deviation off by", "value": abs(off), "target": "at most 0.01", "met": abs(off) <= 0.01},
        {
            "name": "furthest that one client moves the sum, over the clip", "value": figures["furthest"],
            "target": "at most 1", "met": figures["furthest"] <= 1 + 1e-9,
        },
    ]  # fmt: skip


def show(figures, console):
    """Print them."""
    console.print(
        f"noise over {figures['draws']:,} draws: {figures['deviation']:.6f}, expected {figures['expected']:.6f}"
    )
    console.print(f"{figures['neighbours']:,} pairs of neighbours: at most {figures['furthest']:.6f} clips apart")
