"""Worker processes that die, hang or fail, and what the pool leaves behind."""

from __future__ import annotations

import gc
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from faults import Dawdles, Dies, DiesLater, Differs, Fails, Stops, complete_lines, go, outcome, tiny
from wayfare.core.bundle import Bundle
from wayfare.core.memory import Memories
from wayfare.core.protocols import Policy
from wayfare.core.store import Store
from wayfare.engines import pool as pool_module
from wayfare.engines import shared
from wayfare.engines.pool import Pool
from wayfare.errors import DeviceError, StoreError
from wayfare.experiment import Evaluation
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.scaffold import Scaffold

SCRIPT = """
from faults import Dawdles, tiny
from wayfare import run

slow = Dawdles(devices={devices}, once="marks", seconds={seconds})
print(run(tiny(slow), "out", "pool", 2)["model_sha256"], flush=True)
"""


class Counting(Pool):
    """Counts the devices that were started and not yet handed out, and the files in shared memory."""

    most_files = 0

    def __init__(self, workers):
        super().__init__(workers)
        self.started = []

    def _start(self, worker, program, job, running, deadline):
        self.started.append(job.device)
        super()._start(worker, program, job, running, deadline)
        self.most_files = max(self.most_files, len(self.files))

    @property
    def files(self):
        return sorted(path.name for path in self._folder.iterdir())

    @property
    def pids(self):
        return [worker.pid for worker in self._crew]


@pytest.fixture(scope="module")
def pool():
    with Counting(2) as made:
        yield made


@pytest.fixture(scope="module")
def expected(tmp_path_factory, pool):
    """The hash of an undisturbed run; and the workers are warm."""
    place = tmp_path_factory.mktemp("whole")
    here, there = go(tiny(FedAvg()), place / "local"), go(tiny(FedAvg()), place / "pool", pool)
    assert here["model_sha256"] == there["model_sha256"]
    return here["model_sha256"]


@pytest.fixture(autouse=True)
def tidy(pool):
    """Whatever happened, all workers are there and idle, and shared memory holds but the files to be written again."""
    yield
    assert unused(pool)
    assert len(pool.files) <= 5 * pool.workers
    assert len(pool.pids) == 2
    assert not any(worker.jobs for worker in pool._crew)


def unused(pool):
    """Whether nobody looks at the files in shared memory any more; a traceback's hold on a reply needs collecting."""
    gc.collect()
    return set(pool.files) <= {Path(file).name for file in pool._free}


def lines(folder):
    return [json.loads(line) for line in complete_lines(folder).splitlines()]


def refused(folder):
    """Per round: who was refused, and why."""
    return [{entry["device"]: entry["reason"] for entry in line["refused"]} for line in lines(folder)]


def gone(pid):
    """Whether a process has ended; nobody may have collected it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def soon(condition, seconds=20.0):
    """Wait until it is so."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


# ---- no worker waits for another


