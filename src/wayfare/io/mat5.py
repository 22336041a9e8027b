"""MATLAB files of versions 5 to 7, checked here before SciPy reads them.

SciPy trusts the file: an unknown type number ends the process, and a few kilobytes can make it allocate gigabytes. So
each variable is unpacked here, up to the length it declares, and every tag in it is checked against the length of the
element that contains it. Only then is the single unpacked variable passed to SciPy.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.io import loadmat

MAX_BYTES = 2**31  # of one unpacked variable; also MATLAB's own limit
CELL, STRUCT, TEXT = 1, 2, 4
NUMBERS = range(6, 16)
_KINDS = {
    1: "a cell array", 2: "a struct", 3: "an object", 4: "text", 5: "a sparse array", 16: "a function", 17: "an object"
}  # fmt: skip
_COMPLEX = 0x800
_MATRIX, _COMPRESSED = 14, 15
_TYPES = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"
}  # fmt: skip
_TEXT_TYPES = (1, 2, 4, 16, 17)  # bytes, UTF-16 units, UTF-8, UTF-16
_HEAD = 1024  # bytes that hold a variable's shape and name
_MAX_AXES, _MAX_NAME, _MAX_DEPTH, _MAX_INNER, _MAX_VARIABLES = 8, 256, 12, 100_000, 1000
_RATIO = 1100  # zlib compresses by at most 1,032


class MatDescription(NamedTuple):
    """What the first bytes of a variable say about it."""

    name: str
    kind: str  # "" for plain numbers, otherwise the kind in words
    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True)
class Variable:
    """Where a variable lies in its file."""

    path: Path
    order: str  # of bytes, "<" or ">"
    start: int
    length: int
    packed: bool

    def describe(self) -> MatDescription:
        """Its shape and name; raise if its values cannot all be there."""
        cursor = _Cursor(self._unpacked(_HEAD), self.order)
        flags, shape, name = cursor.header()
        kind, dtype = flags & 0xFF, np.dtype("u1")
        if kind not in NUMBERS or flags & _COMPLEX:
            shown = "complex numbers" if flags & _COMPLEX else _KINDS.get(kind, "something unknown")
            return MatDescription(name, shown, shape, dtype)
        code, length, _ = cursor.tag()
        dtype = _stored(code, length, shape)
        if length > self.length * (_RATIO if self.packed else 1):
            raise ValueError(f"{length} bytes cannot be in {self.length}")
        return MatDescription(name, "", shape, dtype)

    def read(self, kinds: Collection[int] = NUMBERS) -> np.ndarray:
        """Its values as SciPy reads them, in the stored type; only real numbers, or the given kinds."""
        content = self._unpacked(MAX_BYTES)
        _check(_Cursor(content, self.order), kinds)
        mark = b"\x00\x01IM" if self.order == "<" else b"\x01\x00MI"
        header = b"MATLAB 5.0 MAT-file".ljust(124) + mark + struct.pack(f"{self.order}II", _MATRIX, len(content))
        found = loadmat(io.BytesIO(header + content))
        values: np.ndarray = next(values for name, values in found.items() if not name.startswith("__"))
        return values

    def _unpacked(self, most: int) -> bytes:
        """At most `most` of its bytes, without its tag. Reading all of a packed variable verifies its checksum."""
        with self.path.open("rb") as file:
            file.seek(self.start)
            if not self.packed:
                return _exactly(file.read(min(self.length, most)), min(self.length, most))
            unpacker = zlib.decompressobj()
            content = unpacker.decompress(file.read(min(self.length, 2 * most)), 8)
            kind, length = struct.unpack(f"{self.order}II", _exactly(content, 8))
            if kind != _MATRIX:
                raise ValueError(f"a packed element of type {kind}")
            if not 0 < length <= min(MAX_BYTES, self.length * _RATIO):  # zlib reads 0 as no limit
                raise ValueError(f"{length} bytes cannot be in {self.length}, or are too many")
            content = unpacker.decompress(unpacker.unconsumed_tail, min(length, most))
            if length <= most:
                _exactly(content, length)
                unpacker.decompress(unpacker.unconsumed_tail, 64)  # the checksum
                if not unpacker.eof:
                    raise ValueError("more bytes than the array needs")
            return content


def variables(path: Path, order: str) -> Iterator[Variable]:
    """All variables of a file, in its order."""
    size, start = path.stat().st_size, 128
    with path.open("rb") as file:
        for _ in range(_MAX_VARIABLES):
            if start + 8 > size:
                return
            file.seek(start)
            kind, length = struct.unpack(f"{order}II", file.read(8))
            if start + 8 + length > size:
                raise ValueError(f"{length} bytes should follow byte {start + 8}, but the file ends at {size}")
            if kind in (_MATRIX, _COMPRESSED):
                yield Variable(path, order, start + 8, length, kind == _COMPRESSED)
            start += 8 + length


def byte_order(head: bytes) -> str:
    """The byte order from a file's first 128 bytes, "<" or ">"; "" if it has another version."""
    return {b"IM": "<", b"MI": ">"}.get(head[126:128], "")


