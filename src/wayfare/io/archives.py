"""Unpacking untrusted zip and tar files: all of an archive, or nothing.

Every name is checked before the first byte is written. An archive is refused as a whole if it would write outside its
folder, holds a link or a device, has two names that would become one file (also on a file system that ignores case), or
exceeds the limits. Everything else is unpacked next to the target and then renamed, so the target is either complete or
absent. The sizes that an archive declares can only lead to a refusal; the bytes that are written are counted as well.
"""

from __future__ import annotations

import gzip
import io
import re
import stat
import struct
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, cast

from wayfare.core.errors import DataError

MAX_FILES = 500_000
MAX_BYTES = 50 * 2**30
MAX_RATIO = 100.0
_ALWAYS_ALLOWED = 2**20  # a ratio says nothing about an archive this small
_LARGEST_READ = 2**16  # tarfile reads a long name in one call, whatever its declared length, and parses it slowly
_CHUNK = 2**15
_UNREADABLE = (  # what zipfile, tarfile and gzip raise on damaged bytes
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    struct.error,
    EOFError,
    ArithmeticError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    ValueError,
)


@dataclass(frozen=True)
class _Entry:
    name: str
    size: int
    folder: bool
    open: Callable[[], AbstractContextManager[IO[bytes]]]


@dataclass(frozen=True)
class _Limits:
    files: int
    bytes: int
    why: str  # which of the two limits on bytes applies


def unpack(
    archive: Path,
    into: Path,
    *,
    max_files: int = MAX_FILES,
    max_bytes: int = MAX_BYTES,
    max_ratio: float = MAX_RATIO,
) -> int:
    """Unpack a .zip, .tar or .tar.gz into the new folder `into`; return the number of files in it.

    A DataError means that nothing was written. `max_ratio` limits the unpacked size to a multiple of the archive's.
    """
    if not archive.is_file():
        raise DataError("no such file", file=archive)
    if into.exists() and not (into.is_dir() and not any(into.iterdir())):
        raise DataError("already exists and is not an empty folder", file=into, remedy="choose another one")
    by_ratio = max(int(max_ratio * archive.stat().st_size), _ALWAYS_ALLOWED)
    why = "in all" if max_bytes <= by_ratio else f"for an archive of {archive.stat().st_size} bytes"
    limits = _Limits(max_files, min(max_bytes, by_ratio), why)
    try:
        with _entries(archive, limits, listing=True) as entries:
            plan = _plan(entries, limits)  # the first pass: nothing is written yet
        with _entries(archive, limits, listing=False) as entries:
            _write_all(entries, plan, into, limits)
    except DataError as error:
        raise DataError(f"refused: {error}", file=archive) from error
    except RecursionError as error:
        raise DataError("refused: too many headers before one file", file=archive) from error
    except _UNREADABLE as error:
        raise DataError(f"cannot be unpacked: {error or type(error).__name__}", file=archive) from error
    return sum(1 for _, folder in plan.values() if not folder)


# ---- Listing


@contextmanager
def _entries(archive: Path, limits: _Limits, listing: bool) -> Iterator[Iterator[_Entry]]:
    with archive.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        if start[:2] == b"PK":
            with zipfile.ZipFile(file) as unzipped:
                yield _zip_entries(unzipped)
        elif start[:2] == b"\x1f\x8b":
            plain = cast(IO[bytes], gzip.GzipFile(fileobj=file))
            with plain, _open_tar(_Bounded(plain, limits, listing)) as tar:
                yield _tar_entries(tar)
        else:
            with _open_tar(_Bounded(file, limits, listing)) as tar:
                yield _tar_entries(tar)


def _open_tar(stream: _Bounded) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:")
    except tarfile.ReadError as error:
        raise DataError("neither a zip nor a tar file") from error


def _zip_entries(archive: zipfile.ZipFile) -> Iterator[_Entry]:
    for info in archive.infolist():
        if info.flag_bits & 1:
            raise DataError(f"{info.filename!r} is encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{info.filename!r} is compressed by an unusual method ({info.compress_type})")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise DataError(f"{info.filename!r} is a link or a device")
        folder = kind == stat.S_IFDIR or info.orig_filename.endswith("/")
        yield _Entry(info.orig_filename, info.file_size, folder, partial(archive.open, info))


def _tar_entries(archive: tarfile.TarFile) -> Iterator[_Entry]:
    # one member at a time, so that a fault is found before later files have to be decompressed to skip them
    while (info := archive.next()) is not None:
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE) or info.issparse():
            raise DataError(f"{info.name!r} is a link, a device or a file with holes")
        yield _Entry(info.name, info.size, info.isdir(), partial(_tar_file, archive, info))


