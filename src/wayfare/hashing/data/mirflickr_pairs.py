"""MIRFlickr-25K as pairs: from MATLAB files, or from the original photographs, tags and lists of labels.

The paper removes photographs without a common tag or a label, which leaves 20,015. Its 2,000 queries and 10,000 to
train on are the first rows of the MATLAB files; of the original photographs they are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from wayfare.core.errors import DataError
from wayfare.hashing.data import mat_pairs, mirflickr
from wayfare.hashing.data.base import PairFiles
from wayfare.hashing.data.source import PairSource, SplitSizes
from wayfare.hashing.data.words import sparse_rows
from wayfare.io.findings import Problems

SIZES = SplitSizes(query=2000, train=10_000)


@dataclass(frozen=True)
class MirFlickr(PairFiles):
    """A FLICKR-25K.mat, or a folder in one of the forms."""

    labels: mirflickr.Labels = "potential"  # of the original folders: 24 classes, the 14 stricter ones, or all
    min_count: int = 0  # photographs that a tag must be under; 0: those of common_tags.txt
    turned: bool = False  # exchange height and width of pictures in arrays

    _counts: ClassVar[tuple[str, ...]] = ("query", "train", "min_count")

    def read(self, path: Path, problems: Problems) -> PairSource:
        if not path.exists():
            raise DataError("no such file or folder", path)
        if path.is_file() or mat_pairs.recognises(path):
            return replace(mat_pairs.read(path, problems, turned=self.turned), name="mirflickr", sizes=SIZES)
        return read(path, problems, self.labels, self.min_count)


def read(path: Path, problems: Problems, labels: mirflickr.Labels = "potential", min_count: int = 0) -> PairSource:
    """The pairs of the original folders."""
    photos = mirflickr.load(path, min_count=min_count or None, labels=labels, problems=problems)
    places = [photos.tags[start:end] for start, end in pairwise(photos.tag_offsets)]
    return PairSource(
        name="mirflickr",
        ids=photos.files.tolist(),
        labels=photos.labels,
        names=photos.classes,
        levels=(len(photos.classes),),
        texts=photos.texts.tolist(),
        bags=sparse_rows(places, len(photos.vocabulary)),
        words=photos.vocabulary,
        root=photos.folder,
        files=[photos.path(row) for row in range(len(photos))],
        sizes=SIZES,
        drop=("unlabelled", "untexted"),
        problems=photos.problems,
    )
