"""The states of many devices as rows of one file: a few in memory, however many there are.

A row is never changed while a checkpoint may point to it: a new state goes to a free row, and the caller says
which row is whose. So a checkpoint is only that list, and a crash at any instant leaves every row it needs intact.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from wayfare.core import disk
from wayfare.core.bundle import Bundle, Weights, plain
from wayfare.core.errors import StoreError

_ROOM = 2**28  # bytes of states that may wait to be written


@dataclass
class StateRow(Bundle):
    """A state whose tensors are parts of one, as it lies in the file. It may be shared: it is not to be changed."""

    flat: torch.Tensor = field(default_factory=lambda: torch.empty(0))


class Rows:
    """Bundles of one form, by row number. All their tensors have the same type, float32."""

    def __init__(self, path: Path, form: Bundle) -> None:
        self.path = path
        self._form = {
            section: {name: t.shape for name, t in weights.items()} for section, weights in form.tensors.items()
        }
        self._sizes = [shape.numel() for weights in self._form.values() for shape in weights.values()]
        self._numel = sum(self._sizes)
        self._bytes = 4 * self._numel
        self._free: list[int] = []
        self._end = 0
        self._sound: set[int] = set()  # rows whose checksum was looked at
        self._new = False
        self._waiting: dict[int, torch.Tensor] = {}  # put later, and not written yet
        self._settled: dict[int, int] = {}  # put later, and written; with their checksums
        with disk.explained(path, self._bytes):
            disk.make_folder(path.parent)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            disk.sync_folder(path.parent)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def keep(self, *used: np.ndarray) -> None:
        """From now on every row that is not among these may be overwritten."""
        kept = np.unique(np.concatenate(used)) if used else np.empty(0, np.int64)
        self._end = int(kept.max()) + 1 if len(kept) else 0
        self._free = np.setdiff1d(np.arange(self._end), kept)[::-1].tolist()

    def release(self, row: int) -> None:
        """This row may be overwritten: no checkpoint has ever pointed to it."""
        self._free.append(row)
        self._waiting.pop(row, None)
        self._settled.pop(row, None)

    def put(self, state: Bundle) -> tuple[int, int]:
        """Write a state; returns its row and checksum."""
        row, flat = self._new_row(), self._flat(state)
        self._write(row, flat)
        return row, _checksum(flat)

    def put_later(self, state: Bundle) -> int:
        """The same, but what is released before `settle` is called need not be written at all; returns its row."""
        row = self._new_row()
        self._waiting[row] = self._flat(state)
        if len(self._waiting) * self._bytes > _ROOM:
            oldest = next(iter(self._waiting))
            flat = self._waiting.pop(oldest)
            self._write(oldest, flat)
            self._settled[oldest] = _checksum(flat)
        return row

    def settle(self) -> dict[int, int]:
        """Write all that waits; returns the checksums of all rows put later."""
        found, sums = self._settled, dict[int, int]()
        for row, flat in self._waiting.items():
            self._write(row, flat)
            if id(flat) not in sums:  # two devices may have got the same
                sums[id(flat)] = _checksum(flat)
            found[row] = sums[id(flat)]
        self._waiting, self._settled = {}, {}
        return found

    def _new_row(self) -> int:
        row = self._free.pop() if self._free else self._end
        self._end = max(self._end, row + 1)
        return row

    def _flat(self, state: Bundle) -> torch.Tensor:
        if isinstance(state, StateRow):
            return state.flat
        return torch.cat(
            [plain(state[section][name]).reshape(-1) for section, names in self._form.items() for name in names]
        )

    def _write(self, row: int, flat: torch.Tensor) -> None:
        data = _bytes_of(flat)
        with disk.explained(self.path, self._bytes):
            done, at = 0, row * self._bytes
            while done < self._bytes:
                done += os.pwrite(self._file, data[done:], at + done)
        self._sound.add(row)
        self._new = True

    def get(self, row: int, checksum: int) -> StateRow:
        """Read a state."""
        return self.shaped(self.flat(row, checksum))

    def flat(self, row: int, checksum: int) -> torch.Tensor:
        """Read a state as one tensor."""
        if row in self._waiting:
            return self._waiting[row]
        flat = torch.empty(self._numel)
        try:
            read = os.preadv(self._file, [_bytes_of(flat)], row * self._bytes)
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error.strerror or error}") from error
        if row not in self._sound:
            if read < self._bytes or _checksum(flat) != checksum:
                raise StoreError(
                    f"{self.path} is damaged: the state in row {row} is not what was written there. "
                    "A device's model is lost: start a new run"
                )
            self._sound.add(row)
        return flat

    def shaped(self, flat: torch.Tensor) -> StateRow:
        """The state that this tensor is."""
        parts = iter(flat.split_with_sizes(self._sizes))
        tensors: dict[str, Weights] = {
            section: {name: next(parts).view(shape) for name, shape in shapes.items()}
            for section, shapes in self._form.items()
        }
        return StateRow(tensors, flat=flat)

    def sync(self) -> None:
        """Everything written so far is on the disk when this returns."""
        if self._new:
            with disk.explained(self.path, 0):
                os.fsync(self._file)
        self._new = False


def _bytes_of(flat: torch.Tensor) -> memoryview:
    return flat.numpy().view(np.uint8).data


def _checksum(flat: torch.Tensor) -> int:
    """63 bits: equal states have equal ones, and different states different ones for all that can be expected."""
    return int.from_bytes(hashlib.sha256(_bytes_of(flat)).digest()[:8], "little") >> 1
