"""Which photographs of a data set are trained on, which are tested on, and which of them are queries.

Where the layout says so (MSLS: cities for training, validation and test, and queries and database in each), that holds.
Elsewhere it is chosen here:

    queries "night"     photographs by night are queries, those by day are the database
    queries "half"      every second sequence is queries; of photographs without a sequence, half
    test "layout"       the cities of the split "test" whose positions are known, and where there are none (the official
                        MSLS keeps them to itself) those of "val"
    test "sequences"    every `folds`-th query sequence, beginning with `fold`, is tested on and never trained on; it is
                        looked for in the whole database: new dates in known places. A photograph without a sequence is
                        one of its own
    test "strips"       the ground is cut into strips of `strip` metres across its longer side, and every `folds`-th is
                        tested on, queries and database: new places. The last metres on both sides of a border are seen
                        from either

Paired frames have no positions. In their place stands the number of the frame in the query run: strips and pieces are
so many frames long. A frame of the other run is where the frames are that it is paired with, or between its neighbours.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from wayfare.core.errors import ConfigError
from wayfare.places.data.place_photos import PlacePhotos

Queries = Literal["layout", "night", "half"]


@dataclass(frozen=True)
class TrainTest:
    """Rows of one table."""

    photos: PlacePhotos  # `query` is always known
    pool: np.ndarray  # to train on
    test_queries: np.ndarray
    test_database: np.ndarray
    test_name: str  # what the queries of the test are, for the protocol


class Masks(NamedTuple):
    """Photographs to train on, and queries and database to test with: bool (N,) each."""

    train: np.ndarray
    queries: np.ndarray
    database: np.ndarray


class TestSplit:
    """What is tested on: a frozen dataclass of settings with one method."""

    remedy = "change data.test"

    def masks(self, photos: PlacePhotos, known: np.ndarray) -> Masks:
        """Divide a table whose `query` is known; only photographs that are `known` (have a position) may be used."""
        raise NotImplementedError

    def name(self, layout: str) -> str:
        """What the queries of the test are called; `layout` is what the layout calls its own."""
        return layout


@dataclass(frozen=True)
class LayoutSplit(TestSplit):
    """What the layout says."""

    remedy = "set data.test to 'sequences' or 'strips', or name data.test_cities"

    def masks(self, photos: PlacePhotos, known: np.ndarray) -> Masks:
        split, query = photos.split, _query(photos)
        tested = known & (split == ("test" if (known & (split == "test")).any() else "val"))
        return Masks(known & ~np.isin(split, ("val", "test")), tested & query, tested & ~query)


@dataclass(frozen=True)
class SequenceSplit(TestSplit):
    """Held-out query sequences: new dates in known places."""

    folds: int = 4
    fold: int = 0

    remedy = "choose another data.test.fold, or fewer folds"

    def __post_init__(self) -> None:
        _check_fold(self.fold, self.folds)

    def masks(self, photos: PlacePhotos, known: np.ndarray) -> Masks:
        if photos.sequence is None:
            raise ConfigError(
                f"{photos.root}: data.test = 'sequences', but these photographs have no sequences; choose 'strips', or "
                "put them into a folder for each drive or walk"
            )
        query = known & _query(photos)
        alone = len(photos.sequences) + np.arange(len(photos))
        sequence = np.where(photos.sequence >= 0, photos.sequence, alone)
        tested = query & np.isin(sequence, np.unique(sequence[query])[self.fold :: self.folds])
        return Masks(known & ~tested, tested, known & ~query)

    def name(self, layout: str) -> str:
        return f"of held-out sequences (part {self.fold + 1} of {self.folds})"


@dataclass(frozen=True)
class StripSplit(TestSplit):
    """Held-out strips of the ground: new places."""

    folds: int = 4
    fold: int = 0
    strip: float = 40.0  # metres, or frames

    remedy = "choose another data.test.fold, fewer folds or a smaller strip"

    def __post_init__(self) -> None:
        _check_fold(self.fold, self.folds)
        if self.strip <= 0:
            raise ConfigError(f"data.test.strip = {self.strip}: expected metres above 0")

    def masks(self, photos: PlacePhotos, known: np.ndarray) -> Masks:
        sides, query = _sides(photos), _query(photos)
        along = np.full(len(photos), np.nan)
        for group in np.unique(photos.group):
            rows = np.flatnonzero((photos.group == group) & np.isfinite(sides).all(0))
            if len(rows):
                along[rows] = max((side[rows] - side[rows].min() for side in sides), key=np.max)
        tested = np.isfinite(along) & (_whole(along // self.strip) % self.folds == self.fold)
        return Masks(known & ~tested, known & tested & query, known & tested & ~query)

    def name(self, layout: str) -> str:
        return f"in held-out strips of ground (part {self.fold + 1} of {self.folds})"


def divide(
    photos: PlacePhotos,
    queries: Queries,
    split: TestSplit,
    *,
    name: str = "all",
    own: bool = False,
    piece: float = 0.0,
) -> TrainTest:
    """Divide a table. `name` is what the layout's own set of test queries is called.

    With a `piece`, sequences are cut afterwards: what is tested on goes by whole ones. A device's `own` photographs
    need none to test on, and only what the layout says is tested on is kept from training.
    """
    photos = replace(photos, query=_queries(photos, queries))
    known = np.isfinite(photos.easting) & np.isfinite(photos.northing) | (photos.pairs is not None)
    used = LayoutSplit() if own else split
    masks = used.masks(photos, known)
    if not own and not (masks.queries.any() and masks.database.any()):
        raise ConfigError(
            f"{photos.root}: nothing to test on: {int(masks.queries.sum())} queries and {int(masks.database.sum())} "
            f"photographs of the database; {split.remedy}"
        )
    if not masks.train.any():
        raise ConfigError(f"{photos.root}: nothing to train on: every photograph is tested on; change data.test")
    pool, asking, database = (np.flatnonzero(mask) for mask in masks)
    return TrainTest(_cut(photos, piece) if piece else photos, pool, asking, database, used.name(name))


def _cut(photos: PlacePhotos, piece: float) -> PlacePhotos:
    """The same photographs with sequences cut where they leave a square of `piece` metres.

    Photographs without a sequence get the square's.
    """
    sequence = photos.sequence if photos.sequence is not None else np.full(len(photos), -1, np.int32)
    squares = [_whole(side // piece) for side in _sides(photos)]
    rows = np.stack((sequence, photos.group, *squares), 1)
    _, first, number = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    names = tuple(
        "/".join((photos.sequences[sequence[row]] if sequence[row] >= 0 else "", *map(str, rows[row, 2:])))
        for row in first
    )
    return replace(photos, sequences=names, sequence=number.ravel().astype(np.int32))


def _check_fold(fold: int, folds: int) -> None:
    if not 0 <= fold < folds or folds < 2:
        raise ConfigError(f"data.test.fold = {fold} of {folds}: expected at least 2 folds, counted from 0")


def _query(photos: PlacePhotos) -> np.ndarray:
    return photos.query if photos.query is not None else np.zeros(len(photos), bool)


def _queries(photos: PlacePhotos, how: Queries) -> np.ndarray:
    if how == "layout" and photos.query is not None:
        return photos.query
    if photos.pairs is not None:
        raise ConfigError(
            f"{photos.root}: data.queries = {how!r}, but paired frames say which are queries: leave it 'layout'"
        )
    if how == "night":
        if photos.night is None:
            raise ConfigError(
                f"{photos.root}: data.queries = 'night', but nothing says which photographs are by night; a table may "
                "have a column night. Or choose 'half'"
            )
        return photos.night
    drawn = [hashlib.sha256(str(key).encode(errors="surrogateescape")).digest()[0] % 2 == 1 for key in photos.keys]
    half = np.array(drawn, bool)
    if photos.sequence is not None and len(photos.sequences) > 1:
        return np.where(photos.sequence >= 0, photos.sequence % 2 == 1, half)
    return half


def _sides(photos: PlacePhotos) -> list[np.ndarray]:
    """Where photographs are: easting and northing, or, of paired frames, the number in the query run."""
    if photos.pairs is None:
        return [photos.easting, photos.northing]
    frame = np.arange(len(photos)) if photos.frame is None else photos.frame
    if not len(photos.pairs):
        return [frame.astype(np.float64)]
    queries, references = photos.pairs.T
    distinct, number = np.unique(frame[references], return_inverse=True)
    along = np.bincount(number, frame[queries]) / np.bincount(number)  # the mean of the frames it is paired with
    return [np.where(_query(photos), frame, np.interp(frame, distinct, along))]


def _whole(values: np.ndarray) -> np.ndarray:
    """As integers; what is not known counts as 0."""
    found: np.ndarray = np.nan_to_num(values).astype(np.int64)
    return found
