"""One process at a time in a run folder."""

from __future__ import annotations

import multiprocessing
import os
import signal

import pytest

from faults import go, outcome, tiny
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
    trials = 200
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
