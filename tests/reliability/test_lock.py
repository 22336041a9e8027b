"""One process at a time in a run folder."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
import stat

import pytest

from amount import FULL
from faults import go, outcome, tiny
from wayfare.core import locks
from wayfare.core.bundle import Bundle
from wayfare.core.errors import StoreError
from wayfare.core.store import Store
from wayfare.strategies.fedavg import FedAvg

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
FORK = multiprocessing.get_context("fork")


def start(pipe, together):
    """Take each folder that comes through the pipe, say what came of it, and let go when told to."""
    for folder in iter(pipe.recv, None):
        together.wait(60)
        try:
            with Store(folder).held():
                pipe.send("won")
                pipe.recv()
        except StoreError as error:
            pipe.send(str(error))
            pipe.recv()


class Starters:
    """Processes that want the same folder at the same time."""

    def __init__(self, count):
        together = FORK.Barrier(count)
        pipes = [FORK.Pipe() for _ in range(count)]
        self.pipes = [ours for ours, _ in pipes]
        self.processes = [FORK.Process(target=start, args=(theirs, together), daemon=True) for _, theirs in pipes]
        for process in self.processes:
            process.start()

    def trial(self, folder):
        """All try at once: their numbers and answers. Who won keeps the folder until `release`."""
        self.tell(folder)
        return {process.pid: pipe.recv() for process, pipe in zip(self.processes, self.pipes)}

    def tell(self, what):
        for pipe in self.pipes:
            pipe.send(what)

    def release(self):
        self.tell("let go")

    def end(self):
        self.tell(None)
        for process in self.processes:
            process.join(60)
            assert process.exitcode == 0


@pytest.fixture
def starters(request):
    made = Starters(request.param)
    yield made
    made.end()


@pytest.mark.parametrize("starters", [50], indirect=True)
def test_one_winner(starters, tmp_path, figure):
    """New folders, and one that has had many holders before: one wins, the others name it."""
    trials = 200 if FULL else 50
    for trial in range(trials):
        folder = tmp_path / f"{trial}" if trial % 2 else tmp_path / "again"
        answers = starters.trial(folder)
        (winner,) = (pid for pid, answer in answers.items() if answer == "won")
        expected = f"{folder} is in use by process {winner}: wait for it, or stop it first"
        assert {answer for answer in answers.values() if answer != "won"} == {expected}
        starters.release()
    figure(f"{len(answers)} processes want one folder, {trials} times: 1 winner each, named by the others")


def test_a_run_in_use(tmp_path):
    """The second one refuses, names the first and leaves everything as it is; kill -9 of the first frees it."""
    folder, experiment = tmp_path / "run", tiny(FedAvg(), rounds=1)
    go(experiment, tmp_path / "whole")
    for _ in range(3):
        ours, theirs = FORK.Pipe()
        holder = FORK.Process(target=start, args=(theirs, FORK.Barrier(1)), daemon=True)
        holder.start()
        ours.send(folder)
        assert ours.recv() == "won"
        before = sorted(path for path in folder.rglob("*"))
        with pytest.raises(StoreError, match=f"in use by process {holder.pid}"):
            go(experiment, folder)
        assert sorted(path for path in folder.rglob("*")) == before
        os.kill(holder.pid, signal.SIGKILL)
        holder.join(60)
        go(experiment, folder)
        assert outcome(folder) == outcome(tmp_path / "whole")


def test_twice_in_one_process(tmp_path):
    with Store(tmp_path).held():
        with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"), Store(tmp_path).held():
            pass
        with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"), Store(tmp_path).held():
            pass  # a refusal does not take the lock from its holder
    with Store(tmp_path).held():
        pass


def test_an_error_lets_go(tmp_path):
    with pytest.raises(KeyboardInterrupt), Store(tmp_path).held():
        raise KeyboardInterrupt
    with Store(tmp_path).held():
        pass


def hold(folder):
    """A process that holds a folder, and the pipe to it."""
    ours, theirs = FORK.Pipe()
    holder = FORK.Process(target=start, args=(theirs, FORK.Barrier(1)), daemon=True)
    holder.start()
    ours.send(folder)
    assert ours.recv() == "won"
    return holder


def test_deleting_the_lock_lets_nobody_in(tmp_path):
    """The folder itself is locked; its file only says who is there."""
    holder = hold(tmp_path)
    (tmp_path / "lock").unlink()
    try:
        with pytest.raises(StoreError, match=f"{tmp_path} is in use by process unknown"), Store(tmp_path).held():
            pass
        (tmp_path / "lock").write_text("")
        with pytest.raises(StoreError, match=f"{tmp_path} is in use"), Store(tmp_path).held():
            pass
    finally:
        holder.kill()
        holder.join(60)
    with Store(tmp_path).held():
        pass


def test_a_lock_that_was_deleted_while_it_was_taken(tmp_path, monkeypatch):
    """A file that has no name any more keeps nobody out, so another one is taken."""
    lock, real, deleted = tmp_path / "lock", locks._taken, []

    def taken(handle, kind):
        if not deleted:
            deleted.append(lock.unlink())
        return real(handle, kind)

    monkeypatch.setattr(locks, "_taken", taken)
    with locks.held(lock, os.getpid()):
        assert lock.read_text() == str(os.getpid())


@pytest.fixture
def no_folder_locks(monkeypatch):
    """As on NFS."""
    real = fcntl.flock

    def flock(handle, kind):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(handle, kind)

    monkeypatch.setattr(fcntl, "flock", flock)


def test_where_folders_cannot_be_locked(no_folder_locks, tmp_path):
    """The file is the lock; who loses it commits nothing more."""
    store = Store(tmp_path)
    with store.held():
        with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"), Store(tmp_path).held():
            pass
        store.commit({"round": 0}, Bundle())
        (tmp_path / "lock").unlink()
        with pytest.raises(StoreError, match=r"lock was removed while this process worked there"):
            store.commit({"round": 1}, Bundle())
    assert (tmp_path / "rounds.jsonl").read_text().count("\n") == 1


@pytest.mark.parametrize("again", [False, True])
def test_a_folder_that_is_replaced(tmp_path, again):
    """Nothing is written into a folder that this process does not hold."""
    store, folder = Store(tmp_path / "run"), tmp_path / "run"
    with store.held():
        store.commit({"round": 0}, Bundle())
        folder.rename(tmp_path / "moved")
        if again:
            folder.mkdir()
        with pytest.raises(StoreError, match="was moved, removed or replaced"):
            store.commit({"round": 1}, Bundle())
    assert not folder.exists() or not list(folder.iterdir())
    assert (tmp_path / "moved/rounds.jsonl").read_text().count("\n") == 1
