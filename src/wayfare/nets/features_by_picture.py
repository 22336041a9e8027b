"""Features of single pictures from a slow trunk: a file for each trunk, in which pictures are known by their pixels.

A picture is shown to the trunk once. It does not matter in which data, in which order or by which command it came: a
run, an index of the same photos and another division of them share what was computed. An interrupted computation goes
on where it was.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wayfare.core.errors import DataError
from wayfare.io.cache import cache_dir
from wayfare.io.findings import Progress
from wayfare.nets.cached import in_parts
from wayfare.nets.features import PictureTrunk

_FORM = 1  # raise it when the same trunk and picture give other features
_AT_ONCE = 256  # pictures that are computed and stored together
_WAIT = 60.0  # seconds for another process that is writing
_LOOKUP = 500  # pictures that are looked up together


def features_by_picture(trunk: PictureTrunk, images: Any, progress: Progress | None = None) -> np.ndarray:
    """Features of pictures uint8 (N, H, W, C): float32 (N, feature_dim)."""
    found = np.empty((len(images), trunk.feature_dim), np.float32)
    if not len(images):
        return found
    with _Store(trunk) as store:
        for start in range(0, len(images), _AT_ONCE):
            some = np.asarray(images[start : start + _AT_ONCE])
            found[start : start + len(some)] = _some_features(store, trunk, some)
            if progress is not None:
                progress(start + len(some), len(images))
    return found


def _some_features(store: _Store, trunk: PictureTrunk, images: np.ndarray) -> np.ndarray:
    names = [_name(image) for image in images]
    known = store.read(names)
    place = {name: at for at, name in enumerate(names) if name not in known}  # equal pictures are computed once
    fresh = np.array(sorted(place.values()), np.int64)

    def one(rows: np.ndarray) -> np.ndarray:
        pictures = torch.from_numpy(images[fresh[rows]]).permute(0, 3, 1, 2).float().div_(255)
        computed: np.ndarray = trunk(pictures).numpy()
        return computed

    if len(fresh):
        made = np.concatenate(list(in_parts(one, len(fresh))))
        computed = {names[row]: features for row, features in zip(fresh.tolist(), made)}
        store.write(computed)
        known |= computed
    return np.stack([known[name] for name in names])


def _name(image: np.ndarray) -> bytes:
    return hashlib.sha256(str(image.shape).encode() + np.ascontiguousarray(image).tobytes()).digest()[:16]


class _Store:
    """The file of a trunk, open for reading and writing."""

    def __init__(self, trunk: PictureTrunk) -> None:
        key = hashlib.sha256(f"{_FORM} {trunk.key} {torch.__version__}".encode()).hexdigest()[:32]
        self._path, self._width = cache_dir() / "features" / f"{key}.sqlite", trunk.feature_dim

    def __enter__(self) -> _Store:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _opened(self._path)
        except (OSError, sqlite3.OperationalError) as error:
            raise self._unwritable(error) from error
        except sqlite3.DatabaseError:  # damaged, but everything can be computed again
            self._path.unlink(missing_ok=True)
            self._file = _opened(self._path)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, names: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """The features of those that are known."""
        found: dict[bytes, np.ndarray] = {}
        for start in range(0, len(names), _LOOKUP):
            some = names[start : start + _LOOKUP]
            query = f"SELECT picture, numbers FROM features WHERE picture IN ({','.join('?' * len(some))})"
            for name, numbers in self._file.execute(query, some):
                features = np.frombuffer(numbers, np.float32)
                if features.shape == (self._width,):
                    found[bytes(name)] = features
        return found

    def write(self, features: dict[bytes, np.ndarray]) -> None:
        rows = [(name, np.ascontiguousarray(numbers, np.float32).tobytes()) for name, numbers in features.items()]
        try:
            with self._file:
                self._file.executemany("INSERT OR REPLACE INTO features VALUES (?, ?)", rows)
        except sqlite3.OperationalError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: Exception) -> DataError:
        remedy = "free some space there, or set WAYFARE_CACHE"
        return DataError(f"cannot be written: {error}", file=self._path, remedy=remedy)


def _opened(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, timeout=_WAIT)
    try:
        file.execute("CREATE TABLE IF NOT EXISTS features (picture BLOB PRIMARY KEY, numbers BLOB) WITHOUT ROWID")
    except sqlite3.DatabaseError:
        file.close()
        raise
    return file
