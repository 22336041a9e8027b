"""Learning confidence on an index itself: its photographs are looked for in the rest of it, twice each.

    as they are     without the photographs of the same visit: a new photo is usually taken on another day
    as strangers    also without everything around their place, or without their whole city; the answer is always wrong

A visit is what was taken within twelve hours, and what is of the same sequence. If too few places are shown by two
visits, photographs of another sequence will do (or, without sequences, those taken more than a minute apart). Such
photographs have the same light and weather, and are found more easily. The same is true of photographs of places that
the model was trained on: they are asked for only if there are too few others. Both are said (`Calibration.doubts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import faiss
import numpy as np
import torch

from wayfare.clients import Clients
from wayfare.core.errors import ConfigError, DataError, WayfareError
from wayfare.core.seeds import rng_for
from wayfare.partition.split import load_split
from wayfare.places.calibration import PRECISION, STRANGERS, TOP, Calibration, fit, scores_of
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.nearest import pair_distances
from wayfare.places.positions import closest, metres, rows_of
from wayfare.places.trained_model import TrainedPlaceModel

if TYPE_CHECKING:
    from wayfare.places.index import Index

_AROUND = 2  # radii: what is removed around a photo's place to make the place unknown
_QUERIES, _FEWEST_QUERIES = 2000, 500  # photographs to learn from; the fewer, the larger the index
_COMPARED = 5e8  # pairs of descriptors, for indexes so large that fewer photographs are asked
_FEWEST, _FEWEST_RIGHT = 30, 10  # queries with a place, and right and wrong answers: less says nothing
_IN_A_ROW = np.timedelta64(60, "s")  # between photographs without a sequence that may show the same
_VISIT = np.timedelta64(12, "h")  # between photographs of one visit
_CELL = 4  # the side of a piece of ground that is in one fold, in radii
_BLOCK = 2**25  # distances that are computed at a time

Progress = Callable[[str, int, int], None]
Together = Callable[[np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class Calibrator:
    """Learns the confidence of an index that the model of a run made; settings that are None are left as they were."""

    model: TrainedPlaceModel
    run: Path
    strangers: float | None = None
    precision: float | None = None
    progress: Progress = lambda *_: None

    def __post_init__(self) -> None:
        for name, value in (("strangers", self.strangers), ("precision", self.precision)):
            if value is not None and not 0 < value < 1:
                raise ConfigError(f"{name} = {value:g}: expected a share between 0 and 1")

    def is_done(self, before: Calibration | None) -> bool:
        """Whether a calibration has these settings already."""
        return before is not None and self._settings(before) == (before.strangers, before.wanted)

    def __call__(self, index: Index) -> Calibration:
        strangers, precision = self._settings(index.facts.calibration)
        trained: PlacePhotos | str
        try:
            trained = trained_photos(self.model, self.run)
        except WayfareError as error:  # the run's data may have gone, or never have been here
            trained = str(error)
        return calibrate(index, trained, strangers, precision, progress=self.progress)

    def _settings(self, before: Calibration | None) -> tuple[float, float]:
        usual = (STRANGERS, PRECISION) if before is None else (before.strangers, before.wanted)
        given = self.strangers, self.precision
        strangers, precision = (old if new is None else new for new, old in zip(given, usual))
        return strangers, precision


def trained_photos(model: TrainedPlaceModel, run: Path) -> PlacePhotos:
    """The photographs that the run's model was trained on."""
    file = run / "partition.safetensors"
    try:
        clients: Clients = model.experiment.clients(load_split(file.read_bytes()))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file) from error
    samples = [clients.client(clients.trained.id(number)).train for number in range(len(clients.trained))]
    divided = model.task.loaded.divided
    return divided.photos.take(divided.pool[np.unique(np.concatenate(samples))])


