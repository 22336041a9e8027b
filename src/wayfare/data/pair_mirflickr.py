"""MIRFlickr-25K as pairs: from MATLAB files, or from the original photographs, tags and lists of labels.

The paper removes photographs without a common tag or a label, which leaves 20,015. Its 2,000 queries and 10,000 to
train on are the first rows of the MATLAB files; of the original photographs they are drawn.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from wayfare.data import mirflickr, pair_mats
from wayfare.data.pair_source import Options, Sizes, Source, one_of
from wayfare.data.words import sparse_rows
from wayfare.errors import DataError

SIZES = Sizes(query=2000, train=10_000)


def read(path: Path, options: Options) -> Source:
    """The pairs of a FLICKR-25K.mat, or of a folder in one of the forms."""
    if not path.exists():
        raise DataError("no such file or folder", path)
    if path.is_file() or pair_mats.recognises(path):
        return pair_mats.read_rows(path, options, "mirflickr", SIZES)
    which = one_of(options.labels, ("potential", "relevant", "all"), "labels")
    photos = mirflickr.load(path, min_count=options.min_count or None, labels=which, strict=options.strict)  # type: ignore[arg-type]
    places = [photos.tags[start:end] for start, end in pairwise(photos.tag_offsets)]
    return Source(
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
