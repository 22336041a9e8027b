"""The ten sights of a town as a data set of labelled pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wayfare.data import cifar
from wayfare.data.cache import cache_dir
from wayfare.data.pictures import Pictures
from wayfare.errors import DataError


def sights(path: str) -> tuple[Pictures, Pictures]:
    """Pictures to train and to test with, 32 x 32, of the town in this folder; "": the town `small` in the cache."""
    town = Path(path) if path else made()
    if not (town / "town.json").is_file():
        remedy = f"`wayfare town {path}` makes one, or goes on with one that was begun"
        raise DataError("no town here, or not a whole one: town.json is missing", file=town, remedy=remedy)
    if not (town / "cifar").is_dir():
        raise DataError(
            "this town has no pictures of its sights: the folder cifar is missing", file=town,
            remedy="make another with `wayfare town DIR`, all of it or with `--only cifar`",
        )  # fmt: skip
    return cifar.load(town / "cifar")


def made(progress: Any = lambda *_: None) -> Path:
    """The town's folder in the cache, made on first use."""
    from wayfare.data.town.make import Spec, make

    spec = Spec(layouts=("cifar",))
    folder = cache_dir() / "towns" / f"sights-{spec.size}-{spec.seed}-form{spec.form}"
    make(folder, spec, progress=lambda text, done, total: progress(f"making the town: {text}", done, total))
    return folder
