"""The same work by Flower's simulation: its FedAvg, its Ray backend, one actor per process.

    python flower_peer.py --work DIR --size small|large --rounds R [--processes P]

Run it with the interpreter of `environments.py flower`. The simulation is started from Python (`run_simulation`): it is
the runtime that `flwr run` ends in, without the daemons, so it gives Flower its best time to the first round.
The ServerApp and ClientApp are written for speed: one resident network and optimiser per actor, the data memory-mapped
once, no evaluation, no query to find out which node is which client.
"""

import os
import sys
import tempfile
from functools import cache
from pathlib import Path

# Nothing is reported to anybody and nothing is installed; set before the imports, which read some of it.
os.environ.update(
    FLWR_TELEMETRY_ENABLED="0",
    FLWR_DISABLE_UPDATE_CHECK="1",
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION="1",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
)
if __name__ == "__main__":
    SCRATCH = tempfile.TemporaryDirectory(prefix="wf", ignore_cleanup_errors=True)
    os.environ["FLWR_HOME"] = str(Path(SCRATCH.name) / "flwr")

import time

import torch
import work as common
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from work import Clock, Work

common.one_thread()

# ---- in the actors

client_app = ClientApp()


@cache
def resident(folder: str, size: str):
    """What an actor keeps between messages."""
    work, *data = common.read(Path(folder))
    net = common.network(size, work.seed)
    return work, data, net, torch.optim.SGD(net.parameters(), lr=work.rate)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    size = str(config["size"])
    work, data, net, optimizer = resident(str(config["folder"]), size)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    order = work.order(int(config["turn"]), int(config["client"]))
    loss = common.train(net, optimizer, *data, order, work.batch, common.LAYOUT[size])
    metrics = MetricRecord({"loss": loss, "num-examples": work.images})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


# ---- in the server


class Averaging(FedAvg):
    """Flower's FedAvg with our cohorts (its own sampling cannot be seeded) and a clock.

    Client c is the c-th node by number, and is told so in its message: the fixed mapping costs no message of its own.
    """

    def __init__(self, work: Work, folder: Path, size: str, clock: Clock) -> None:
        super().__init__(fraction_evaluate=0.0, min_available_nodes=work.clients)
        self.work, self.folder, self.size, self.clock = work, folder, size, clock

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid):
        while len(nodes := sorted(grid.get_node_ids())) < self.work.clients:
            time.sleep(0.01)
        turn = server_round - 1
        for client in self.work.sample(turn):
            told = ConfigRecord({"folder": str(self.folder), "size": self.size, "turn": turn, "client": client})
            content = RecordDict({"arrays": arrays, "config": told})
            yield Message(content, dst_node_id=nodes[client], message_type=MessageType.TRAIN)

    def aggregate_train(self, server_round: int, replies):
        replies = list(replies)
        if len(replies) != self.work.cohort or any(reply.has_error() for reply in replies):
            raise RuntimeError(f"round {server_round}: a client failed")  # Flower would go on without it
        result = super().aggregate_train(server_round, replies)
        self.clock.lap()
        return result


def main(scratch: str) -> None:
    args = common.arguments("FedAvg in Flower's simulation.").parse_args()
    out = common.claim_stdout()
    clock = Clock(args.rounds, args.started)
    work, *_ = common.read(args.work)
    strategy = Averaging(work, args.work.absolute(), args.size, clock)
    server_app = ServerApp()
    results = []

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        initial = ArrayRecord(common.network(args.size, work.seed).state_dict())
        results.append(strategy.start(grid=grid, initial_arrays=initial, num_rounds=args.rounds))

    run_simulation(
        server_app,
        client_app,
        num_supernodes=work.clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": args.processes, "log_to_driver": False, "_temp_dir": scratch},
        },
    )
    if not results:
        sys.exit("Flower's simulation ended without a result")
    losses = [float(record["loss"]) for _, record in sorted(results[0].train_metrics_clientapp.items())]
    weights = list(results[0].arrays.to_torch_state_dict().values())
    common.report(f"flower x{args.processes}", args.size, work, clock, losses=losses, weights=weights, out=out)


if __name__ == "__main__":
    # As an imported module the ClientApp is pickled by name; from __main__ Ray would ship its code with each message
    # and the actors would keep nothing.
    import flower_peer

    flower_peer.main(SCRATCH.name)
