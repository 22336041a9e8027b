"""The same work by Apple's pfl (its torch model, its FedAvg, its simulated backend).

    python pfl_peer.py --work DIR --size small|large --rounds R [--processes P]

Run it with the interpreter of `environments.py pfl`. Several processes are pfl's own native distributed simulation
(torch.distributed over gloo, one all-reduce per round), started as its guide says: the same script once per process
with PFL_WORKER_RANK and PFL_WORKER_ADDRESSES. (pfl has a branch for torchrun too; it would add a process that only
watches, and was not tried.)
pfl 0.6 works with torch 2.13 as it is.
"""

import argparse
import dataclasses
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import torch
import work as common
from torch import Tensor
from torch.nn import functional
from work import Clock, Work

RANK, ADDRESSES = "PFL_WORKER_RANK", "PFL_WORKER_ADDRESSES"


class Net(torch.nn.Module):
    """The network with the two methods that pfl asks for; it sums the losses as the other peers do."""

    def __init__(self, net: torch.nn.Module, layout: str) -> None:
        super().__init__()
        self.net = net
        self.layout = layout
        self.total = 0.0

    def loss(self, rows: Tensor, labels: Tensor) -> Tensor:
        loss = functional.cross_entropy(self.net(common.pixels(rows, self.layout)), labels)
        self.total += loss.item() * len(labels)
        return loss

    def metrics(self, rows: Tensor, labels: Tensor) -> dict:
        raise NotImplementedError("nothing is evaluated")


def simulate(args: argparse.Namespace, work: Work, data: tuple[Tensor, Tensor], clock: Clock | None):
    """All rounds; returns the mean loss of each (this process's share of it) and the final weights."""
    # Importing pfl joins the process group, so the environment must be set before.
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDatasetBase
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.internal.ops import pytorch_ops
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    rank, ranks = pytorch_ops.distributed.global_rank, pytorch_ops.distributed.world_size
    if ranks != args.processes:
        raise RuntimeError(f"pfl sees {ranks} processes, not {args.processes}")
    images, labels = data

    class Clients(FederatedDatasetBase):
        """Our cohorts instead of pfl's own draws, dealt to the processes in turn as pfl's FederatedDataset does."""

        turn = 0

        def __next__(self):
            raise NotImplementedError("users are asked for by cohort")

        def get_cohort(self, cohort_size: int) -> Iterator[tuple[Dataset, int]]:
            for client in work.sample(self.turn)[:cohort_size][rank::ranks]:
                order = work.order(self.turn, client)
                yield Dataset((images[order], labels[order]), user_id=str(client)), client
            self.turn += 1

    class Averaging(FederatedAveraging):
        """pfl evaluates its users before and after training in iteration 0, whatever the frequency; not here."""

        def get_next_central_contexts(self, *arguments, **keywords):
            contexts, model, metrics = super().get_next_central_contexts(*arguments, **keywords)
            contexts = contexts and tuple(dataclasses.replace(c, do_evaluation=False) for c in contexts)
            return contexts, model, metrics

    class Lap(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration: int):
            losses.append(net.total / (work.cohort * work.images))
            net.total = 0.0
            if clock:
                clock.lap()
            return False, Metrics()

    losses: list[float] = []
    net = Net(common.network(args.size, work.seed), common.LAYOUT[args.size])
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    clients = Clients()
    Averaging().run(
        NNAlgorithmParams(args.rounds, evaluation_frequency=args.rounds + 1, train_cohort_size=work.cohort,
                          val_cohort_size=None),
        SimulatedBackend(clients, clients, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=work.rate, local_batch_size=work.batch),
        callbacks=[Lap()],
        send_metrics_to_platform=False,
    )  # fmt: skip
    return losses, list(net.parameters())


def start_others(processes: int) -> list[subprocess.Popen]:
    """Make this process rank 0 and start the rest: the same command, another rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # only the first address is ever connected to
    os.environ[ADDRESSES] = ",".join(f"127.0.0.1:{port + rank}" for rank in range(processes))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ[RANK] = "0"
    return [
        subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, RANK: str(rank)}, stdout=subprocess.PIPE)
        for rank in range(1, processes)
    ]


def main() -> None:
    args = common.arguments("FedAvg in pfl.").parse_args()
    os.environ["PFL_PYTORCH_DEVICE"] = "cpu"
    common.one_thread()
    out = common.claim_stdout()
    first = os.environ.get(RANK, "0") == "0"
    clock = Clock(args.rounds, args.started) if first else None
    others = start_others(args.processes) if first and args.processes > 1 else []
    try:
        work, *data = common.read(args.work)
        losses, weights = simulate(args, work, data, clock)
        if not first:
            os.write(out, (json.dumps(losses) + "\n").encode())
            return
        for other in others:
            answer, _ = other.communicate(timeout=60)
            if other.returncode:
                sys.exit(f"a pfl worker ended with status {other.returncode}")
            losses = [own + theirs for own, theirs in zip(losses, json.loads(answer))]
    finally:
        for other in others:
            if other.poll() is None:
                other.kill()
    name = "pfl" if args.processes == 1 else f"pfl x{args.processes}"
    common.report(name, args.size, work, clock, losses=losses, weights=weights, out=out)


if __name__ == "__main__":
    main()