def test_the_next_round_begins_while_the_last_is_written(pool, expected, tmp_path, monkeypatch):
    """Every round but the last; and what that leaves if the power fails just then is mended to the same bits."""
    real, busy, left = Store.commit, [], []

    def commit(store, line, state):
        busy.append(sum(len(worker.jobs) for worker in pool._crew))
        assert soon(lambda: all(worker.pipe.poll() for worker in pool._crew if worker.jobs))  # it is done already
        left.append(shutil.copytree(store.folder, tmp_path / f"left-{line['round']}"))
        real(store, line, state)

    whole = go(tiny(Scaffold(), rounds=4), tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", commit)
        assert go(tiny(Scaffold(), rounds=4), tmp_path / "run", pool)["model_sha256"] == whole["model_sha256"]
    assert busy == [2, 2, 2, 2, 0]
    for round, folder in enumerate(left):
        ahead = list(folder.glob(f"memory/*/*@{round + 1}"))
        assert len(lines(folder)) == round and len(ahead) == busy[round]
        go(tiny(Scaffold(), rounds=4), folder, "local")
        assert outcome(folder) == outcome(tmp_path / "whole")


def test_memories_outlive_a_damaged_checkpoint_of_a_round_that_was_overtaken(tmp_path):
    """Round 4 is being trained, 3 is not yet on record, and 2 turns out to be damaged: what 1 left is needed."""
    memories = Memories(tmp_path)
    for round in range(1, 5):
        memories.save("c0", round, Bundle({}, {"round": round}))
    memories.rewind(1)
    assert memories.load("c0", 1).values == {"round": 1}


def test_a_run_that_may_stop_early_begins_nothing_that_it_may_not_need(pool, expected, tmp_path, monkeypatch):
    foreseen = []
    monkeypatch.setattr(pool, "foresee", lambda *more: foreseen.append(more))
    watched = Evaluation(every=1, test=False, clients=2, monitor="clients/loss", patience=1)
    go(tiny(FedAvg(), evaluation=watched), tmp_path / "run", pool)
    assert not foreseen
    go(tiny(FedAvg()), tmp_path / "other", pool)
    assert [more[2] for more in foreseen] == [1, 2, 3]


def test_what_was_foretold_and_is_not_asked(pool, expected, tmp_path):
    """Another program, or nothing at all: whoever had begun is stopped. Another message is a mistake, and told."""
    go(tiny(FedAvg()), tmp_path / "run", pool)
    message = Bundle.unpack((tmp_path / "run" / "model.safetensors").read_bytes()).only("model")
    asked = Bundle(message.tensors, {"round": 4})
    pool.foresee("train", [("c0", message), ("c1", message)], 4, 60.0)
    assert [len(worker.jobs) for worker in pool._crew] == [1, 1]
    replies = dict(pool.call("evaluate", [("c0", Bundle(asked.tensors, {**asked.values, "split": "test"}))], math.inf))
    assert "metric/accuracy" in replies["c0"].values
    pool.foresee("train", [("c0", message)], 4, 60.0)
    pool.rest()
    pool.foresee("train", [("c0", message)], 4, 60.0)
    with pytest.raises(RuntimeError, match="device 'c0' was foretold a message, and 'c1' is asked another"):
        list(pool.call("train", [("c1", asked)], math.inf))
    pool.foresee("train", [("c0", message)], 4, 60.0)
    with pytest.raises(RuntimeError, match="foretold"):
        list(pool.call("train", [("c0", Bundle(message.tensors, {"round": 5}))], math.inf))


def test_orders_wait_at_the_workers_while_there_are_many(pool, expected, tmp_path, monkeypatch):
    """A worker has the next job before it is done with one, but for the last few; an order that is long waits here."""
    experiment, queued = tiny(FedAvg(), clients=12, rounds=1), []
    real = pool._start

    def start(worker, *more):
        queued.append(len(worker.jobs))
        real(worker, *more)

    monkeypatch.setattr(pool, "_start", start)
    whole = go(experiment, tmp_path / "local")
    assert go(experiment, tmp_path / "run", pool)["model_sha256"] == whole["model_sha256"]
    assert len(queued) == 12 and max(queued) == 1 and queued.count(1) >= 4
    assert queued[-2:] == [0, 0]
    queued.clear()
    monkeypatch.setattr(pool_module, "_LIGHT", 100)
    assert go(experiment, tmp_path / "long", pool)["model_sha256"] == whole["model_sha256"]
    assert queued == [0] * 12


def test_an_order_that_waits_at_a_worker_that_dies(pool, expected, tmp_path):
    """It is given to another, and it is not its fault."""
    devices = tuple(f"c{number}" for number in range(12))
    summary = go(tiny(Dies(devices=devices[:3], once=str(tmp_path)), clients=12), tmp_path / "run", pool)
    whole = go(tiny(FedAvg(), clients=12), tmp_path / "whole")
    assert summary["model_sha256"] == whole["model_sha256"] and summary["refused"] == 0


# ---- workers that hang


def test_stopped(pool, expected, tmp_path, monkeypatch):
    """It is killed at the deadline and its device counts as late; the round goes on, and the pool as well."""
    monkeypatch.setattr(pool_module, "_GRACE", 0.2)
    go(tiny(FedAvg(), rounds=1), tmp_path / "warm", pool)  # the deadline is for workers that are ready
    before, deadline = pool.replaced, 5.0
    experiment = tiny(Stops(devices=("c3",)), rounds=1, policy=Policy(deadline=deadline))
    began = time.monotonic()
    go(experiment, tmp_path / "run", pool)
    assert time.monotonic() - began < deadline + 5
    assert refused(tmp_path / "run")[1] == {"c3": "failed: late: no reply before the round's deadline"}
    assert sorted(lines(tmp_path / "run")[1]["clients"]) == ["c0", "c1", "c2"]
    assert pool.replaced == before + 1
    assert go(tiny(FedAvg()), tmp_path / "after", pool)["model_sha256"] == expected


def test_all_stopped(pool, expected, tmp_path, monkeypatch):
    """No wait without an end, even if nobody answers."""
    monkeypatch.setattr(pool_module, "_GRACE", 0.2)
    everyone = Stops(devices=("c0", "c1", "c2", "c3"))
    with pytest.raises(DeviceError, match="late"):
        go(tiny(everyone, rounds=1, policy=Policy(deadline=1.0)), tmp_path / "run", pool)


@pytest.mark.parametrize("deadline", [math.inf, 1e12])
def test_no_deadline(pool, expected, tmp_path, deadline):
    assert go(tiny(FedAvg(), policy=Policy(deadline=deadline)), tmp_path / "run", pool)["model_sha256"] == expected


# ---- workers that die


def test_killed_while_training(pool, expected, tmp_path):
    """The worker is replaced and the device is asked again: not a bit differs."""
    before = pool.replaced
    summary = go(tiny(Dies(devices=("c1",), once=str(tmp_path))), tmp_path / "run", pool)
    assert pool.replaced == before + 1
    assert summary["model_sha256"] == expected
    assert summary["refused"] == 0


def test_killed_after_it_has_remembered(pool, expected, tmp_path):
    """Its memory of this round is on disk, its answer is not: asked again, it begins from the memory before."""
    go(tiny(Scaffold()), tmp_path / "whole")
    go(tiny(DiesLater(devices=("c1",), once=str(tmp_path))), tmp_path / "run", pool)
    mine, whole = outcome(tmp_path / "run"), outcome(tmp_path / "whole")
    assert mine["memory"] == whole["memory"]
    for line in mine["rounds"] + whole["rounds"]:
        del line["experiment"]  # the two differ in the name of their strategy only
    assert mine["rounds"] == whole["rounds"]


def test_killed_from_outside(pool, expected, tmp_path):
    """At a moment that nobody chose: the system is short of memory, say."""
    before = pool.replaced

    def shoot(event, data):
        if event == "device" and len(pool.started) >= 6 and pool.replaced == before:
            os.kill(pool.pids[-1], signal.SIGKILL)

    pool.started.clear()
    summary = go(tiny(FedAvg()), tmp_path / "run", pool, listen=shoot)
    assert pool.replaced == before + 1
    assert summary["model_sha256"] == expected
    assert summary["refused"] == 0


def test_killed_while_idle(pool, expected, tmp_path):
    """Between two runs: the next one notices and replaces it."""
    before, victim = pool.replaced, pool.pids[0]
    os.kill(victim, signal.SIGKILL)
    assert soon(lambda: gone(victim))
    assert go(tiny(FedAvg()), tmp_path / "run", pool)["model_sha256"] == expected
    assert pool.replaced == before + 1


def test_always_killed(pool, expected, tmp_path):
    """A device that takes its worker along each time is left out after two tries; the others go on."""
    before = pool.replaced
    go(tiny(Dies(devices=("c2",)), rounds=1), tmp_path / "run", pool)
    (reason,) = (entry.pop("c2") for entry in refused(tmp_path / "run")[1:])
    assert "its worker process died twice (exit status -9)" in reason
    assert lines(tmp_path / "run")[1]["clients"] == [c for c in lines(tmp_path / "run")[1]["clients"] if c != "c2"]
    assert len(lines(tmp_path / "run")[1]["clients"]) == 3
    assert pool.replaced == before + 2


# ---- programs that fail


@pytest.fixture(params=["local", "pool"])
def engine(request):
    return request.getfixturevalue("pool") if request.param == "pool" else "local"


def test_failed_and_skipped(engine, expected, tmp_path):
    summary = go(tiny(Fails(devices=("c1",))), tmp_path / "run", engine)
    assert refused(tmp_path / "run")[1:] == [{"c1": "failed: ValueError: this device has had enough"}] * 3
    assert summary["refused"] == 3
    assert all(sorted(line["clients"]) == ["c0", "c2", "c3"] for line in lines(tmp_path / "run")[1:])


def test_failed_and_raised(engine, expected, tmp_path):
    experiment = tiny(Fails(devices=("c1",)), policy=Policy(on_error="raise"))
    with pytest.raises(DeviceError, match="device 'c1', program 'train': ValueError: this device") as caught:
        go(experiment, tmp_path / "run", engine)
    assert "Traceback (most recent call last)" in caught.value.detail
    assert "faults.py" in caught.value.detail
    assert "in misbehave" in caught.value.detail
    assert len(lines(tmp_path / "run")) == 1


def test_all_failed(engine, expected, tmp_path):
    """Not one device can do it, round after round: a fault of the experiment, told with its traceback."""
    with pytest.raises(DeviceError, match="this device has had enough") as caught:
        go(tiny(Fails(devices=("c0", "c1", "c2", "c3"))), tmp_path / "run", engine)
    assert "in misbehave" in caught.value.detail
    assert [line["void"] for line in lines(tmp_path / "run")] == [False, True, True, True]


def test_left_early(pool, expected, tmp_path):
    """Who stops listening half-way (Ctrl-C, a full disk) leaves a pool that can be used again."""

    def interrupt(event, data):
        if event == "device":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(tiny(FedAvg()), tmp_path / "run", pool, listen=interrupt)
    assert soon(lambda: unused(pool))
    assert go(tiny(FedAvg()), tmp_path / "run", pool)["model_sha256"] == expected


# ---- memory


@pytest.mark.parametrize("strategy", [Dawdles(devices=("c7",)), Differs()], ids=["one message", "a message each"])
def test_held_replies_are_bounded(pool, expected, tmp_path, figure, strategy):
    """However many devices there are, and though they wait for a slow one, a window of four per worker is held."""
    pool.started.clear()
    pool.most_files, handed, most_held = 0, 0, 0

    def count(event, data):
        nonlocal handed, most_held
        if event == "device":
            most_held = max(most_held, len(pool.started) - handed)
            handed += 1

    go(tiny(strategy, clients=100, rounds=1), tmp_path / "run", pool, listen=count)
    assert handed == 100
    assert most_held <= 4 * pool.workers
    assert pool.most_files <= 9 * pool.workers  # a window of messages, one of replies, and those being merged
    figure(f"100 devices on 2 workers: at most {most_held} replies held, {pool.most_files} files in shared memory")


def test_shared_memory_is_full(tmp_path):
    """An error with what to do, in the middle of a file as well, and nothing is left of it."""
    bundle, limit = Bundle({"model": {"w": torch.ones(100_000)}}), resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limit[1]))  # files may not become larger: EFBIG for ENOSPC
    try:
        with pytest.raises(StoreError, match=r"no room for 400,000 bytes of shared memory.*make it larger"):
            shared.put(bundle, tmp_path / "file")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not list(tmp_path.iterdir())


