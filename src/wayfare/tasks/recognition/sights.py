"""The ten sights of a town as a data set of labelled pictures."""

from __future__ import annotations

from pathlib import Path

from wayfare.data import cifar
from wayfare.data.pictures import Pictures
from wayfare.errors import ConfigError, DataError


def sights(path: str) -> tuple[Pictures, Pictures]:
    """Pictures to train and to test with, 32 x 32, of the town in this folder."""
    if not path:
        raise ConfigError("task.data = 'town' needs task.path, a town's folder; `wayfare town DIR` makes one")
    town = Path(path)
    if not (town / "town.json").is_file():
        remedy = f"`wayfare town {path}` makes one, or goes on with one that was begun"
        raise DataError("no town here, or not a whole one: town.json is missing", file=town, remedy=remedy)
    if not (town / "cifar").is_dir():
        raise DataError(
            "this town has no pictures of its sights: the folder cifar is missing", file=town,
            remedy="make another with `wayfare town DIR`, all of it or with `--only cifar`",
        )  # fmt: skip
    return cifar.load(town / "cifar")
