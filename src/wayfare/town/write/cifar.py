"""The town's ten sights as 32 x 32 pictures in CIFAR-10's binary form.

    cifar-10-batches-bin/data_batch_1.bin ... data_batch_5.bin  test_batch.bin  batches.meta.txt

The python version is a pickle: neither written nor read. Test pictures are from other walks than training ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.seeds import seed_for
from wayfare.town.model import Photo, Shot
from wayfare.town.words import SIGHTS
from wayfare.town.write.crops import held_out, square_crop

SIDE = 32
ROW = 3 * SIDE * SIDE  # red, green and blue planes, one after the other

_BATCHES = 5
_SHARE = 1 / 6  # of the pictures to test with, as in CIFAR-10
_MIN_AREA = 64  # pixels: a sight of which less is seen is not recognised
_MIN_SIDE = 6


def wants(shot: Shot) -> bool:
    """All flat photographs; most show no sight."""
    return not shot.pano


def take(folder: Path, stage: Path, number: int, photo: Photo, jpeg: bytes) -> dict[str, Any]:
    """Keep the pictures of all sights that are seen well enough, as rows of a batch."""
    rows = []
    for item in photo.truth.items:
        x0, y0, x1, y1 = item.box
        if item.kind in SIGHTS and item.area >= _MIN_AREA and min(x1 - x0, y1 - y0) >= _MIN_SIDE:
            planes = square_crop(photo.view.pixels, item.box, SIDE).transpose(2, 0, 1)
            rows.append(bytes([SIGHTS.index(item.kind)]) + planes.tobytes())
    if rows:
        stage.mkdir(parents=True, exist_ok=True)
        (stage / f"{number}.bin").write_bytes(b"".join(rows))
    return {"sights": len(rows)}


def index(folder: Path, stage: Path, entries: Sequence[tuple[Shot, dict[str, Any]]], seed: int) -> None:
    """Put the rows into batches, in an order that depends on nothing but their walks and numbers."""
    target = folder / "cifar-10-batches-bin"
    target.mkdir(parents=True, exist_ok=True)
    (target / "batches.meta.txt").write_bytes("".join(f"{name}\n" for name in SIGHTS).encode())
    with_sights = [(number, shot) for number, (shot, entry) in enumerate(entries) if entry["sights"]]
    rows = [np.frombuffer((stage / f"{number}.bin").read_bytes(), np.uint8) for number, _ in with_sights]
    table = np.concatenate([*rows, np.zeros(0, np.uint8)]).reshape(-1, ROW + 1)
    walks = [shot.sequence for (_, shot), row in zip(with_sights, rows) for _ in range(len(row) // (ROW + 1))]
    test = held_out(walks, "cifar test", _SHARE)
    train = np.flatnonzero(~test)
    train = train[np.argsort([seed_for("cifar order", int(place)) for place in train], kind="stable")]
    for number, places in enumerate(np.array_split(train, _BATCHES)):
        if len(places):
            (target / f"data_batch_{number + 1}.bin").write_bytes(table[places].tobytes())
    (target / "test_batch.bin").write_bytes(table[test].tobytes())