class _Cursor:
    """Reads the parts of a variable in order; each has a tag with its type and length."""

    def __init__(self, content: bytes | memoryview, order: str) -> None:
        self._content, self._order, self._at = memoryview(content), order, 0

    def tag(self) -> tuple[int, int, bytes]:
        """Type and length of the next part; a short one comes with its content."""
        head = bytes(self._take(8))
        kind, length = struct.unpack(f"{self._order}II", head)
        if not kind >> 16:
            return kind, length, b""
        if kind >> 16 > 4:
            raise ValueError("a short part of more than four bytes")
        return kind & 0xFFFF, kind >> 16, head[4 : 4 + (kind >> 16)]

    def part(self, most: int = MAX_BYTES) -> tuple[int, memoryview]:
        """Type and content of the next part."""
        kind, length, short = self.tag()
        if short:
            return kind, memoryview(short)
        if length > most:
            raise ValueError(f"a part of {length} bytes where at most {most} were expected")
        content = self._take(length)
        self._at += -length % 8
        return kind, content

    def header(self) -> tuple[int, tuple[int, ...], str]:
        """A variable's flags, shape and name."""
        _, flags = self.part(8)
        _, sides = self.part(4 * _MAX_AXES)
        _, name = self.part(_MAX_NAME)
        shape = struct.unpack(f"{self._order}{len(sides) // 4}i", sides[: len(sides) // 4 * 4])
        if len(flags) != 8 or len(shape) < 2 or min(shape) < 0:
            raise ValueError(f"no flags and shape of an array: {shape}")
        return struct.unpack(f"{self._order}I", flags[:4])[0] & 0xFFF, shape, bytes(name).decode("ascii", "replace")

    def inner(self, content: memoryview) -> _Cursor:
        """A cursor over a variable within this one."""
        return _Cursor(content, self._order)

    def number(self) -> int:
        """The next part, which is one number."""
        return int(struct.unpack(f"{self._order}i", self.part(8)[1][:4])[0])

    def _take(self, count: int) -> memoryview:
        if self._at + count > len(self._content):
            raise ValueError("an element is longer than the element that contains it")
        self._at += count
        return self._content[self._at - count : self._at]


def _check(cursor: _Cursor, kinds: Collection[int], depth: int = 0) -> None:
    """Raise unless a variable and everything in it is of these kinds and as long as declared."""
    flags, shape, _ = cursor.header()
    kind, count = flags & 0xFF, math.prod(shape)
    if kind not in kinds or flags & _COMPLEX or depth > _MAX_DEPTH:
        raise ValueError(f"{_KINDS.get(kind, 'something')} where it is not expected")
    if kind in NUMBERS:
        code, content = cursor.part()
        _stored(code, len(content), shape)
    elif kind == TEXT:
        code, content = cursor.part()
        if code not in _TEXT_TYPES or len(content) > 4 * count:
            raise ValueError(f"text of type {code} in {len(content)} bytes")
    else:
        _check_inner(cursor, kinds, count * (_fields(cursor) if kind == STRUCT else 1), depth)


def _check_inner(cursor: _Cursor, kinds: Collection[int], count: int, depth: int) -> None:
    """Check the variables in the cells of a cell array or the fields of a struct."""
    if count > _MAX_INNER:
        raise ValueError("too many arrays within arrays")
    for _ in range(count):
        code, content = cursor.part()
        if code != _MATRIX:
            raise ValueError(f"an element of type {code} within a cell")
        if content:  # otherwise the cell is empty
            _check(cursor.inner(content), kinds, depth + 1)


def _fields(cursor: _Cursor) -> int:
    """How many fields a struct has."""
    width = cursor.number()
    _, names = cursor.part(_MAX_INNER)
    if not 0 < width <= _MAX_NAME:
        raise ValueError(f"names of {width} characters")
    return len(names) // width


def _stored(code: int, length: int, shape: tuple[int, ...]) -> np.dtype:
    """The stored type of the numbers; they must fill their part exactly."""
    if code not in _TYPES:
        raise ValueError(f"numbers of type {code}")
    dtype = np.dtype(_TYPES[code])
    if length != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{length} bytes for {' x '.join(map(str, shape))} numbers of {dtype.itemsize} bytes")
    return dtype


def _exactly(content: bytes, count: int) -> bytes:
    if len(content) != count:
        raise ValueError("the file ends too early")
    return content
