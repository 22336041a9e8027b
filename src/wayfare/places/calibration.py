"""The confidence of an answer: three scores of the list of matches, and a logistic regression on them.

    nearest     the distance of the nearest descriptor
    ratio       that distance, divided by the one of the first match of another place: 1 if both are as near
    agreement   the share of the following matches that lie at the place of the first

The regression is learnt on the index itself. Photographs of the index are looked for in the rest of it, twice each:

    as they are     without the photographs of the same sequence, which were taken a moment before or after
    as strangers    also without everything around their place, or without their whole city; the answer is always wrong

An answer is right if its first match lies at most `radius` metres from where the photo was taken. Strangers are given
the weight of their expected share, so confidence is the probability that an answer is right if that share of the photos
comes from places that are not in the index.

The regression's figures are those of predictions for parts of the ground that it was not fitted on (5 folds). A second
regression of one variable corrects these predictions; it is part of the stored weights. The threshold is the lowest
with at least the wanted precision on them, see `Curve.lowest`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import faiss
import numpy as np
import torch

from wayfare.clients import Clients
from wayfare.core.errors import ConfigError, DataError, WayfareError
from wayfare.core.seeds import rng_for
from wayfare.partition.split import load_split
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.nearest import pair_distances
from wayfare.places.positions import closest, metres, rows_of
from wayfare.places.trained_model import TrainedPlaceModel

if TYPE_CHECKING:
    from wayfare.places.index import Index

TOP = 20  # matches that are looked at
SCORES = ("nearest", "ratio", "agreement")
STRANGERS, PRECISION = 0.2, 0.9  # settings where nothing else is said
_AGREEING = 10  # the first match, and those asked whether they lie where it does
_AROUND = 2  # radii: what is removed around a photo's place to make the place unknown
_QUERIES, _FEWEST_QUERIES = 2000, 500  # photographs to learn from; the fewer, the larger the index
_COMPARED = 5e8  # pairs of descriptors, for indexes so large that fewer photographs are asked
_FEWEST, _FEWEST_RIGHT = 30, 10  # queries with a place, and right and wrong answers: less says nothing
_FEWEST_ACCEPTED = 10  # answers that a threshold must accept: the precision of fewer says nothing
_IN_A_ROW = np.timedelta64(60, "s")  # between photographs without a sequence that may show the same
_CERTAIN = 1.64  # standard errors: 95 %
_FOLDS, _CELL = 5, 4  # folds; the side of a piece of ground that is in one fold, in radii
_BINS = 10  # of the expected calibration error
_BLOCK = 2**25  # distances that are computed at a time

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Calibration:
    """The regression, the threshold, and what they were learnt on."""

    weights: tuple[float, ...]  # of the scores, after centre and scale
    bias: float
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    threshold: float | None  # None: no threshold has the wanted precision
    precision: float  # of the accepted answers at the threshold; without one, the best of any threshold
    recall: float  # of the photographs whose place is in the index, there
    wanted: float  # precision
    strangers: float  # the share of photos that are expected to be of other places
    queries: int  # photographs that were looked for
    figures: dict[str, float]  # of predictions outside of what the regression was fitted on, see `quality`
    doubts: tuple[str, ...] = ()  # why confidence may be too high

    def confidence(self, scores: np.ndarray) -> np.ndarray:
        """0..1 for each row of scores."""
        return _logistic((scores - self.centre) / self.scale @ np.array(self.weights) + self.bias)


@dataclass(frozen=True)
class Curve:
    """What comes out if answers from each threshold upwards are accepted; one entry for each that differs."""

    thresholds: np.ndarray
    precision: np.ndarray  # right answers among those accepted
    expected: np.ndarray  # the mean confidence of those accepted: the precision that is to be expected
    recall: np.ndarray  # right and accepted answers, of the photographs whose place was there to be found
    answered: np.ndarray  # accepted answers, of all
    accepted: np.ndarray  # how many those are
    confidence: np.ndarray  # of each answer
    right: np.ndarray  # bool: is the answer right?
    known: np.ndarray  # bool: was its place there?

    @property
    def area(self) -> float:
        """Under the curve: the precision at each step of recall (average precision)."""
        return float((np.diff(self.recall, prepend=0.0) * self.precision).sum())

    def lowest(self, precision: float, errors: np.ndarray) -> int | None:
        """The entry with the lowest threshold that has at least this precision, if any has.

        Both the precision counted, less 1.64 of its standard errors, and the one that is to be expected must be that
        high: otherwise the best of many thresholds is one that was lucky.
        """
        enough = (self.precision - _CERTAIN * errors >= precision) & (self.expected >= precision)
        fit = np.flatnonzero(enough & (self.accepted >= _FEWEST_ACCEPTED))
        return int(fit[-1]) if len(fit) else None

    def refused(self, threshold: float) -> tuple[float, float]:
        """The shares that are "unknown" at a threshold: of photographs whose place was there, and of the others."""
        unknown = self.confidence < threshold
        present, absent = (float(unknown[part].mean()) if part.any() else np.nan for part in (self.known, ~self.known))
        return present, absent


def scores_of(distances: np.ndarray, away: np.ndarray, radius: float) -> np.ndarray:
    """The three scores of one photo: of its matches' distances, in order, and their metres from the first match."""
    distances, here = distances[:TOP], away[:TOP] <= radius
    other = other_place(distances, here)
    ratio = float(distances[0] / other) if other > 0 else 1.0
    following = here[1:_AGREEING]
    return np.array([distances[0], ratio, following.mean() if len(following) else 0.0])


