"""The town as pairs: its photographs with tags, or pictures of its things with labels of two levels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from wayfare.core.protocols import Progress
from wayfare.hashing.data import fashion_pairs, mirflickr, mirflickr_pairs
from wayfare.hashing.data.base import PairFiles
from wayfare.hashing.data.source import PairSource
from wayfare.io.cache import cache_dir
from wayfare.io.findings import Problems


@dataclass(frozen=True)
class TownFiles(PairFiles):
    """A town's folder, or one of its layouts; without a path it is made on first use."""

    town: Literal["tiny", "small", "city"] = "small"
    town_seed: int = 0

    layout: ClassVar[str]

    def find(self, progress: Progress) -> Path:
        path = Path(self.path) if self.path else self._make(progress)
        return path / self.layout if (path / "town.json").exists() else path

    def _make(self, progress: Progress) -> Path:
        from wayfare.town.make import Spec, make  # slow to import, and not needed where there is a path

        spec = Spec(self.town, self.town_seed, layouts=(self.layout,))
        found = cache_dir() / "towns" / f"pairs-{self.layout}-{spec.size}-{spec.seed}-form{spec.form}"
        make(found, spec, progress=lambda text, done, total: progress(f"making the town: {text}", done, total))
        return found


@dataclass(frozen=True)
class TownTaggedPhotos(TownFiles):
    """Photographs, tags, and labels of what they show; in MIRFlickr's folders."""

    labels: mirflickr.Labels = "potential"
    min_count: int = 0  # photographs that a tag must be under; 0: those of common_tags.txt

    layout: ClassVar[str] = "mirflickr"
    _counts: ClassVar[tuple[str, ...]] = ("query", "train", "min_count")

    def read(self, path: Path, problems: Problems) -> PairSource:
        return replace(mirflickr_pairs.read(path, problems, self.labels, self.min_count), name="town")


@dataclass(frozen=True)
class TownFashion(TownFiles):
    """Pictures of things, words, and labels of two levels; in FashionVC's files."""

    labels: fashion_pairs.Labels = "both"

    layout: ClassVar[str] = "fashion"

    def read(self, path: Path, problems: Problems) -> PairSource:
        return replace(fashion_pairs.read(path, problems, labels=self.labels), name="town-fashion")
