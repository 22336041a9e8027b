"""MATLAB's .mat files: plain arrays of numbers, and nothing else that such a file may hold.

Versions 5 to 7 (what `save` writes) are read here byte by byte, so that a damaged file cannot ask for more memory than
it has bytes for; version 7.3 is HDF5 and read by h5py, without the links to other files that HDF5 knows. Cells,
structs, objects, functions, text, sparse and complex arrays are refused. Large arrays can be read in pieces. Shapes are
always as MATLAB shows them; h5py alone would show a 7.3 array's axes in reverse.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from wayfare.errors import DataError

MAX_BYTES = 2**31  # that `Array.read` gives at once
_BLOCK = 2**26  # bytes read at a time
_MAX_CHUNK = 2**27  # bytes of HDF5's own pieces, which are unpacked whole
_MAX_AXES = 8
_MAX_NAMES = 1000
_RATIO = 1100  # what zlib can do at best is 1032
_HDF5 = b"\x89HDF\r\n\x1a\n"
_MATRIX, _COMPRESSED = 14, 15
_CODES = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"
}  # fmt: skip
_CLASSES = {
    1: "a cell array", 2: "a struct", 3: "an object", 4: "text", 5: "a sparse array", 16: "a function", 17: "an object"
}  # fmt: skip
_NUMERIC = range(6, 16)
Convert = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Array:
    """An array in a file, not read yet."""

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    pieces: Callable[[], Iterator[tuple[Any, np.ndarray]]]  # places in an array of this shape, and what belongs there

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self) -> np.ndarray:
        """All of it."""
        if self.nbytes > MAX_BYTES:
            raise DataError(f"too large: {self.nbytes} bytes, at most {MAX_BYTES} are read", self.file, field=self.name)
        out = np.zeros(self.shape, self.dtype)
        self.copy_to(out)
        return out

    def copy_to(self, out: np.ndarray, convert: Convert = lambda piece: piece) -> None:
        """Fill `out`, an array of this shape, piece by piece; each goes through `convert` first."""
        try:
            for place, piece in self.pieces():
                out[place] = convert(piece)
        except DataError:
            raise
        except Exception as error:  # HDF5 met with damaged bytes raises nearly anything
            raise _damaged(self.file, error, self.name) from error


def arrays(path: Path) -> dict[str, Array]:
    """All arrays of numbers in a file, by name; if it holds none, a DataError says what it holds."""
    try:
        if not path.is_file():
            raise DataError("no such file" if not path.exists() else "not a regular file", path)
        with path.open("rb") as file:
            head = file.read(520)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", path) from error
    found: dict[str, Array] = {}
    others: dict[str, str] = {}
    try:
        if head[:8] == _HDF5 or head[512:520] == _HDF5:
            _list_hdf5(path, found, others)
        elif len(head) >= 128 and head[126:128] in (b"IM", b"MI"):
            _list_v5(path, "<" if head[126:128] == b"IM" else ">", found, others)
        else:
            raise DataError("not a MATLAB file of version 5, 7 or 7.3", path, remedy="save it with -v7 or -v7.3")
    except DataError:
        raise
    except Exception as error:
        raise _damaged(path, error) from error
    if not found:
        held = ", ".join(f"{name!r}, {what}" for name, what in list(others.items())[:5]) or "nothing"
        raise DataError(f"no array of numbers in it: it holds {held}", path)
    return found


def array(path: Path, *names: str) -> Array:
    """The array of the first of these names, in whatever case, or the only one of the file."""
    found = arrays(path)
    by_name = {name.lower(): item for name, item in found.items()}
    for name in names:
        if name.lower() in by_name:
            return by_name[name.lower()]
    if len(found) == 1:
        return next(iter(found.values()))
    raise DataError(
        f"no array {names[0]!r} in it; found {', '.join(map(repr, list(found)[:10]))}", path, field=names[0]
    )


def write(path: Path, name: str, values: np.ndarray) -> None:
    """A version 5 file with one array, uncompressed; the same array gives the same bytes, since no date is written."""
    code = next(code for code, kind in _CODES.items() if np.dtype(kind) == values.dtype)
    kind = {"u1": 9, "i1": 8, "u2": 11, "i2": 10, "u4": 13, "i4": 12, "f4": 7, "f8": 6, "u8": 15, "i8": 14}
    if values.nbytes > 2**32 - 2**16 or values.ndim < 2:
        raise ValueError(f"a version 5 file does not hold {values.nbytes} bytes in {values.ndim} axes")
    shape, label = struct.pack(f"<{values.ndim}i", *values.shape), name.encode("ascii")
    start = b"".join((
        struct.pack("<IIII", 6, 8, kind[_CODES[code]], 0),
        struct.pack("<II", 5, len(shape)) + _padded(shape),
        struct.pack("<II", 1, len(label)) + _padded(label),
        struct.pack("<II", code, values.nbytes),
    ))  # fmt: skip
    rest = -values.nbytes % 8
    with path.open("wb") as file:
        file.write(b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM")
        file.write(struct.pack("<II", _MATRIX, len(start) + values.nbytes + rest) + start)
        for part in values.T:  # the last axis is the slowest one in the file
            file.write(np.ascontiguousarray(part).data)
        file.write(b"\0" * rest)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 8)


def _damaged(path: Path, error: Exception, name: str | None = None) -> DataError:
    return DataError(f"damaged: {str(error)[:200] or type(error).__name__}", path, field=name, remedy="copy it again")


# ---- Version 5: elements, each with a type and a length


class _Source(Protocol):
    def read(self, count: int) -> bytes: ...
    def finish(self) -> None: ...


class _Plain:
    """The next `left` bytes of a file."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self.file, self.left = file, left

    def read(self, count: int) -> bytes:
        if count > self.left:
            raise ValueError("an element is longer than what holds it")
        self.left -= count
        data = self.file.read(count)
        if len(data) < count:
            raise ValueError("the file ends too early")
        return data

    def finish(self) -> None:
        """Version 5 has no checksum."""