def other_place(distances: np.ndarray, here: np.ndarray) -> float:
    """The distance of the first match that is not at the first one's place; where all are, it is no less than this."""
    return float(distances[~here][0] if not here.all() else distances[-1])


def in_words(calibration: Calibration | None, why: str) -> list[str]:
    """What is said about the confidence of an index, sentence by sentence; `why` there is none."""
    if calibration is None:
        return [f"Answers have no confidence: {why}."]
    found, wanted = calibration, f"{calibration.wanted:.0%}"
    learnt = (
        f"{found.queries:,} photographs of the index looked for in the rest of it, if {found.strangers:.0%} of the "
        "photos are of places that are not in it"
    )
    if found.threshold is None:
        none = f"No threshold is certain to make {wanted} of the answers right, so none is called unknown"
        lines = [f"{none}. Learnt from {learnt}."]
    else:
        share = f"{found.precision:.0%} of the accepted answers are right, and {found.recall:.0%} of the known places"
        lines = [f"Answers below a confidence of {found.threshold:.2f} are unknown: {share} are found. From {learnt}."]
    return [*lines, *(f"Confidence may be too high: {doubt}." for doubt in found.doubts)]


# ---- How good confidences are


def weights_of(known: np.ndarray, strangers: float | None) -> np.ndarray:
    """What each answer counts for if that share of the photos is of unknown places; None: as many as there are."""
    if strangers is None or known.all() or not known.any():
        return np.ones(len(known))
    shares = np.where(known, (1 - strangers) / known.sum(), strangers / (~known).sum())
    return np.asarray(shares * len(known))


def curve_of(confidence: np.ndarray, right: np.ndarray, known: np.ndarray, weights: np.ndarray | None = None) -> Curve:
    """Precision and recall of answers with a confidence each; right ones, and those whose place was there."""
    weights = np.ones(len(confidence)) if weights is None else weights
    order = np.argsort(-confidence, kind="stable")
    last = np.flatnonzero(np.append(np.diff(confidence[order]) < 0, True)) if len(order) else order
    accepted, correct = np.cumsum(weights[order])[last], np.cumsum((weights * right)[order])[last]
    sure, there = np.cumsum((weights * confidence)[order])[last], float(weights[known].sum())
    taken = np.where(accepted > 0, accepted, 1)
    return Curve(
        confidence[order][last],
        correct / taken,
        expected=sure / taken,
        recall=correct / (there if there > 0 else 1),
        answered=accepted / max(weights.sum(), 1e-12),
        accepted=last + 1,
        confidence=confidence,
        right=right,
        known=known,
    )


