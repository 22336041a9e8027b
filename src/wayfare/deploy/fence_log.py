"""Who came to a federation's fence: RUN/flower/fence.jsonl, one line for each join, leave and refusal.

Somebody who tries the same again and again must not fill the disk: equal refusals are counted, and written once a
minute. So many different ones are kept apart, the rest becomes one line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_AGAIN = 60.0  # seconds within which an equal refusal is only counted
_DIFFERENT = 200  # refusals that are kept apart
_LARGEST = 2**24  # bytes; then there is nothing more to say
_LONGEST = 200  # characters of a reason


@dataclass
class FenceLog:
    """Writes the lines."""

    path: Path
    clock: Callable[[], float] = time.monotonic
    _counts: dict[tuple[str, ...], tuple[float, int]] = field(default_factory=dict)  # when written, how many since

    def joined(self, name: str, key: str, address: str) -> None:
        """A node was let in."""
        self._write("join", name, key, address)

    def left(self, name: str, key: str, address: str, reason: str) -> None:
        """A node has gone."""
        self._write("leave", name, key, address, reason=reason)

    def refused(self, name: str, key: str, address: str, reason: str) -> None:
        """Somebody was refused; `name` and `key` are those of the certificate, if it is one of ours."""
        kind = name, key, address, reason[:_LONGEST]
        if kind not in self._counts and len(self._counts) >= _DIFFERENT:
            self.flush()
            kind = "", "", "", "many others"
        if kind in self._counts:
            written, since = self._counts[kind]
            self._counts[kind] = written, since + 1
        else:
            self._counts[kind] = self.clock(), 0
            self._write("refused", *kind[:3], reason=kind[3])

    def flush(self, all: bool = False) -> None:
        """Write down what was only counted for some time."""
        for kind, (written, since) in list(self._counts.items()):
            if all or self.clock() - written > _AGAIN:
                del self._counts[kind]
                if since:
                    self._write("refused", *kind[:3], reason=kind[3], times=since)

    def _write(self, event: str, name: str, key: str, address: str, **more: Any) -> None:
        line = {"time": round(time.time(), 3), "event": event, "name": name, "key": key, "address": address, **more}
        with self.path.open("a", encoding="utf-8") as file:
            if file.tell() < _LARGEST:
                file.write(json.dumps(line) + "\n")


def read_fence_log(path: Path) -> list[dict[str, Any]]:
    """The lines that are whole."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:  # it is being written
            continue
    return found
