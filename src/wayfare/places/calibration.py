"""The confidence of an answer: three scores of the list of matches, and a logistic regression on them.

    nearest     the distance of the nearest descriptor
    ratio       that distance, divided by the one of the first match of another place: 1 if both are as near
    agreement   the share of the following matches that lie at the place of the first

The regression is learnt on the index itself: `leave_one_out.py` looks for its photographs in the rest of it, as they
are and as strangers.

An answer is right if its first match lies at most `radius` metres from where the photo was taken. Strangers are given
the weight of their expected share, so confidence is the probability that an answer is right if that share of the photos
comes from places that are not in the index.

The regression's figures are those of predictions for parts of the ground that it was not fitted on (5 folds). A second
regression of one variable corrects these predictions; it is part of the stored weights. The threshold is the lowest
with at least the wanted precision on them, see `Curve.lowest`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wayfare.core.errors import DataError

TOP = 20  # matches that are looked at
SCORES = ("nearest", "ratio", "agreement")
_SIGNS = np.array([-1, -1, 1])  # of their weights: a near match, far from the next place, among others that agree
STRANGERS, PRECISION = 0.2, 0.9  # settings where nothing else is said
_AGREEING = 10  # the first match, and those asked whether they lie where it does
_FEWEST_ACCEPTED = 10  # answers that a threshold must accept: the precision of fewer says nothing
_CERTAIN = 1.64  # standard errors: 95 %
_FOLDS = 5
_BINS = 10  # of the expected calibration error


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
    if "auc" in found.figures:
        share = f"{found.figures['auc']:.0%}"
        learnt += f"; in {share} of pairs the right answer has more confidence than the wrong one (by chance: 50%)"
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
    for _ in SCORES:  # a score that counts the wrong way round does so by chance, and is left out
        inputs *= regression.fit(inputs, right, sample_weight=weights).coef_[0] * _SIGNS >= 0
    unseen = np.empty(len(scores))
    for there, here in _folds(scores, right, pieces):
        fitted = regression.fit(inputs[there], right[there], sample_weight=weights[there])
        unseen[here] = fitted.decision_function(inputs[here])
    correction = LogisticRegression(solver="newton-cholesky", tol=1e-10)
    correction.fit(unseen[:, None], right, sample_weight=weights)
    slope, offset = float(correction.coef_[0, 0]), float(correction.intercept_[0])
    if slope <= 0 or not inputs.any():
        raise DataError("on ground that they were not learnt on, the scores do not tell right answers from wrong ones")
    confidence = correction.predict_proba(unseen[:, None])[:, 1]
    regression.fit(inputs, right, sample_weight=weights)
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
    from sklearn.model_selection import StratifiedGroupKFold  # as above

    count = min(_FOLDS, len(np.unique(pieces)))
    found = list(StratifiedGroupKFold(count).split(scores, right, pieces)) if count > 1 else []
    if not found or any(len(np.unique(right[there])) < 2 for there, _ in found):
        raise DataError("the photographs with right answers are too close together to learn from some and test others")
    return found


def _logistic(values: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(values / 2))  # without overflow
