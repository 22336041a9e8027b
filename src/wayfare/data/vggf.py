"""imagenet-vgg-f.mat, as MatConvNet's authors gave it away: the weights of CNN-F and the mean image.

The file is of nested cells and structs, whose names have changed over the years. What has not changed is the order of
the layers and the shape of their kernels, (height, width, in, out), each followed by its bias; that is what is gone by.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from wayfare.data import matfiles
from wayfare.errors import DataError

LAYERS = {  # kernels as MATLAB shows them
    "conv1": (11, 11, 3, 64),
    "conv2": (5, 5, 64, 256),
    "conv3": (3, 3, 256, 256),
    "conv4": (3, 3, 256, 256),
    "conv5": (3, 3, 256, 256),
    "fc6": (6, 6, 256, 4096),
    "fc7": (1, 1, 4096, 4096),
}
SIDE = 224
_CELL, _STRUCT, _DEEPEST, _MOST = 1, 2, 12, 100_000
Place = tuple[str | int, ...]  # names of fields and numbers of cells, from the outside


def read(file: Path) -> dict[str, np.ndarray]:
    """Weights and biases by layer, kernels as (out, in, height, width), fc7 as (out, in), and `mean` (3, 224, 224)."""
    found: dict[str, np.ndarray] = {}
    used: set[Place] = set()
    for place, values in nested(file):
        name = next((name for name in LAYERS if f"{name}.bias" not in found), "")
        if values.shape == (SIDE, SIDE, 3):
            found["mean"] = _float(values.transpose(2, 0, 1))
        elif name and f"{name}.weight" in found:
            if values.size == LAYERS[name][3] and place[:2] in used:
                found[f"{name}.bias"] = _float(values.reshape(-1))
        elif name and values.shape == LAYERS[name] and place[:2] not in used:
            used.add(place[:2])  # a layer may hold more of this shape: what its training left behind
            kernel = values.transpose(3, 2, 0, 1)
            found[f"{name}.weight"] = _float(kernel.reshape(kernel.shape[:2]) if name == "fc7" else kernel)
    wanted = ["mean", *(f"{name}.{part}" for name in LAYERS for part in ("weight", "bias"))]
    if missing := [name for name in wanted if name not in found]:
        raise DataError(f"not the weights of VGG-F: no {', '.join(missing[:4])} in it", file)
    if broken := [name for name in wanted if not np.isfinite(found[name]).all()]:
        raise DataError("has values that are not numbers", file, field=broken[0], remedy="copy it again")
    return found


def _float(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32)


def nested(file: Path) -> Iterator[tuple[Place, np.ndarray]]:
    """All arrays of numbers in the cells and structs of a version 5 or 7 file, in the file's order."""
    try:
        with file.open("rb") as stream:
            head = stream.read(128)
            if len(head) < 128 or head[126:128] not in (b"IM", b"MI"):
                raise DataError("not a MATLAB file of version 5 or 7", file, remedy="save it with -v7")
            order, start, size = "<" if head[126:128] == b"IM" else ">", 128, file.stat().st_size
            while start + 8 <= size:
                stream.seek(start)
                kind, length = struct.unpack(f"{order}II", stream.read(8))
                if start + 8 + length > size:
                    raise ValueError("the file ends too early")
                if kind in (matfiles._MATRIX, matfiles._COMPRESSED):
                    element = matfiles._Element(order, start + 8, length, kind == matfiles._COMPRESSED)
                    yield from _walk(element, _Part(element.source(stream), math.inf), ())
                start += 8 + length
    except (DataError, GeneratorExit):
        raise
    except Exception as error:
        raise DataError(f"damaged: {str(error)[:200] or type(error).__name__}", file, remedy="copy it again") from error


class _Part:
    """The next bytes of a source, and no more than these."""

    def __init__(self, source: matfiles._Source, left: float) -> None:
        self._source, self._left = source, left

    def read(self, count: int) -> bytes:
        if count > self._left:
            raise ValueError("an element is longer than what holds it")
        self._left -= count
        return self._source.read(count)

    def finish(self) -> None:
        """Pass over what was not asked for."""
        while 0 < self._left < math.inf:
            self.read(int(min(self._left, 2**20)))


def _walk(element: matfiles._Element, source: _Part, place: Place) -> Iterator[tuple[Place, np.ndarray]]:
    flag, shape, name = element.header(source)
    kind, count = flag & 0xFF, math.prod(shape)
    place = place or (name,)
    if kind in matfiles._NUMERIC and not flag & 0x800:
        dtype, data = element.values(source, shape)
        data = data or source.read(count * dtype.itemsize)
        yield place, np.frombuffer(data, dtype).reshape(shape, order="F")
    elif kind in (_CELL, _STRUCT):
        fields = _fields(element, source) if kind == _STRUCT else [""]
        if len(place) > _DEEPEST or count * len(fields) > _MOST:
            raise ValueError("too many arrays within arrays")
        for number in range(count):
            for field in fields:
                inner, length, _ = element.tag(source)
                if inner != matfiles._MATRIX:
                    raise ValueError(f"an element of type {inner} within a cell")
                if not length:
                    continue  # an empty cell
                part = _Part(source, length)
                # a struct on its own has no number
                steps = ((number,) if kind == _CELL or count > 1 else ()) + ((field,) if field else ())
                yield from _walk(element, part, (*place, *steps))
                part.finish()


def _fields(element: matfiles._Element, source: _Part) -> list[str]:
    width = struct.unpack(f"{element.order}i", element.small(source, 8)[:4])[0]
    if not 0 < width <= 256:
        raise ValueError(f"names of {width} characters")
    text = element.small(source, _MOST)
    return [
        text[at : at + width].split(b"\0")[0].decode("ascii", "replace")
        for at in range(0, len(text) // width * width, width)
    ]
