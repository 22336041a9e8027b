"""Which photographs of a data set are trained on, which are tested on, and which of them ask where they are.

Where the layout says so (MSLS: cities for training, validation and test, and queries and database in each), that holds.
The cities to test on are those of the split "test" whose positions are known, and where there are none (the official
MSLS keeps them to itself) those of "val". Elsewhere it is chosen here:

    queries "night"     photographs by night ask, those by day are the database
    queries "half"      every second sequence asks; of photographs without a sequence, half
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
from typing import Literal, get_args

import numpy as np

from wayfare.data.places import PlacePhotos
from wayfare.errors import ConfigError, unknown

Queries = Literal["layout", "night", "half"]
Test = Literal["layout", "sequences", "strips"]


@dataclass(frozen=True)
class Choice:
    """See the module."""

    queries: Queries = "layout"
    test: Test = "layout"
    folds: int = 4
    fold: int = 0
    strip: float = 40.0
    piece: float = 0.0  # metres; if > 0, sequences are cut where they leave a square of this size

    def __post_init__(self) -> None:
        for name, kind in (("queries", Queries), ("test", Test)):
            if getattr(self, name) not in get_args(kind):
                raise unknown(f"task.{name}", str(getattr(self, name)), get_args(kind))
        if not 0 <= self.fold < self.folds or self.folds < 2:
            raise ConfigError(f"task.fold = {self.fold} of {self.folds}: at least 2 folds, counted from 0")
        if self.strip <= 0 or self.piece < 0:
            raise ConfigError(f"task.strip = {self.strip} and task.piece = {self.piece}: metres, the first above 0")


@dataclass(frozen=True)
class Grounds:
    """Rows of one table."""

    photos: PlacePhotos  # `query` is always there
    pool: np.ndarray  # to train on
    test_queries: np.ndarray
    test_database: np.ndarray
    tested: str  # what the queries of the test are, for the protocol


def choose(
    photos: PlacePhotos,
    choice: Choice = Choice(),
    name: str = "all",
    own: bool = False,
) -> Grounds:
    """Divide a table. `name` is what the layout's own set of test queries is called.

    A device's `own` photographs need none to test on, and only what the layout says is tested on is kept from training.
    """
    photos = replace(photos, query=_queries(photos, choice.queries))
    known = np.isfinite(photos.easting) & np.isfinite(photos.northing) | (photos.pairs is not None)
    query = known & photos.query
    if own or choice.test == "layout":
        split = photos.split
        tested = known & (split == ("test" if (known & (split == "test")).any() else "val"))
        ask, database, trained = tested & query, tested & ~query, known & ~np.isin(split, ("val", "test"))
    else:
        tested = _held_out_sequences(photos, query, choice) if choice.test == "sequences" else _strips(photos, choice)
        ask, trained = tested & query, known & ~tested
        database = known & ~query & (tested if choice.test == "strips" else True)
        name = f"of held-out {choice.test}, fold {choice.fold} of {choice.folds}"
    if not own and not (ask.any() and database.any()):
        remedy = "choose another task.fold, fewer task.folds or a smaller task.strip"
        if choice.test == "layout":
            remedy = "choose task.test = 'sequences' or 'strips', or set task.test_cities"
        raise ConfigError(
            f"{photos.root}: nothing to test on: {int(ask.sum())} queries and {int(database.sum())} photographs of the "
            f"database; {remedy}"
        )
    if not trained.any():
        raise ConfigError(f"{photos.root}: nothing to train on: every photograph is tested on; change task.test")
    if choice.piece:
        photos = _cut(photos, choice.piece)
    pool, ask_rows, database_rows = (np.flatnonzero(mask) for mask in (trained, ask, database))
    return Grounds(photos, pool, ask_rows, database_rows, name)


def _queries(photos: PlacePhotos, how: Queries) -> np.ndarray:
    if how == "layout" and photos.query is not None:
        return photos.query
    if photos.pairs is not None:
        raise ConfigError(f"{photos.root}: task.queries = {how!r}, but paired frames say which ask: leave it 'layout'")
    if how == "night":
        if photos.night is None:
            raise ConfigError(
                f"{photos.root}: task.queries = 'night', but nothing says which photographs are by night; a table may "
                "have a column night. Or choose 'half'"
            )
        return photos.night
    drawn = [hashlib.sha256(str(key).encode(errors="surrogateescape")).digest()[0] % 2 == 1 for key in photos.keys]
    half = np.array(drawn, bool)
    if photos.sequence is not None and len(photos.sequences) > 1:
        return np.where(photos.sequence >= 0, photos.sequence % 2 == 1, half)
    return half


def _held_out_sequences(photos: PlacePhotos, query: np.ndarray, choice: Choice) -> np.ndarray:
    if photos.sequence is None:
        raise ConfigError(
            f"{photos.root}: task.test = 'sequences', but these photographs have no sequences; choose 'strips', or put "
            "them into a folder for each drive or walk"
        )
    alone = len(photos.sequences) + np.arange(len(photos))
    sequence = np.where(photos.sequence >= 0, photos.sequence, alone)
    asking = np.unique(sequence[query])
    return query & np.isin(sequence, asking[choice.fold :: choice.folds])


def _strips(photos: PlacePhotos, choice: Choice) -> np.ndarray:
    sides = _sides(photos)
    along = np.full(len(photos), np.nan)
    for group in np.unique(photos.group):
        rows = np.flatnonzero((photos.group == group) & np.isfinite(sides).all(0))
        if len(rows):
            along[rows] = max((side[rows] - side[rows].min() for side in sides), key=np.max)
    return np.isfinite(along) & (_whole(along // choice.strip) % choice.folds == choice.fold)


def _cut(photos: PlacePhotos, piece: float) -> PlacePhotos:
    """The same photographs with shorter sequences; those without one get the square's."""
    sequence = photos.sequence if photos.sequence is not None else np.full(len(photos), -1, np.int32)
    squares = [_whole(side // piece) for side in _sides(photos)]
    rows = np.stack((sequence, photos.group, *squares), 1)
    _, first, number = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    names = tuple(
        "/".join((photos.sequences[sequence[row]] if sequence[row] >= 0 else "", *map(str, rows[row, 2:])))
        for row in first
    )
    return replace(photos, sequences=names, sequence=number.ravel().astype(np.int32))


def _sides(photos: PlacePhotos) -> list[np.ndarray]:
    """Where photographs are: easting and northing, or, of paired frames, the number in the query run."""
    if photos.pairs is None:
        return [photos.easting, photos.northing]
    frame = np.arange(len(photos)) if photos.frame is None else photos.frame
    if not len(photos.pairs):
        return [frame.astype(np.float64)]
    asked, shown = photos.pairs.T
    there, number = np.unique(frame[shown], return_inverse=True)
    along = np.bincount(number, frame[asked]) / np.bincount(number)  # where the frames are that it is paired with
    asks = np.zeros(len(photos), bool) if photos.query is None else photos.query
    return [np.where(asks, frame, np.interp(frame, there, along))]


def _whole(values: np.ndarray) -> np.ndarray:
    """As integers; what is not known counts as 0."""
    return np.nan_to_num(values).astype(np.int64)
