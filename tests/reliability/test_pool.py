"""Worker processes that die, hang or fail, and what the pool leaves behind."""

from __future__ import annotations

import functools
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver
from pathlib import Path

import pytest
import torch

from faults import Dawdles, Dies, DiesLater, Differs, Fails, Stops, complete_lines, go, outcome, tiny
from wayfare.core.bundle import Bundle
from wayfare.core.errors import DeviceError, StoreError
from wayfare.core.memory import Memories
from wayfare.core.protocols import Policy
from wayfare.core.store import Store
from wayfare.engines.pool import call as call_module
from wayfare.engines.pool import shared
from wayfare.engines.pool.call import Call
from wayfare.engines.pool.engine import Pool
from wayfare.engines.pool.processes import Worker
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

    def _new_call(self, program):
        return CountingCall(self, program)

    @property
    def files(self):
        return sorted(path.name for path in self.folder.iterdir())

    @property
    def pids(self):
        self.processes.idle()  # those that were ended are replaced
        return [worker.process.pid for worker in self.processes.workers]

    @property
    def replaced(self):
        return self.processes.replaced


class CountingCall(Call):
    def __init__(self, pool, program):
        super().__init__(program, pool.processes, pool.folder, pool._size)
        self._pool = pool

    def _order(self, job):
        self._pool.started.append(job.device)
        self._pool.most_files = max(self._pool.most_files, len(self._pool.files))
        return super()._order(job)


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
    """Whatever happened, all workers are there and idle, and shared memory is empty."""
    yield
    assert pool.files == []
    assert len(set(pool.pids)) == 2
    assert not pool.processes.busy


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
        busy.append(len(pool.processes.busy))
        assert soon(lambda: all(worker.connection.poll() for worker in pool.processes.busy))  # it is done already
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
    prefetched = []
    monkeypatch.setattr(pool, "prefetch", lambda *more: prefetched.append(more))
    watched = Evaluation(every=1, test=False, clients=2, monitor="clients/loss", patience=1)
    go(tiny(FedAvg(), evaluation=watched), tmp_path / "run", pool)
    assert not prefetched
    go(tiny(FedAvg()), tmp_path / "other", pool)
    assert [more[2] for more in prefetched] == [1, 2, 3]


def test_what_was_prefetched_and_is_not_asked(pool, expected, tmp_path):
    """Another program, or nothing at all: whoever had begun is stopped. Another message is a mistake, and an error."""
    go(tiny(FedAvg()), tmp_path / "run", pool)
    message = Bundle.unpack((tmp_path / "run" / "model.safetensors").read_bytes()).only("model")
    asked = Bundle(message.tensors, {"round": 4})
    pool.prefetch("train", [("c0", message), ("c1", message)], 4, 60.0)
    assert len(pool.processes.busy) == 2
    replies = dict(pool.call("evaluate", [("c0", Bundle(asked.tensors, {**asked.values, "split": "test"}))], math.inf))
    assert "metric/accuracy" in replies["c0"].values
    pool.prefetch("train", [("c0", message)], 4, 60.0)
    pool.finish()
    assert not pool.processes.busy
    pool.prefetch("train", [("c0", message)], 4, 60.0)
    with pytest.raises(RuntimeError, match="device 'c0' was prefetched, but 'c1' is asked"):
        list(pool.call("train", [("c1", asked)], math.inf))
    pool.prefetch("train", [("c0", message)], 4, 60.0)
    with pytest.raises(RuntimeError, match="prefetched"):
        list(pool.call("train", [("c0", Bundle(message.tensors, {"round": 5}))], math.inf))


def test_workers_are_busy_while_replies_are_handed_out(pool, expected, tmp_path):
    """A slow merge does not keep workers waiting: one that is done gets its next job before a reply is handed out."""
    go(tiny(FedAvg(), clients=12, rounds=1), tmp_path / "run", pool)
    model = Bundle.unpack((tmp_path / "run" / "model.safetensors").read_bytes()).only("model")
    message = Bundle(model.tensors, {"round": 2})
    pool.started.clear()
    replies = pool.call("train", ((f"c{number}", message) for number in range(12)), math.inf)
    for _ in replies:
        assert len(pool.started) == 12 or len(pool.processes.busy) == pool.workers
        assert soon(lambda: all(worker.connection.poll() for worker in pool.processes.busy))
    assert len(pool.started) == 12


# ---- workers that hang


def test_stopped(pool, expected, tmp_path, monkeypatch):
    """It is killed at the deadline and its device counts as late; the round goes on, and the pool as well."""
    monkeypatch.setattr(call_module, "GRACE", 0.2)
    go(tiny(FedAvg(), rounds=1), tmp_path / "warm", pool)  # the deadline is for workers that are ready
    before, deadline = pool.replaced, 3.0
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
    monkeypatch.setattr(call_module, "GRACE", 0.2)
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
    assert pool.files == []
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
    pids, folder = pool.pids, pool.folder
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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONFAULTHANDLER": "1"}
    return {"args": [sys.executable, "script.py"], "cwd": folder, "env": environment}


