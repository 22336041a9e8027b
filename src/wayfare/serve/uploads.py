"""Reading a request's body: counted while it comes, and given up where it is too large or too slow."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from wayfare.core.errors import WayfareError

MOST_BYTES = 40 * 2**20  # of a photo: the largest files of phones have about 25 MB
MOST_JSON = 2**20
_SECONDS = 60.0  # for all of it
_AT_ONCE = 6  # bodies that are in memory


class UploadError(WayfareError):
    """A body that is not taken, with the status that says why."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Uploads:
    """Takes bodies, few at a time."""

    def __init__(self, seconds: float = _SECONDS, at_once: int = _AT_ONCE) -> None:
        self._seconds, self._places = seconds, asyncio.Semaphore(at_once)

    async def read(self, request: Request, most: int) -> bytes:
        """The body, of at most so many bytes."""
        announced = request.headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > most:
            raise UploadError(f"too large: {int(announced):,} bytes, at most {most:,} are taken", 413)
        try:
            async with asyncio.timeout(self._seconds), self._places:
                body = bytearray()
                async for chunk in request.stream():
                    if len(body) + len(chunk) > most:
                        raise UploadError(f"too large: more than {most:,} bytes", 413)
                    body += chunk
                return bytes(body)
        except TimeoutError:
            raise UploadError(f"it took more than {self._seconds:g} s to arrive", 408) from None
