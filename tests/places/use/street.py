"""Photographs of a street of places, 60 m apart, each with a pattern of its own."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

PLACES, STEP = 30, 60.0
LATITUDE = 111_320.0  # metres of a degree, nearly


def write_street(folder: Path, places: Sequence[int], takes: int = 4, city: str = "") -> None:
    """Photos of some places, `takes` of each: every second one asks, the last fifth of the places is for testing."""
    folder.mkdir(parents=True)
    rows = []
    for place in places:
        pattern = np.random.default_rng(place).integers(0, 256, (6, 6, 3), np.uint8)
        large = np.asarray(Image.fromarray(pattern).resize((40, 32), Image.Resampling.NEAREST)).astype(int)
        for take in range(takes):
            noise = np.random.default_rng([place, take]).integers(-30, 31, large.shape)
            name = f"p{place:03}-{take}.png"
            Image.fromarray(np.clip(large + noise, 0, 255).astype(np.uint8)).save(folder / name)
            north = 59.3 + (STEP * place + 2 * take) / LATITUDE
            part = "test" if place >= 0.8 * PLACES else "train"
            rows.append((name, f"{north:.9f}", 18.0, f"s{take}", ("database", "query")[take % 2], part, city))
    with (folder / "photos.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", "lat", "lon", "sequence", "role", "split", "city"), *rows])
