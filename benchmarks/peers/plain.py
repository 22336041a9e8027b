"""The yardstick: FedAvg as a competent person writes it by hand, without any framework.

    python plain.py --work DIR --size small|large --rounds R [--processes P]

One resident network per process and one resident torch.optim.SGD; the weights are copied in; batches are indexed from a
uint8 tensor and made float one at a time; the weighted mean has float64 accumulators. With --processes P the process
forks P - 1 others, each trains its share of the cohort, and weights and sums are in shared memory: the practical bound
for P cores.
"""

import argparse
import sys
from dataclasses import dataclass

import torch
import work as common
from torch import Tensor, multiprocessing
from work import Clock, Work

PATIENCE = 600  # seconds; if another process died, this one must not wait for ever


@dataclass
class Shared:
    """What the processes have in common: the global weights, and from each its sums and losses."""

    weights: list[Tensor]
    sums: list[list[Tensor]]
    losses: Tensor  # rounds x ranks


def share(net: torch.nn.Module, rounds: int, ranks: int) -> Shared:
    weights = [p.detach().clone() for p in net.parameters()]
    sums = [[torch.zeros_like(w, dtype=torch.float64) for w in weights] for _ in range(ranks)]
    losses = torch.zeros(rounds, ranks, dtype=torch.float64)
    if ranks > 1:
        for tensor in [*weights, *(s for own in sums for s in own), losses]:
            tensor.share_memory_()
    return Shared(weights, sums, losses)


@torch.no_grad()
def copy(sources: list[Tensor], targets: list[Tensor]) -> None:
    for source, target in zip(sources, targets):
        target.copy_(source)


@torch.no_grad()
def add(sums: list[Tensor], weights: list[Tensor], factor: float) -> None:
    for total, weight in zip(sums, weights):
        total.add_(weight, alpha=factor)


@torch.no_grad()
def merge(shared: Shared, examples: int) -> None:
    for index, weight in enumerate(shared.weights):
        total = shared.sums[0][index]
        for other in shared.sums[1:]:
            total = total + other[index]
        weight.copy_(total / examples)


def run(args: argparse.Namespace, work: Work, data: tuple[Tensor, Tensor], shared: Shared, rank: int, barrier, clock):
    """All rounds, as one of the processes; rank 0 also merges and keeps the time."""
    net = common.network(args.size, work.seed, args.layout)
    parameters = list(net.parameters())
    flag = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}[args.sgd]
    optimizer = torch.optim.SGD(parameters, lr=work.rate, **flag)
    for turn in range(args.rounds):
        for total in shared.sums[rank]:
            total.zero_()
        for client in work.sample(turn)[rank :: args.processes]:
            copy(shared.weights, parameters)
            loss = common.train(net, optimizer, *data, work.order(turn, client), work.batch, args.layout)
            add(shared.sums[rank], parameters, work.images)
            shared.losses[turn, rank] += loss / work.cohort
        if barrier:
            barrier.wait(PATIENCE)  # every share is summed
        if rank == 0:
            merge(shared, work.cohort * work.images)
            clock.lap()
        if barrier:
            barrier.wait(PATIENCE)  # the new weights are there


def main() -> None:
    parser = common.arguments("FedAvg in a hand-written torch loop.")
    # Measured on a busy machine, CPU ms per client, least and median: channels_last is faster for both networks
    # (work.LAYOUT). Torch's other forms of SGD, and gathering all of a client's images at once, show no steady gain:
    # small 35.4 (63) default, 34.8 (57) foreach, 32.3 (61) fused, 34.0 (58) gathered; large 147 (162), 151 (168),
    # 155 (170), 158 (175). So: the default SGD, batch by batch. --sgd is there to ask again on a quiet machine.
    parser.add_argument("--layout", choices=common.FORMATS, help="default: the faster for the size")
    parser.add_argument("--sgd", choices=("default", "foreach", "fused"), default="default")
    args = parser.parse_args()
    args.layout = args.layout or common.LAYOUT[args.size]
    common.one_thread()
    out = common.claim_stdout()
    clock = Clock(args.rounds, args.started)
    work, *data = common.read(args.work)
    shared = share(common.network(args.size, work.seed, args.layout), args.rounds, args.processes)

    # fork: the others start with torch imported and the data mapped
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(args.processes) if args.processes > 1 else None
    others = [
        context.Process(target=run, args=(args, work, data, shared, rank, barrier, None), daemon=True)
        for rank in range(1, args.processes)
    ]
    for other in others:
        other.start()
    run(args, work, data, shared, rank=0, barrier=barrier, clock=clock)
    for other in others:
        other.join()
        if other.exitcode:
            sys.exit(f"a worker ended with status {other.exitcode}")
    name = "plain" if args.processes == 1 else f"plain x{args.processes}"
    common.report(name, args.size, work, clock, losses=shared.losses.sum(1).tolist(), weights=shared.weights, out=out)


if __name__ == "__main__":
    main()
