"""`wayfare serve` in a process of its own, and how much memory it and those below it took."""

import asyncio
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode


@contextmanager
def serving(*arguments):
    """Its address, its token, its process."""
    command = [sys.executable, "-m", "wayfare", "serve", *map(str, arguments), "--no-open", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            lines = iter(server.stderr.readline, "")
            base, token = next(m.groups() for line in lines if (m := re.search(r"(http://\S+)/\?token=(\S+)", line)))
            yield base, token, server
        finally:
            server.terminate()


class Person:
    """A connection that asks one thing after the other. It is lean, for it runs on the cores of the server."""

    def __init__(self, base, token):
        self._address = base.removeprefix("http://")
        self._head = f"Host: {self._address}\r\nAuthorization: Bearer {token}\r\n"

    async def __aenter__(self):
        host, port = self._address.split(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        return self

    async def __aexit__(self, *_):
        self._writer.close()

    async def get(self, path, **given):
        return await self._ask("GET", f"{path}?{urlencode(given)}", b"")

    async def post(self, path, body, **given):
        return await self._ask("POST", f"{path}?{urlencode(given)}", body)

    async def _ask(self, method, path, body):
        kind = "Content-Type: application/json\r\n" if body.startswith(b"{") else ""
        length = f"Content-Length: {len(body)}\r\n" if method == "POST" else ""
        self._writer.write(f"{method} /api/v1/{path} HTTP/1.1\r\n{self._head}{kind}{length}\r\n".encode() + body)
        await self._writer.drain()
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        size = int(re.search(r"(?i)content-length: (\d+)", head)[1])
        answer = await self._reader.readexactly(size)
        assert head.split()[1] in ("200", "201"), (path, head.split()[1], answer)
        return json.loads(answer)


def below(process):
    """A process and all below it."""
    children = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            children.setdefault(_fields(status)[1], []).append(int(status.parent.name))
    todo, found = [process], []
    while todo:
        found.append(todo.pop())
        todo += children.get(str(found[-1]), [])
    return found


def _fields(stat):
    """What follows the name in /proc/N/stat: state, parent, ..."""
    return stat.read_text().rpartition(")")[2].split()


def cpu_seconds(process):
    """Of a process and all below it, those that have ended included."""
    ticks = os.sysconf("SC_CLK_TCK")
    return sum(sum(map(int, _fields(Path(f"/proc/{number}/stat"))[11:15])) for number in below(process)) / ticks


def peak_memory(process):
    """Peak resident bytes of a process; and of it and all below it, added up."""
    texts = [Path(f"/proc/{number}/status").read_text() for number in below(process)]
    peaks = [1024 * int(found[1]) if (found := re.search(r"VmHWM:\s+(\d+)", text)) else 0 for text in texts]
    return peaks[0], sum(peaks)
