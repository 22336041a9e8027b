"""The run folder: what a run leaves on disk, and what it survives.

    experiment.toml       the resolved experiment: the folder is a run as soon as this is there
    partition.safetensors who has what        partition.json   the same for people
    manifest.json         digests of the data, of the partition and of the code (see manifest.py)
    environment.json      versions and machine
    rounds.jsonl          one line per committed round, with the checksum of its checkpoint and of itself
    checkpoints/          the server's state after the last rounds
    memory/               what devices remember
    summary.json          the result, once the run has ended

A round counts when its line is on the disk. Its checkpoint and what devices remember are there before the line is; a
torn line is dropped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from wayfare.core import disk, locks
from wayfare.core.bundle import Bundle
from wayfare.core.errors import StoreError
from wayfare.core.memory import KEEP, Memories, Recorded

_LARGE = 2**26  # bytes; no text of a run is as long, but for the record of its rounds
_CHECKPOINT = re.compile(r"[0-9]{6,}\.safetensors")
Warn = Callable[[str], None]


class Store:
    """One run folder, held by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memories = Memories(folder / "memory")
        self.lines: list[dict[str, Any]] = []
        self.forgotten: list[str] = []  # devices that were made to start over, for the next line
        self._lock: locks.FolderLock | None = None

    # ---- files

    def is_run(self) -> bool:
        """Whether a run has begun here."""
        return (self.folder / "experiment.toml").is_file()

    def read(self, name: str) -> bytes:
        """A file of the run."""
        try:
            return disk.read(self.folder / name)
        except FileNotFoundError:
            raise StoreError(f"{self.folder} is not a run folder: it has no {name}") from None
        except OSError as error:
            raise StoreError(f"cannot read {self.folder / name}: {error.strerror or error}") from error

    def read_text(self, name: str) -> str:
        """A text of the run, which nobody has made huge."""
        path = self.folder / name
        if path.is_file() and path.stat().st_size > _LARGE:
            raise StoreError(f"{path} is damaged: it has {path.stat().st_size:,} bytes. Restore it from a copy")
        try:
            return self.read(name).decode()
        except UnicodeDecodeError as error:
            raise StoreError(f"{path} is damaged: {error}. Restore it from a copy") from error

    def read_json(self, name: str) -> dict[str, Any] | None:
        """What a JSON file of the run holds; None if it is missing or damaged."""
        try:
            content = json.loads(self.read_text(name))
        except (StoreError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None

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
        with locks.folder_held(self.folder) as self._lock:
            try:
                yield
            finally:
                self._lock = None

    # ---- rounds

    def commit(self, line: dict[str, Any], state: Bundle) -> None:
        """Make a round count: first its checkpoint, then its line."""
        if self._lock is not None:
            self._lock.check()
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

    def load_lines(self, warn: Warn) -> None:
        """Read the sound lines; nothing is changed."""
        self.lines = self._sound_lines(warn)[0]

    def latest(self, warn: Warn, forgetful: bool = False, strict: bool = False) -> Bundle | None:
        """The newest sound state; everything after it, and what a crash left half-done, is taken back.

        A state is sound if its checkpoint is, and all that devices remembered then. Where only a memory is lost and no
        earlier state is sound, StoreError; or, if `forgetful`, devices without a sound memory start over. `strict`:
        rounds recorded every memory that they wrote, so that others do not belong there.
        """
        lines, ends = self._sound_lines(warn)
        state, faults = self._newest_sound(lines, warn, forgetful, strict)
        self.lines, end = lines, ends[len(lines) - 1] if lines else 0
        path = self.folder / "rounds.jsonl"
        if path.exists() and path.stat().st_size > end:
            disk.truncate(path, end)
        last = len(lines) - 1
        for number in self._checkpoints():
            if number > last:
                disk.remove(self.folder / f"checkpoints/{number:06d}.safetensors")
        for litter in [*self.folder.glob(".*.tmp"), *self.folder.glob("checkpoints/.*.tmp")]:
            disk.remove(litter)
        self.memories.rewind(last)
        self.forgotten = sorted(faults)
        for device, fault in faults.items():
            warn(f"{fault}: device {device!r} starts over")
            self.memories.forget(device)
        return state

    def _newest_sound(
        self, lines: list[dict[str, Any]], warn: Warn, forgetful: bool, strict: bool
    ) -> tuple[Bundle | None, dict[str, str]]:
        """Take lines off the end until the state of the last is sound; with what is wrong in its memories."""
        fault = ""  # the first memory for which a sound checkpoint was passed over
        while lines:
            state = self._load(lines[-1]["checkpoint"], warn if not fault else _silent)
            if state is None and fault:
                raise StoreError(
                    f"{fault}, and no earlier round that is still kept can do without it. Restore it from a copy; or "
                    "let devices without their memory start over, which gives another model: "
                    f"wayfare resume {self.folder} --allow-changed memory"
                )
            faults = {} if state is None else self._memory_faults(lines, strict)
            if state is not None and (forgetful or not faults):
                return state, faults
            for text in list(faults.values())[:1]:
                fault = fault or text
                warn(f"{text}: going back one round")
            lines.pop()
        return None, {}

    def _memory_faults(self, lines: list[dict[str, Any]], strict: bool) -> dict[str, str]:
        recorded: dict[str, Recorded] = {}
        for line in lines:
            for device in line.get("forgotten", []):
                recorded.pop(device, None)
            recorded |= {device: Recorded(line["round"], digest) for device, digest in line.get("memory", {}).items()}
        foreign = [pair for pair in self.memories.all() if _is_foreign(*pair, lines, recorded)] if strict else []
        return self.memories.faults(recorded, foreign)

    def state(self, line: dict[str, Any]) -> Bundle:
        """The state after a round whose checkpoint is still kept."""
        checkpoint = line["checkpoint"]
        data = self.read(checkpoint["file"])
        if hashlib.sha256(data).hexdigest() != checkpoint["sha256"]:
            raise StoreError(f"{self.folder / checkpoint['file']} is damaged (its checksum does not match)")
        return Bundle.unpack(data)

    def _load(self, checkpoint: dict[str, Any], warn: Warn) -> Bundle | None:
        path = self.folder / checkpoint["file"]
        try:
            data = path.read_bytes() if path.stat().st_size == checkpoint["bytes"] else b""
        except OSError as error:
            warn(f"{path}: {error.strerror}: going back one round")
            return None
        if hashlib.sha256(data).hexdigest() != checkpoint["sha256"]:
            warn(f"{path} is damaged (its checksum does not match): going back one round")
            return None
        return Bundle.unpack(data)

    def _sound_lines(self, warn: Warn) -> tuple[list[dict[str, Any]], list[int]]:
        """Lines up to the first that is torn, changed or out of order, and the byte at which each ends."""
        path = self.folder / "rounds.jsonl"
        lines: list[dict[str, Any]] = []
        ends: list[int] = []
        position = 0
        data = self.read("rounds.jsonl") if path.exists() else b""
        for number, raw in enumerate(data.splitlines(keepends=True), start=1):
            line = _unsealed(raw)
            if line is None or not _is_round(line, len(lines)):
                if raw.endswith(b"\n"):
                    warn(f"{path}:{number} is damaged or out of order: going back to the round before it")
                break
            position += len(raw)
            lines.append(line)
            ends.append(position)
        return lines, ends

    def _checkpoints(self) -> list[int]:
        files = self.folder.glob("checkpoints/[0-9]*.safetensors")
        return sorted(int(path.stem) for path in files if _CHECKPOINT.fullmatch(path.name))


def _silent(text: str) -> None:
    """For a warning that would be about nothing: an old checkpoint is not kept."""


def _is_foreign(device: str, version: int, lines: list[dict[str, Any]], recorded: dict[str, Recorded]) -> bool:
    """Whether it would be read, and its round does not know it. A device that is late may write after its round."""
    known = recorded.get(device)
    if version >= len(lines) or "memory" not in lines[version] or (known and known.round >= version):
        return False
    return device not in {refusal.get("device") for refusal in lines[version].get("refused", [])}


def _is_round(line: dict[str, Any], number: int) -> bool:
    """Whether it has what a line of this round must have, whoever wrote it."""
    checkpoint, memory = line.get("checkpoint"), line.get("memory", {})
    if line.get("round") != number or not isinstance(checkpoint, dict) or not isinstance(memory, dict):
        return False
    kinds = {"file": str, "sha256": str, "bytes": int}
    if not all(isinstance(checkpoint.get(key), kind) for key, kind in kinds.items()):
        return False
    return bool(checkpoint["file"] == f"checkpoints/{number:06d}.safetensors")


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
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _with_crc(text: str) -> str:
    return f'{text[:-1]}, "crc": {zlib.crc32(text.encode())}}}\n'
