"""A disk that is full, broken or read-only: an error that names the file, nothing lost, and the run can go on after."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess

import pytest

from amount import FULL
from faults import Watch, complete_lines, go, outcome, refuse, short_writes, tiny
from wayfare.core.errors import StoreError
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.scaffold import Scaffold


class Case:
    """A run of two rounds, what it gives undisturbed, and the calls by which it changes its folder."""

    def __init__(self, strategy, folder):
        self.experiment = tiny(strategy, rounds=2)
        with Watch(folder) as watch:
            go(self.experiment, folder)
        self.calls, self.expected = watch.calls, outcome(folder)

    def disturb(self, folder, at, code, stays):
        """Let this call fail, a write half-way: a StoreError names the file, and what was announced is there."""
        announced = []
        with Watch(folder, at, refuse(code), torn=True, stays=stays), pytest.raises(StoreError) as caught:
            go(self.experiment, folder, listen=lambda event, data: event == "round" and announced.append(data["round"]))
        check_message(str(caught.value), folder, self.calls[at], code)
        record = check_record(folder)
        assert {line["round"] for line in record} >= set(announced), "an announced round is lost"

    def go_on(self, folder):
        """There is room again."""
        record = complete_lines(folder)
        go(self.experiment, folder)
        assert complete_lines(folder).startswith(record)
        assert outcome(folder) == self.expected


def check_message(message, folder, call, code):
    target = folder / call.path
    named = target.with_name(target.name.removeprefix(".").removesuffix(".tmp"))  # the file that was to come of it
    inside = {str(named), str(folder)} if call.path in (".", "lock") or call.name == "mkdir" else {str(named)}
    if call.name == "fsync":  # of a folder: what was written into it is named
        inside |= {f"{named}/"}
    assert any(place in message for place in inside), f"{call} is not named in: {message}"
    assert os.strerror(code) in message


def check_record(folder):
    """All complete lines, the last of which has its checkpoint."""
    lines = [json.loads(line) for line in complete_lines(folder).splitlines()]
    if lines:
        checkpoint = lines[-1]["checkpoint"]
        assert hashlib.sha256((folder / checkpoint["file"]).read_bytes()).hexdigest() == checkpoint["sha256"]
    return lines


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    place = tmp_path_factory.mktemp("whole")
    return {"fedavg": Case(FedAvg(), place / "fedavg"), "scaffold": Case(Scaffold(), place / "scaffold")}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("code", "stays"), [(errno.ENOSPC, False), (errno.EIO, True)], ids=["full once", "broken for good"]
)
def test_every_call_fails(cases, tmp_path, figure, code, stays):
    """Every call in both ways, or each call in one of them, in turn."""
    case = cases["fedavg"]
    chosen = range(len(case.calls)) if FULL else range(stays, len(case.calls), 2)
    for at in chosen:
        folder = tmp_path / f"{at}"
        case.disturb(folder, at, code, stays)
        if not stays:
            assert not list(folder.rglob("*.tmp"))
        case.go_on(folder)
        shutil.rmtree(folder)
    figure(f"{len(chosen)} calls fail with {errno.errorcode[code]}: {len(chosen)} errors that name the file, "
           "0 silent, one hash after")  # fmt: skip


@pytest.mark.timeout(900)
def test_every_call_of_a_memory_fails(cases, tmp_path, figure):
    """What a device remembers is part of the run: if it cannot be kept, the run stops and does not go on without."""
    case = cases["scaffold"]
    chosen = [at for at, call in enumerate(case.calls) if call.path.startswith("memory")]
    if not FULL:
        chosen = [at for at in chosen if "c0" in case.calls[at].path or "c" not in case.calls[at].path]
    for at in chosen:
        folder = tmp_path / f"{at}"
        case.disturb(folder, at, errno.ENOSPC, False)
        case.go_on(folder)
        shutil.rmtree(folder)
    figure(f"{len(chosen)} calls fail that keep devices' memories: as many errors, 0 silent, one hash after")


def test_the_disk_takes_little_at_a_time(cases, tmp_path):
    """A write may take a part of the bytes; the rest must follow."""
    with short_writes(100):
        cases["scaffold"].go_on(tmp_path / "run")


# ---- a real one


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True, text=True
        )
    except OSError as error:
        pytest.skip(f"no mount here: {error}")
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_a_disk_that_is_really_full(cases, small_disk, figure, name):
    case, full = cases[name], 0
    for room in range(0, 160, 8 if FULL else 16):
        ballast, folder = small_disk / "ballast", small_disk / "run"
        free = shutil.disk_usage(small_disk).free
        ballast.write_bytes(bytes(free - room * 1024))
        try:
            go(case.experiment, folder)
        except StoreError as error:
            full += 1
            assert str(folder) in str(error)
            assert "No space left on device" in str(error)
            check_record(folder)
        ballast.unlink()
        case.go_on(folder)
        shutil.rmtree(folder)
    assert full >= (5 if FULL else 3)
    figure(f"{name}: a real disk full at {full} places: {full} errors, one hash after room was made")


def test_a_full_disk_under_a_pool(cases, pools, small_disk):
    """The workers find the disk full when their devices remember; the run stops with their message."""
    case, folder, ballast = cases["scaffold"], small_disk / "run", small_disk / "ballast"
    free = shutil.disk_usage(small_disk).free
    ballast.write_bytes(bytes(free - 44 * 1024))
    with pytest.raises(StoreError, match=r"cannot write .*memory.*No space left on device"):
        go(case.experiment, folder, pools[2])
    ballast.unlink()
    case.go_on(folder)


def test_a_disk_that_cannot_be_written(cases, small_disk):
    folder = small_disk / "run"
    go(cases["fedavg"].experiment, folder)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StoreError, match="Read-only file system"):
        go(cases["fedavg"].experiment, folder)
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    cases["fedavg"].go_on(folder)
