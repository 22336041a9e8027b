"""Processes that work for the server: a few alike, each with one request at a time, replaced when one dies or hangs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from wayfare.core import errors
from wayfare.core.errors import WayfareError
from wayfare.deploy import sandbox
from wayfare.serve.frames import FrameError, Message, pack, receive

_LIMIT = 2**20  # bytes that are read ahead


class BusyError(WayfareError):
    """Too many requests wait already."""


class WorkerError(WayfareError):
    """A process died or took too long; another one has its place."""


class Workers:
    """So many processes of one program. They start when they are first needed."""

    def __init__(
        self,
        program: str,
        count: int,
        *,
        seconds: float,
        arguments: Sequence[str] = (),
        fenced: bool = False,
        waiting: int = 100,
        lives: int = 0,
    ) -> None:
        """`fenced`: in the sandbox of `deploy`; `lives`: requests after which a process is replaced, 0 for never."""
        self._command = [sys.executable, "-P", "-m", program, *arguments]
        if fenced:
            self._command = [sys.executable, "-IS", str(Path(sandbox.__file__)), "--", *self._command]
        self._seconds, self._most, self._lives = seconds, waiting, lives
        self._idle: asyncio.LifoQueue[_Worker | None] = asyncio.LifoQueue()
        for _ in range(count):
            self._idle.put_nowait(None)
        self._all: set[_Worker] = set()
        self._waiting = 0

    async def ask(self, what: str, *parts: bytes, **settings: Any) -> Message:
        """What the next free process answers. Its own errors are raised here as what they were there."""
        if self._waiting >= self._most:
            raise BusyError("too many requests at once: try again in a moment")
        self._waiting += 1
        try:
            worker = await self._idle.get()
        finally:
            self._waiting -= 1
        kept: _Worker | None = None
        try:
            worker = worker or await self._start()
            async with asyncio.timeout(self._seconds):
                answer = await worker.exchange({"ask": what, "with": settings}, parts)
            worker.asked += 1
            kept = None if self._lives and worker.asked >= self._lives else worker
        except TimeoutError:
            raise WorkerError(f"it took more than {self._seconds:g} s and was stopped") from None
        except (asyncio.IncompleteReadError, ConnectionError, FrameError):
            raise WorkerError("the process working on it died; the input may have been too large") from None
        finally:
            if kept is None and worker is not None:
                self._all.discard(worker)
                await worker.end()
            self._idle.put_nowait(kept)
        _raise_error(answer[0])
        return answer

    async def _start(self) -> _Worker:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, env=environment, limit=_LIMIT, start_new_session=True
        )
        worker = _Worker(process)
        self._all.add(worker)
        return worker

    async def close(self) -> None:
        """End them all."""
        await asyncio.gather(*(worker.end() for worker in self._all))
        self._all.clear()

    def processes(self) -> list[int]:
        """The numbers of those that live."""
        return [worker.process.pid for worker in self._all]


class _Worker:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process, self.asked = process, 0

    async def exchange(self, request: dict[str, Any], parts: Sequence[bytes]) -> Message:
        writer, reader = self.process.stdin, self.process.stdout
        if writer is None or reader is None:
            raise ConnectionError
        for piece in pack(request, parts):
            writer.write(piece)
        await writer.drain()
        return await receive(reader)

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        await self.process.wait()


def _raise_error(content: dict[str, Any]) -> None:
    if "error" in content:
        kinds: dict[str, type[WayfareError]] = {"ConfigError": errors.ConfigError, "StoreError": errors.StoreError}
        raise kinds.get(str(content.get("kind")), errors.DataError)(str(content["error"]))


async def sandbox_fault() -> str:
    """Why there is no sandbox here; "" if there is one."""
    if sys.platform != "linux":
        return "it needs Linux"
    command = sys.executable, "-IS", str(Path(sandbox.__file__)), "--check"
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    said = (await process.communicate())[1]
    return (said.decode(errors="replace").strip() or "unknown reason") if process.returncode else ""
