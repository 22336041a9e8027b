"""Faults on purpose, for the tests of what a run survives.

`Watch` numbers the calls of `os` that change a folder, and can do something at any one of them. `killed` runs a job in
a forked child that is killed at such a call. `Disk` is what a loss of power leaves: only what was synced. `Ordered` is
a pool whose devices start and answer in a given order. The strategies at the end misbehave on chosen devices.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from wayfare.core.bundle import Bundle
from wayfare.core.device import Device
from wayfare.core.memory import Memories
from wayfare.core.protocols import Strategy, Training
from wayfare.engines.pool import call as pool_call
from wayfare.engines.pool.engine import Pool
from wayfare.experiment import Evaluation, Experiment
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.partition.random import Random
from wayfare.runner import resume, run
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.scaffold import Scaffold
from wayfare.topologies.server import Server

CALLS = ("mkdir", "open", "write", "pwrite", "fsync", "replace", "ftruncate", "truncate", "unlink")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CLOCKS = {"time", "seconds", "evaluation_seconds", "crc"}  # of a round's line: they may differ between equal runs


def tiny(strategy: Strategy, clients: int = 4, rounds: int = 3, **rest: Any) -> Experiment:
    """A federation on the digits that takes a tenth of a second."""
    return Experiment(
        Objects(model=CnnClassifier(width=2, hidden=4)), Random(clients), strategy, Server(),
        Training(iterations=2, batch_size=8),
        **{"evaluation": Evaluation(every=0), "rounds": rounds, **rest},
    )  # fmt: skip


def go(experiment: Experiment, folder: Path, engine: Any = "local", **rest: Any) -> dict[str, Any]:
    """Continue what is in the folder; if nothing has begun there, begin."""
    if (folder / "experiment.toml").exists():
        return resume(folder, engine, **rest)
    return run(experiment, folder, engine, **rest)


def outcome(folder: Path) -> dict[str, Any]:
    """Everything of a finished run that must not depend on engine, order or interruptions."""
    summary = json.loads((folder / "summary.json").read_text())
    return {
        "model": summary["model_sha256"],
        "file": (folder / "model.safetensors").read_bytes(),
        "metrics": summary["metrics"],
        "memory": Memories(folder / "memory").digest("control"),
        "rounds": rounds(folder),
        "litter": sorted(path.name for path in folder.rglob("*.tmp")),
    }


def complete_lines(folder: Path) -> bytes:
    """The rounds that are on record, as they stand."""
    path = folder / "rounds.jsonl"
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1]


def rounds(folder: Path) -> list[dict[str, Any]]:
    """The complete lines of the record, without clocks."""
    lines = [json.loads(line) for line in complete_lines(folder).splitlines()]
    return [{key: value for key, value in line.items() if key not in CLOCKS} for line in lines]


def remains(folder: Path) -> frozenset[tuple[str, bytes]]:
    """What is in a folder, but for clocks: resuming equal remains is the same thing twice."""
    found = set()
    for path in folder.rglob("*"):
        data = b"a folder" if path.is_dir() else path.read_bytes()
        if path.name == "rounds.jsonl":
            torn = data[len(complete_lines(folder)) :]
            data = repr(rounds(folder)).encode() + torn
        if path.name != "lock":
            found.add((str(path.relative_to(folder)), data))
    return frozenset(found)


# ---- at every call


@dataclass(frozen=True)
class Call:
    """One call that changes the folder: its name, the file within the folder, and what it was given."""

    name: str
    path: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.path}"

    @property
    def can_tear(self) -> bool:
        return self.name in ("write", "pwrite") and len(self.args[1]) > 1


class Watch:
    """While it is entered, `calls` grows with each call of `os` that changes the folder.

    At call number `at`, `act` is called before it, or, if `torn`, after the first half of its bytes is written;
    if it `stays`, then at all later calls too. `after` hears each call with its result, and of folders that are
    opened to be synced.
    """

    def __init__(
        self,
        folder: Path,
        at: int = -1,
        act: Callable[[Call], None] = lambda call: None,
        torn: bool = False,
        stays: bool = False,
        after: Callable[[Call, Any], None] = lambda call, result: None,
    ) -> None:
        self.folder, self.at, self.act, self.torn, self.stays = str(folder), at, act, torn, stays
        self.after = after
        self.calls: list[Call] = []
        self._handles: dict[int, str] = {}
        self._real: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> Watch:
        for name in CALLS:
            self._real[name] = getattr(os, name)
            setattr(os, name, self._watched(name, self._real[name]))
        return self

    def __exit__(self, *error: object) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **options: Any) -> Any:
            path = self._inside(args[0])
            if path is None or (name == "mkdir" and Path(args[0]).is_dir()):
                return real(*args, **options)
            call = Call(name, path, tuple(bytes(arg) if isinstance(arg, memoryview) else arg for arg in args))
            if name != "open" or args[1] & WRITING:
                self._count(call)
            result = real(*args, **options)
            if name == "open":
                self._handles[result] = os.fspath(args[0])
            self.after(call, result)
            return result

        return watched

    def _count(self, call: Call) -> None:
        self.calls.append(call)
        number = len(self.calls) - 1
        if number == self.at or (self.stays and number > self.at >= 0):
            if self.torn and call.can_tear:
                handle, data, *rest = call.args
                self._real[call.name](handle, data[: len(data) // 2], *rest)
            self.act(call)

    def _inside(self, target: Any) -> str | None:
        """The path within the folder ("." for itself), or None if it is elsewhere."""
        path = self._handles.get(target, "") if isinstance(target, int) else os.fspath(target)
        if path == self.folder:
            return "."
        return path[len(self.folder) + 1 :] if path.startswith(self.folder + os.sep) else None


def points(calls: list[Call]) -> list[tuple[int, bool]]:
    """Where a process can be killed: before each call, and in the middle of each write."""
    return [(n, torn) for n, call in enumerate(calls) for torn in ((False, True) if call.can_tear else (False,))]


def kill(call: Call) -> None:
    """The end, with no chance to clean up."""
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(code: int) -> Callable[[Call], None]:
    """What a full (ENOSPC) or broken (EIO) disk answers."""

    def act(call: Call) -> None:
        raise OSError(code, os.strerror(code))

    return act


@contextlib.contextmanager
def short_writes(most: int) -> Iterator[None]:
    """A system that takes at most so many bytes at a time, as it may."""
    real = os.write
    os.write = lambda handle, data: real(handle, data[:most])
    try:
        yield
    finally:
        os.write = real


def killed(
    folder: Path, job: Callable[[Callable[[str, dict[str, Any]], None]], object], at: int, torn: bool = False
) -> tuple[bool, list[int]]:
    """Do a job in a forked child, killed at that call: whether it was, and the rounds it had announced until then.

    The job gets a listener for run() or resume(), and may come to its end before that call.
    This process must use one torch thread when it forks: a child has no others.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            with Watch(folder, at, kill, torn):
                job(lambda event, data: event == "round" and os.write(writing, b"%d\n" % data["round"]))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    told = b"".join(iter(lambda: _read(reading, child), b""))
    os.close(reading)
    status = os.waitpid(child, 0)[1]
    if status and not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
        raise AssertionError(f"the child did not get to call {at}: status {status}")
    return bool(status), [int(number) for number in told.split()]


