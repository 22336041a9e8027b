"""What a device must not lose: model, budget, and the ledger of what it sent and took. One file, replaced whole.

    diary.safetensors          the state after the last step, and the ledger in it
    taken/TRANSFER             a model that was acknowledged and is not merged yet
    partial/KEY-SHA256         the beginning of a model of this peer: the rest is asked for at the next meeting

A step is written before the other side hears of it. So after kill -9 at any point the ledger says what was sent and
taken, and the other side's says the same, at the latest after the next meeting of the two, when each asks what became
of what it has no acknowledgement for.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch

from wayfare.core import disk
from wayfare.core.bundle import Bundle
from wayfare.core.errors import StoreError
from wayfare.encounters.alone import DeviceState

_COLUMNS, _OWN = "columns", "own "  # sections; of the model: "own model", ...


@dataclass
class Transfer:
    """A line of the ledger."""

    transfer: str  # the taker's random id
    peer: str  # fingerprint of the other's key
    name: str
    way: Literal["sent", "taken"]
    state: Literal["open", "taken", "refused", "merged"]
    sha256: str  # of the model's bytes
    meeting: int
    predicted: float | None = None
    before: float | None = None
    after: float | None = None
    adopted: bool | None = None
    reason: str = ""


class Diary:
    """The folder of one device."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "diary.safetensors"
        self.ledger: list[Transfer] = []
        self.peers: list[str] = []  # fingerprints; the first is peer 1
        self.meetings = 0
        self.last: dict[str, int] = {}  # the slot in which each peer was last met

    def load(self, initial: Bundle) -> DeviceState | None:
        """The state after the last step; None if there was none."""
        try:
            found = Bundle.unpack(self.file.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read {self.file}: {error.strerror or error}") from error
        sealed = hashlib.sha256(Bundle(found.tensors, {"about": found.values.get("about", "")}).pack()).hexdigest()
        if found.values.get("seal") != sealed:
            raise StoreError(f"{self.file} is damaged: restore it from a copy, or begin anew with another --home")
        about = json.loads(str(found.values["about"]))
        self.ledger = [Transfer(**line) for line in about["ledger"]]
        self.peers, self.meetings, self.last = about["peers"], about["meetings"], about["last"]
        model = {name.removeprefix(_OWN): found[name] for name in found.tensors if name.startswith(_OWN)}
        if {name: list(part) for name, part in model.items()} != {n: list(p) for n, p in initial.tensors.items()}:
            raise StoreError(f"{self.file} is of another model than the recipe's")
        waiting = {line.transfer for line in self.unmerged()}
        for path in (self.folder / "taken").glob("*"):  # it came, and the ledger never knew
            if path.name not in waiting:
                disk.remove(path)
        columns = {name: tensor.numpy().copy() for name, tensor in found[_COLUMNS].items()}
        return DeviceState(Bundle(model, dict(initial.values)), columns, about["round"])

    def save(self, state: DeviceState) -> None:
        """Write the step; it is on the disk when this returns."""
        about = {
            "ledger": [asdict(line) for line in self.ledger],
            "peers": self.peers,
            "meetings": self.meetings,
            "last": self.last,
            "round": state.round,
        }
        tensors = {_OWN + name: part for name, part in state.model.tensors.items()}
        tensors[_COLUMNS] = {name: torch.from_numpy(column.copy()) for name, column in state.columns.items()}
        whole = Bundle(tensors, {"about": json.dumps(about)})
        seal = hashlib.sha256(whole.pack()).hexdigest()
        disk.write(self.file, Bundle(tensors, {"about": json.dumps(about), "seal": seal}).pack())

    # ---- peers

    def number(self, key: str) -> int:
        """The number of a peer; a new one gets the next."""
        if key not in self.peers:
            self.peers.append(key)
        return self.peers.index(key) + 1

    # ---- the ledger

    def add(self, line: Transfer) -> Transfer:
        """A new line."""
        self.ledger.append(line)
        return line

    def open_with(self, peer: str) -> list[Transfer]:
        """What was sent to this peer and never acknowledged."""
        return [line for line in self.ledger if (line.peer, line.way, line.state) == (peer, "sent", "open")]

    def settled(self, peer: str, transfer: str) -> str:
        """What became, here, of a transfer that this peer asks about."""
        for line in self.ledger:
            if (line.peer, line.way, line.transfer) == (peer, "taken", transfer):
                return "refused" if line.state == "refused" else "taken"
        return "unknown"

    def unmerged(self) -> list[Transfer]:
        """What was taken and waits to be merged."""
        return [line for line in self.ledger if (line.way, line.state) == ("taken", "taken")]

    # ---- bytes

    def partial(self, peer: str) -> tuple[str, int]:
        """The digest of the model of which this peer has sent the beginning, and how much of it is here."""
        for path in sorted((self.folder / "partial").glob(f"{_short(peer)}-*")):
            return path.name.partition("-")[2], path.stat().st_size
        return "", 0

    def receiving(self, peer: str, sha256: str) -> Path:
        """Where a model's bytes go while they come; beginnings of others by this peer are dropped."""
        folder = self.folder / "partial"
        folder.mkdir(parents=True, exist_ok=True)
        wanted = folder / f"{_short(peer)}-{sha256}"
        for path in folder.glob(f"{_short(peer)}-*"):
            if path != wanted:
                path.unlink()
        return wanted

    def keep(self, transfer: str, data: bytes) -> None:
        """Keep what was taken until it is merged."""
        disk.write(self.folder / "taken" / transfer, data)

    def kept(self, transfer: str) -> bytes:
        """What was taken."""
        try:
            return (self.folder / "taken" / transfer).read_bytes()
        except OSError as error:
            raise StoreError(f"cannot read what was taken, {self.folder / 'taken' / transfer}: {error}") from error

    def drop(self, transfer: str) -> None:
        """It is merged."""
        disk.remove(self.folder / "taken" / transfer)


def new_id() -> str:
    """A random id that says nothing."""
    return secrets.token_hex(16)


def number_or_none(value: float) -> float | None:
    """NaN has no place in JSON."""
    return None if math.isnan(value) else value


def _short(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]
