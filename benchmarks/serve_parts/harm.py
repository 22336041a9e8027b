"""Files of a gigabyte and clients that are slow on purpose, while others ask: who is answered, and how soon.

huge   the first two say how large the file is, the others send it in pieces and do not say; nobody stops by themselves
slow   a third sends headers, a third a photo, a byte a second; the rest connects and says nothing
"""

import asyncio
import contextlib
import time

import numpy as np

from figures import target
from serve_parts import material
from serve_parts.server import Person, peak_memory, serving
from serve_parts.use import QUESTIONS, offers_of, visit

HUGE, PIECE, FILES = 10**9, 2**20, 4
SLOW, PEOPLE, SECONDS = 150, 8, 75
MOST_SECONDS, MOST_GROWTH = 20.0, 512 * 2**20
PATH = "/api/v1/photos"


class Opened:
    """A connection that begins an upload by hand."""

    def __init__(self, base, token):
        self.host, self.port = base.removeprefix("http://").split(":")
        self.head = f"POST {PATH} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nAuthorization: Bearer {token}\r\n"

    async def streams(self):
        return await asyncio.open_connection(self.host, int(self.port))


async def huge(opened, says_how_large):
    """The status that a gigabyte is answered with, and how much of it went out before."""
    reader, writer = await opened.streams()
    size = f"Content-Length: {HUGE}" if says_how_large else "Transfer-Encoding: chunked"
    writer.write(f"{opened.head}{size}\r\n\r\n".encode())
    piece, sent = bytes(PIECE), 0
    answer = asyncio.create_task(reader.readline())
    with contextlib.suppress(ConnectionError):
        while sent < HUGE and not answer.done():
            writer.write(piece if says_how_large else f"{PIECE:x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
            sent += PIECE
    with contextlib.suppress(ConnectionError):
        said = await asyncio.wait_for(answer, 120)
        writer.close()
        return int(said.split()[1]), sent
    return 0, sent  # the connection was closed before the answer could be read


async def slow(opened, number, until):
    """Whether the server has sent this one away."""
    reader, writer = await opened.streams()
    text = opened.head.encode() if number % 3 == 0 else b"x" * 1000 if number % 3 == 1 else b""
    try:
        if number % 3 == 1:
            writer.write(f"{opened.head}Content-Length: 1000\r\n\r\n".encode())
        for place in range(1000):
            writer.write(text[place : place + 1])
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                return bool(await asyncio.wait_for(reader.read(4096), 1)) or True
            if time.monotonic() > until:
                return False
    except ConnectionError:
        return True
    finally:
        writer.close()
    return False


async def all_at_once(base, token, photos):
    until, opened = time.monotonic() + SECONDS, Opened(base, token)
    waited = {question: [] for question in QUESTIONS}
    offers, drawn = await offers_of(base, token)

    async def person(most):
        async with Person(base, token) as asking:
            while time.monotonic() < until and len(photos) > most:
                await visit(asking, offers, photos.pop(), drawn, waited)

    await person(len(photos) - 2)  # now the processes are up
    waited.update({question: [] for question in QUESTIONS})
    slowly = [asyncio.create_task(slow(opened, number, until)) for number in range(SLOW)]
    await asyncio.sleep(1)
    largely = [asyncio.create_task(huge(opened, number < 2)) for number in range(FILES)]
    await asyncio.gather(*(person(0) for _ in range(PEOPLE)))
    return await asyncio.gather(*largely), await asyncio.gather(*slowly), waited


def measure(folder):
    photos = sorted((folder / "asked").iterdir())
    with serving(folder / "runs", "--index", folder / material.networks()[0] / "index") as (base, token, server):
        begun = peak_memory(server.pid)[0]
        files, sent_away, waited = asyncio.run(all_at_once(base, token, photos))
        grown = peak_memory(server.pid)[0] - begun
    every = np.concatenate([np.array(each) for each in waited.values()])
    return {
        "huge_files": [{"status": status, "bytes_sent": sent} for status, sent in files],
        "slow_clients": len(sent_away), "sent_away": sum(sent_away), "answers_to_others": len(every),
        "seconds_p50": float(np.percentile(every, 50)), "seconds_p99": float(np.percentile(every, 99)),
        "memory_growth_bytes": grown,
    }  # fmt: skip


def targets(figures):
    refused = sum(each["status"] in (0, 413) for each in figures["huge_files"])
    return [
        target("files of a gigabyte that are refused", refused, FILES, FILES),
        target("slow clients that are sent away", figures["sent_away"], SLOW, SLOW),
        target("answers to others meanwhile, none wrong", figures["answers_to_others"], 1),
        target("99 % of them within", figures["seconds_p99"], most=MOST_SECONDS, unit=" s") | {"timed": True},
        target("growth of the server's memory, MiB", figures["memory_growth_bytes"] / 2**20, most=MOST_GROWTH / 2**20),
    ]


def show(figures, console):
    console.print_json(data=figures)