def _read(handle: int, child: int) -> bytes:
    if not select.select([handle], [], [], 120)[0]:
        os.kill(child, signal.SIGKILL)
        raise AssertionError("the forked child hangs")
    return os.read(handle, 4096)


# ---- loss of power


class Disk:
    """Replays calls and knows what a loss of power would leave: bytes and names that were synced, nothing else."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, _File | str]] = {".": {}}  # folder -> what is in it, as processes see it
        self._synced: dict[str, dict[str, _File | str]] = {".": {}}
        self._handles: dict[int, Any] = {}

    def replay(self, call: Call, result: Any) -> None:
        """Make one call again; `result` is what it returned."""
        if call.path == "lock" or (call.name, call.path) == ("mkdir", "."):
            return
        folder, name = os.path.split(call.path)
        here = self._names[folder or "."]
        if call.name == "mkdir":
            here[name] = call.path
            self._names[call.path], self._synced[call.path] = {}, {}
        elif call.name == "open" and not call.args[1] & WRITING:
            self._handles[result] = call.path
        elif call.name == "open":
            file = self._handles[result] = here.setdefault(name, _File())
            if call.args[1] & os.O_TRUNC:
                file.data = b""
        elif call.name == "write":
            self._handles[call.args[0]].data += call.args[1][:result]
        elif call.name == "pwrite":
            file, (data, at) = self._handles[call.args[0]], call.args[1:]
            file.data = file.data.ljust(at, b"\0")[:at] + data[:result] + file.data[at + result :]
        elif call.name in ("ftruncate", "truncate"):
            file = self._handles[call.args[0]] if call.name == "ftruncate" else here[name]
            file.data = file.data[: call.args[1]]
        elif call.name == "fsync":
            target = self._handles[call.args[0]]
            if isinstance(target, _File):
                target.synced = target.data
            else:
                self._synced[target] = dict(self._names[target])
        elif call.name == "replace":
            here[Path(call.args[1]).name] = here.pop(name)
        elif call.name == "unlink":
            here.pop(name)
        else:
            raise NotImplementedError(call.name)

    def left(self, eager: bool) -> dict[str, bytes]:
        """The files that would be left.

        With `eager`, names are on the disk at once and only bytes wait for a sync: a file system may do either.
        """
        names, found = self._names if eager else self._synced, {}

        def walk(folder: str) -> None:
            for name, target in names[folder].items():
                if isinstance(target, _File):
                    found[f"{folder}/{name}"] = target.synced
                else:
                    walk(target)

        walk(".")
        return found


@dataclass(eq=False)
class _File:
    data: bytes = b""
    synced: bytes = b""


# ---- in another order


class Ordered(Pool):
    """A pool in which devices start, and answer, in the order of their names or the other way round.

    All devices of a round must fit into the pool's window. Those that run at the same time are waited for and then
    answer in the order in which they were started. `trained` is the order of answers that came of it.
    """

    backward = False
    prefetches = ""  # else the first that are asked would begin, whatever their names

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.trained: list[str] = []

    def set_client_sizes(self, size: Callable[[str], int]) -> None:
        sign = 1 if self.backward else -1
        super().set_client_sizes(lambda device: sign * int(device.removeprefix("c")))

    def _new_call(self, program: str) -> pool_call.Call:
        return _OrderedCall(self, program)


class _OrderedCall(pool_call.Call):
    def __init__(self, pool: Ordered, program: str) -> None:
        super().__init__(program, pool.processes, pool.folder, pool._size)
        self._pool = pool

    def _receive(self, seconds: float) -> None:
        running = [worker.connection for worker in self._processes.busy]
        while running and len(wait(running, timeout=60)) < len(running):
            time.sleep(0.001)
        super()._receive(seconds)

    def _answer(self, job: pool_call.Job, reply: Any) -> None:
        if self.program == "train":
            self._pool.trained.append(job.device)
        super()._answer(job, reply)


# ---- devices that misbehave


@dataclass(frozen=True)
class Misbehaves(FedAvg):
    """FedAvg, but for what `devices` do in their half of a round, in the first round only or in all."""

    devices: tuple[str, ...] = ()
    once: str = ""  # a folder of marks: each device misbehaves once

    def client(self, device: Device, message: Bundle) -> Bundle:
        if device.id in self.devices and self._is_time(device.id):
            self.misbehave()
        return super().client(device, message)

    def _is_time(self, device: str) -> bool:
        if not self.once:
            return True
        try:
            (Path(self.once) / device).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def misbehave(self) -> None:
        raise NotImplementedError


class Dies(Misbehaves):
    """The process is killed."""

    def misbehave(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class DiesLater(Scaffold):
    """The process is killed when its device has remembered and not yet answered, in its second round."""

    devices: tuple[str, ...] = ()
    once: str = ""

    def client(self, device: Device, message: Bundle) -> Bundle:
        memories, mark = device._bench.memories, Path(self.once) / device.id
        if device.id in self.devices and device.memory and not mark.exists():
            mark.touch()
            real = memories.save

            def save(*args: Any) -> None:
                real(*args)
                os.kill(os.getpid(), signal.SIGKILL)

            memories.save = save  # type: ignore[method-assign]
        return super().client(device, message)


class Stops(Misbehaves):
    """The process is stopped, and never continues."""

    def misbehave(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


class Fails(Misbehaves):
    """An exception."""

    def misbehave(self) -> None:
        raise ValueError("this device has had enough")


@dataclass(frozen=True)
class Dawdles(Misbehaves):
    """A delay."""

    seconds: float = 1.0

    def misbehave(self) -> None:
        time.sleep(self.seconds)


class Differs(FedAvg):
    """Every device gets a message of its own."""

    def send(self, state: Bundle, device: str) -> Bundle:
        return Bundle({"model": {name: tensor.clone() for name, tensor in state["model"].items()}})


class Poisons(FedAvg):
    """c3 multiplies its change by 50."""

    def client(self, device: Device, message: Bundle) -> Bundle:
        reply = super().client(device, message)
        if device.id != "c3":
            return reply
        start = message["model"]
        return reply.with_(model={name: start[name] + 50 * (w - start[name]) for name, w in reply["model"].items()})
