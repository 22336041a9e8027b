"""Scores, the regression and its threshold, by hand, and what is learnt from an index."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wayfare.core.errors import ConfigError, DataError
from wayfare.places.calibration import (
    Calibration,
    Calibrator,
    calibrate,
    curve_of,
    fit,
    in_a_row,
    in_words,
    precision_errors,
    quality,
    reliability,
    scores_of,
    trained_photos,
    weights_of,
)
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.index import Index
from wayfare.places.indexing import add
from wayfare.places.positions import read_photographs, rows_of
from wayfare.places.trained_model import Described, TrainedPlaceModel

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


def test_one_piece_of_ground_is_not_enough() -> None:
    scores, right, known, _ = noisy(400)
    with pytest.raises(DataError, match="too close together"):
        fit(scores, right, known, np.zeros(400, int))


# ---- On an index


def test_photographs_taken_in_a_row(table: Table) -> None:
    photos = replace(
        table([(0, 0)] * 5, [0, 0, 0, 0, 1]),
        captured=np.array(["2024-01-01T12:00:00", "2024-01-01T12:00:59", "2024-01-01T12:01:01", "NaT",
                           "2024-01-01T12:00:00"], "M8[ms]"),
    )  # fmt: skip
    rows = rows_of(photos, photos.groups)
    assert in_a_row(rows, 0).tolist() == [True, True, False, False, False]  # another city is another camera
    assert in_a_row(rows, 3).tolist() == [False, False, False, True, False]
    named = replace(photos, sequences=("a", "b"), sequence=np.array([0, 1, 0, -1, 0], np.int32))
    rows = rows_of(named, named.groups)
    assert in_a_row(rows, 0).tolist() == [True, False, True, False, True]
    assert rows["sequence"][3] == 0 and rows["sequence"][0] == rows["sequence"][2] != rows["sequence"][1]


def test_an_index_is_learnt_from(whole: Path, model: TrainedPlaceModel, run: Path) -> None:
    said: list[tuple[str, int, int]] = []
    found = Calibrator(model, run, progress=lambda *how_far: said.append(how_far))(Index(whole))
    assert found == Calibrator(model, run)(Index(whole)) == Index(whole).facts.calibration
    assert found.queries == 120 and said[-1] == ("learning what is unknown", 120, 120)
    assert found.figures["auc"] > 0.9 and found.recall > 0.8  # the street is easy
    assert found.threshold is not None and 0 < found.threshold < 1


def test_a_photograph_is_looked_for_without_its_sequence_and_then_without_its_place(
    model: TrainedPlaceModel, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 places 200 m apart, each seen by three walks; descriptors are the place's number and a little of the walk."""
    seen: dict[str, np.ndarray] = {}

    def caught(scores: np.ndarray, right: np.ndarray, known: np.ndarray, *_: object, **__: object) -> Calibration:
        seen.update(scores=scores.reshape(-1, 2, 3), right=right.reshape(-1, 2), known=known.reshape(-1, 2))
        return calibration()

    place, walk = np.divmod(np.arange(120), 3)
    photos = table([(200.0 * number, float(other)) for number, other in zip(place, walk)])
    photos = replace(photos, sequences=("a", "b", "c"), sequence=walk.astype(np.int32))
    descriptors = np.zeros((120, model.net.feature_dim), np.float32)
    descriptors[:, 0] = place + 0.125 * walk
    whole = Described(np.arange(120), descriptors, [], 0.0, 0.0)
    add(model, photos, tmp_path / "index", describe=lambda *_: [whole])
    monkeypatch.setattr("wayfare.places.calibration.fit", caught)
    calibrate(Index(tmp_path / "index"), "not told")
    assert seen["known"].tolist() == seen["right"].tolist() == [[True, False]] * 120
    # of the first place: walk a finds b at 1/8; b finds a and c at 1/8; c finds b at 1/8; as strangers, what is next
    assert seen["scores"][:3, 0, 0].tolist() == [0.125, 0.125, 0.125]
    assert seen["scores"][:3, 1, 0].tolist() == [1.125, 0.875, 0.75]  # from 0 to 1.125, from 0.125 and 0.25 to 1


