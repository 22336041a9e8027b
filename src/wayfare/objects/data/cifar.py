"""CIFAR-10: the authors' binary version, and the arrays that `wayfare data get cifar10` leaves in the cache.

    cifar-10-batches-bin/  data_batch_1.bin ...  test_batch.bin  batches.meta.txt
    (cache)                train_images.npy train_labels.npy test_images.npy test_labels.npy pictures.json

Batches may be fewer and of other lengths than the original five of 10,000. The python version is not read: its batches
are pickles, and a pickle is a program that runs when it is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Progress
from wayfare.io.cache import cache_dir, is_pair, read_pair
from wayfare.io.findings import Findings
from wayfare.io.pictures import Pictures
from wayfare.objects.data import ObjectData

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32
ROW = 3 * SIDE * SIDE  # red, green and blue planes, one after the other
_FOLDERS = ("cifar-10-batches-bin", "cifar-10-batches-py")
_MAX_BYTES = 2**30


@dataclass(frozen=True)
class Cifar10(ObjectData):
    """50,000 pictures of ten kinds of things to train on, 10,000 to test on."""

    path: str = ""  # the folder; "": where `wayfare data get cifar10` puts it
    # so many test pictures, the last ones, join those to train on: what a topology reserves then costs no client any
    from_test: int = 0

    def load(self, progress: Progress) -> tuple[Pictures, Pictures]:
        pool, test = load(Path(self.path) if self.path else cache_dir() / "cifar10")
        return _moved(pool, test, self.from_test) if self.from_test else (pool, test)

    def on_folder(self, path: str) -> Self | None:
        return replace(self, path=path)


def load(path: Path) -> tuple[Pictures, Pictures]:
    """Training and test pictures, uint8 (N, 32, 32, 3), from a folder in either form."""
    folder = _folder(path)
    return read_pair(folder) if is_pair(folder) else _load(folder)


def _moved(pool: Pictures, test: Pictures, count: int) -> tuple[Pictures, Pictures]:
    """The pool with the last pictures of the test set, and the test set without them."""
    if not 0 < count < len(test):
        raise ConfigError(
            f"data.from_test = {count}: expected 0 to {len(test) - 1}, there are {len(test)} test pictures"
        )
    first = len(test) - count
    images = np.concatenate([pool.images, test.images[first:]])
    labels = np.concatenate([pool.labels, test.labels[first:]])
    return Pictures(images, labels, pool.classes), Pictures(test.images[:first], test.labels[:first], test.classes)


def recognises(path: Path) -> bool:
    """Whether a folder holds CIFAR-10, in the python version too: `load` says what to do about that."""
    return path.is_dir() and any(list(folder.glob("data_batch_*")) for folder in (path, *(path / f for f in _FOLDERS)))


def check(path: Path, strict: bool = False, progress: object = None) -> Findings:
    """How many pictures there are of each class; a batch that is damaged is a DataError, since rows carry no names."""
    train, test = load(path)
    counts = {"training pictures": len(train), "test pictures": len(test), "classes": len(train.classes)}
    found = np.bincount(train.labels, minlength=len(train.classes))
    return Findings("cifar", path, counts | {name: int(count) for name, count in zip(train.classes, found)})


def _folder(path: Path) -> Path:
    if not path.is_dir():
        remedy = "unpack it first, and give the folder" if path.is_file() else ""
        raise DataError("expected a folder that holds CIFAR-10", file=path, remedy=remedy)
    folders = [path, *(path / name for name in _FOLDERS)]
    for folder in folders:
        if is_pair(folder) or list(folder.glob("data_batch_*.bin")):
            return folder
    for folder in folders:
        if list(folder.glob("data_batch_*")):
            remedy = "take the binary version, cifar-10-binary.tar.gz, or run `wayfare data get cifar10`"
            raise DataError("the python version of CIFAR-10, which is pickled, is not read", folder, remedy=remedy)
    raise DataError("no CIFAR-10 here: expected data_batch_1.bin ... test_batch.bin", file=path)


def _load(folder: Path) -> tuple[Pictures, Pictures]:
    pattern = re.compile(r"data_batch_(\d{1,9})\.bin")
    numbered = [(int(found[1]), file) for file in folder.iterdir() if (found := pattern.fullmatch(file.name))]
    if not numbered:
        raise DataError("no training batch: expected data_batch_1.bin", file=folder)
    classes = _classes(folder / "batches.meta.txt")
    train = [_read(file, classes) for _, file in sorted(numbered)]
    return _joined(train, classes), _joined([_read(folder / "test_batch.bin", classes)], classes)


def _read(file: Path, classes: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A byte of label and 3,072 of pixels, again and again."""
    data = _bytes_of(file)
    if len(data) % (ROW + 1):
        raise DataError(f"{len(data)} bytes, expected a multiple of {ROW + 1} (a label and {ROW} values)", file=file)
    if not data:
        raise DataError("holds no pictures: expected at least one", file=file)
    table = np.frombuffer(data, np.uint8).reshape(-1, ROW + 1)
    labels = table[:, 0].astype(np.int64)
    if labels.max() >= len(classes):
        found = f"from {labels.min()} to {labels.max()}"
        raise DataError(f"labels run {found}, expected 0 to {len(classes) - 1}", file=file, field="labels")
    return table[:, 1:], labels


def _joined(batches: Sequence[tuple[np.ndarray, np.ndarray]], classes: tuple[str, ...]) -> Pictures:
    planes = np.concatenate([rows for rows, _ in batches]).reshape(-1, 3, SIDE, SIDE)
    images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
    return Pictures(images, np.concatenate([labels for _, labels in batches]), classes)


def _classes(file: Path) -> tuple[str, ...]:
    if not file.exists():
        return CLASSES
    try:
        names = tuple(line.strip() for line in _bytes_of(file).decode("utf-8").splitlines() if line.strip())
    except UnicodeDecodeError as error:
        raise DataError("expected one class name on each line, in UTF-8", file=file) from error
    if not names:
        raise DataError("expected one class name on each line, found none", file=file)
    return names


def _bytes_of(file: Path) -> bytes:
    if not file.is_file():
        raise DataError("no such file: CIFAR-10 has it", file=file)
    if file.stat().st_size > _MAX_BYTES:
        raise DataError(f"{file.stat().st_size} bytes, expected at most {_MAX_BYTES}", file=file)
    return file.read_bytes()
