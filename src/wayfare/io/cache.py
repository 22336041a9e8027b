"""The cache of derived data, written atomically.

A data set in the cache is a folder of plain `.npy` files. Readers map them into memory, so worker processes share the
pages. A folder is written under a temporary name, synced and then renamed: it is either complete or absent.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from wayfare.core.errors import DataError
from wayfare.io.pictures import Pictures, Skipped

_FACTS = "pictures.json"
_CHUNK = 1024  # rows copied at a time


def cache_dir() -> Path:
    """WAYFARE_CACHE, else XDG_CACHE_HOME/wayfare, else ~/.cache/wayfare. It may not exist yet."""
    if own := os.environ.get("WAYFARE_CACHE"):
        return Path(own).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "wayfare"
    return Path.home() / ".cache" / "wayfare"


@contextmanager
def new_folder(target: Path) -> Iterator[Path | None]:
    """Lock `target` and yield an empty folder that is renamed to it afterwards; yield None if `target` exists.

    A second process that needs the same folder waits here for the first and then gets None. If the block raises,
    nothing is left behind; if the process is killed, the next one removes what it left.
    """
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = target.with_name(target.name + ".lock").open("w")
    except OSError as error:
        raise _unwritable(target.parent, error) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel releases it however the process ends
        if target.exists():
            yield None
            return
        shutil.rmtree(part, ignore_errors=True)
        try:
            _make(part)
            yield part
            _publish(part, target)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def write_array(path: Path, array: np.ndarray, rows: np.ndarray | None = None) -> None:
    """Write `array`, or the given rows of it, to a .npy file atomically, with little memory even for a large array."""
    part = path.with_name(path.name + ".part")
    count = len(array) if rows is None else len(rows)
    try:
        with part.open("wb") as file:
            header = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False}
            np.lib.format.write_array_header_1_0(file, header | {"shape": (count, *array.shape[1:])})
            for start in range(0, count, _CHUNK):
                chunk = slice(start, start + _CHUNK)
                file.write(np.ascontiguousarray(array[chunk if rows is None else rows[chunk]]).data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise _unwritable(path, error) from error


def read_array(path: Path) -> np.ndarray:
    """A .npy file, mapped into memory and read-only."""
    try:
        found: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        return found
    except FileNotFoundError as error:
        raise DataError("no such file", file=path) from error
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise DataError(f"not a readable .npy array: {error}", file=path) from error


def write_facts(folder: Path, classes: tuple[str, ...], skipped: tuple[Skipped, ...] = ()) -> None:
    """Write the class names that belong to `<part>_images.npy` and `<part>_labels.npy`."""
    facts = {"classes": list(classes), "skipped": [list(item) for item in skipped]}
    try:
        (folder / _FACTS).write_text(json.dumps(facts, indent=1), encoding="utf-8")
    except OSError as error:
        raise _unwritable(folder / _FACTS, error) from error


def write_pair(folder: Path, train: Pictures, test: Pictures) -> None:
    """Write a data set to `folder` in the format that `read_pair` reads."""
    for part, pictures in (("train", train), ("test", test)):
        write_array(folder / f"{part}_images.npy", pictures.images)
        write_array(folder / f"{part}_labels.npy", pictures.labels)
    write_facts(folder, train.classes, train.skipped + test.skipped)


def is_pair(folder: Path) -> bool:
    """Whether the folder holds a data set written by `write_pair`."""
    return (folder / _FACTS).is_file()


def read_pair(folder: Path) -> tuple[Pictures, Pictures]:
    """Training and test pictures, memory-mapped; skipped files are listed with the training pictures."""
    classes, skipped = _read_facts(folder / _FACTS)
    parts = []
    for part in ("train", "test"):
        images, labels = read_array(folder / f"{part}_images.npy"), read_array(folder / f"{part}_labels.npy")
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise DataError("labels must be a row of whole numbers", file=folder / f"{part}_labels.npy")
        try:
            parts.append(Pictures(images, labels, classes, skipped if part == "train" else ()))
        except DataError as error:
            raise DataError(str(error), file=folder / f"{part}_images.npy") from error
    return parts[0], parts[1]


def _read_facts(path: Path) -> tuple[tuple[str, ...], tuple[Skipped, ...]]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        classes = tuple(str(name) for name in facts["classes"])
        return classes, tuple(Skipped(str(file), str(reason)) for file, reason in facts["skipped"])
    except FileNotFoundError as error:
        raise DataError("no such file", file=path) from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"cannot read the class names: {error}", file=path) from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir()
    except OSError as error:
        raise _unwritable(folder, error) from error


def _publish(part: Path, target: Path) -> None:
    try:
        for file in part.iterdir():
            sync(file)
        sync(part)
        part.rename(target)
        sync(target.parent)
    except OSError as error:
        raise _unwritable(target, error) from error


def sync(path: Path) -> None:
    """Flush a file, or a folder's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(path: Path, error: OSError) -> DataError:
    remedy = "free some space there, or set WAYFARE_CACHE to a writable folder"
    return DataError(f"cannot be written: {error.strerror or error}", file=path, remedy=remedy)
