"""An index of places as a site has it: descriptors, positions, how confidence is computed, and small pictures."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.exporting.packing import Pack, write_json, write_pack
from wayfare.places.finished import why_uncalibrated
from wayfare.places.index import Index

_MOST_BYTES = 2**30  # of descriptors: a browser loads all of them


def write_places(index: Index, folder: Path, pack: Pack) -> dict[str, Any]:
    """Write it to `folder`/data; what the site's table says of it."""
    rows = np.delete(np.arange(index.facts.count), index.facts.replaced)
    size = 4 * index.facts.dimension * len(rows)
    if index.facts.cells or size > _MOST_BYTES:
        raise ConfigError(
            f"{index.folder}: {len(rows):,} photographs ({size / 2**20:,.0f} MB of descriptors) are too many for a "
            "browser; index fewer, or use `wayfare serve`"
        )
    files = [index.file(row) for row in rows.tolist()]
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    found, calibration = index.photos[rows], index.facts.calibration
    np.ascontiguousarray(index.descriptors[rows], "<f4").tofile(data / "descriptors.bin")
    columns = ("easting", "northing", "latitude", "longitude")
    np.stack([found[name] for name in columns], 1).astype("<f8").tofile(data / "positions.bin")
    found["group"].astype("<i4").tofile(data / "groups.bin")
    said = {
        "threshold": None if calibration is None else calibration.threshold,
        "doubts": [] if calibration is None else list(calibration.doubts),
        "uncalibrated": why_uncalibrated(index),
    }
    facts = {
        "count": len(rows), "dimension": index.facts.dimension, "radius": index.facts.radius,
        "groups": [list(group) for group in index.facts.groups], "names": short_names(files),
        "calibration": None if calibration is None else dataclasses.asdict(calibration),
    }  # fmt: skip
    write_json(data / "places.json", facts | said)
    return said | {
        "count": len(rows), "facts": "data/places.json", "descriptors": "data/descriptors.bin",
        "positions": "data/positions.bin", "groups": "data/groups.bin",
        "pictures": write_pack(pack, files, data / "pictures"),
    }  # fmt: skip


def short_names(files: Sequence[Path]) -> list[str]:
    """Names without the folders that all files share: these are nobody's business."""
    if not files:
        return []
    parents = {str(file.parent) for file in files}
    shared = os.path.commonpath(parents)
    return [os.path.relpath(file, shared).encode("utf-8", "replace").decode() for file in files]
