"""Every strategy gives the same bits on every engine, and nothing but the gate asks one."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import wayfare
from wayfare import Evaluation, Experiment, Training, run
from wayfare.components import find, names
from wayfare.compression.packing import LowRank, Quantise, TopK
from wayfare.core.errors import ConfigError
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


WAYS = (Quantise(bits=4, down=3), TopK(share=0.1, down=8), LowRank(rank=2, down=16), Quantise(bits=8, feedback=False))
UNPACKED = {"centralised", "local", "fedproto", "plfedcmh"}  # nothing travels, or models stay on the devices


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("name", names("strategy"))
def test_local_equals_pool(name, packed, pool, tmp_path):
    """On a server, and packed in one of four ways: in a hierarchy, where the strategy runs in one."""
    strategy = find("strategy", name)()
    shape = Server(0 if strategy.pooled else 4)
    if packed and "hierarchy" in strategy.topologies:
        shape = Hierarchy(groups=2, interval=2)
    task = TINY.task if strategy.requires <= TINY.task.provides else task_for(strategy)
    experiment = replace(TINY, strategy=strategy, topology=shape, task=task)
    if packed:
        way = WAYS[names("strategy").index(name) % len(WAYS)]
        if name in UNPACKED:
            with pytest.raises(ConfigError, match=rf"\[compression\] is of no use with {type(strategy).__name__}"):
                replace(experiment, compression=way)
            return
        experiment = replace(experiment, compression=way)
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
    for engine in ("core/wrapped_engine.py", "compression/engine.py", "privacy/attacks.py"):
        found.pop(engine)  # it stands before another engine: replies go on to the gate
    assert list(found) == ["core/gate.py"], f"ask through Gate.ask or Gate.run instead: {found}"


def test_a_call_beside_the_gate_is_found():
    assert list(calls_of_engines("x = 1\nfor r in federation.engine.call('train', [], 0): pass")) == [2]
    assert list(calls_of_engines("class Pool(Engine):\n    def f(self): return self.call('ready', [], 0)")) == []