# ---- what is left behind


def test_close():
    pool = Counting(2)
    pids, folder = pool.pids, pool._folder
    assert folder.is_dir()
    os.kill(pids[0], signal.SIGSTOP)  # even one that cannot hear
    pool.close()
    assert not folder.exists()
    assert all(gone(pid) for pid in pids)
    pool.close()  # once more does no harm


def descendants(pid):
    """A process's children, and theirs."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [one for child in children for one in descendants(child)]


def script(folder, devices, seconds):
    """A caller's own script, without `if __name__ == "__main__"`; these devices take so much longer to train."""
    (folder / "marks").mkdir()
    (folder / "script.py").write_text(SCRIPT.format(devices=devices, seconds=seconds))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return {"args": [sys.executable, "script.py"], "cwd": folder, "env": environment}


def test_script_without_a_main_guard(expected, tmp_path):
    done = subprocess.run(**script(tmp_path, ("c1",), 0.1), capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr


AS_THE_COMMAND_LINE = """
import gc, json, os, signal, subprocess, sys
from pathlib import Path
from wayfare.machine import opened

searched = []
gc.callbacks.append(lambda phase, info: searched.append(len(gc.get_objects())))
held = open("held", "w")
signal.signal(signal.SIGTERM, lambda *_: None)
with opened("pool", 2) as pool:
    searched = max(searched, default=0)
    gc.callbacks.clear()
    from faults import go, tiny
    from wayfare.strategies.fedavg import FedAvg
    nursery = pool._crew[0].nursery
    first = nursery._process
    models = [go(tiny(FedAvg()), Path("first"), pool)["model_sha256"]]
    open_files = {os.readlink(file) for file in Path(f"/proc/{pool._crew[0].pid}/fd").iterdir()}
    said = os.environ.get("OMP_NUM_THREADS")
    os.kill(pool._crew[0].pid, signal.SIGTERM)
    first.kill()
    first.wait()
    models.append(go(tiny(FedAvg()), Path("second"), pool)["model_sha256"])
    print(json.dumps({
        "models": models, "copy": not isinstance(first, subprocess.Popen), "status": first.poll(),
        "then a program": isinstance(nursery._process, subprocess.Popen), "born": nursery.born,
        "held": str(Path("held").resolve()) in open_files, "stdin": os.devnull in open_files, "said": said,
        "same group": os.getpgid(nursery._process.pid) == os.getpgid(0),
        "searched": searched, "frozen": gc.get_freeze_count(),
    }))
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux: what a process has open is read in /proc")
def test_a_process_without_torch_is_copied(expected, tmp_path):
    """As the command line is: torch is imported once. What such a copy must not keep, and a nursery after its death."""
    (tmp_path / "script.py").write_text(AS_THE_COMMAND_LINE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    # what torch brings, some 300,000 objects, is not looked through for garbage: that takes a tenth of a second
    assert told.pop("searched") < 50_000 < told.pop("frozen")
    assert told == {
        "models": [expected, expected], "copy": True, "status": -signal.SIGKILL, "then a program": True, "born": 2,
        "held": False, "stdin": True, "said": None, "same group": False,
    }  # fmt: skip


def test_a_dead_nursery_is_replaced_with_all_its_workers(pool, expected, tmp_path):
    before, replaced = pool.pids, pool.replaced
    os.kill(pool._crew[0].nursery._process.pid, signal.SIGKILL)
    assert soon(lambda: all(gone(pid) for pid in before))
    assert go(tiny(FedAvg()), tmp_path / "run", pool)["model_sha256"] == expected
    assert pool.replaced == replaced + 2
    assert set(pool.pids).isdisjoint({*before, None})


def test_a_stopped_worker_is_stopped_once(pool):
    """Its number among processes may be another's by then."""
    worker = pool._crew[0].nursery.hire()
    pid = worker.pid
    assert not gone(pid)
    worker.stop()
    assert gone(pid)
    assert worker.pid == 0
    assert worker.stop() == -signal.SIGKILL


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux: the kernel ends orphaned workers")
@pytest.mark.parametrize("ready", [False, True], ids=["while they start", "while they train"])
def test_killed_parent_leaves_no_workers(pool, tmp_path, ready):
    """Workers end with the process that started them, and the next pool clears their memory away."""
    everyone, place = ("c0", "c1", "c2", "c3"), pool._folder.parent
    marks, parent = tmp_path / "marks", subprocess.Popen(**script(tmp_path, everyone, 600.0))
    try:
        if ready:
            assert soon(lambda: len(list(marks.iterdir())) >= 2, 120)
        else:  # round 0 is done, and the first devices of round 1 are dealt to workers that are not there yet
            assert soon(lambda: (tmp_path / "out" / "rounds.jsonl").exists(), 120)
            assert soon(lambda: list(place.glob(f"wayfare-{parent.pid}-*/message-*")))
            time.sleep(0.3)  # now their orders are in the pipe
        workers = descendants(parent.pid)
        assert len(workers) == 3 if ready else workers  # two of them, and the nursery; or it has yet to fork them
    finally:
        parent.kill()
        parent.wait()
    soon(lambda: all(gone(pid) for pid in workers), 3 if ready else 30)
    left = [pid for pid in workers if not gone(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    shared.folder().rmdir()
    assert not list(place.glob(f"wayfare-{parent.pid}-*"))
