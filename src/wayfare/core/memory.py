"""What devices remember between rounds, on disk, so that memory does not grow with their number and survives a crash.

A file per device and round: `<shard>/<device>@<round>`. A round that never committed leaves files that a resumed run
must not see, so what is read is the newest file *before* the round in progress, and `rewind` drops the rest.

A memory begins with the SHA-256 of the rest of it. A round's line records the first digits of that for each memory
which the round wrote, and `faults` compares. Files of any other name, such as copies that a synchroniser made, are not
looked at.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from wayfare.core import disk
from wayfare.core.bundle import Bundle, digest
from wayfare.core.errors import StoreError

KEEP = 2  # checkpoints that a run keeps: it may have to go back to the state after the last round but one


_DIGITS = 16  # of a memory's SHA-256, in hexadecimal, in the record


class Recorded(NamedTuple):
    """The newest memory of a device that a run's record knows."""

    round: int
    digest: str


class Memories:
    """The memories of all devices under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, device: str, round: int) -> Bundle | None:
        """What the device remembers: its newest memory up to the end of this round."""
        versions = [version for version in self._versions(device) if version <= round]
        if not versions:
            return None
        path = self._path(device, max(versions))
        try:
            return unseal(disk.read(path))
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
        except StoreError as error:
            raise StoreError(
                f"{path}: {error}. Restore it from a copy, or let device {device!r} start over: "
                f"wayfare resume {self.folder.parent} --allow-changed memory"
            ) from error

    def save(self, device: str, round: int, memory: Bundle) -> None:
        """Remember, and forget what no restart can need."""
        disk.write(self._path(device, round), seal(memory))
        # the round before this one may not have been committed yet, and of those before it one may be taken back
        settled = [version for version in self._versions(device) if version < round - KEEP]
        for version in settled[:-1]:
            disk.remove(self._path(device, version))

    def digest(self, section: str = "model") -> str:
        """SHA-256 over this section of what every device remembers now."""
        newest: dict[str, int] = {}
        for name, version in self._names():
            newest[name] = max(version, newest.get(name, 0))
        sha = hashlib.sha256()
        for name in sorted(newest):
            memory = self.load(unquote(name), newest[name])
            if memory is not None and section in memory:
                sha.update(f"{name}:{digest(memory[section])};".encode())
        return sha.hexdigest()

    def rewind(self, round: int) -> None:
        """Forget everything after this round (and what a crash left half-written)."""
        for path in list(self.folder.glob("*/*")):
            version = _version(path.name)
            if path.name.startswith(".") or (version is not None and version[1] > round):
                disk.remove(path)

    def forget(self, device: str) -> None:
        """Let a device start over."""
        for version in self._versions(device):
            disk.remove(self._path(device, version))

    # ---- against the record

    def digests(self, devices: Iterable[str], round: int) -> dict[str, str]:
        """What to record of the memories that these devices wrote in a round; those without a file here have none."""
        found = {device: _beginning(self._path(device, round)) for device in devices}
        return {device: digest for device, digest in found.items() if digest}

    def faults(self, recorded: Mapping[str, Recorded], foreign: Iterable[tuple[str, int]] = ()) -> dict[str, str]:
        """What is wrong, by device: a recorded memory that is not there or is another, and one that is `foreign`."""
        found = {device: fault for device, known in recorded.items() if (fault := self._fault(device, known))}
        for device, version in foreign:
            found.setdefault(device, f"{self._path(device, version)} is none of the memories that round {version} left")
        return found

    def all(self) -> Iterator[tuple[str, int]]:
        """Every device with every version of what it remembers."""
        return ((unquote(name), version) for name, version in self._names())

    def _fault(self, device: str, known: Recorded) -> str:
        path = self._path(device, known.round)
        try:
            data = disk.read(path)
        except FileNotFoundError:
            return f"{path} is missing"
        except OSError as error:
            return f"{path} cannot be read ({error.strerror or error})"
        if data[:32].hex()[:_DIGITS] != known.digest:
            return f"{path} is not the memory that round {known.round} recorded"
        return "" if _is_sealed(data) else f"{path} is damaged"

    # ---- files

    def _names(self) -> Iterator[tuple[str, int]]:
        for path in self.folder.glob("*/[!.]*@*"):
            version = _version(path.name)
            if version is not None and path.parent.name == _shard(unquote(version[0])):
                yield version

    def _versions(self, device: str) -> list[int]:
        shard, name = self._place(device)
        try:
            files = os.listdir(self.folder / shard)  # noqa: PTH208  (done for every device: glob takes longer)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"cannot read {self.folder / shard}: {error.strerror or error}") from error
        parts = (_version(file) for file in files if file.startswith(name))
        return sorted(part[1] for part in parts if part is not None and part[0] == name)

    def _path(self, device: str, round: int) -> Path:
        shard, name = self._place(device)
        return self.folder / shard / f"{name}@{round}"

    def _place(self, device: str) -> tuple[str, str]:
        name = quote(device, safe="").replace(".", "%2E")
        return _shard(device), name


def _shard(device: str) -> str:
    return hashlib.sha256(device.encode()).hexdigest()[:2]


def _version(file: str) -> tuple[str, int] | None:
    """Whose memory a file is and of which round, if it has the name of one: `c1@3`, and not `c1@3~` or `c1@03`."""
    name, _, version = file.rpartition("@")
    if not name or not (version.isascii() and version.isdigit()) or str(int(version)) != version:
        return None
    return name, int(version)


def _beginning(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(32).hex()[:_DIGITS]
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def seal(bundle: Bundle) -> bytes:
    """A bundle's file with its SHA-256 in front."""
    data = bundle.pack()
    return hashlib.sha256(data).digest() + data


def unseal(data: bytes) -> Bundle:
    """Read what `seal` made; any changed or missing bit is a StoreError."""
    if not _is_sealed(data):
        raise StoreError("damaged: its checksum does not match")
    return Bundle.unpack(data[32:])


def _is_sealed(data: bytes) -> bool:
    return hashlib.sha256(memoryview(data)[32:]).digest() == data[:32]