def test_strangers_are_of_other_cities_too(
    model: TrainedPlaceModel, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second photograph is looked for without its whole city."""
    seen: list[np.ndarray] = []

    def caught(scores: np.ndarray, *_: object, **__: object) -> Calibration:
        seen.append(scores.reshape(-1, 2, 3))
        return calibration()

    place, city = np.arange(120) // 2 % 30, np.arange(120) // 60
    photos = table([(200.0 * number, 0.0) for number in place], group=city.tolist())
    descriptors = np.zeros((120, model.net.feature_dim), np.float32)
    descriptors[:, 0] = place + 100 * city
    whole = Described(np.arange(120), descriptors, [], 0.0, 0.0)
    add(model, photos, tmp_path / "index", describe=lambda *_: [whole])
    monkeypatch.setattr("wayfare.places.calibration.fit", caught)
    calibrate(Index(tmp_path / "index"), "not told")
    assert seen[0][:4, 1, 0].tolist() == [1, 100, 1, 99]  # the next place, the other city, and so on


def test_photographs_that_trained_the_model_are_said_to(
    model: TrainedPlaceModel, run: Path, street: Path, whole: Path, tmp_path: Path
) -> None:
    """24 of the 30 places were trained on; the other 6 are asked for, unless they are too few."""
    assert len(trained_photos(model, run)) == 96
    found = Index(whole).facts.calibration
    assert found is not None
    (doubt,) = found.doubts
    assert doubt == "96 of 120 photographs of the index show places that the model was trained on"
    assert in_words(found, "")[-1] == f"Confidence may be too high: {doubt}."
    gone = calibrate(Index(whole), "the photos are gone")
    assert gone.doubts == (
        "whether the model was trained on photographs of the index is not known (the photos are gone)",
    )
    lost = Calibrator(model, tmp_path)(Index(whole))  # a run without its split
    assert "partition.safetensors" in lost.doubts[0] and "is not known" in lost.doubts[0]
    fresh = calibrate(Index(whole), read_photographs(street).take(np.arange(8)))
    assert fresh.doubts == () and fresh.queries == 112


def test_photographs_without_sequences_are_doubted(model: TrainedPlaceModel, street: Path, tmp_path: Path) -> None:
    photos = read_photographs(street)
    add(model, replace(photos, sequence=None), tmp_path / "index")
    found = calibrate(Index(tmp_path / "index"), photos.take(np.arange(4)))
    assert found.doubts == (
        "no photograph has a time or a sequence, so photographs that were taken a moment apart count as two",
    )


def test_too_little_says_so(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wayfare.places.calibration._FEWEST", 121)
    with pytest.raises(DataError, match=r"120 of 120 photographs show a place that another sequence shows too: at l"):
        calibrate(Index(whole), "")


def test_all_wrong_says_so(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wayfare.places.calibration._FEWEST_RIGHT", 200)
    with pytest.raises(DataError, match=r"of 240 answers \d+ were right: too few"):
        calibrate(Index(whole), "")


def test_one_walk_is_too_little(model: TrainedPlaceModel, street: Path, tmp_path: Path) -> None:
    photos = read_photographs(street)
    assert photos.sequence is not None
    add(model, photos.take(photos.sequence == 0), tmp_path / "index")
    with pytest.raises(DataError, match="30 photographs are too few"):
        calibrate(Index(tmp_path / "index"), "")


@pytest.mark.parametrize("settings", [{"strangers": 0.0}, {"precision": 1.0}, {"strangers": math.nan}])
def test_shares_are_shares(model: TrainedPlaceModel, run: Path, settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="expected a share between 0 and 1"):
        Calibrator(model, run, **settings)


def test_an_index_is_learnt_again_when_it_or_the_settings_change(
    model: TrainedPlaceModel, run: Path, street: Path, mine: Path
) -> None:
    photos = read_photographs(street)
    before = Index(mine).facts
    assert before.calibration is not None
    assert Calibrator(model, run).is_done(before.calibration) and not Calibrator(model, run).is_done(None)
    again = add(model, photos, mine, Calibrator(model, run, strangers=0.6)).facts
    assert again.calibration is not None and again.calibration.strangers == 0.6
    # what is not given stays
    kept = add(model, photos, mine, Calibrator(model, run, precision=0.7)).facts
    assert kept.calibration is not None
    assert (kept.calibration.strangers, kept.calibration.wanted) == (0.6, 0.7)
