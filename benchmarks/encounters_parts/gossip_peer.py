"""The gossip workload in gossipy: runs in an environment of its own, so it imports nothing of ours.

    python gossip_peer.py '{"mode": "merge", "nodes": 200, "rounds": 10, "images": 40, "threads": 1, "layout": "plain"}'

Every node pushes its model to a random peer once per round, and the peer takes the mean of the two: `merge` does no
more than that, `step` has the peer train one batch of 32 afterwards. All handlers and the simulator are gossipy's own;
`merge` needs a handler whose update does nothing, since gossipy has no mode without one. No report is attached and
nothing is evaluated. Prints one line of JSON: seconds of the rounds after the first two, and messages in them.
"""

import json
import logging
import os
import resource
import sys
import time
import types
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, max_pool2d

# gossipy imports it to fetch data sets, which is not done here; its build would have to fit torch's
sys.modules["torchvision"] = types.ModuleType("torchvision")
from gossipy import LOG  # noqa: E402
from gossipy.core import AntiEntropyProtocol, ConstantDelay, CreateModelMode, StaticP2PNetwork  # noqa: E402
from gossipy.model import TorchModel  # noqa: E402
from gossipy.model.handler import TorchModelHandler  # noqa: E402
from gossipy.node import GossipNode  # noqa: E402
from gossipy.simul import GossipSimulator, SimulationEventReceiver  # noqa: E402

WARM = 2  # rounds that are not timed
STEPS = 10  # time steps of a round


class Net(TorchModel):
    """Wayfare's small CNN for 32x32 colour pictures: 89,834 parameters."""

    def __init__(self):
        super().__init__()
        channels = (3, 16, 32, 64)
        self.blocks = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(channels))
        self.hidden, self.head = nn.Linear(64 * 4 * 4, 64), nn.Linear(64, 10)

    def init_weights(self):
        pass  # as torch makes them: how good the models are plays no part

    def forward(self, x):
        for block in self.blocks:
            x = max_pool2d(torch.relu(block(x)), 2)
        return self.head(torch.relu(self.hidden(x.reshape(len(x), -1))))


class MergeOnly(TorchModelHandler):
    """Merges, and trains nothing."""

    def _update(self, data):
        self.n_updates += 1


class Nobody:
    """In the place of a data dispatcher: there is no test set."""

    def has_test(self):
        return False


class Clock(SimulationEventReceiver):
    """When each round ended, and how many messages there had been."""

    def __init__(self):
        self.messages, self.rounds = 0, []

    def update_message(self, failed, msg=None):
        self.messages += not failed

    def update_timestep(self, t):
        if (t + 1) % STEPS == 0:
            self.rounds.append((time.perf_counter(), time.process_time(), self.messages))

    def update_end(self):
        pass


def main(mode, nodes, rounds, images, threads, layout):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  (what gossipy draws from)
    LOG.setLevel(logging.ERROR)
    form = {"plain": torch.contiguous_format, "channels_last": torch.channels_last}[layout]
    net, network = Net().to(memory_format=form), StaticP2PNetwork(nodes)
    handler = MergeOnly if mode == "merge" else TorchModelHandler
    made = {}
    for number in range(nodes):
        pictures = torch.rand(images, 3, 32, 32).contiguous(memory_format=form)
        data = (pictures, torch.randint(0, 10, (images,)))
        handles = handler(
            net, torch.optim.SGD, {"lr": 0.05}, cross_entropy, local_epochs=0, batch_size=32,
            create_model_mode=CreateModelMode.MERGE_UPDATE,
        )  # fmt: skip
        made[number] = GossipNode(number, (data, None), STEPS, handles, network)
        made[number].has_test = lambda: False
    simulator = GossipSimulator(made, Nobody(), STEPS, AntiEntropyProtocol.PUSH, delay=ConstantDelay(0))
    simulator.init_nodes()
    clock = Clock()
    simulator.add_receiver(clock)
    simulator.start(rounds + WARM)
    first, last = clock.rounds[WARM - 1], clock.rounds[-1]
    return {
        "seconds": last[0] - first[0],
        "cpu_seconds": last[1] - first[1],
        "messages": last[2] - first[2],
        "parameters": sum(p.numel() for p in net.parameters()),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):  # its progress bar
        found = main(**json.loads(sys.argv[1]))
    print(json.dumps(found))