def calibrate(
    index: Index,
    trained: PlacePhotos | str,
    strangers: float = STRANGERS,
    precision: float = PRECISION,
    progress: Progress = lambda *_: None,
) -> Calibration:
    """Learn from the photographs of an index; a DataError says why if that is impossible.

    `trained` are the photographs that the model was trained on, or why that is not known.
    """
    photos = np.array(index.photos)
    why: DataError | None = None
    for way in _ways(index, photos, trained):
        try:
            scores, right, known, asked = _looked_for(index, photos, way, progress)
            pieces = _pieces(asked, _CELL * index.facts.radius)
            return fit(scores, right, known, pieces, strangers=strangers, precision=precision, doubts=way.doubts)
        except DataError as error:
            why = error
    raise why or DataError("no photograph is left to learn from")


class _Way(NamedTuple):
    """Which photographs are looked for, what is left out besides each, and what is wrong with that."""

    rows: np.ndarray
    together: Together
    doubts: tuple[str, ...]


def _ways(index: Index, photos: np.ndarray, trained: PlacePhotos | str) -> Iterator[_Way]:
    """The best one first."""
    current = np.setdiff1d(np.arange(len(photos)), index.facts.replaced)
    current = rng_for(0, "calibration").permutation(current)
    most = int(np.clip(_COMPARED / max(1, len(photos)), _FEWEST_QUERIES, _QUERIES))
    chosen: list[tuple[np.ndarray, tuple[str, ...]]] = []
    if isinstance(trained, str):
        doubt = f"whether the model was trained on photographs of the index is not known ({trained})"
    else:
        fresh = current[closest(photos[current], rows_of(trained, index.groups)) > index.facts.radius]
        doubt = (
            f"{len(current) - len(fresh):,} of {len(current):,} photographs of the index show places that the model "
            "was trained on"
        )
        if len(fresh) >= max(_FEWEST, len(current) // 10):
            chosen.append((np.sort(fresh[:most]), ()))
    if not chosen or len(chosen[0][0]) < min(most, len(current)):
        chosen.append((np.sort(current[:most]), (doubt,)))
    timed = not np.isnat(photos["captured"][current]).all()
    for together, also in ((of_one_visit, ()), (in_a_row, _doubts_of_time(photos[current], timed))):
        for rows, doubts in chosen if together is in_a_row or timed else ():
            yield _Way(rows, together, (*doubts, *also))


def _doubts_of_time(photos: np.ndarray, timed: bool) -> tuple[str, ...]:
    """What is wrong with photographs of the same visit."""
    if timed:
        return (
            "too few places are shown by photographs taken twelve hours apart, and photos of another day are harder "
            "to find",
        )
    if not (photos["sequence"] > 0).any():
        return ("no photograph has a time or a sequence, so photographs that were taken a moment apart count as two",)
    return ()


def _looked_for(
    index: Index, photos: np.ndarray, way: _Way, progress: Progress
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores, right, known and the photograph of each answer; a DataError if they say too little."""
    rows, found = way.rows, []
    leave_one_out = _LeaveOneOut(index, photos, way.together)
    if way.together is of_one_visit and leave_one_out.shown_again(rows) < _FEWEST:
        raise DataError("too few places are shown by two visits")
    for start in range(0, len(rows), leave_one_out.step):
        found += leave_one_out.answers(rows[start : start + leave_one_out.step], start)
        progress("learning what is unknown", min(start + leave_one_out.step, len(rows)), len(rows))
    if not found:
        raise DataError(f"{len(rows)} photographs are too few to learn from")
    scores, right, known = (np.array(column) for column in zip(*(answer[1:] for answer in found)))
    if int(known.sum()) < _FEWEST:
        raise DataError(
            f"{known.sum()} of {len(rows)} photographs show a place that another sequence shows too: at least "
            f"{_FEWEST} are needed"
        )  # fmt: skip
    if min(right.sum(), (~right).sum()) < _FEWEST_RIGHT:
        raise DataError(f"of {len(right)} answers {right.sum()} were right: too few, or too many, to learn from")
    return scores, right, known, photos[[answer[0] for answer in found]]


class _LeaveOneOut:
    """Photographs of an index, looked for in the rest of it."""

    def __init__(self, index: Index, photos: np.ndarray, together: Together) -> None:
        self.index, self.photos, self.radius = index, photos, index.facts.radius
        self.together = together
        self.gone = np.zeros(len(photos), bool)
        self.gone[list(index.facts.replaced)] = True
        self.step = max(1, _BLOCK // len(photos))

    def shown_again(self, rows: np.ndarray) -> int:
        """How many of these show a place that photographs of another visit show too."""
        there = (self._left(row) & (metres(self.photos, self.photos[row]) <= self.radius) for row in rows.tolist())
        return sum(bool(near.any()) for near in there)

    def _left(self, row: int) -> np.ndarray:
        return ~(self.gone | self.together(self.photos, row))

    def answers(self, rows: np.ndarray, first: int) -> list[tuple[int, np.ndarray, bool, bool]]:
        """Row, scores, whether right, whether the place is there: of each photograph as it is, and as a stranger."""
        faiss.omp_set_num_threads(torch.get_num_threads())
        queries = np.ascontiguousarray(self.index.descriptors[rows])
        roughly = faiss.pairwise_distances(queries, self.index.descriptors)
        found = []
        for number, (row, squared) in enumerate(zip(rows.tolist(), roughly), start=first):
            away = metres(self.photos, self.photos[row])
            beside = ~self._left(row)
            around = beside | (away <= _AROUND * self.radius)
            city = beside | (self.photos["group"] == self.photos["group"][row])
            strange = city if number % 2 and (~city).sum() >= TOP else around
            both = [self._answer(row, squared, away, left_out) for left_out in (beside, strange)]
            found += [answer for answer in both if answer is not None] if None not in both else []
        return found

    def _answer(
        self, row: int, squared: np.ndarray, away: np.ndarray, left_out: np.ndarray
    ) -> tuple[int, np.ndarray, bool, bool] | None:
        there = np.flatnonzero(~left_out)
        if not len(there):
            return None
        near = there[np.argpartition(squared[there], min(TOP, len(there)) - 1)[:TOP]]
        descriptors = self.index.descriptors
        exactly = np.sqrt(pair_distances(descriptors, descriptors, np.full(len(near), row), near))
        order = np.lexsort((near, exactly))
        near, exactly = near[order], exactly[order]
        scores = scores_of(exactly, metres(self.photos[near], self.photos[near[0]]), self.radius)
        return row, scores, bool(away[near[0]] <= self.radius), bool((away[there] <= self.radius).any())


def in_a_row(photos: np.ndarray, row: int) -> np.ndarray:
    """Which photographs were taken in a row with one: of its sequence, or else within a minute; itself too."""
    one = photos[row]
    if one["sequence"]:
        together = photos["sequence"] == one["sequence"]
    else:
        together = np.abs(photos["captured"] - one["captured"]) <= _IN_A_ROW  # never where a time is not known
        together &= photos["group"] == one["group"]
    together[row] = True
    return np.asarray(together)


def of_one_visit(photos: np.ndarray, row: int) -> np.ndarray:
    """Which photographs are of one visit with one: taken in a row with it, or in its city within twelve hours."""
    one = photos[row]
    near = np.abs(photos["captured"] - one["captured"]) <= _VISIT  # never where a time is not known
    return np.asarray(in_a_row(photos, row) | (near & (photos["group"] == one["group"])))


def _pieces(rows: np.ndarray, side: float) -> np.ndarray:
    """The piece of ground that each row is on, as a number."""
    cells = [np.floor(rows[name] / side) for name in ("easting", "northing")]
    return np.asarray(np.unique(np.stack((*cells, rows["group"]), 1), axis=0, return_inverse=True)[1]).ravel()
