"""Every strategy gives the same bits on every engine, and nothing but the gate asks one."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import wayfare
from wayfare import Evaluation, Experiment, Training, run
from wayfare.components import find, names
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.partition.shards import Shards
from wayfare.testing import task_for
from wayfare.topologies.hierarchy import Hierarchy
from wayfare.topologies.server import Server

TINY = Experiment(
    task=Objects(model=CnnClassifier(width=4, hidden=8, norm="batch")),  # with buffers, which travel too
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


# ---- one door


SOURCE = Path(wayfare.__file__).parent


def calls_of_engines(code: str) -> Iterator[int]:
    """Lines on which something else than itself is asked to `call`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "call":
            owner = node.func.value
            if not (isinstance(owner, ast.Name) and owner.id == "self"):
                yield node.lineno


def test_only_the_gate_calls_an_engine():
    """A reply that does not come through core/gate.py has not been looked at."""
    found = {
        str(file.relative_to(SOURCE)): lines
        for file in sorted(SOURCE.rglob("*.py"))
        if (lines := list(calls_of_engines(file.read_text())))
    }
    for engine in (
        "privacy/attacks.py",
        "compression/engine.py",
    ):  # before another one, whose replies go on to the gate
        found.pop(engine)
    assert list(found) == ["core/gate.py"], f"ask through Gate.ask or Gate.run instead: {found}"


def test_a_call_beside_the_gate_is_found():
    assert list(calls_of_engines("x = 1\nfor r in federation.engine.call('train', [], 0): pass")) == [2]
    assert list(calls_of_engines("class Pool(Engine):\n    def f(self): return self.call('ready', [], 0)")) == []
