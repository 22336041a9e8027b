"""The changes of a round: what each device's reply adds to what it was sent, as vectors of float64.

Replies can be many and large. They are written to a temporary file when they exceed `_ROOM` bytes, and read by columns,
so memory does not grow with their number.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import torch
from torch import Tensor

from wayfare.core.bundle import Bundle, Weights
from wayfare.core.influence import Part, part_of, start_of

_ROOM = 2**28  # bytes of changes that are held in memory
_BLOCK = 2**22  # numbers read at a time


@dataclass(frozen=True)
class Layout:
    """Where each tensor of a reply is in a vector: by parts (`core/influence.py`), then in its order."""

    sent: Mapping[str, Weights]
    like: Mapping[str, Weights]

    @property
    def parts(self) -> dict[Part, list[tuple[str, str]]]:
        """Sections and names of the tensors of each part."""
        found: dict[Part, list[tuple[str, str]]] = {}
        for section, weights in self.like.items():
            for name in weights:
                found.setdefault(part_of(section, name), []).append((section, name))
        return found

    @property
    def sizes(self) -> dict[Part, int]:
        """How many numbers each part has."""
        return {
            part: sum(self.like[section][name].numel() for section, name in names) for part, names in self.parts.items()
        }

    def vector(self, reply: Bundle, part: Part) -> np.ndarray:
        """The change of a part, float64."""
        pieces = [
            (_flat(reply[section][name]) - _origin(self.sent, reply, section, name))
            for section, name in self.parts[part]
        ]
        return np.concatenate(pieces) if pieces else np.empty(0)

    def reply(self, change: Mapping[Part, np.ndarray]) -> Bundle:
        """The reply that would have changed by this; parts that are missing stay as they were sent."""
        sections: dict[str, Weights] = {section: dict[str, Tensor]() for section in self.like}
        for part, names in self.parts.items():
            at = 0
            for section, name in names:
                like, size = self.like[section][name], self.like[section][name].numel()
                added = change[part][at : at + size] if part in change else np.zeros(size)
                at += size
                whole = added + _origin(self.sent, Bundle(dict(self.like)), section, name)
                sections[section][name] = torch.from_numpy(whole).reshape(like.shape).to(like.dtype)
        in_order = {s: {name: weights[name] for name in self.like[s]} for s, weights in sections.items()}
        return Bundle(in_order, {"n": 1, "steps": 1, "loss": 0.0})


def _flat(tensor: Tensor) -> np.ndarray:
    flat: np.ndarray = tensor.detach().cpu().contiguous().reshape(-1).to(torch.float64).numpy()
    return flat


def _origin(sent: Mapping[str, Weights], reply: Bundle, section: str, name: str) -> np.ndarray | float:
    start = start_of(section, reply[section], sent)
    return 0.0 if start is None else _flat(start[name])


class ChangeRows:
    """The changes of one part, a row for each reply."""

    def __init__(self, columns: int) -> None:
        self.columns, self.count = columns, 0
        self._file = tempfile.SpooledTemporaryFile(max_size=_ROOM)  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, row: np.ndarray) -> None:
        """One more reply."""
        self._file.seek(0, 2)
        self._file.write(np.ascontiguousarray(row, np.float64).tobytes())
        self.count += 1

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """All rows, some columns at a time: (rows, columns)."""
        width = max(1, _BLOCK // max(self.count, 1))
        for start in range(0, self.columns, width):
            end = min(start + width, self.columns)
            yield slice(start, end), np.stack([self._piece(row, start, end) for row in range(self.count)])

    def _piece(self, row: int, start: int, end: int) -> np.ndarray:
        self._file.seek(8 * (row * self.columns + start))
        return np.frombuffer(self._file.read(8 * (end - start)))

    def gram(self) -> np.ndarray:
        """The products of the rows with each other, (rows, rows)."""
        total = np.zeros((self.count, self.count))
        for _, block in self.blocks():
            total += block @ block.T
        return total


def copies(reply: Bundle, names: Iterable[str]) -> Iterator[tuple[str, Bundle]]:
    """The same reply from each of these devices."""
    return ((name, reply) for name in names)
