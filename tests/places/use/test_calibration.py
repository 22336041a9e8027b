"""Scores, the regression and its threshold, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from wayfare.core.errors import DataError
from wayfare.places.calibration import (
    Calibration,
    curve_of,
    fit,
    in_words,
    precision_errors,
    quality,
    reliability,
    scores_of,
    weights_of,
)
from wayfare.places.data.place_photos import PlacePhotos

Table = Callable[..., PlacePhotos]
HERE, THERE = 3.0, 99.0  # metres from the first match


def test_scores_by_hand() -> None:
    distances = np.array([0.2, 0.3, 0.5, 0.6])
    # the third is elsewhere: ratio 0.2 / 0.5; two of the three that follow agree
    assert scores_of(distances, np.array([0, HERE, THERE, HERE]), 25.0).tolist() == [0.2, 0.4, pytest.approx(2 / 3)]
    # all are at one place: another one is at 0.6 or beyond
    assert scores_of(distances, np.array([0, HERE, HERE, 25.0]), 25.0).tolist() == [0.2, pytest.approx(1 / 3), 1.0]
    assert scores_of(np.array([0.7]), np.zeros(1), 25.0).tolist() == [0.7, 1.0, 0.0]  # an index of one photograph
    assert scores_of(np.zeros(3), np.array([0, THERE, THERE]), 25.0).tolist() == [0.0, 1.0, 0.0]  # a collapsed network


def test_scores_look_at_the_first_few() -> None:
    """The eleventh match does not count for agreement, and the twenty-first not for another place."""
    distances = np.linspace(1, 2, 40)
    away = np.where(np.arange(40) < 10, HERE, THERE)
    assert scores_of(distances, away, 25.0)[2] == 1.0
    away = np.where(np.arange(40) < 20, HERE, THERE)
    assert scores_of(distances, away, 25.0)[1] == pytest.approx(1 / distances[19])


def calibration(**changes: object) -> Calibration:
    known = Calibration(
        (-2.0, 0.5, 1.0),
        0.25,
        centre=(1.0, 0.0, 0.0),
        scale=(0.5, 1.0, 1.0),
        threshold=0.5,
        precision=1.0,
        recall=1.0,
        wanted=0.9,
        strangers=0.2,
        queries=99,
        figures={},
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def test_confidence_of_known_weights() -> None:
    # -2 (1.5 - 1) / 0.5 + 0.5 * 0.5 + 1 * 1 + 0.25 = -0.5
    found = calibration().confidence(np.array([[1.5, 0.5, 1.0], [1.0, 0.0, -0.25]]))
    assert found.tolist() == [pytest.approx(1 / (1 + math.exp(0.5))), 0.5]
    far = calibration().confidence(np.array([[1e6, 0, 0], [-1e6, 0, 0]]))
    assert far.tolist() == [0.0, 1.0]


# ---- How good confidences are


def test_the_curve_by_hand() -> None:
    confidence = np.array([0.9, 0.8, 0.8, 0.6, 0.1])
    right = np.array([True, True, False, True, False])
    known = np.array([True, True, False, True, True])  # the last is known, and its answer wrong
    curve = curve_of(confidence, right, known)
    assert curve.thresholds.tolist() == [0.9, 0.8, 0.6, 0.1]
    assert curve.precision.tolist() == [1, pytest.approx(2 / 3), 0.75, 0.6]
    assert curve.recall.tolist() == [0.25, 0.5, 0.75, 0.75]
    assert curve.answered.tolist() == [0.2, pytest.approx(0.6), 0.8, 1.0]
    assert curve.accepted.tolist() == [1, 3, 4, 5]
    np.testing.assert_allclose(curve.expected, [0.9, 2.5 / 3, 3.1 / 4, 3.2 / 5])
    assert curve.area == pytest.approx(0.25 * 1 + 0.25 * 2 / 3 + 0.25 * 0.75)
    assert curve.refused(0.7) == (0.5, 0.0)
    assert curve.refused(0.85) == (0.75, 1.0)


def test_strangers_count_for_their_share() -> None:
    """Four known and one stranger; at a share of one half the stranger counts for 2.5 answers of five."""
    known = np.array([True, True, True, True, False])
    assert weights_of(known, 0.5).tolist() == [0.625] * 4 + [2.5]
    assert weights_of(known, 0.2).tolist() == [pytest.approx(1)] * 5
    assert weights_of(known, None).tolist() == [*weights_of(known[:4], 0.2).tolist(), 1] == [1] * 5
    curve = curve_of(np.array([0.9, 0.8, 0.7, 0.6, 0.5]), known, known, weights_of(known, 0.5))
    assert curve.precision.tolist() == [1, 1, 1, 1, pytest.approx(0.5)]
    assert curve.answered.tolist() == [0.125, 0.25, 0.375, 0.5, 1]


def test_figures_by_hand() -> None:
    confidence, right = np.array([0.95, 0.95, 0.25, 0.15]), np.array([True, False, True, False])
    even = np.ones(4)
    assert reliability(confidence, right, even) == [
        (0.15, 0, 0.25, 1), (0.25, 1, 0.25, 1), (pytest.approx(0.95), 0.5, 0.5, 2),
    ]  # fmt: skip
    found = quality(confidence, right, even)
    assert found["ece"] == pytest.approx(0.25 * 0.15 + 0.25 * 0.75 + 0.5 * 0.45)
    assert found["auc"] == pytest.approx((0.5 + 1 + 0 + 1) / 4)  # pairs of a right and a wrong one; equal is half
    assert found["brier"] == pytest.approx((0.05**2 + 0.95**2 + 0.75**2 + 0.15**2) / 4)
    assert found["brier_constant"] == 0.25
    assert quality(confidence, np.ones(4, bool), even)["auc"] == 0.5  # nothing is wrong: nothing to tell apart


def test_the_error_of_a_precision_by_hand() -> None:
    """Two pieces of ground, 2 of 2 and 0 of 2 right: precision 1/2, and (2 - 1)^2 + (0 - 1)^2 under the root."""
    confidence, right = np.array([0.9, 0.8, 0.7, 0.7]), np.array([1, 1, 0, 0], bool)
    errors = precision_errors(confidence, right, np.ones(4), np.array([0, 0, 1, 1]))
    assert errors.tolist() == [0, 0, pytest.approx(math.sqrt(2) / 4)]


def test_the_lowest_threshold_with_a_precision() -> None:
    """12 right, then every second one: 12/12, 12/13, 13/14, 13/15, ... The last with 0.9 is 13 of 14."""
    right = np.array([True] * 12 + [False, True] * 10)
    curve = curve_of(np.linspace(0.99, 0.95, 32), right, right)
    none = np.zeros(32)
    assert curve.lowest(0.9, none) == 13
    assert curve.lowest(0.9, np.full(32, 0.03)) == 11  # 13/14 and 12/13 less 1.64 errors are below
    assert curve.lowest(0.99, none) is None  # not to be expected of a mean confidence below that
    assert curve_of(np.linspace(0.5, 0.4, 32), right, right).lowest(0.9, none) is None
    few = curve_of(np.linspace(0.99, 0.95, 9), np.ones(9, bool), np.ones(9, bool))
    assert few.lowest(0.9, np.zeros(9)) is None  # nine answers say too little


# ---- Learning


def noisy(count: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    scores = rng.normal([0.5, 0.8, 0.3], [0.1, 0.05, 0.2], (count, 3))
    chance = 1 / (1 + np.exp((scores[:, 0] - 0.5) * 60 - (scores[:, 2] - 0.3) * 4))
    known = np.arange(count) % 2 == 0
    scores[~known, 0] += 0.1  # strangers are farther away
    return scores, (rng.random(count) < chance) & known, known, np.arange(count) // 20


def test_the_confidence_is_that_of_photos_with_the_expected_strangers() -> None:
    """Fitted with one stranger in two; the same scores mean less confidence, the more strangers there are."""
    scores, right, known, pieces = noisy()
    few, many = (fit(scores, right, known, pieces, strangers=share) for share in (0.1, 0.6))
    likely = few.confidence(scores) > 0.5
    assert likely.mean() > 0.2 and (few.confidence(scores) > many.confidence(scores))[likely].all()
    for found in (few, many):
        weights = weights_of(known, found.strangers)
        mean = np.average(found.confidence(scores), weights=weights)
        assert mean == pytest.approx(np.average(right, weights=weights), abs=0.005)
        assert found.figures["ece"] < 0.05 and found.figures["brier"] < found.figures["brier_constant"]
    assert few.weights[0] < -1 and few.weights[2] > 0.2  # as they were made
    assert few.queries == 2000


def test_the_threshold_has_the_wanted_precision() -> None:
    scores, right, known, pieces = noisy()
    found = fit(scores, right, known, pieces, strangers=0.1, precision=0.85)
    assert found.threshold is not None and found.precision > 0.85
    accepted, weights = found.confidence(scores) >= found.threshold, weights_of(known, 0.1)
    assert np.average(right[accepted], weights=weights[accepted]) == pytest.approx(found.precision, abs=0.02)
    assert (weights * right)[accepted].sum() / weights[known].sum() == pytest.approx(found.recall, abs=0.02)
    higher = fit(scores, right, known, pieces, strangers=0.1, precision=0.9)
    assert higher.threshold is not None and higher.threshold > found.threshold and higher.recall < found.recall


def test_where_no_threshold_reaches_it_there_is_none() -> None:
    scores, _, known, pieces = noisy(400)
    right = known & (np.random.default_rng(1).random(400) < 0.5)  # whatever the scores are
    found = fit(scores, right, known, pieces)
    assert found.threshold is None and found.precision < 0.9
    (line,) = in_words(found, "")
    assert line.startswith("No threshold is certain to make 90% of the answers right, so none is called unknown.")


def test_answers_that_can_be_told_apart_give_finite_weights() -> None:
    scores = np.repeat([[0.1, 0.5, 1.0], [0.9, 1.0, 1.0]], 40, axis=0)  # the last score says nothing
    right = np.arange(80) < 40
    found = fit(scores, right, right, np.arange(80) % 8)
    assert np.isfinite(found.weights).all() and found.weights[2] == 0
    assert (found.precision, found.recall) == (pytest.approx(1), pytest.approx(1))
    assert found.confidence(scores[:1])[0] > 0.9 > 0.1 > found.confidence(scores[-1:])[0]


def test_a_score_that_counts_the_wrong_way_round_is_left_out() -> None:
    """Agreement speaks against an answer here, which can only be chance."""
    scores, right, known, pieces = noisy()
    odd = fit(scores * [1, 1, -1], right, known, pieces)
    assert odd.weights[2] == 0 and odd.weights[0] < -1
    assert fit(scores, right, known, pieces).weights[2] > 0.2


def test_scores_that_say_nothing_give_no_confidence() -> None:
    scores = np.repeat([[0.9, 1.0, 1.0], [0.1, 1.0, 1.0]], 40, axis=0)  # right answers are the far ones
    right = np.arange(80) < 40
    with pytest.raises(DataError, match="do not tell right answers from wrong ones"):
        fit(scores, right, right, np.arange(80) % 8)


def test_one_piece_of_ground_is_not_enough() -> None:
    scores, right, known, _ = noisy(400)
    with pytest.raises(DataError, match="too close together"):
        fit(scores, right, known, np.zeros(400, int))
