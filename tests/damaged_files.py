"""Damage to files, in every way that turned up: for tests that throw thousands of broken ones at a loader."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

WEIRD = (
    "", " ", "nan", "NaN", "inf", "-inf", "1e400", "-1e308", "1e-400", "9" * 400, "-0", "0x10", "1_000", "٣", "½",
    "True", "false", "yes", "None", "null", "[]", "{}", "../../etc/passwd", "/etc/passwd", "..", ".", "C:\\x.jpg",
    "a\tb", 'a"b', '"', "'", ";", ",", "\r", "é", "\U0001f600", "\ufeff", "\x01", "x" * 5000, "2024-13-45",
    "1,5", "0000-00-00", "99999-01-01", "2024-06-21T25:61:61", "-1", "1e9", "181", "-91", "91", "3.5", "2147483649",
    "99999999999999999999",
)  # fmt: skip


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder in memory where there is one: on some disks creating a file takes longer than reading a thousand."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def bytes_of(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes changed, lost, doubled, moved, cut off."""
    content = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(0, len(content) + 1))
        length = int(rng.integers(1, 40))
        match int(rng.integers(0, 9)):
            case 0 | 1 if place < len(content):
                content[place] = int(rng.integers(0, 256))
            case 2:
                del content[place : place + length]
            case 3:
                content[place:place] = content[place : place + length]
            case 4:
                content[place:place] = bytes(rng.integers(0, 256, length, np.uint8))
            case 5:
                del content[place:]
            case 6 if place < len(content):
                content[place] ^= 1 << int(rng.integers(0, 8))
            case 7:
                content[place:place] = rng.choice([b"\0", b"\n", b"\r", b",", b'"', b"\xff\xfe", b"\xef\xbb\xbf", b"@"])
            case _:
                content[place : place + length] = content[:length]
    return bytes(content)


def table_of(data: bytes, rng: np.random.Generator, delimiter: str = ",") -> bytes:
    """Fields, columns and lines changed, lost, doubled, swapped; or the bytes of the file."""
    if rng.random() < 0.3:
        return bytes_of(data, rng)
    rows = [line.split(delimiter) for line in data.decode().splitlines()]
    for _ in range(int(rng.integers(1, 4))):
        row = int(rng.integers(0, len(rows))) if rows else 0
        kind = int(rng.integers(0, 10))
        if not rows or kind == 0:
            rows = rows[: int(rng.integers(0, 2))]
        elif kind <= 3:
            if rows[row]:
                rows[row][int(rng.integers(0, len(rows[row])))] = str(rng.choice(WEIRD))
        elif kind == 4:
            rows.insert(row, list(rows[int(rng.integers(0, len(rows)))]))
        elif kind == 5:
            del rows[row]
        elif kind == 6:
            del rows[row][: int(rng.integers(0, 3))]
        elif kind == 7:
            a, b = rng.integers(0, max(len(rows[0]), 1), 2)
            for fields in rows if rng.random() < 0.5 else rows[:1]:
                if max(a, b) < len(fields):
                    fields[a], fields[b] = fields[b], fields[a]
        elif kind == 8:
            a = int(rng.integers(0, max(len(rows[0]), 1)))
            for fields in rows:
                del fields[a : a + 1]
        else:
            rows[row].append(str(rng.choice(WEIRD)))
    return "\n".join(delimiter.join(fields) for fields in rows).encode("utf-8", "surrogatepass")
