"""One hash: whatever the number of workers, the order of answers, and the instant at which the process is killed."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from dataclasses import replace

import pytest

from amount import FULL
from faults import Disk, Watch, complete_lines, go, killed, outcome, points, remains, tiny
from tour_parts import HOPEFUL, tour, written
from wayfare.encounters.policies.always import Always
from wayfare.encounters.policies.fedtour import FedTour
from wayfare.encounters.topology import Encounters
from wayfare.experiment import Evaluation
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.scaffold import Scaffold

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
SETTINGS = list(itertools.product((1, 2, 4), (False, True)))  # workers, backward
FEW = SETTINGS if FULL else SETTINGS[::2] + SETTINGS[-1:]  # one order for 1 and 2 workers, both for 4
MEETINGS = [(0, 0, 2), (1, 0, 1)]
WATCHED = Evaluation(every=2, test=False, clients=2, monitor="clients/loss")  # its best model is one more file


class Case:
    """An experiment, what it gives uninterrupted, and the calls by which it changes its folder."""

    def __init__(self, experiment, folder):
        self.experiment, self.folder = experiment, folder
        self.trace = []  # what happened, in its order: (call, result), and the numbers of announced rounds
        watch = Watch(folder, after=lambda call, result: self.trace.append((call, result)))
        with watch:
            go(experiment, folder, listen=lambda event, data: event == "round" and self.trace.append(data["round"]))
        self.calls, self.expected = watch.calls, outcome(folder)

    def crash(self, folder, at, torn):
        """Kill the run at this call; what was announced must be on record. Whether it was killed, and the record."""
        was_killed, announced = killed(folder, lambda hear: go(self.experiment, folder, listen=hear), at, torn)
        folder.mkdir(exist_ok=True)
        record = complete_lines(folder)
        assert {json.loads(line)["round"] for line in record.splitlines()} >= set(announced), "not on record"
        return was_killed, record

    def correct(self, folder, engine, record):
        """Continue to the end: the same model, memories and rounds, and those on record untouched."""
        go(self.experiment, folder, engine)
        assert complete_lines(folder).startswith(record), "a round on record was lost"
        assert outcome(folder) == self.expected


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    place = tmp_path_factory.mktemp("whole")
    return {
        "fedavg": Case(tiny(FedAvg()), place / "fedavg"),
        "scaffold": Case(tiny(Scaffold(), rounds=3 if FULL else 2, evaluation=WATCHED), place / "scaffold"),
        "tour": Case(tour(place, MEETINGS, FedTour(10, HOPEFUL), (20, 30, 60)), place / "tour"),
    }


@pytest.fixture
def engine(pools):
    def choose(setting):
        workers, backward = setting
        pools[workers].backward = backward
        return pools[workers]

    return choose


@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_workers_and_orders(cases, engine, tmp_path, name):
    """Without a crash. In every round the devices answer from first to last, or from last to first."""
    for setting in FEW:
        pool = engine(setting)
        pool.trained.clear()
        cases[name].correct(tmp_path / f"{setting}", pool, b"")
        devices = ["c0", "c1", "c2", "c3"]
        assert pool.trained == (devices[::-1] if pool.backward else devices) * cases[name].experiment.rounds


def test_a_tour_with_any_workers_and_orders(engine, tmp_path):
    """Six phones that meet train, merge and are evaluated by 1, 2 and 4 workers, in both orders."""
    traces = written(tmp_path, [(slot, a, b) for slot in range(4) for a, b in ((0, 1), (2, 3), (4, 5), (1, 2), (3, 4))])
    experiment = replace(
        tiny(FedAvg("uniform"), clients=6, evaluation=Evaluation(every=100, holdout=0.0)), rounds=0,
        topology=Encounters(traces, probe=40, judge=1, test=40, iterations=1), exchange=Always(20),
    )  # fmt: skip
    runs = [go(experiment, tmp_path / f"{setting}", engine(setting)) for setting in FEW]
    runs.append(go(experiment, tmp_path / "local", "local"))
    assert runs[0]["metrics"]["tour/taken"] > 2
    assert len({run["model_sha256"] for run in runs}) == 1
    assert all(run["metrics"] == runs[0]["metrics"] for run in runs)


@pytest.mark.timeout(1800)
def test_every_crash_point_with_every_engine(cases, engine, tmp_path, figure):
    """Each crash point is mended six ways, or by one of them in turn, and by one process. Equal remains count once."""
    case, seen = cases["fedavg"], set()
    tried = thinned(points(case.calls))
    turns = itertools.cycle(SETTINGS)
    for folder, record in crashed(case, tried, tmp_path, seen):
        for setting in SETTINGS if FULL else [next(turns)]:
            copy = shutil.copytree(folder, tmp_path / "copy")
            case.correct(copy, engine(setting), record)
            shutil.rmtree(copy)
        case.correct(folder, "local", record)
    figure(
        f"FedAvg: {len(tried)} crash points ({len(seen)} different remains) x 3 worker counts x 2 orders, "
        "and local: one hash, no round lost"
    )


@pytest.mark.timeout(1800)
def test_every_crash_point_with_memories(cases, engine, tmp_path, figure):
    """Devices that remember: each crash point is mended by one engine, in turn."""
    case, seen = cases["scaffold"], set()
    tried = thinned(points(case.calls))
    turns = itertools.cycle(["local", *SETTINGS])
    for folder, record in crashed(case, tried, tmp_path, seen):
        turn = next(turns)
        case.correct(folder, turn if turn == "local" else engine(turn), record)
    figure(
        f"SCAFFOLD: {len(tried)} crash points ({len(seen)} different remains), engines in turn: "
        "one hash, one set of memories, no round lost"
    )


@pytest.mark.timeout(900)
def test_every_crash_point_of_a_tour(cases, tmp_path, figure):
    """Devices that meet: their models are rows of one file, of which a checkpoint says which is whose."""
    case, seen = cases["tour"], set()
    tried = thinned(points(case.calls))
    for folder, record in crashed(case, tried, tmp_path, seen):
        case.correct(folder, "local", record)
    figure(f"a tour: {len(tried)} crash points ({len(seen)} different remains): one hash, no slot lost")


def thinned(tried):
    """All of them, or every third; the rounds make the same calls, so most calls of a round are among them."""
    return tried if FULL else tried[::3]


def crashed(case, tried, place, seen):
    """Kill a run at every point; yields each folder whose remains are new, with what is on its record."""
    for at, torn in tried:
        folder = place / f"{at}{'-torn' if torn else ''}"
        was_killed, record = case.crash(folder, at, torn)
        assert was_killed
        left = remains(folder)
        if left not in seen:
            seen.add(left)
            yield folder, record
        shutil.rmtree(folder)


@pytest.mark.timeout(900)
def test_crashes_while_mending(cases, engine, tmp_path, figure):
    """Killed, resumed, killed again at some later call, several times."""
    rng, runs, crashes = random.Random(0), 30 if FULL else 8, 0
    for number in range(runs):
        case, folder, record = cases[("fedavg", "scaffold")[number % 2]], tmp_path / f"{number}", b""
        for _ in range(rng.randint(2, 4)):
            at, torn = int(len(case.calls) * rng.random() ** 2), rng.random() < 0.3
            before = record
            was_killed, record = case.crash(folder, at, torn)
            assert record.startswith(before), "a round on record was lost"
            crashes += was_killed
        case.correct(folder, engine(rng.choice(SETTINGS)), record)
    assert crashes >= 2 * runs
    figure(f"{runs} runs killed {crashes} times, again while they resumed: one hash, no round lost")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "tour"])
def test_loss_of_power(cases, tmp_path, figure, name):
    """After every call, only what was synced is left, with names as of the last sync of their folder or as of now."""
    case, disk, seen, states, announced = cases[name], Disk(), set(), 0, 0
    for number, event in enumerate(case.trace):
        if isinstance(event, int):
            announced = event + 1
        else:
            disk.replay(*event)
        for eager in (False, True) if FULL else [number % 2 == 0] * (number % 3 < 2):
            files, states = disk.left(eager), states + 1
            assert files.get("./rounds.jsonl", b"").count(b"\n") >= announced, f"round {announced - 1} is lost"
            key = tuple(sorted(files.items()))
            if key in seen:
                continue
            seen.add(key)
            folder = tmp_path / f"{len(seen)}"
            for path, data in files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(data)
            case.correct(folder, "local", complete_lines(folder))
            shutil.rmtree(folder)
    figure(f"{name}: {states} losses of power ({len(seen)} different remains): one hash, no announced round lost")
