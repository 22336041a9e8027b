"""Pairs of a picture and a text with labels: what cross-modal hashing learns from, whatever the files look like.

    data         path
    mirflickr    FLICKR-25K.mat, or a folder: mirflickr25k-{iall,yall,lall}.mat, or the original photographs and lists
    nuswide      a folder: nus-wide-tc21-{iall,yall,lall}.mat (tc10), or the original lists
    fashion      a folder: image.mat, tag.mat, label.mat (FashionVC, Ssense)
    wikipedia    a folder: raw_features.mat and two lists; or wikiData.mat
    coco         a folder: annotations/captions_*.json, instances_*.json
    table        a CSV file: a picture, a text and labels on each line
    town         a town's folder; "": made on first use. Multi-label, in MIRFlickr's folders
    town-fashion the same in FashionVC's files: labels of two levels

docs/hashing-data.md describes each. Rows that cannot be used are left out before anything else: broken ones are listed
in `problems`, and those that `drop` names are counted in `left_out`. So are labels that no pair has. Then the rest is
split, and only then a vocabulary is made, of the training texts, where the data does not bring one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from wayfare.data import (
    pair_coco,
    pair_mats,
    pair_mirflickr,
    pair_nuswide,
    pair_rows,
    pair_table,
    pair_town,
    pair_wikipedia,
)
from wayfare.data.findings import Problems
from wayfare.data.pair_source import Drop, Options, Pictures, Saying, Source, strings
from wayfare.data.words import bag, bags, tokens, vocabulary
from wayfare.errors import ConfigError, DataError, unknown

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["DATA", "Paired", "Pictures", "bag", "load", "tokens", "vocabulary"]

_READERS: Mapping[str, Callable[[Path, Options], Source]] = {
    "mirflickr": pair_mirflickr.read,
    "nuswide": pair_nuswide.read,
    "fashion": pair_mats.read_fashion,
    "wikipedia": pair_wikipedia.read,
    "coco": pair_coco.read,
    "table": pair_table.read,
    "town": pair_town.read,
    "town-fashion": pair_town.read_fashion,
}
DATA = tuple(_READERS)


@dataclass(frozen=True)
class Paired:
    """N pairs. Relevant to each other are two that share a label; one without labels is relevant to none."""

    name: str
    ids: np.ndarray  # str objects (N,): file names or numbers
    texts: np.ndarray  # str objects (N,): as written, "" where there is none or it is not known
    bags: csr_array | np.ndarray  # float32 (N, D): bags of words are sparse, other features of texts dense
    words: tuple[str, ...]  # of the columns of the bags; () where they are not known
    labels: np.ndarray  # bool (N, C)
    names: tuple[str, ...]  # of the labels
    levels: tuple[int, ...]  # how many labels are on each level, the coarse ones first
    pictures: Pictures | None
    features: np.ndarray | None  # float32 (N, W): of the pictures
    query: np.ndarray  # int64 rows, rising
    train: np.ndarray  # int64 rows, rising: a part of `retrieval`
    retrieval: np.ndarray  # int64 rows, rising: all that are no queries
    left_out: Mapping[str, int] = field(default_factory=dict)  # pairs, by the reason
    problems: Problems = field(default_factory=Problems)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def without_words(self) -> np.ndarray:
        """bool (N,): whose bag is all zeros."""
        return np.asarray(abs(self.bags).sum(axis=1) == 0).reshape(len(self))

    @property
    def without_labels(self) -> np.ndarray:
        """bool (N,)."""
        return np.asarray(~self.labels.any(axis=1))


def load(
    data: str,
    path: Path | str = "",
    *,
    query: int = 0,
    train: int = 0,
    seed: int = 0,
    split: Literal["auto", "order", "random"] = "auto",
    labels: str = "",
    text: str = "",
    photo: str = "",
    min_count: int = 0,
    max_words: int = 0,
    drop: Collection[Drop] | None = None,
    size: tuple[int, int] = (224, 224),
    features: Path | str = "",
    turned: bool = False,
    town: str = "small",
    town_seed: int = 0,
    names: Sequence[str] = (),
    levels: Sequence[int] = (),
    words: Sequence[str] = (),
    own: bool = False,
    strict: bool = False,
    progress: Saying = lambda *_: None,
) -> Paired:
    """The pairs of a data set in one of the layouts above.

    `query` and `train` are numbers of rows; 0 stands for the paper's, where the data has at least as many rows, or else
    for a tenth of them (at most 2,000) and all the others. `split` says where queries are: "order", the first rows,
    then those to train on; "random", drawn by `seed`; "auto": as the data says itself, by the order of .mat files, or
    drawn.

    `labels`, `text` and `photo` say what to take, in words of the layout: for a table its columns. `min_count` is the
    number of texts that a word must be in, `max_words` bounds their number; 0 stands for the layout's own. `drop`
    leaves out pairs without a label or a word; None for what is usual with the data. `size` is that of pictures that
    are files; pictures in arrays keep theirs, and `turned` exchanges their height and width. `features` is a .npy or
    .mat file of image features, a row for each pair of the files. `strict` raises the first problem instead of listing
    it.

    `names` and `levels` say which labels there are, of which the data may have some only; others of its labels do not
    count. `words` is the vocabulary. Of a device's own data nothing is held back: all that do not ask are learnt from.
    """
    if data not in _READERS:
        raise unknown("data", data, DATA)
    if min(query, train, min_count, max_words) < 0:
        raise ConfigError("query, train, min_count and max_words: at least 0")
    if min(size) < 1:
        raise ConfigError(f"size = {size}: expected height and width, both at least 1")
    for name in drop or ():
        if name not in pair_rows.REASONS:
            raise unknown("reason to drop a pair", name, pair_rows.REASONS)
    if not str(path):
        if not data.startswith("town"):
            raise ConfigError(f"data = {data!r} needs a path: the file or the folder of it")
        path = pair_town.folder(data, town, town_seed, progress)
    source = _READERS[data](Path(path), Options(labels, text, photo, min_count, bool(names), turned, strict))
    if features:
        source = replace(source, features=pair_mats.read_features(Path(features), len(source)))
    source = pair_rows.with_pictures(source, size, progress)  # first of all: so that there is one cache for all options
    if names:
        source = pair_rows.with_labels(source, names, levels, Path(path))
    source = pair_rows.drop(source, source.drop if drop is None else drop)
    if not names:
        source = pair_rows.without_empty_labels(source, Path(path))
    if own:
        parts = pair_rows.all_to_train(source, Path(path))
    else:
        parts = pair_rows.split(source, query, train, seed, split, Path(path))
    found = source.bags
    if found is None:
        most = max_words or source.max_words
        words = words or vocabulary((source.texts[row] for row in parts.train), source.min_count, most)
        if not words:
            what = f"no word is in {source.min_count} of the {len(parts.train)} texts to train on"
            raise DataError(what, path, remedy="lower min_count, or name another column of text")
        found = bags(source.texts, words)
    elif words and source.words != tuple(words):
        found = pair_rows.with_words(source, words, Path(path))
    else:
        words = source.words
    return Paired(
        name=source.name,
        ids=strings(source.ids),
        texts=strings(source.texts or [""] * len(source)),
        bags=found,
        words=tuple(words),
        labels=source.labels,
        names=tuple(source.names),
        levels=source.levels,
        pictures=source.pictures,
        features=source.features,
        query=parts.query,
        train=parts.train,
        retrieval=parts.retrieval,
        left_out=source.left_out,
        problems=source.problems,
    )
