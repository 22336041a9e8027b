"""ONNX files for tests, written byte by byte."""

from __future__ import annotations

import numpy as np


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name: str, values: np.ndarray, kind: int = 1, packed: bool = False) -> bytes:
    dims = [field(1, b"".join(map(varint, values.shape)))] if packed else [field(1, side) for side in values.shape]
    return field(5, b"".join(dims) + field(2, kind) + field(8, name) + field(9, values.tobytes()))


def node(operator: str, inputs: list[str], output: str) -> bytes:
    return field(1, b"".join(field(1, name) for name in inputs) + field(2, output) + field(4, operator))


def model(*parts: bytes) -> bytes:
    return field(1, 8) + field(2, "pytorch") + field(7, b"".join(parts))
