"""MATLAB's .mat files: only plain arrays of numbers are read.

Versions 5 to 7 (what `save` writes) are checked by `mat5` and read by SciPy. Version 7.3 is HDF5 and is read by h5py,
without following links to other files. Cells, structs, objects, functions, text, sparse and complex arrays are refused.
Arrays of version 7.3, which may not fit into memory, are read in pieces. Shapes are always as MATLAB shows them; h5py
alone would reverse the axes of a 7.3 array.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.io import savemat

from wayfare.core.errors import DataError
from wayfare.io import mat5

MAX_BYTES = 2**31  # the most that `Array.read` returns
_BLOCK = 2**26  # bytes read at a time
_MAX_CHUNK = 2**27  # bytes of an HDF5 chunk, which is always unpacked as a whole
_MAX_AXES = 8
_MAX_NAMES = 1000
_RATIO = 1100  # zlib compresses by at most 1,032
_HDF5 = b"\x89HDF\r\n\x1a\n"
Convert = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Array:
    """An array in a file, not read yet."""

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    pieces: Callable[[], Iterator[tuple[Any, np.ndarray]]]  # indices into an array of this shape, and the values there

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self) -> np.ndarray:
        """The whole array."""
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
        except Exception as error:  # h5py and SciPy raise almost anything on damaged bytes
            raise damaged(self.file, error, self.name) from error


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
        elif order := mat5.byte_order(head):
            _list_v5(path, order, found, others)
        else:
            raise DataError("not a MATLAB file of version 5, 7 or 7.3", path, remedy="save it with -v7 or -v7.3")
    except DataError:
        raise
    except Exception as error:
        raise damaged(path, error) from error
    if not found:
        held = ", ".join(f"{name!r}, {what}" for name, what in list(others.items())[:5]) or "nothing"
        raise DataError(f"has no array of numbers: it holds {held}", path)
    return found


def array(path: Path, *names: str) -> Array:
    """The array with the first of these names that exists (case is ignored), or the file's only array."""
    found = arrays(path)
    by_name = {name.lower(): item for name, item in found.items()}
    for name in names:
        if name.lower() in by_name:
            return by_name[name.lower()]
    if len(found) == 1:
        return next(iter(found.values()))
    raise DataError(f"has no array {names[0]!r}; found {', '.join(map(repr, list(found)[:10]))}", path, field=names[0])


def write(path: Path, name: str, values: np.ndarray) -> None:
    """Write one array to a version 5 file, uncompressed and without a date: equal arrays give equal bytes."""
    content = io.BytesIO()
    savemat(content, {name: values})
    content.seek(0)
    content.write(b"MATLAB 5.0 MAT-file".ljust(116))
    path.write_bytes(content.getbuffer())


def damaged(path: Path, error: Exception, name: str | None = None) -> DataError:
    """The error for a file that a library cannot read."""
    return DataError(f"damaged: {str(error)[:200] or type(error).__name__}", path, field=name, remedy="copy it again")


# ---- Version 5


def _list_v5(path: Path, order: str, found: dict[str, Array], others: dict[str, str]) -> None:
    for variable in mat5.variables(path, order):
        name, kind, shape, dtype = variable.describe()
        if kind:
            others[name] = kind
        else:
            found[name] = Array(path, name, shape, dtype, _v5_reader(variable))


def _v5_reader(variable: mat5.Variable) -> Callable[[], Iterator[tuple[Any, np.ndarray]]]:
    return lambda: iter([(..., variable.read())])


# ---- Version 7.3: HDF5


def _list_hdf5(path: Path, found: dict[str, Array], others: dict[str, str]) -> None:
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
    """Why it cannot be read; None for an array of numbers that is entirely in this file."""
    if not isinstance(data, h5py.Dataset):
        return "a struct"
    if data.dtype.kind not in "iufb" or not data.shape or len(data.shape) > _MAX_AXES or data.attrs.get("MATLAB_empty"):
        return "not an array of numbers"
    if data.is_virtual or data.external:
        return "an array in another file"
    filters = data.id.get_create_plist()
    known = (h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32)
    if any(filters.get_filter(place)[0] not in known for place in range(filters.get_nfilters())):
        return "compressed by an unknown method"
    if math.prod(data.shape) * data.dtype.itemsize > data.id.get_storage_size() * _RATIO:
        return "an array whose data are mostly missing"
    return None


def _hdf5_reader(path: Path, name: str, by_matlab: bool) -> Callable[[], Iterator[tuple[Any, np.ndarray]]]:
    def pieces() -> Iterator[tuple[Any, np.ndarray]]:
        with h5py.File(path, "r") as file:
            data = file[name]
            if data.chunks and math.prod(data.chunks) * data.dtype.itemsize > _MAX_CHUNK:
                raise ValueError(f"stored in chunks of {data.chunks}, which are too large to unpack")
            for place in data.iter_chunks() if data.chunks else _slabs(data.shape, data.dtype.itemsize):
                piece = data[place]
                yield (place[::-1], piece.transpose()) if by_matlab else (place, piece)

    return pieces


def _slabs(shape: tuple[int, ...], itemsize: int) -> Iterator[tuple[slice, ...]]:
    """Slices of an array of about one block each, in file order."""
    if not math.prod(shape):
        return
    split = next((axis for axis in range(len(shape)) if math.prod(shape[axis:]) * itemsize <= _BLOCK), len(shape))
    for place in np.ndindex(*shape[:split]):
        yield (*(slice(index, index + 1) for index in place), *(slice(0, side) for side in shape[split:]))
