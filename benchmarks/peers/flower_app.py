"""The two halves of `flower_peer.py` as a Flower app that `flwr run` starts; what it is to do is in its run config."""

import json
import os
from pathlib import Path

import work as common
from flower_peer import Averaging, train
from flwr.app import ArrayRecord, Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

client = ClientApp()
client.train()(train)
server = ServerApp()


@server.main()
def serve(grid: Grid, context: Context) -> None:
    told = context.run_config
    folder, size, rounds = Path(str(told["folder"])), str(told["size"]), int(told["rounds"])
    clock = common.Clock(rounds, float(told["started"]))
    work, *_ = common.read(folder)
    strategy = Averaging(work, folder, size, clock)
    initial = ArrayRecord(common.network(size, work.seed).state_dict())
    result = strategy.start(grid=grid, initial_arrays=initial, num_rounds=rounds)
    losses = [float(record["loss"]) for _, record in sorted(result.train_metrics_clientapp.items())]
    target = Path(str(told["result"]))
    part = target.with_suffix(".part")
    out = os.open(part, os.O_WRONLY | os.O_CREAT)
    weights = list(result.arrays.to_torch_state_dict().values())
    common.report("flwr run", size, work, clock, losses=losses, weights=weights, out=out)
    os.close(out)
    json.loads(part.read_text())
    part.rename(target)