class _Inflated:
    """What the next `left` bytes of a file are when unpacked."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self.file, self.left = file, left
        self.unpacker = zlib.decompressobj()

    def read(self, count: int) -> bytes:
        parts = []
        while count:
            packed = self.unpacker.unconsumed_tail or self._more()
            parts.append(self.unpacker.decompress(packed, count))
            count -= len(parts[-1])
            if not parts[-1] and not packed:
                raise ValueError("the file ends too early")
        return b"".join(parts)

    def finish(self) -> None:
        """Go on to the checksum at the end, which zlib compares; only padding may come before it."""
        for _ in range(3):
            self.unpacker.decompress(self.unpacker.unconsumed_tail or self._more(), 64)
        if not self.unpacker.eof:
            raise ValueError("more bytes than the array needs")

    def _more(self) -> bytes:
        packed = self.file.read(min(self.left, 2**16))
        self.left -= len(packed)
        return packed


def _list_v5(path: Path, order: str, found: dict[str, Array], others: dict[str, str]) -> None:
    size, start = path.stat().st_size, 128
    with path.open("rb") as file:
        for _ in range(_MAX_NAMES):
            if start + 8 > size:
                return
            file.seek(start)
            kind, length = struct.unpack(f"{order}II", file.read(8))
            if start + 8 + length > size:
                raise ValueError(f"{length} bytes should follow byte {start + 8}, but the file ends at {size}")
            if kind in (_MATRIX, _COMPRESSED):
                _list_matrix(path, _Element(order, start + 8, length, kind == _COMPRESSED), file, found, others)
            start += 8 + length


@dataclass(frozen=True)
class _Element:
    order: str  # of bytes, "<" or ">"
    start: int
    length: int
    packed: bool

    def source(self, file: BinaryIO) -> _Source:
        file.seek(self.start)
        if not self.packed:
            return _Plain(file, self.length)
        source = _Inflated(file, self.length)
        kind, _ = struct.unpack(f"{self.order}II", source.read(8))
        if kind != _MATRIX:
            raise ValueError(f"a packed element of type {kind}")
        return source

    def header(self, source: _Source) -> tuple[int, tuple[int, ...], str]:
        """What kind of array it is, its shape and its name; the source is then at its data."""
        flags = self.small(source, 8)
        if len(flags) != 8:
            raise ValueError("no flags of an array")
        flag = struct.unpack(f"{self.order}I", flags[:4])[0]
        sides = self.small(source, 4 * _MAX_AXES)
        shape = struct.unpack(f"{self.order}{len(sides) // 4}i", sides[: len(sides) // 4 * 4])
        if len(shape) < 2 or min(shape) < 0:
            raise ValueError(f"no shape of an array: {shape}")
        name = self.small(source, 256).decode("ascii", "replace")
        return flag & 0xFFF, shape, name

    def tag(self, source: _Source) -> tuple[int, int, bytes]:
        """Type and length of a part; a short one comes with its data."""
        head = source.read(8)
        kind, length = struct.unpack(f"{self.order}II", head)
        if kind >> 16:
            if kind >> 16 > 4:
                raise ValueError("a short part of more than four bytes")
            return kind & 0xFFFF, kind >> 16, head[4 : 4 + (kind >> 16)]
        return kind, length, b""

    def small(self, source: _Source, most: int) -> bytes:
        _, length, data = self.tag(source)
        if data or not length:
            return data
        if length > most:
            raise ValueError(f"a part of {length} bytes where at most {most} were expected")
        return source.read(length + -length % 8)[:length]

    def values(self, source: _Source, shape: tuple[int, ...]) -> tuple[np.dtype, bytes]:
        """The type of the numbers; the source is then at the first. Very few of them come with their tag."""
        code, length, data = self.tag(source)
        if code not in _CODES:
            raise ValueError(f"numbers of type {code}")
        dtype = np.dtype(self.order + _CODES[code])
        if length != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{length} bytes for {' x '.join(map(str, shape))} numbers of {dtype.itemsize} bytes")
        if length > self.length * (_RATIO if self.packed else 1):
            raise ValueError(f"{length} bytes cannot be in {self.length}")
        return dtype, data


def _list_matrix(
    path: Path, element: _Element, file: BinaryIO, found: dict[str, Array], others: dict[str, str]
) -> None:
    source = element.source(file)
    flag, shape, name = element.header(source)
    if flag & 0xFF not in _NUMERIC or flag & 0x800:
        others[name] = "complex numbers" if flag & 0x800 else _CLASSES.get(flag & 0xFF, "something unknown")
        return
    dtype, _ = element.values(source, shape)
    found[name] = Array(path, name, shape, dtype.newbyteorder("="), lambda: _v5_pieces(path, element, shape))


def _v5_pieces(path: Path, element: _Element, shape: tuple[int, ...]) -> Iterator[tuple[Any, np.ndarray]]:
    """Runs of columns: the first axis is the fastest one in the file."""
    with path.open("rb") as file:
        source = element.source(file)
        element.header(source)
        dtype, data = element.values(source, shape)
        rows, columns = shape[0], math.prod(shape[1:])
        if not rows * columns:
            return
        step = max(_BLOCK // (rows * dtype.itemsize), 1)
        for start in range(0, columns, step):
            count = min(step, columns - start)
            piece = np.frombuffer(data or source.read(rows * count * dtype.itemsize), dtype)
            places = np.unravel_index(np.arange(start, start + count), shape[1:], order="F")
            yield (slice(None), *places), piece.reshape(rows, count, order="F")
        source.finish()


# ---- Version 7.3: HDF5


def _list_hdf5(path: Path, found: dict[str, Array], others: dict[str, str]) -> None:
    import h5py

    with h5py.File(path, "r") as file:
        for name in list(file)[:_MAX_NAMES]:
            if name == "#refs#" or name == "#subsystem#":
                continue
            if not isinstance(file.get(name, getlink=True), h5py.HardLink):
                others[name] = "a link"
                continue
            what = _fault(file[name])
            if what:
                others[name] = what
                continue
            data = file[name]
            by_matlab = "MATLAB_class" in data.attrs
            shape = tuple(data.shape[::-1] if by_matlab else data.shape)
            found[name] = Array(
                path, name, shape, data.dtype.newbyteorder("="), _hdf5_reader(path, name, by_matlab)
            )  # fmt: skip


def _fault(data: Any) -> str | None:
    """Why it is not read; None for an array of numbers that is all in this file."""
    import h5py

    if not isinstance(data, h5py.Dataset):
        return "a struct"
    if data.dtype.kind not in "iufb" or not data.shape or len(data.shape) > _MAX_AXES or data.attrs.get("MATLAB_empty"):
        return "not an array of numbers"
    if data.is_virtual or data.external:
        return "an array in another file"
    filters = data.id.get_create_plist()
    known = (h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32)
    if any(filters.get_filter(place)[0] not in known for place in range(filters.get_nfilters())):
        return "packed in an unknown way"
    if math.prod(data.shape) * data.dtype.itemsize > data.id.get_storage_size() * _RATIO:
        return "an array of which most is not there"
    return None


def _hdf5_reader(path: Path, name: str, by_matlab: bool) -> Callable[[], Iterator[tuple[Any, np.ndarray]]]:
    def pieces() -> Iterator[tuple[Any, np.ndarray]]:
        import h5py

        with h5py.File(path, "r") as file:
            data = file[name]
            if data.chunks and math.prod(data.chunks) * data.dtype.itemsize > _MAX_CHUNK:
                raise ValueError(f"packed in pieces of {data.chunks}, which is too much for the memory")
            for place in data.iter_chunks() if data.chunks else _slabs(data.shape, data.dtype.itemsize):
                piece = data[place]
                yield (place[::-1], piece.transpose()) if by_matlab else (place, piece)

    return pieces


def _slabs(shape: tuple[int, ...], itemsize: int) -> Iterator[tuple[slice, ...]]:
    """Parts of an array of not much more than a block, in the order of the file."""
    if not math.prod(shape):
        return
    split = next((axis for axis in range(len(shape)) if math.prod(shape[axis:]) * itemsize <= _BLOCK), len(shape))
    for place in np.ndindex(*shape[:split]):
        yield (*(slice(index, index + 1) for index in place), *(slice(0, side) for side in shape[split:]))
