"""Reading a request's body: counted while it comes, and given up where it is too large or too slow."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from starlette.requests import Request

from wayfare.core.errors import WayfareError

MOST_BYTES = 40 * 2**20  # of a photo: the largest files of phones have about 25 MB
_SECONDS = 60.0  # for all of it
_AT_ONCE = 6  # large bodies that are in memory
_SMALL = 2**18  # bytes that need no place: who sends a byte now and then never takes one


class UploadError(WayfareError):
    """A body that is not taken, with the status that says why."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Uploads:
    """Takes bodies, few large ones at a time."""

    def __init__(self, seconds: float = _SECONDS, at_once: int = _AT_ONCE) -> None:
        self._seconds, self._places = seconds, asyncio.Semaphore(at_once)

    async def read(self, request: Request, most: int) -> bytes:
        """The body, of at most so many bytes."""
        announced = request.headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > most:
            raise UploadError(f"too large: {int(announced):,} bytes, at most {most:,} are accepted", 413)
        try:
            async with asyncio.timeout(self._seconds), AsyncExitStack() as place:
                body, has_place = bytearray(), False
                async for chunk in request.stream():
                    if len(body) + len(chunk) > most:
                        raise UploadError(f"too large: more than {most:,} bytes", 413)
                    body += chunk
                    if len(body) > _SMALL and not has_place:
                        await place.enter_async_context(self._places)  # what comes meanwhile waits in the network
                        has_place = True
                return bytes(body)
        except TimeoutError:
            raise UploadError(f"it took more than {self._seconds:g} s to arrive", 408) from None
