"""FashionVC and Ssense as pairs, from their MATLAB files (fashion.py)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from scipy.sparse import csr_array

from wayfare.hashing.data import fashion
from wayfare.hashing.data.base import PairFiles
from wayfare.hashing.data.mat_pairs import stored
from wayfare.hashing.data.source import PairSource, SplitSizes
from wayfare.io.findings import Problems

Labels = Literal["both", "fine", "coarse"]


@dataclass(frozen=True)
class FashionPairs(PairFiles):
    """A folder with image.mat, tag.mat and label.mat."""

    labels: Labels = "both"  # those of both levels, or only the fine or the coarse ones
    turned: bool = False  # exchange height and width of the pictures
    least: int = 0  # labels that fewer pairs have are left out; the paper: 25 in FashionVC, 70 in Ssense

    _counts: ClassVar[tuple[str, ...]] = ("query", "train", "least")

    def read(self, path: Path, problems: Problems) -> PairSource:
        least = 0 if self.terms.rare else self.least  # other devices have more of them
        return read(path, problems, labels=self.labels, turned=self.turned, least=least)


def read(
    path: Path, problems: Problems, *, labels: Labels = "both", turned: bool = False, least: int = 0
) -> PairSource:
    """The pairs of a folder."""
    pairs = fashion.load(path, problems=problems)
    first, second = pairs.levels
    names = pairs.names or (
        tuple(f"coarse {place + 1}" for place in range(first)),
        tuple(f"fine {place + 1}" for place in range(second)),
    )
    kept = {"both": slice(None), "fine": slice(first, None), "coarse": slice(first)}[labels]
    words = pairs.words or ()
    tags = csr_array(pairs.tags).astype(np.float32)
    spans = pairwise(tags.indptr) if words else ()
    texts = [" ".join(words[place] for place in tags.indices[start:end]) for start, end in spans]
    frequent = pairs.labels.sum(0) >= least
    return PairSource(
        name="fashion",
        ids=[str(row + 1) for row in range(len(pairs))],
        labels=(pairs.labels.astype(bool) & frequent)[:, kept],
        names=[*names[0], *names[1]][kept],
        levels={"both": pairs.levels, "fine": (second,), "coarse": (first,)}[labels],
        texts=texts,
        bags=tags,
        words=words,
        pictures=stored(pairs.images, turned),
        in_order=True,
        sizes=SplitSizes(query=pairs.queries),
        problems=pairs.problems,
    )
