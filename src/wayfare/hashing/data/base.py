"""What a layout of pairs has to say. `PairFiles` does the rest: it decodes, drops, splits, and makes a vocabulary.

A layout of your own extends `PairFiles` and gives the rows of its files in `read`; or it extends `PairData` and gives
whole pairs in `load`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np

from wayfare.components import part
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Data, Progress
from wayfare.hashing.data import rows
from wayfare.hashing.data.mat_pairs import read_features
from wayfare.hashing.data.pairs import Paired
from wayfare.hashing.data.source import Bags, Drop, PairSource, strings
from wayfare.hashing.data.words import bags, vocabulary
from wayfare.io.findings import Problems


class PairData(Data):
    """Where pairs come from."""

    def load(self, progress: Progress, size: tuple[int, int] = (224, 224)) -> Paired:
        """The pairs; `size` is the height and width that picture files are decoded to."""
        raise NotImplementedError

    def fixed(self, pairs: Paired, within: Sequence[int]) -> Self:
        """The same with the labels and words of these pairs written down, for data that has only some of them."""
        return self


class PairTerms:
    """Which labels and words there are."""

    given: ClassVar[bool] = False  # written in the recipe, not made of the pairs
    rare: ClassVar[bool] = False  # labels count however few pairs have them, because others have more

    def labelled(self, source: PairSource, drop: Sequence[Drop], path: Path) -> PairSource:
        """The pairs with their labels, without those to drop."""
        raise NotImplementedError

    def worded(self, source: PairSource, train: np.ndarray, path: Path) -> tuple[tuple[str, ...], Bags]:
        """The vocabulary, and the bag of each pair."""
        raise NotImplementedError

    def hierarchy(self) -> tuple[int, ...]:
        """Which labels belong together, as `Paired.within` has it; (): as the pairs show."""
        return ()


@dataclass(frozen=True)
class OwnTerms(PairTerms):
    """The labels that the pairs have, and the data's vocabulary, or else words of the texts to learn from."""

    def labelled(self, source: PairSource, drop: Sequence[Drop], path: Path) -> PairSource:
        return rows.without_empty_labels(rows.drop(source, drop), path)

    def worded(self, source: PairSource, train: np.ndarray, path: Path) -> tuple[tuple[str, ...], Bags]:
        if source.bags is not None:
            return source.words, source.bags
        words = vocabulary((source.texts[row] for row in train), source.min_count, source.max_words)
        return words, bags(source.texts, words)


@dataclass(frozen=True)
class GivenTerms(PairTerms):
    """Labels and words of a federation, of which this data may have only some; others of its own do not count."""

    names: tuple[str, ...]
    levels: tuple[int, ...]  # how many labels are on each level, the coarse ones first
    within: tuple[int, ...] = ()  # which labels belong together: coarse label * fine labels + fine label
    words: tuple[str, ...] = ()  # (): as with "own"

    given: ClassVar[bool] = True
    rare: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if sum(self.levels) != len(self.names):
            raise ConfigError(
                f"data.terms.levels = {list(self.levels)}: expected a sum of {len(self.names)}, the number of names"
            )

    def labelled(self, source: PairSource, drop: Sequence[Drop], path: Path) -> PairSource:
        return rows.drop(rows.with_labels(source, self.names, self.levels, path), drop)

    def worded(self, source: PairSource, train: np.ndarray, path: Path) -> tuple[tuple[str, ...], Bags]:
        if not self.words or source.words == self.words:
            return OwnTerms().worded(source, train, path)
        found = bags(source.texts, self.words) if source.bags is None else rows.with_words(source, self.words, path)
        return self.words, found

    def hierarchy(self) -> tuple[int, ...]:
        return self.within


@dataclass(frozen=True)
class PairFiles(PairData):
    """Pairs in files: what all layouts have in common."""

    path: str = ""  # the file or folder
    query: int = 0  # pairs that are queries; 0: as the paper, or a tenth
    train: int = 0  # pairs to learn from; 0: as the paper, or all that are not queries
    split: Literal["auto", "order", "random", "none"] = "auto"  # "none": a device's own, nothing is held back
    seed: int = 0  # of the split
    drop: tuple[Drop, ...] | None = None  # leave out pairs without a label or a word; default: as usual for the layout
    features: str = ""  # a .npy or .mat file of image features, a row for each pair of the files
    terms: PairTerms = part(
        "terms", "own", {"own": "wayfare.hashing.data.base:OwnTerms", "given": "wayfare.hashing.data.base:GivenTerms"}
    )

    _counts: ClassVar[tuple[str, ...]] = ("query", "train")  # settings that are numbers of something

    def __post_init__(self) -> None:
        for name in self._counts:
            if getattr(self, name) < 0:
                raise ConfigError(f"data.{name} = {getattr(self, name)}: expected at least 0")

    def read(self, path: Path, problems: Problems) -> PairSource:
        """The rows as the files have them, not split yet."""
        raise NotImplementedError

    def find(self, progress: Progress) -> Path:
        """The file or folder to read."""
        if not self.path:
            raise ConfigError("this data needs data.path: its file or folder")
        return Path(self.path)

    def load(self, progress: Progress, size: tuple[int, int] = (224, 224)) -> Paired:
        """Rows that cannot be used are left out first; then the rest is split, and only then a vocabulary is made."""
        path = self.find(progress)
        source = self.read(path, Problems())
        if self.features:
            source = replace(source, features=read_features(Path(self.features), len(source)))
        source = rows.with_pictures(source, size, progress)  # first, so that all options share one cache
        source = self.terms.labelled(source, source.drop if self.drop is None else self.drop, path)
        if self.split == "none":
            parts = rows.all_to_train(source, path)
        else:
            parts = rows.split(source, self.query, self.train, self.seed, how=self.split, path=path)
        words, found = self.terms.worded(source, parts.train, path)
        return Paired(
            name=source.name,
            ids=strings(source.ids),
            texts=strings(source.texts or [""] * len(source)),
            bags=found,
            words=words,
            labels=source.labels,
            names=tuple(source.names),
            levels=source.levels,
            pictures=source.pictures,
            features=source.features,
            query=parts.query,
            train=parts.train,
            retrieval=parts.retrieval,
            within=self.terms.hierarchy(),
            left_out=source.left_out,
            problems=source.problems,
        )

    def on_folder(self, path: str) -> Self | None:
        return replace(self, path=path, split="none")

    def fixed(self, pairs: Paired, within: Sequence[int]) -> Self:
        return replace(self, terms=GivenTerms(pairs.names, pairs.levels, tuple(within), pairs.words))
