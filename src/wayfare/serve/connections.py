"""Connections: those that do not ask, or ask too slowly, are closed; and one address has only so many.

Without this, somebody who opens connections and sends a byte now and then takes all that the system allows us. How
fast a body must come is decided in uploads.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 20.0  # for a request's first lines, and between two requests
MOST_OF_ONE = 200  # connections from one address: a browser has some ten
_of: Counter[str] = Counter()


class PatientProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with an end to patience."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._peer = str((transport.get_extra_info("peername") or ("",))[0])
        self._last: object = None
        _of[self._peer] += 1
        if _of[self._peer] > MOST_OF_ONE:
            transport.close()
        self._look = self.loop.call_later(SECONDS, self._close_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        _of[self._peer] -= 1
        if not _of[self._peer]:
            del _of[self._peer]
        super().connection_lost(exc)

    def _close_if_idle(self) -> None:
        """No request is being answered, and none has come since the last look."""
        asked = self.cycle
        if (asked is None or asked.response_complete) and asked is self._last:
            self.transport.close()
            return
        self._last = asked
        self._look = self.loop.call_later(SECONDS, self._close_if_idle)
