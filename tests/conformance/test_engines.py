"""Every strategy gives the same bits on every engine."""

from dataclasses import replace

import pytest

from wayfare import Evaluation, Experiment, Training, run
from wayfare.components import find, names
from wayfare.data.partition.shards import Shards
from wayfare.tasks.objects import Objects
from wayfare.testing import task_for
from wayfare.topologies.hierarchy import Hierarchy
from wayfare.topologies.server import Server

TINY = Experiment(
    task=Objects(width=4, hidden=8, norm="batch"),  # with buffers, which travel too
    partition=Shards(6, classes_per_client=4),
    topology=Server(4),
    training=Training(iterations=2, batch_size=8),
    evaluation=Evaluation(clients=2, holdout=0.1),
    rounds=2,
)


@pytest.mark.parametrize("topology", ["server", "hierarchy"])
@pytest.mark.parametrize("name", names("strategy"))
def test_local_equals_pool(name, topology, pool, tmp_path):
    strategy = find("strategy", name)()
    if topology not in strategy.topologies:
        pytest.skip(f"{name} does not run on {topology}")
    shape = Hierarchy(groups=2, interval=2) if topology == "hierarchy" else Server(0 if strategy.pooled else 4)
    task = TINY.task if strategy.requires <= TINY.task.provides else task_for(strategy)
    experiment = replace(TINY, strategy=strategy, topology=shape, task=task)
    results = [run(experiment, tmp_path / "local", "local"), run(experiment, tmp_path / "pool", pool)]
    for key in ("model_sha256", "metrics", "bytes_up", "bytes_down", "refused"):
        assert results[0][key] == results[1][key], key
    assert results[0]["refused"] == 0
