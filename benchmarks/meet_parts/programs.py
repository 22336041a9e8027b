"""Real programs, one in each namespace: started, killed, started again, and what they wrote down."""

import os
import re
import signal
import time

from wayfare.cli import main
from wayfare.core.errors import WayfareError
from wayfare.io.address import Address
from wayfare.meeting.peer_page import PeerRecord

PORT = 8100


class Programs:
    """`wayfare meet` for each name; the n-th is in the n-th namespace."""

    def __init__(self, network, root, names, slot, deadline):
        self.network, self.root, self.names = network, root, names
        self._slot, self._deadline = slot, deadline
        self.running, self.starts = {}, 0

    def address(self, place):
        return Address(self.network.address(place), PORT)

    def home(self, name):
        return self.root / "homes" / name

    def start(self, name, first, *more):
        """Start, or start again; `first` is an invitation or a recipe."""
        place = self.names.index(name)
        command = ["meet", first, "--photos", self.root / name, "--probe", self.root / "probe",
                   "--listen", str(self.address(place)), "--slot", str(self._slot), "--deadline", str(self._deadline),
                   "--home", self.home(name), *more]  # fmt: skip
        self.running[name] = self.network.start(place, main, command, self.root / f"{name}.log")
        self.starts += 1

    def is_ready(self, name):
        return re.search(r"its state is in", self.log(name)) is not None

    def log(self, name):
        file = self.root / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def kill(self, name):
        """kill -9."""
        self.running[name].kill()
        self.running.pop(name).join()

    def stop(self, seconds=60):
        """Interrupt all and wait; the names of those that did not end well."""
        for process in self.running.values():
            os.kill(process.pid, signal.SIGINT)
        bad, end = [], time.monotonic() + seconds
        for name, process in self.running.items():
            process.join(max(0.1, end - time.monotonic()))
            if process.exitcode != 0:
                bad.append(name)
                process.kill()
        return bad

    def record(self, name):
        """What the device's files say; None before its first step."""
        try:
            return PeerRecord.read(self.home(name))
        except WayfareError:
            return None

    def receiving(self):
        """Devices to which a model is on its way, and how far it has come: name, bytes."""
        for name in self.running:
            for file in (self.home(name) / "partial").glob("*"):
                try:
                    if size := file.stat().st_size:
                        yield name, size
                except OSError:
                    continue


def wait_for(true, seconds):
    """Whether it came true in time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def faults_of_ledgers(records):
    """Where two ledgers disagree, or a budget is not what its ledger says.

    A transfer may be open on the giver's side if the two did not meet again: it counts as sent there, and is listed
    apart.
    """
    faults, open_ = [], 0
    taken = {line.transfer: (name, line) for name, r in records.items() for line in r.ledger if line.way == "taken"}
    sent = {line.transfer: (name, line) for name, r in records.items() for line in r.ledger if line.way == "sent"}
    for transfer, (name, line) in sent.items():
        if line.state == "open":
            open_ += 1
            continue
        if transfer not in taken:
            faults.append(f"{name} sent {transfer[:8]} to {line.name}, which knows nothing of it")
        elif taken[transfer][1].sha256 != line.sha256:
            faults.append(f"{name} sent another model than {line.name} took")
    for transfer, (name, line) in taken.items():
        if transfer not in sent:
            faults.append(f"{name} took {transfer[:8]} from {line.name}, which knows nothing of it")
    for name, record in records.items():
        counts = {way: sum((x.way == way and x.state != "refused") or x.way == way == "sent" for x in record.ledger)
                  for way in ("sent", "taken")}  # fmt: skip
        if counts != {way: record.budget[way] for way in counts}:
            faults.append(f"{name}: budget {record.budget}, ledger {counts}")
    return faults, open_


def model_bytes(experiment):
    """How many bytes a model has on its way."""
    start = experiment.strategy.start(experiment.task, experiment.task.network())
    return len(experiment.strategy.report(start, 1).pack())