def precision_errors(confidence: np.ndarray, right: np.ndarray, weights: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """The standard error of each precision of `curve_of`. Answers on one piece of ground are right or wrong together.

    With r the right and a the accepted weight of a piece, it is sqrt(sum of (r - precision a)^2) / sum of a.
    """
    taken, correct = np.zeros(int(pieces.max(initial=0)) + 1), np.zeros(int(pieces.max(initial=0)) + 1)
    errors, values = [], -np.sort(-confidence)
    order = np.argsort(-confidence, kind="stable")
    for place, row in enumerate(order.tolist()):
        taken[pieces[row]] += weights[row]
        correct[pieces[row]] += weights[row] * right[row]
        if place + 1 == len(order) or values[place + 1] < values[place]:
            total = taken.sum()
            errors.append(float(np.linalg.norm(correct - correct.sum() / total * taken) / total))
    return np.array(errors)


def reliability(
    confidence: np.ndarray, right: np.ndarray, weights: np.ndarray
) -> list[tuple[float, float, float, int]]:
    """The calibration curve, bin by bin: mean confidence, share of right answers, share of the weight, and answers."""
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    found = []
    for number in np.unique(bins):
        part = bins == number
        mass = float(weights[part].sum())
        if mass > 0:
            sure, correct = (float((weights * values)[part].sum() / mass) for values in (confidence, right))
            found.append((sure, correct, mass / float(weights.sum()), int(part.sum())))
    return found


def quality(confidence: np.ndarray, right: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """How far confidences can be trusted.

    ece             expected calibration error: |confidence - share of right answers|, the mean over ten bins
    auc             the probability that a right answer has more confidence than a wrong one
    brier           the mean squared difference of confidence and truth
    brier_constant  the same of a constant, the share of right answers
    """
    from sklearn.metrics import brier_score_loss, roc_auc_score  # a second to import

    share = float(np.average(right, weights=weights))
    bins = reliability(confidence, right, weights)
    return {
        "ece": sum(mass * abs(sure - correct) for sure, correct, mass, _ in bins),
        "auc": float(roc_auc_score(right, confidence, sample_weight=weights)) if 0 < share < 1 else 0.5,
        "brier": float(brier_score_loss(right, confidence, sample_weight=weights, pos_label=True)),
        "brier_constant": share * (1 - share),
    }


# ---- Learning


def fit(
    scores: np.ndarray, right: np.ndarray, known: np.ndarray, pieces: np.ndarray, *,
    strangers: float = STRANGERS, precision: float = PRECISION, doubts: tuple[str, ...] = (),
) -> Calibration:  # fmt: skip
    """Learn the regression and the threshold from scores (n, 3) of answers; `pieces` of the ground are in one fold."""
    from sklearn.linear_model import LogisticRegression  # a second to import, and only new indexes need it

    centre, scale = scores.mean(0), scores.std(0)
    scale[scale == 0] = 1.0
    inputs, weights = (scores - centre) / scale, weights_of(known, strangers)
    # the L2 penalty keeps weights finite where the answers can be told apart without a mistake
    regression = LogisticRegression(solver="newton-cholesky", tol=1e-10)
    unseen = np.empty(len(scores))
    for there, here in _folds(scores, right, pieces):
        fitted = regression.fit(inputs[there], right[there], sample_weight=weights[there])
        unseen[here] = fitted.decision_function(inputs[here])
    correction = LogisticRegression(solver="newton-cholesky", tol=1e-10)
    correction.fit(unseen[:, None], right, sample_weight=weights)
    confidence = correction.predict_proba(unseen[:, None])[:, 1]
    regression.fit(inputs, right, sample_weight=weights)
    slope, offset = float(correction.coef_[0, 0]), float(correction.intercept_[0])
    curve = curve_of(confidence, right, known, weights)
    chosen = curve.lowest(precision, precision_errors(confidence, right, weights, pieces))
    enough = np.flatnonzero(curve.accepted >= _FEWEST_ACCEPTED)
    at = chosen if chosen is not None else int(enough[np.argmax(curve.precision[enough])])
    return Calibration(
        weights=tuple((slope * regression.coef_[0]).tolist()),
        bias=slope * float(regression.intercept_[0]) + offset,
        centre=tuple(centre.tolist()),
        scale=tuple(scale.tolist()),
        threshold=None if chosen is None else float(curve.thresholds[at]),
        precision=float(curve.precision[at]),
        recall=float(curve.recall[at]),
        wanted=precision,
        strangers=strangers,
        queries=len(scores) // 2,
        figures=quality(confidence, right, weights),
        doubts=doubts,
    )


def _folds(scores: np.ndarray, right: np.ndarray, pieces: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import StratifiedGroupKFold

    count = min(_FOLDS, len(np.unique(pieces)))
    found = list(StratifiedGroupKFold(count).split(scores, right, pieces)) if count > 1 else []
    if not found or any(len(np.unique(right[there])) < 2 for there, _ in found):
        raise DataError("the photographs with right answers are too close together to learn from some and test others")
    return found


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

    `trained` are the photographs that the model was trained on, or why that is not known. Photographs of places that
    it was trained on are looked for only where there are too few others.
    """
    photos = np.array(index.photos)
    rows, doubts = _asked(index, photos, trained)
    leave_one_out = _LeaveOneOut(index, photos)
    found = []
    for start in range(0, len(rows), leave_one_out.step):
        found += leave_one_out.answers(rows[start : start + leave_one_out.step], start)
        progress("learning what is unknown", min(start + leave_one_out.step, len(rows)), len(rows))
    if not found:
        raise DataError(f"{len(rows)} photographs are too few to learn from", index.folder)
    scores, right, known = (np.array(column) for column in zip(*(answer[1:] for answer in found)))
    asked = photos[[answer[0] for answer in found]]
    if int(known.sum()) < _FEWEST:
        raise DataError(
            f"{known.sum()} of {len(rows)} photographs show a place that another sequence shows too: at least "
            f"{_FEWEST} are needed", index.folder,
        )  # fmt: skip
    if min(right.sum(), (~right).sum()) < _FEWEST_RIGHT:
        raise DataError(
            f"of {len(right)} answers {right.sum()} were right: too few, or too many, to learn from", index.folder
        )
    if not (asked["sequence"] > 0).any() and np.isnat(asked["captured"]).all():
        doubts += (
            "no photograph has a time or a sequence, so photographs that were taken a moment apart count as two",
        )
    pieces = _pieces(asked, _CELL * index.facts.radius)
    return fit(scores, right, known, pieces, strangers=strangers, precision=precision, doubts=doubts)


def _asked(index: Index, photos: np.ndarray, trained: PlacePhotos | str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Photographs to look for, and what is wrong with them."""
    current = np.setdiff1d(np.arange(len(photos)), index.facts.replaced)
    current = rng_for(0, "calibration").permutation(current)
    most = int(np.clip(_COMPARED / max(1, len(photos)), _FEWEST_QUERIES, _QUERIES))
    if isinstance(trained, str):
        doubt = f"whether the model was trained on photographs of the index is not known ({trained})"
        return np.sort(current[:most]), (doubt,)
    fresh = current[closest(photos[current], rows_of(trained, index.groups)) > index.facts.radius]
    if len(fresh) >= max(_FEWEST, len(current) // 10):
        return np.sort(fresh[:most]), ()
    seen = len(current) - len(fresh)
    doubt = f"{seen:,} of {len(current):,} photographs of the index show places that the model was trained on"
    return np.sort(current[:most]), (doubt,)


class _LeaveOneOut:
    """Photographs of an index, looked for in the rest of it."""

    def __init__(self, index: Index, photos: np.ndarray) -> None:
        self.index, self.photos, self.radius = index, photos, index.facts.radius
        self.gone = np.zeros(len(photos), bool)
        self.gone[list(index.facts.replaced)] = True
        self.step = max(1, _BLOCK // len(photos))

    def answers(self, rows: np.ndarray, first: int) -> list[tuple[int, np.ndarray, bool, bool]]:
        """Row, scores, whether right, whether the place is there: of each photograph as it is, and as a stranger."""
        faiss.omp_set_num_threads(torch.get_num_threads())
        queries = np.ascontiguousarray(self.index.descriptors[rows])
        roughly = faiss.pairwise_distances(queries, self.index.descriptors)
        found = []
        for number, (row, squared) in enumerate(zip(rows.tolist(), roughly), start=first):
            away = metres(self.photos, self.photos[row])
            beside = self.gone | in_a_row(self.photos, row)
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


def _pieces(rows: np.ndarray, side: float) -> np.ndarray:
    """The piece of ground that each row is on, as a number."""
    cells = [np.floor(rows[name] / side) for name in ("easting", "northing")]
    return np.asarray(np.unique(np.stack((*cells, rows["group"]), 1), axis=0, return_inverse=True)[1]).ravel()


def _logistic(values: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(values / 2))  # without overflow
