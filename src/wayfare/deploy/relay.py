"""The one way out of a node's sandbox: a Unix socket that leads to the server of the invitation, and nowhere else.

What passes is TLS between the node and the server; the relay sees only bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from wayfare.io.address import Address

_CONNECT = 20.0  # seconds


class _Server:
    """Where it is, and whether it could be reached; tells of each change."""

    def __init__(self, address: Address, notify: Callable[[str], None]) -> None:
        self.address, self._notify, self._is_lost = address, notify, False

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            there = asyncio.open_connection(self.address.host, self.address.port)
            pair = await asyncio.wait_for(there, _CONNECT)
        except OSError as error:  # TimeoutError is one
            self._tell(True, f"cannot reach {self.address} ({_reason(error)}): trying again until it answers")
            raise
        self._tell(False, f"{self.address} answers again")
        return pair

    def _tell(self, is_lost: bool, text: str) -> None:
        if is_lost != self._is_lost:
            self._is_lost = is_lost
            self._notify(text)


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    return os.strerror(error.errno) if error.errno else f"no answer in {_CONNECT:.0f} s"


@contextmanager
def relay(place: Path, address: Address, notify: Callable[[str], None]) -> Iterator[None]:
    """Relay connections to the socket `place`, in a thread."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    thread = threading.Thread(target=_run, args=(loop, place, _Server(address, notify), ready), daemon=True)
    thread.start()
    ready.wait(10)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)


def _run(loop: asyncio.AbstractEventLoop, place: Path, server: _Server, ready: threading.Event) -> None:
    """Serve until the loop is stopped; connections that are left end with it."""
    asyncio.set_event_loop(loop)
    listener = loop.run_until_complete(asyncio.start_unix_server(lambda *pair: _pass(server, *pair), str(place)))
    place.chmod(0o600)
    ready.set()
    loop.run_forever()
    listener.close()
    rest = asyncio.all_tasks(loop)
    for each in rest:
        each.cancel()
    loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
    loop.close()


async def _pass(server: _Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection; if the server is not there, it just ends, and the node tries again."""
    with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.CancelledError):
        far_reader, far_writer = await server.connect()
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            far_writer.close()
    writer.close()


async def _copy(source: asyncio.StreamReader, drain: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(2**16):
            drain.write(data)
            await drain.drain()
    drain.close()
