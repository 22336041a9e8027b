"""Messages between two devices: a length, JSON with exactly the known fields, and after some of them bytes.

A connection has one deadline for all that is said on it, so that a peer that sends a byte now and then holds nobody
for long, and every message has a cap.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from wayfare.meeting.published import record_in

_LARGEST = 2**16  # bytes of a message without its weights
_BLOCK = 2**16
T = TypeVar("T")
_TICK = 0.2  # seconds until it looks whether to go on waiting
MOST_CLASSES = 5000
MOST_OPEN = 100  # transfers of which a device asks at once what became of them


class PeerFault(Exception):
    """The other side said what it may not, or nothing in time."""


def _hex(*lengths: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and len(value) in lengths and not value.strip("0123456789abcdef")


def _count(most: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _share(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1)


def _record(value: Any) -> bool:
    return value is None or record_in(value) is not None


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _list(most: int, kind: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and len(value) <= most and all(map(kind, value))


def _table(most: int, kind: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, dict) and len(value) <= most and all(map(_id, value)) and all(map(kind, value.values()))
    )


_id, _digest = _hex(32), _hex(64)
FIELDS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "busy": {},
    "hello": {"version": _count(100), "about": _digest, "nonce": _id, "open": _list(MOST_OPEN, _id)},
    "settled": {"settled": _table(MOST_OPEN, lambda value: value in ("taken", "refused", "unknown"))},
    "offer": {
        "announced": _flag,
        "avoids": _flag,
        "score": _share,
        "model": _digest,
        "examples": _count(10**9),
        "record": _record,
        "labels": _list(MOST_CLASSES, _count(10**9)),
    },
    "want": {"wants": _flag, "transfer": _id, "have": _hex(0, 64), "from": _count(2**40)},
    "weights": {"transfer": _id, "sha256": _digest, "bytes": _count(2**40), "from": _count(2**40)},
    "ack": {"transfer": _id, "refused": _flag},
}
"""All that is ever said. No position, no time, no name (that is in the certificate), no metric but the accuracy: a
device's own, and in `record` the lowest, median and highest of those that signage has heard."""


class PeerTimeout(PeerFault):
    """The meeting took longer than it may."""


class PeerGone(PeerFault):
    """The other side ended the connection."""


class Line:
    """One connection."""

    def __init__(self, wire: socket.socket, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        self._wire, self._end, self._is_over = wire, time.monotonic() + seconds, is_over

    def send(self, kind: str, **fields: Any) -> None:
        """Say something."""
        data = json.dumps({"kind": kind, **fields}, separators=(",", ":")).encode()
        self.send_bytes(len(data).to_bytes(4, "big") + data)

    def receive(self, kind: str) -> dict[str, Any]:
        """What the other says; PeerFault if it is anything else."""
        size = int.from_bytes(self._exactly(4), "big")
        if size > _LARGEST:
            raise PeerFault(f"a message of {size:,} bytes, at most {_LARGEST:,} are read")
        try:
            found: Any = json.loads(self._exactly(size))
        except (ValueError, RecursionError) as error:
            raise PeerFault("a message that is not JSON") from error
        said = found.pop("kind", None) if isinstance(found, dict) else None
        if said == "busy" and not found:
            raise PeerFault("busy")
        if said != kind:
            raise PeerFault(f"expected the message {kind}")
        wanted = FIELDS[kind]
        if found.keys() != wanted.keys():
            raise PeerFault(f"{kind}: expected exactly the fields {', '.join(wanted)}")
        if odd := [name for name, lawful in wanted.items() if not lawful(found[name])]:
            raise PeerFault(f"{kind}: {odd[0]} has an invalid value")
        return dict(found)

    def send_bytes(self, data: bytes | memoryview) -> None:
        """Say so many bytes, a block at a time: each within what is left of the deadline."""
        view, start = memoryview(data), 0
        while start < len(view):
            block = view[start : start + _BLOCK]
            start += self._waited(partial(self._wire.send, block))

    def receive_bytes(self, count: int) -> Iterator[bytes]:
        """So many bytes, as they come."""
        while count:
            block = self._some(min(count, _BLOCK))
            count -= len(block)
            yield block

    def _exactly(self, count: int) -> bytes:
        return b"".join(self.receive_bytes(count))

    def _some(self, most: int) -> bytes:
        block = self._waited(lambda: self._wire.recv(most))
        if not block:
            raise PeerGone("the connection ended")
        return block

    def _waited(self, step: Callable[[], T]) -> T:
        """Do it as soon as it can be done, until the deadline."""
        while True:
            left = self._end - time.monotonic()
            if left <= 0:
                raise PeerTimeout("the meeting's deadline has passed")
            if self._is_over():
                raise PeerFault("this device was stopped")
            self._wire.settimeout(min(left, _TICK))
            try:
                return step()
            except TimeoutError:
                continue
            except OSError as error:
                raise PeerFault(f"the connection was lost ({type(error).__name__})") from error