AS_THE_COMMAND_LINE = """
import json, os, sys
from pathlib import Path
from wayfare.engines import open_engine

held = open("held", "w")
with open_engine("pool", 2) as pool:
    from faults import go, tiny
    from wayfare.strategies.fedavg import FedAvg

    from faults import Dawdles
    from wayfare import run

    model = go(tiny(FedAvg()), Path("first"), pool)["model_sha256"]
    again = run(tiny(Dawdles(devices=("c1",), seconds=0.1)), "again", "pool", 2)["model_sha256"]  # a second pool
    process = Path(f"/proc/{pool.processes.workers[0].process.pid}")
    print(json.dumps({
        "model": model, "again": again,
        "held": held.name in {Path(os.readlink(file)).name for file in (process / "fd").iterdir()},
        "threads": len(list((process / "task").iterdir())),
        "own": os.environ.get("OMP_NUM_THREADS"), "main": sys.modules["__main__"].__file__.endswith("script.py"),
    }))
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux: what a process has open is read in /proc")
def test_a_script_without_a_main_guard(expected, tmp_path):
    """Workers inherit nothing that is open, nor is the process changed that starts them: environment, main module."""
    (tmp_path / "script.py").write_text(AS_THE_COMMAND_LINE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == {"model": expected, "again": expected, "held": False, "threads": 2, "own": None, "main": True}


def test_a_dead_fork_server_is_started_again(pool, expected, tmp_path):
    before, replaced = pool.pids, pool.replaced
    server = forkserver._forkserver._forkserver_pid
    for pid in (server, *before):
        os.kill(pid, signal.SIGKILL)
    assert soon(lambda: all(gone(pid) for pid in (server, *before)))
    assert go(tiny(FedAvg()), tmp_path / "run", pool)["model_sha256"] == expected
    assert pool.replaced == replaced + 2
    assert set(pool.pids).isdisjoint(before)
    assert forkserver._forkserver._forkserver_pid != server


def test_a_stopped_worker_is_stopped_once(monkeypatch):
    """Its number among processes may be another's by then."""
    worker = Worker()
    pid = worker.process.pid
    assert not gone(pid)
    assert worker.stop() == -signal.SIGKILL
    assert gone(pid)
    monkeypatch.setattr(os, "kill", None)  # not to be called any more
    assert worker.stop() == -signal.SIGKILL


def test_interrupted_by_the_keyboard(pool, tmp_path):
    """Ctrl-C reaches all processes of a terminal. Only the one that was started says so, and the others end with it."""
    everyone = ("c0", "c1", "c2", "c3")
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # in the background a shell ignores it
    parent = subprocess.Popen(
        **script(tmp_path, everyone, 600.0), start_new_session=True, preexec_fn=heard, stderr=subprocess.PIPE, text=True
    )
    try:
        assert soon(lambda: len(list((tmp_path / "marks").iterdir())) >= 2, 120)
        workers = descendants(parent.pid)
        os.killpg(parent.pid, signal.SIGINT)
        try:
            _, said = parent.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(parent.pid, signal.SIGABRT)  # each says where it is
            pytest.fail(f"nobody ended: {parent.communicate()[1]}")
    finally:
        parent.kill()
        parent.wait()
    assert said.count("Traceback (most recent call last)") == 1 and said.endswith("KeyboardInterrupt\n")
    assert soon(lambda: all(gone(pid) for pid in workers))
    assert not list(pool.folder.parent.glob(f"*wayfare-pool-{parent.pid}-*"))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux: processes are found in /proc")
@pytest.mark.parametrize("ready", [False, True], ids=["while they start", "while they train"])
def test_killed_parent_leaves_no_workers(pool, tmp_path, ready):
    """Workers end with the process that started them, and the next pool clears their memory away."""
    everyone, place = ("c0", "c1", "c2", "c3"), pool.folder.parent
    marks, parent = tmp_path / "marks", subprocess.Popen(**script(tmp_path, everyone, 600.0))
    try:
        if ready:
            assert soon(lambda: len(list(marks.iterdir())) >= 2, 120)
        else:  # the fork server imports, and the first worker is ordered from it
            assert soon(lambda: len(descendants(parent.pid)) >= 2, 120)
            assert soon(lambda: (tmp_path / "out" / "environment.json").exists(), 120)
        workers = descendants(parent.pid)
        assert len(workers) == 4 if ready else workers  # two of them, the fork server and Python's resource tracker
    finally:
        parent.kill()
        parent.wait()
    soon(lambda: all(gone(pid) for pid in workers), 10 if ready else 30)
    left = [pid for pid in workers if not gone(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    shared.remove_folder(shared.make_folder())
    assert not list(place.glob(f"*wayfare-pool-{parent.pid}-*"))


# ---- whose memory it is


OWNER = "from wayfare.engines.pool import shared; print(shared.make_folder(), flush=True); input()"


def owner(*before):
    """A process that has a folder of shared memory, and the folder."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return process, Path(process.stdout.readline().strip())


def test_a_folder_goes_with_its_owner_only():
    """While the owner lives it stays; after kill -9 the next pool removes it; what is being made is left alone."""
    process, folder = owner()
    new = folder.with_name(".wayfare-pool-1-new")
    new.mkdir()
    try:
        shared.remove_folder(shared.make_folder())
        assert folder.is_dir()
        process.kill()
        process.wait()
        shared.remove_folder(shared.make_folder())
        assert not folder.exists()
        assert new.is_dir()
    finally:
        process.kill()
        process.communicate()
        new.rmdir()


@pytest.mark.skipif(
    subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode != 0
    if shutil.which("unshare")
    else True,
    reason="needs the right to make a PID namespace",
)
def test_two_containers_with_one_memory():
    """Each has process numbers of its own: neither removes the other's folder."""
    apart = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    (one, first), (two, second) = owner(*apart), owner(*apart)
    try:
        shared.remove_folder(shared.make_folder())
        assert first.is_dir() and second.is_dir()
    finally:
        for process, folder in ((one, first), (two, second)):
            process.communicate("\n")
            shutil.rmtree(folder, ignore_errors=True)
