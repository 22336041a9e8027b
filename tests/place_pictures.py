"""Photographs made by hand for place recognition: each place has a pattern of its own, each take of it some noise."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from wayfare.experiment import Experiment
from wayfare.places.task import Places
from wayfare.recipe import override

CORNER = (600_000.0, 7_000_000.0)  # of every city: positions below count from here


def picture(place: int, take: int = 0, size: tuple[int, int] = (32, 32)) -> np.ndarray:
    """uint8 (H, W, 3)."""
    pattern = np.random.default_rng(place).integers(0, 256, (4, 4, 3), np.uint8)
    large = np.asarray(Image.fromarray(pattern).resize(size[::-1], Image.Resampling.NEAREST)).astype(np.int64)
    noise = np.random.default_rng([place, take]).integers(-90, 91, large.shape)
    return np.clip(large + noise, 0, 255).astype(np.uint8)


def write_picture(file: Path, place: int, take: int = 0) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(place, take)).save(file)


class Photo(NamedTuple):
    """One row of an MSLS tree."""

    place: int  # what it shows
    take: int
    east: float
    north: float = 0.0
    sequence: str = "s"
    night: bool = False


def write_msls(root: Path, cities: Mapping[str, Mapping[str, Sequence[Photo]]]) -> Path:
    """{city: {"query": [...], "database": [...]}}; the alphabetically last city is for testing."""
    for city, roles in cities.items():
        for role, photos in roles.items():
            folder = root / "train_val" / city / role
            for number, photo in enumerate(photos):
                write_picture(folder / "images" / f"{city}-{role}-{number}.png", photo.place, photo.take)
            keys = [f"{city}-{role}-{number}" for number in range(len(photos))]
            _table(folder / "seq_info.csv", "key,sequence_key,frame_number", [
                (key, f"{city}-{role}-{p.sequence}", n) for n, (key, p) in enumerate(zip(keys, photos))
            ])  # fmt: skip
            _table(folder / "raw.csv", "key,lon,lat,ca,captured_at,pano", [
                (key, 17.0, 63.1, 0, "2024-06-21", False) for key in keys
            ])  # fmt: skip
            _table(folder / "postprocessed.csv", "key,easting,northing,night,view_direction", [
                (key, CORNER[0] + p.east, CORNER[1] + p.north, p.night, "Forward") for key, p in zip(keys, photos)
            ])  # fmt: skip
    return root


def _table(file: Path, columns: str, rows: Sequence[tuple[object, ...]]) -> None:
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([columns.split(","), *rows])


STREET = 8  # places of a hamlet, 100 m apart


def hamlets(root: Path) -> Path:
    """An MSLS tree of three streets, alba, brod and zeta, with two clients in each: places 0 to 3 and 4 to 7.

    The second half is 2 km further on. Each half has two sequences of queries and two of the database, the second by
    night, with a photograph of each place in each; those of one place are at most 12 m apart. The last query of zeta,
    which is tested on, is kilometres away from everything.
    """
    cities = {}
    for number, city in enumerate(("alba", "brod", "zeta")):
        roles: dict[str, list[Photo]] = {"query": [], "database": []}
        for role, photos in roles.items():
            for half in range(2):
                for take in range(2):
                    for place in range(4 * half, 4 * half + 4):
                        shown = 100 * number + place
                        east = 100.0 * place + 2000 * half + 4 * take + 8 * (role == "query")
                        look = take + 2 * (role == "query")
                        photos.append(Photo(shown, look, east, 0.0, f"{half}{take}", night=take == 1))
        cities[city] = roles
    cities["zeta"]["query"].append(Photo(999, 0, 9000.0, 0.0, "far"))
    return write_msls(root, cities)


def write_frames(root: Path, count: int) -> Path:
    """A query run and a reference run along the same way, in step; `tolerance` says which belong together."""
    for place in range(count):
        write_picture(root / "query" / f"{place:03}.png", place, 0)
        write_picture(root / "ref" / f"{place:03}.png", place, 1)
    return root


def places(path: Path, /, **settings: Any) -> Places:
    """The task on a folder with a tiny network; settings by their keys in a recipe, with __ for dots."""
    layout = "msls" if (path / "train_val").is_dir() else "photos"
    table = {
        "data": {"name": layout, "path": str(path), "height": 32, "width": 32},
        "model": {"backbone": {"name": "cnn", "width": 4}},
        "task": {"name": "places"},
    }
    chosen = {key.replace("__", "."): value for key, value in settings.items()}
    task = Experiment.from_table(override(table, chosen)).task
    assert isinstance(task, Places)
    return task
