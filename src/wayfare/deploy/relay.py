"""The one way out of a node's sandbox: a Unix socket that leads to the server of the invitation, and nowhere else.

What passes is TLS between the node and the server; the relay sees only bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wayfare.deploy.address import Address

_CONNECT = 20.0  # seconds


@contextmanager
def relay(place: Path, server: Address) -> Iterator[None]:
    """Relay connections to the socket `place`, in a thread."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    thread = threading.Thread(target=_run, args=(loop, place, server, ready), daemon=True)
    thread.start()
    ready.wait(10)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)


def _run(loop: asyncio.AbstractEventLoop, place: Path, server: Address, ready: threading.Event) -> None:
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


async def _pass(server: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection; if the server is not there, it just ends, and the node tries again."""
    with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.CancelledError):
        far_reader, far_writer = await asyncio.wait_for(asyncio.open_connection(server.host, server.port), _CONNECT)
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