def _tar_file(archive: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(info)
    if file is None:
        raise DataError(f"{info.name!r} is not a file")
    return file


class _Bounded(io.RawIOBase):
    """A file that limits the size of one read and the number of bytes read in all."""

    def __init__(self, file: IO[bytes], limits: _Limits, listing: bool) -> None:
        self._file, self._limits, self._listing = file, limits, listing
        self._limit = limits.bytes + 4096 * (limits.files + 8)  # headers and padding come on top of the contents

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > _LARGEST_READ:
            raise DataError(f"a name or header of {size} bytes")
        if self._file.tell() > self._limit:
            raise _too_much(self._limits)
        data = self._file.read(size)
        # while listing, only headers are read; tarfile takes quadratic time over a run of digits (12 s for 64 KiB)
        if self._listing and re.search(rb"\d{256}", data):
            raise DataError("a tar header with a number of more than 255 digits")
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence != 0 or offset > self._limit:
            raise _too_much(self._limits)
        return self._file.seek(offset)

    def tell(self) -> int:
        return self._file.tell()


# ---- Checking


def _plan(entries: Iterator[_Entry], limits: _Limits) -> dict[str, tuple[str, bool]]:
    """Every path that would be created, keyed by its case-folded name: the path, and whether it is a folder."""
    seen: dict[str, tuple[str, bool]] = {}
    total = 0
    for count, entry in enumerate(entries, start=1):
        total += entry.size
        if count > limits.files:
            raise DataError(f"more than {limits.files} files")
        if total > limits.bytes or entry.size < 0:
            raise _too_much(limits)
        parts = _parts(entry.name)
        for depth in range(1, len(parts)):
            _claim(seen, "/".join(parts[:depth]), folder=True)
        if parts:
            _claim(seen, "/".join(parts), entry.folder)
        elif not entry.folder:
            raise DataError(f"{entry.name!r} is not the name of a file")
    return seen


def _claim(seen: dict[str, tuple[str, bool]], path: str, folder: bool) -> None:
    key = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
    if key not in seen:
        seen[key] = (path, folder)
        return
    earlier, was_folder = seen[key]
    if earlier != path:
        raise DataError(f"{earlier!r} and {path!r} differ in case only")
    if not (was_folder and folder):
        raise DataError(f"{path!r} appears twice")


def _parts(name: str) -> list[str]:
    """Split a name into folders and file; raise if it would leave the target folder."""
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        raise DataError(f"{name!r} is an absolute path")
    if "\\" in name or any(unicodedata.category(letter) == "Cc" for letter in name):
        raise DataError(f"{name!r} has a backslash or a control character in it")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise DataError(f"{name!r} points outside the folder")
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise DataError(f"{name!r} is not a name in UTF-8")
    if any(len(part.encode()) > 255 for part in parts) or len(name) > 1024 or len(parts) > 32:
        raise DataError(f"the name {name[:60]!r}... is too long")
    return parts


def _too_much(limits: _Limits) -> DataError:
    return DataError(f"it unpacks to more than {limits.bytes} bytes, the limit {limits.why}")


# ---- Writing


def _write_all(entries: Iterator[_Entry], plan: dict[str, tuple[str, bool]], into: Path, limits: _Limits) -> None:
    into.parent.mkdir(parents=True, exist_ok=True)
    paths = {path for path, _ in plan.values()}
    with tempfile.TemporaryDirectory(prefix=f".{into.name}.", dir=into.parent) as scratch:
        root = Path(scratch) / "content"
        root.mkdir()
        left = limits.bytes
        for entry in entries:
            parts = _parts(entry.name)
            if parts and "/".join(parts) not in paths:
                raise DataError("it changed while it was read")
            if entry.folder:
                root.joinpath(*parts).mkdir(parents=True, exist_ok=True)
            else:
                left -= _write(entry, root.joinpath(*parts), left, limits)
        root.rename(into)


def _write(entry: _Entry, target: Path, left: int, limits: _Limits) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with entry.open() as source, target.open("xb") as file:  # new files: modes, owners and dates are not copied
        while chunk := source.read(_CHUNK):
            written += len(chunk)
            if written > left:
                raise _too_much(limits)
            file.write(chunk)
    if written != entry.size:
        raise DataError(f"{entry.name!r} has {written} bytes, not the {entry.size} it declares")
    return written
