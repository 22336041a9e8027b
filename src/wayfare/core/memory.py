"""What devices remember between rounds, on disk, so that memory does not grow with their number and survives a crash.

A file per device and round: `<shard>/<device>@<round>`. A round that never committed leaves files that a resumed run
must not see, so what is read is the newest file *before* the round in progress, and `rewind` drops the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from urllib.parse import quote, unquote

from wayfare.core import disk
from wayfare.core.bundle import Bundle, digest
from wayfare.core.errors import StoreError

KEEP = 2  # checkpoints that a run keeps: it may have to go back to the state after the last round but one


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
            return unseal(path.read_bytes())
        except StoreError as error:
            raise StoreError(f"{path}: {error}. Delete it to let device {device!r} start over") from error

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
        for path in self.folder.glob("*/[!.]*@*"):
            name, _, version = path.name.rpartition("@")
            newest[name] = max(int(version), newest.get(name, 0))
        sha = hashlib.sha256()
        for name in sorted(newest):
            memory = self.load(unquote(name), newest[name])
            if memory is not None and section in memory:
                sha.update(f"{name}:{digest(memory[section])};".encode())
        return sha.hexdigest()

    def rewind(self, round: int) -> None:
        """Forget everything after this round (and what a crash left half-written)."""
        for path in list(self.folder.glob("*/*")):
            with contextlib.suppress(ValueError):
                if path.name.startswith(".") or int(path.name.rpartition("@")[2]) > round:
                    disk.remove(path)

    def _versions(self, device: str) -> list[int]:
        shard, name = self._place(device)
        try:
            files = os.listdir(self.folder / shard)  # noqa: PTH208  (done for every device: glob takes longer)
        except FileNotFoundError:
            return []
        parts = (file.rpartition("@") for file in files)
        return sorted(int(version) for whose, _, version in parts if whose == name)

    def _path(self, device: str, round: int) -> Path:
        shard, name = self._place(device)
        return self.folder / shard / f"{name}@{round}"

    def _place(self, device: str) -> tuple[str, str]:
        name = quote(device, safe="").replace(".", "%2E")
        return hashlib.sha256(device.encode()).hexdigest()[:2], name


def seal(bundle: Bundle) -> bytes:
    """A bundle's file with its SHA-256 in front."""
    data = bundle.pack()
    return hashlib.sha256(data).digest() + data


def unseal(data: bytes) -> Bundle:
    """Read what `seal` made; any changed or missing bit is a StoreError."""
    if hashlib.sha256(data[32:]).digest() != data[:32]:
        raise StoreError("damaged: its checksum does not match")
    return Bundle.unpack(data[32:])
