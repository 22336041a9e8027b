"""The ten sights of a synthetic town as labelled pictures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from wayfare.core.errors import DataError
from wayfare.core.protocols import Progress
from wayfare.io.cache import cache_dir
from wayfare.io.pictures import Pictures
from wayfare.objects.data import ObjectData, cifar


@dataclass(frozen=True)
class TownSights(ObjectData):
    """Pictures of 32 x 32 pixels, which a town keeps in CIFAR-10's form."""

    path: str = ""  # the town's folder; "": the town `small`, made in the cache on first use

    def load(self, progress: Progress) -> tuple[Pictures, Pictures]:
        town = Path(self.path) if self.path else _make(progress)
        if not (town / "town.json").is_file():
            remedy = f"`wayfare town {town}` makes one, or completes one that was begun"
            raise DataError("no complete town here: town.json is missing", file=town, remedy=remedy)
        if not (town / "cifar").is_dir():
            raise DataError(
                "this town has no pictures of its sights: the folder cifar is missing", file=town,
                remedy="make another with `wayfare town DIR`, all of it or with `--only cifar`",
            )  # fmt: skip
        return cifar.load(town / "cifar")

    def on_folder(self, path: str) -> Self | None:
        return replace(self, path=path)


def _make(progress: Progress) -> Path:
    from wayfare.town.make import Spec, make  # it draws pictures, which only this layout needs

    spec = Spec(layouts=("cifar",))
    folder = cache_dir() / "towns" / f"sights-{spec.size}-{spec.seed}-form{spec.form}"
    make(folder, spec, progress=lambda text, done, total: progress(f"making the town: {text}", done, total))
    return folder
