"""What a device must not lose: model, budget, and the ledger of what it sent and took. One file, replaced whole.

It is sealed with a digest of all that is in it, so that a damaged file is noticed and not used.

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
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from pydantic import TypeAdapter

from wayfare.core import disk
from wayfare.core.bundle import Bundle, Weights
from wayfare.core.errors import StoreError
from wayfare.encounters.alone import DeviceState
from wayfare.meeting.published import PublishedRecord, record_in, record_of

BUDGET = ("sent", "taken", "can_send", "can_take")  # columns
_MOST_NOTED = 5000  # meetings
_ID = re.compile(r"[0-9a-f]{32}")
COLUMNS, _OWN = "columns", "own "  # sections; of the model: "own model", ...


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
    day: int  # whose budget it used
    start: int = 0  # bytes that were there from an earlier meeting
    predicted: float | None = None
    before: float | None = None
    after: float | None = None
    adopted: bool | None = None
    reason: str = ""


@dataclass
class Encounter:
    """A meeting, for the owner of this device: what was said, and who asked."""

    id: str  # the same on both sides, from the random numbers of both
    peer: str
    name: str
    meeting: int
    slot: int  # by this device's own clock; nobody is told
    day: int
    score: float | None  # what the peer announced
    asks: bool  # I asked for its model
    asked: bool  # it asked for mine


@dataclass
class _About:
    """What the file holds beside tensors. Pydantic checks it: another program may have written it."""

    own: str
    ledger: list[Transfer]
    peers: list[str]
    meetings: int
    last: dict[str, int]
    round: int
    day: int
    encounters: list[Encounter]
    heard: dict[str, float]
    started: float | None
    record: list[float] | None
    published: list[float] | None


class Diary:
    """The folder of one device."""

    def __init__(self, folder: Path, own: str = "") -> None:
        self.folder, self.file = folder, folder / "diary.safetensors"
        self._own = own  # fingerprint of the device's key
        self.ledger: list[Transfer] = []
        self.peers: list[str] = []  # fingerprints; the first is peer 1
        self.meetings = 0
        self.last: dict[str, int] = {}  # the slot in which each peer was last met
        self.day = 0
        self.encounters: list[Encounter] = []  # the last ones
        self.heard: dict[str, float] = {}  # the accuracy that each peer announced first on this day
        self.started = math.nan  # the own accuracy when the day began
        self.record: PublishedRecord | None = None  # the last one that was heard

    def load(self, initial: Bundle) -> DeviceState | None:
        """The state after the last step; None if there was none."""
        read = self.read()
        if read is None:
            return None
        found, about = read
        if about.own != self._own:
            raise StoreError(f"{self.file} belongs to another device: restore it from a copy of this one's")
        self.ledger, self.encounters = about.ledger, about.encounters
        self.peers, self.meetings, self.last = about.peers, about.meetings, about.last
        self.day, self.heard, self.record = about.day, about.heard, record_in(about.record)
        self.started = math.nan if about.started is None else about.started
        model = own_model(found)
        if {name: list(part) for name, part in model.items()} != {n: list(p) for n, p in initial.tensors.items()}:
            raise StoreError(f"{self.file} belongs to another model than the recipe's")
        waiting = {line.transfer for line in self.unmerged()}
        for path in (self.folder / "taken").glob("*"):  # it came, and the ledger never knew
            if path.name not in waiting:
                disk.remove(path)
        columns = {name: tensor.numpy().copy() for name, tensor in found[COLUMNS].items()}
        published = record_in(about.published)
        return DeviceState(
            Bundle(model, dict(initial.values)), columns, about.round, published.ends if published else None
        )

    def read(self) -> tuple[Bundle, _About] | None:
        """The file as it is, if its seal is whole; also while the device runs."""
        try:
            found = Bundle.unpack(disk.read(self.file))
            about = _checked(found)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read {self.file}: {error.strerror or error}") from error
        except (StoreError, ValueError) as error:  # pydantic's errors are ValueErrors
            raise StoreError(
                f"{self.file} is damaged: restore it from a copy, or begin anew with another --home ({error})"
            ) from error
        return found, about

    def save(self, state: DeviceState) -> None:
        """Write the step; it is on the disk when this returns."""
        about = {
            "own": self._own,
            "ledger": [asdict(line) for line in self.ledger],
            "peers": self.peers,
            "meetings": self.meetings,
            "last": self.last,
            "round": state.round,
            "day": self.day,
            "encounters": [asdict(line) for line in self.encounters],
            "heard": self.heard,
            "started": number_or_none(self.started),
            "record": self.record.values() if self.record else None,
            "published": PublishedRecord(*state.published).values() if state.published else None,
        }
        tensors = {_OWN + name: part for name, part in state.model.tensors.items()}
        tensors[COLUMNS] = {name: torch.from_numpy(column.copy()) for name, column in state.columns.items()}
        whole = Bundle(tensors, {"about": json.dumps(about)})
        seal = hashlib.sha256(whole.pack()).hexdigest()
        disk.write(self.file, Bundle(tensors, {"about": json.dumps(about), "seal": seal}).pack())

    # ---- days

    def begin_day(self, score: float) -> None:
        """The first one, or another: the ledger stays, what was heard is of the day before."""
        self.heard, self.started = {}, score

    def record_of_day(self) -> PublishedRecord | None:
        """What it knows of the accuracies of all: what it heard itself, or what it was told if that is more."""
        own = record_of([*self.heard.values(), self.started])
        told = self.record
        return told if own is None or (told and told.devices > own.devices) else own

    # ---- peers

    def note(self, encounter: Encounter) -> None:
        """A meeting."""
        self.meetings = encounter.meeting
        self.last[encounter.peer] = encounter.slot
        if encounter.score is not None:
            self.heard.setdefault(encounter.peer, encounter.score)
        self.encounters = [*self.encounters[1 - _MOST_NOTED :], encounter]

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
            return disk.read(self.folder / "taken" / transfer)
        except OSError as error:
            raise StoreError(f"cannot read the received model {self.folder / 'taken' / transfer}: {error}") from error

    def drop(self, transfer: str) -> None:
        """It is merged."""
        disk.remove(self.folder / "taken" / transfer)


def _checked(found: Bundle) -> _About:
    """What is in the file beside tensors; ValueError if the seal is broken or something is not as it must be."""
    text = str(found.values.get("about", ""))
    if found.values.get("seal") != hashlib.sha256(Bundle(found.tensors, {"about": text}).pack()).hexdigest():
        raise ValueError("its seal is broken")
    about = TypeAdapter(_About).validate_json(text, strict=True)
    if not all(_ID.fullmatch(line.transfer) for line in about.ledger):
        raise ValueError("a transfer has an odd name")  # they are names of files
    if not all(len(found.tensors.get(COLUMNS, {}).get(name, ())) == 1 for name in (*BUDGET, "score")):
        raise ValueError("its budget is not in it")
    return about


def own_model(found: Bundle) -> dict[str, Weights]:
    """The device's model in its file, by section."""
    return {name.removeprefix(_OWN): found[name] for name in found.tensors if name.startswith(_OWN)}


def new_id() -> str:
    """A random id that says nothing."""
    return secrets.token_hex(16)


def number_or_none(value: float) -> float | None:
    """NaN has no place in JSON."""
    return None if math.isnan(value) else value


def _short(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]
