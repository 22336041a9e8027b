"""What a device remembers, on a node of Flower: in the run folder, as everywhere, and in the node's own context.

Either may be missing: Flower forgets a context when its node is started again, and a node on another machine may not
see the run folder. The newer one counts. A context keeps the memory of one device, the one that its node was last, and
only if it is not large: Flower carries the whole context with every message, and a simulation holds all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord

from wayfare.core.bundle import Bundle
from wayfare.core.memory import Memories
from wayfare.engines.flower import records

_MARK = "memory"  # the record that says whose memory is beside it, and of when
_LARGE = 2**24  # bytes; a larger one is on the disk only


class NodeMemories(Memories):
    """The memories under a folder, with a node's context in front of them."""

    def __init__(self, folder: Path, state: Any, opening: int) -> None:
        super().__init__(folder)
        self._state = state  # the RecordDict of the node's context
        self._opening = opening  # which of its engine's runs this is: another one's memory is none

    def load(self, device: str, round: int) -> Bundle | None:
        there = max((version for version in self._versions(device) if version <= round), default=-1)
        mark = self._state.get(_MARK)
        own = mark is not None and (mark["device"], mark["opening"]) == (device, self._opening)
        if own and there <= mark["round"] <= round:
            return records.read(self._state)
        return super().load(device, round)

    def save(self, device: str, round: int, memory: Bundle) -> None:
        super().save(device, round, memory)
        self._state.clear()
        if memory.nbytes > _LARGE:
            return
        self._state[_MARK] = ConfigRecord({"device": device, "opening": self._opening, "round": round})
        for name, record in records.write(memory).items():
            self._state[name] = record
