"""Whole runs with a clock: every engine, after a stop, in the record and on pages; and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wayfare.clock.drawn import Drawn
from wayfare.components import find
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Engine, Evaluation, Policy, Training
from wayfare.deploy.local_folder import check_federable
from wayfare.experiment import Experiment
from wayfare.objects.data.folder import ClassFolders
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.pages.compare import compare
from wayfare.pages.compare_page import write_page
from wayfare.pages.reach import TargetValue, reach
from wayfare.pages.record import Record
from wayfare.partition.shards import Shards
from wayfare.report import write_report
from wayfare.runner import resume, run
from wayfare.strategies.moon import Moon
from wayfare.strategies.scaffold import Scaffold
from wayfare.topologies.asynchronous import Async
from wayfare.topologies.buffered import Buffered
from wayfare.topologies.hierarchy import Hierarchy
from wayfare.topologies.server import Server

SLOW = Drawn(law="pareto", speed_spread=1.0)
TINY = Experiment(
    task=Objects(model=CnnClassifier(width=4, hidden=8, norm="batch")),  # with buffers, which travel too
    partition=Shards(8, classes_per_client=4),
    strategy=Moon(),  # with a memory
    topology=Buffered(concurrency=6, buffer=3),
    training=Training(iterations=2, batch_size=8),
    evaluation=Evaluation(clients=2, holdout=0.1),
    policy=Policy(quorum=0.3),
    clock=SLOW,
    rounds=4,
)
SHAPES = {
    "buffered": {},
    "async": {"topology": Async(concurrency=4)},
    "server": {"topology": Server(4), "clock": replace(SLOW, over=1.5, deadline=2.0)},
    "buffered packed": {"compression": find("compression", "quantise")(bits=4, down=8)},
    "buffered median": {"robust": find("robust", "median")()},
}


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_a_run_in_which_all_are_late_says_so(tmp_path: Path) -> None:
    late = replace(TINY, topology=Server(4), clock=replace(SLOW, deadline=0.001), rounds=2)
    told = run(late, tmp_path / "r", "local")["warnings"][0]
    assert told.startswith("nothing was learnt: all 2 rounds were void; most replies were refused: late:")


class Stop(Exception):
    pass


@pytest.mark.parametrize("shape", SHAPES)
def test_one_result_on_every_engine_and_after_a_stop(shape: str, pool: Engine, tmp_path: Path) -> None:
    experiment = replace(TINY, **SHAPES[shape])
    whole = run(experiment, tmp_path / "local", "local")

    def stop(event: str, data: dict[str, Any]) -> None:
        if event == "round" and data["round"] == 2:
            raise Stop

    with pytest.raises(Stop):
        run(experiment, tmp_path / "pool", pool, listen=stop)
    rest = resume(tmp_path / "pool", pool)
    for key in ("model_sha256", "metrics", "bytes_up", "bytes_down", "refused"):
        assert whole[key] == rest[key], key
    assert whole["metrics"]["clock/seconds"] > 0
    assert [line.get("events") for line in lines(tmp_path / "local")] == [
        line.get("events") for line in lines(tmp_path / "pool")
    ]


def test_the_record_the_report_and_the_comparison(tmp_path: Path) -> None:
    evaluation = Evaluation(clients=0, holdout=0.0)
    for name, topology in (("waits", Server(3)), ("does not", TINY.topology)):
        run(replace(TINY, topology=topology, evaluation=evaluation), tmp_path / name, "local")
    record = Record.read(tmp_path / "does not")
    elapsed = record.elapsed()
    assert list(elapsed) == [0, 1, 2, 3, 4] and list(elapsed.values()) == sorted(elapsed.values())
    assert elapsed[4] == record.final("clock/seconds")
    page = write_report(tmp_path / "does not").read_text()
    assert "virtual time" in page and 'value="time"' in page
    comparison = compare([tmp_path])
    value = sorted(record.series("test/accuracy")[1])[-1]
    found = reach(comparison, TargetValue("test/accuracy", value))
    group = next(at for at, each in enumerate(found.groups) if each.records[0].path == tmp_path / "does not")
    first = TargetValue("test/accuracy", value).first_round(record)
    assert first is not None and found.costs["rounds"][group].mean == first
    assert found.costs["megabytes"][group].mean == record.sent()[first] / 1e6
    assert found.costs["seconds"][group].mean == elapsed[first]
    assert reach(comparison, TargetValue("test/accuracy", 2.0)).as_table().rows[0][1:] == ("not reached",) * 3
    shown = write_page(comparison, tmp_path / "page.html", reach=[found.as_table()]).read_text()
    assert "virtual time, s" in shown and 'value="time"' in shown
    with pytest.raises(ConfigError, match=r"no run measured 'test/acuracy'.*test/accuracy"):
        reach(comparison, TargetValue("test/acuracy", 0.5))
    with pytest.raises(ConfigError, match="expected METRIC=VALUE"):
        TargetValue.parse("test/accuracy")


def test_it_is_written_and_read() -> None:
    experiment = Experiment.from_toml('[topology]\nname = "async"\nalpha = 0.3\n[clock]\nname = "drawn"\nspeed = 3.0\n')
    assert experiment.topology == Async(alpha=0.3) and experiment.clock == Drawn(speed=3.0)
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    assert Experiment.from_toml('[topology]\nname = "buffered"\n').clock == Drawn()  # it needs one
    assert Experiment.from_toml("").clock is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"topology": Hierarchy(2)}, r"\[clock\] is for the topologies 'server', 'buffered' and 'async', not for"),
        ({"strategy": Scaffold()}, "Scaffold does not run on the topology 'buffered'"),
        ({"strategy": find("strategy", "centralised")(), "topology": Server()}, "no device is waited for"),
        ({"privacy": find("privacy", "clientlevel")(), "topology": Server()}, "tells who was asked"),
        ({"attack": find("attack", "alie")()}, "each may have been sent another model"),
        ({"topology": Async(), "robust": find("robust", "median")()}, "several replies"),
        ({"clock": Drawn(partial=True)}, "set deadline"),
        ({"clock": Drawn(weak=5.0)}, "with FedAvg nobody does: choose 'fedheads'"),
        ({"clock": Drawn(over=2.0)}, "over-selection"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_reason(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        replace(TINY, **{"strategy": find("strategy", "fedavg")(), **change})


def test_real_devices_have_no_virtual_time(tmp_path: Path) -> None:
    task = Objects(data=ClassFolders(path=str(tmp_path)))
    for change, said in ({"topology": TINY.topology}, "virtual time"), ({"topology": Server()}, r"\[clock\]"):
        with pytest.raises(ConfigError, match=said):
            check_federable(replace(TINY, task=task, **change))
