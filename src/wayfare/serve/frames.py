"""Messages between the server and its processes: a JSON object and any number of byte strings.

    8 bytes: the length of the JSON · the JSON, whose "parts" are the lengths of the byte strings · these

No pickle: a decoder that was taken over by a crafted picture can send back wrong pixels, but nothing that runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from wayfare.core.errors import WayfareError

MOST = 2**30  # bytes of a message; whoever announces more is not one of us
_HEAD = 8

Message = tuple[dict[str, Any], list[bytes]]
Handler = Callable[..., Message]


class FrameError(WayfareError):
    """What came is not a message."""


def pack(content: dict[str, Any], parts: Sequence[bytes] = ()) -> list[bytes]:
    """A message as bytes to send."""
    text = json.dumps({**content, "parts": [len(part) for part in parts]}).encode()
    return [len(text).to_bytes(_HEAD), text, *parts]


def _sizes(content: Any) -> list[int]:
    sizes = content.get("parts") if isinstance(content, dict) else None
    if not isinstance(sizes, list) or not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise FrameError("a process sent something that is not a message")
    if sum(sizes) > MOST:
        raise FrameError(f"a process sent {sum(sizes):,} bytes")
    return sizes


def _length(head: bytes) -> int:
    length = int.from_bytes(head)
    if length > MOST:
        raise FrameError("a process sent something that is not a message")
    return length


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a process sent something that is not a message: {error}") from error


async def receive(reader: asyncio.StreamReader) -> Message:
    """The next message of a process."""
    content = _parsed(await reader.readexactly(_length(await reader.readexactly(_HEAD))))
    parts = [await reader.readexactly(size) for size in _sizes(content)]
    return {key: value for key, value in content.items() if key != "parts"}, parts


def _read(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise EOFError
    return data


def serve_requests(handlers: dict[str, Handler]) -> None:
    """A process's whole life: answer requests on standard input, one after another, until it is closed.

    Whatever a library prints goes to standard error, so that it cannot get between the answers.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            request = _parsed(_read(sys.stdin.buffer, _length(_read(sys.stdin.buffer, _HEAD))))
            parts = [_read(sys.stdin.buffer, size) for size in _sizes(request)]
        except EOFError:
            return
        content, given = _answer(handlers, request, parts)
        for piece in pack(content, given):
            answers.write(piece)
        answers.flush()


def _answer(handlers: dict[str, Handler], request: dict[str, Any], parts: list[bytes]) -> Message:
    try:
        return handlers[request["ask"]](*parts, **request["with"])
    except WayfareError as error:
        return {"error": str(error), "kind": type(error).__name__}, []
    except MemoryError:
        return {"error": "not enough memory for this", "kind": "DataError"}, []
