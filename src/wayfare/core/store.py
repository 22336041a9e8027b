"""The run folder: what a run leaves on disk, and what it survives.

    experiment.toml       the resolved experiment: the folder is a run as soon as this is there
    partition.safetensors who has what        partition.json   the same for people
    environment.json      versions and machine
    rounds.jsonl          one line per committed round, with the checksum of its checkpoint and of itself
    checkpoints/          the server's state after the last rounds
    memory/               what devices remember
    summary.json          the result, once the run has ended

A round counts when its line is on the disk. Its checkpoint is there before the line is; a torn line is dropped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from wayfare.core import disk, locks
from wayfare.core.bundle import Bundle
from wayfare.core.errors import StoreError
from wayfare.core.memory import KEEP, Memories


class Store:
    """One run folder, held by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memories = Memories(folder / "memory")
        self.lines: list[dict[str, Any]] = []

    # ---- files

    def is_run(self) -> bool:
        """Whether a run has begun here."""
        return (self.folder / "experiment.toml").is_file()

    def read(self, name: str) -> bytes:
        """A file of the run."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            raise StoreError(f"{self.folder} is not a run folder: it has no {name}") from None

    def write(self, name: str, data: bytes | dict[str, Any]) -> None:
        """Put a file of the run in place, whole or not at all."""
        disk.write(self.folder / name, data if isinstance(data, bytes) else _json(data).encode())

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other process out of this folder; the lock goes with the process, however it ends."""
        try:
            disk.make_folder(self.folder)
        except OSError as error:
            raise StoreError(f"cannot use {self.folder} as a run folder: {error.strerror}") from error
        lock = self.folder / "lock"
        with locks.held(lock, os.getpid()) as handle:
            yield
            try:
                locks.sign(handle, 0)  # or the next holder would be taken for this one for a moment
            except OSError as error:
                raise StoreError(f"cannot release {lock}: {error.strerror or error}") from error

    # ---- rounds

    def commit(self, line: dict[str, Any], state: Bundle) -> None:
        """Make a round count: first its checkpoint, then its line."""
        number = int(line["round"])
        data = state.pack()
        file = f"checkpoints/{number:06d}.safetensors"
        self.write(file, data)
        line["checkpoint"] = {"file": file, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        disk.append(self.folder / "rounds.jsonl", _sealed(line).encode())
        self.lines.append(line)
        for old in self._checkpoints():
            if old <= number - KEEP:
                disk.remove(self.folder / f"checkpoints/{old:06d}.safetensors")

    def latest(self, warn: Callable[[str], None]) -> Bundle | None:
        """The newest sound state; everything after it, and what a crash left half-done, is taken back."""
        path = self.folder / "rounds.jsonl"
        self.lines, ends = self._sound_lines(warn)
        while self.lines:
            checkpoint = self.lines[-1]["checkpoint"]
            state = self._load(checkpoint, warn)
            if state is not None:
                break
            self.lines.pop()
            ends.pop()
        else:
            state = None
        if path.exists() and path.stat().st_size > (ends[-1] if ends else 0):
            disk.truncate(path, ends[-1] if ends else 0)
        last = int(self.lines[-1]["round"]) if self.lines else -1
        for number in self._checkpoints():
            if number > last:
                disk.remove(self.folder / f"checkpoints/{number:06d}.safetensors")
        for litter in [*self.folder.glob(".*.tmp"), *self.folder.glob("checkpoints/.*.tmp")]:
            disk.remove(litter)
        self.memories.rewind(last)
        return state

    def state(self, line: dict[str, Any]) -> Bundle:
        """The state after a round whose checkpoint is still kept."""
        checkpoint = line["checkpoint"]
        data = self.read(checkpoint["file"])
        if hashlib.sha256(data).hexdigest() != checkpoint["sha256"]:
            raise StoreError(f"{self.folder / checkpoint['file']} is damaged (its checksum does not match)")
        return Bundle.unpack(data)

    def _load(self, checkpoint: dict[str, Any], warn: Callable[[str], None]) -> Bundle | None:
        path = self.folder / checkpoint["file"]
        try:
            data = path.read_bytes()
        except OSError as error:
            warn(f"{path}: {error.strerror}: going back one round")
            return None
        if hashlib.sha256(data).hexdigest() != checkpoint["sha256"]:
            warn(f"{path} is damaged (its checksum does not match): going back one round")
            return None
        return Bundle.unpack(data)

    def _sound_lines(self, warn: Callable[[str], None]) -> tuple[list[dict[str, Any]], list[int]]:
        """Lines up to the first that is torn or changed, and the byte at which each ends."""
        path = self.folder / "rounds.jsonl"
        lines: list[dict[str, Any]] = []
        ends: list[int] = []
        position = 0
        for number, raw in enumerate(path.read_bytes().splitlines(keepends=True) if path.exists() else [], start=1):
            line = _unsealed(raw)
            if line is None:
                if raw.endswith(b"\n"):
                    warn(f"{path}:{number} is damaged: going back to the round before it")
                break
            position += len(raw)
            lines.append(line)
            ends.append(position)
        return lines, ends

    def _checkpoints(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("checkpoints/[0-9]*.safetensors"))


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=1, default=str) + "\n"


def _sealed(line: dict[str, Any]) -> str:
    return _with_crc(json.dumps(line))


def _unsealed(raw: bytes) -> dict[str, Any] | None:
    try:
        line: dict[str, Any] = json.loads(raw)
        del line["crc"]
        # to the byte: JSON has several spellings of one value, and a changed one is damage all the same
        return line if _with_crc(json.dumps(line)).encode() == raw else None
    except (ValueError, KeyError, TypeError):
        return None


def _with_crc(text: str) -> str:
    return f'{text[:-1]}, "crc": {zlib.crc32(text.encode())}}}\n'
