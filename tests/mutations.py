"""Spoiling files in many ways: single bytes, pieces of text, parts of JSON."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

BYTES = (0, 1, 10, 13, 32, 34, 44, 45, 46, 48, 57, 58, 91, 93, 101, 123, 125, 127, 128, 192, 237, 254, 255)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 7, 10**6, 2**31, 2**63, -(2**64), 10**50, 0.5, -0.0, 1e308, -1e308, "", "a", "0",
    "\0", "\ud800", "../x", "/etc/passwd", "x" * 3000, "\n", [], {}, [[]], [0], [0, 0], [0, 0, 0], [1, 0, 99], {"a": 1},
    [None] * 4, [1e300] * 4, {"id": 1}, [[0, 1, 0], [0, 0, 0]],
)  # fmt: skip
WORDS = (
    "",
    " ",
    "nan",
    "-1",
    "1",
    "0",
    "inf",
    "1e999",
    "9" * 400,
    "x",
    "é",
    ",",
    "\t",
    "\0",
    "\ufeff",
    "٣",
    "²",
    "../y",
)


def spoilt_bytes(data: bytes, draw: random.Random) -> bytes:
    """A few bytes changed, added, left out or repeated."""
    found = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(found) + 1) if found else 0
        match draw.randrange(6):
            case 0:
                del found[place : place + draw.randint(1, 20)]
            case 1:
                found[place:place] = bytes(draw.choices(BYTES, k=draw.randint(1, 5)))
            case 2:
                found[place:place] = found[place : place + draw.randint(1, 60)]
            case 3 if draw.random() < 0.3:
                del found[place:]
            case _:
                found[place : place + 1] = bytes((draw.choice(BYTES) if draw.random() < 0.5 else draw.randrange(256),))
    return bytes(found)


def spoilt_words(data: bytes, draw: random.Random) -> bytes:
    """Words or whole lines of a text changed, left out, repeated or exchanged."""
    lines = [line.split(" ") for line in data.decode().split("\n")]
    for _ in range(draw.randint(1, 3)):
        line = draw.choice(lines)
        match draw.randrange(4):
            case 0:
                lines.insert(draw.randrange(len(lines) + 1), list(draw.choice(lines)))
            case 1 if len(lines) > 1:
                lines.remove(line)
            case 2 if line:
                del line[draw.randrange(len(line))]
            case _:
                place = draw.randrange(len(line) + 1)
                line[place : place + draw.randrange(2)] = [draw.choice(WORDS)]
    return "\n".join(" ".join(line) for line in lines).encode()


def spoilt_json(text: bytes, draw: random.Random) -> bytes:
    """Parts of a JSON text exchanged for others, left out, repeated or renamed."""
    value = json.loads(text)
    places = list(_places(value))
    for _ in range(draw.randint(1, 3)):
        holder, key = draw.choice(places)
        other, place = draw.choice(places)
        with contextlib.suppress(KeyError, IndexError):  # it was taken out a moment ago
            match draw.randrange(6):
                case 0:
                    del holder[key]
                case 1 if isinstance(holder, list):
                    holder.append(copy.deepcopy(holder[key]))
                case 2 if isinstance(holder, dict):
                    holder[draw.choice(("id", "data", "bbox", "x"))] = holder.pop(key)
                case 3:
                    holder[key] = copy.deepcopy(other[place])
                case _:
                    holder[key] = copy.deepcopy(draw.choice(VALUES))
    return json.dumps(value).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from _places(item)


def outcomes(contents: Iterator[bytes], use: Callable[[bytes], None], error: type[Exception]) -> tuple[int, int]:
    """How many of the contents were used and how many refused with this error; any other exception gets out."""
    used = refused = 0
    for content in contents:
        try:
            use(content)
            used += 1
        except error:
            refused += 1
    return used, refused
