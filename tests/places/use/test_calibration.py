"""Scores, the regression and its threshold, by hand, and what is learnt from a run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wayfare.core.errors import DataError
from wayfare.experiment import Evaluation
from wayfare.places.calibration import Calibration, calibrate, curve_of, fit, scores_of
from wayfare.places.data.place_photos import PlacePhotos
from wayfare.places.samples import PlaceSamples
from wayfare.places.trained_model import TrainedPlaceModel

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
        queries=99,
        source="nothing",
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def test_confidence_of_known_weights() -> None:
    # -2 (1.5 - 1) / 0.5 + 0.5 * 0.5 + 1 * 1 + 0.25 = -0.5
    found = calibration().confidence(np.array([[1.5, 0.5, 1.0], [1.0, 0.0, -0.25]]))
    assert found.tolist() == [pytest.approx(1 / (1 + math.exp(0.5))), 0.5]
    far = calibration().confidence(np.array([[1e6, 0, 0], [-1e6, 0, 0]]))
    assert far.tolist() == [0.0, 1.0]


def test_the_curve_by_hand() -> None:
    confidence = np.array([0.9, 0.8, 0.8, 0.6, 0.1])
    right = np.array([True, True, False, True, False])
    known = np.array([True, True, False, True, True])  # the last is known, and its answer wrong
    curve = curve_of(confidence, right, known)
    assert curve.thresholds.tolist() == [0.9, 0.8, 0.6, 0.1]
    assert curve.precision.tolist() == [1, pytest.approx(2 / 3), 0.75, 0.6]
    assert curve.recall.tolist() == [0.25, 0.5, 0.75, 0.75]
    assert curve.area == pytest.approx(0.25 * 1 + 0.25 * 2 / 3 + 0.25 * 0.75)
    assert curve.best == 2  # F1 0.4, 0.57, 0.75, 0.67
    assert curve.refused(0.7) == (0.5, 0.0)
    assert curve.refused(0.85) == (0.75, 1.0)


def test_a_weak_model_does_not_accept_everything() -> None:
    """F1 alone would take all eight: 3 of 8 right and all found, 0.55; at the first one it is 0.5."""
    right = np.array([1, 0, 0, 0, 1, 0, 0, 1], bool)
    curve = curve_of(np.linspace(0.9, 0.1, 8), right, right)
    assert curve.best == 0
    assert curve_of(np.linspace(0.9, 0.1, 8), np.zeros(8, bool), right).best is None


def noisy(count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    scores = rng.normal([0.5, 0.8, 0.3], [0.1, 0.05, 0.2], (count, 3))
    chance = 1 / (1 + np.exp((scores[:, 0] - 0.5) * 30 - (scores[:, 2] - 0.3) * 4))
    return scores, rng.random(count) < chance


def test_the_regression_is_at_its_optimum() -> None:
    """The loss is convex: its minimum is where the slope, with that of half the squared weights, is zero."""
    scores, right = noisy()
    found = fit(scores, right, right, "made up")
    scaled = (scores - scores.mean(0)) / scores.std(0)
    np.testing.assert_allclose((found.centre, found.scale), (scores.mean(0), scores.std(0)))
    excess = 1 / (1 + np.exp(-(scaled @ found.weights + found.bias))) - right
    np.testing.assert_allclose(excess @ scaled + found.weights, 0, atol=1e-8)
    assert excess.sum() == pytest.approx(0, abs=1e-8)
    assert found.weights[0] < -1 and found.weights[2] > 0.3  # as they were made
    assert (found.queries, found.source) == (400, "made up")


def test_the_threshold_is_the_best_one_there() -> None:
    scores, right = noisy()
    found = fit(scores, right, right, "")
    accepted = found.confidence(scores) >= found.threshold
    assert found.precision == pytest.approx(right[accepted].mean())
    assert found.recall == pytest.approx(right[accepted].sum() / right.sum())

    def quality(threshold: float) -> float:
        taken = found.confidence(scores) >= threshold
        return 2 * float(right[taken].sum()) / float(taken.sum() + right.sum())

    assert quality(found.threshold) == pytest.approx(max(quality(t) for t in found.confidence(scores)))


def test_answers_that_can_be_told_apart_give_finite_weights() -> None:
    scores = np.repeat([[0.1, 0.5, 1.0], [0.9, 1.0, 1.0]], 20, axis=0)  # the last score says nothing
    right = np.arange(40) < 20
    found = fit(scores, right, right, "")
    assert np.isfinite(found.weights).all() and found.weights[2] == 0
    assert (found.precision, found.recall) == (1.0, 1.0)
    assert found.confidence(scores[:1])[0] > 0.9 > 0.1 > found.confidence(scores[-1:])[0]


def test_scores_that_say_nothing_accept_nothing() -> None:
    scores = np.full((40, 3), 0.5)
    found = fit(scores, np.arange(40) < 10, np.ones(40, bool), "")
    assert (found.threshold, found.precision, found.recall) == (1.0, 0.0, 0.0)
    np.testing.assert_allclose(found.confidence(scores), 0.25)  # ten of forty were right


# ---- On a run


def test_a_run_is_learnt_from(model: TrainedPlaceModel, run: Path) -> None:
    said: list[tuple[str, int, int]] = []
    found = calibrate(model, run, lambda *how_far: said.append(how_far))
    assert found == calibrate(model, run)  # the same numbers every time
    assert found.queries == 2 * 48  # 24 places for training, two photos of each ask, with and without their place
    assert "trained on" in found.source  # this run kept nothing back
    assert found.precision > 0.8 and found.recall > 0.8  # the street is easy
    assert 0 < found.threshold < 1
    assert said[-1][1:] == (96, 96)


def with_evaluation(model: TrainedPlaceModel, **changes: object) -> TrainedPlaceModel:
    evaluation = replace(Evaluation(clients=0, every=0, holdout=0.0), **changes)  # type: ignore[arg-type]
    text = replace(model.experiment, evaluation=evaluation).to_toml()
    return replace(model, recipe=text)


def test_photographs_that_never_trained_are_preferred(model: TrainedPlaceModel, run: Path) -> None:
    apart = calibrate(with_evaluation(model, validation_clients=2), run)
    assert apart.source == "photographs of the run's 2 validation clients"
    held_out = calibrate(with_evaluation(model, holdout=0.8), run)
    assert held_out.source == "photographs that the run's clients kept from training"
    assert 2 * 30 <= held_out.queries < 2 * 48
    # one client has too few: those that trained are asked as well
    assert "trained on" in calibrate(with_evaluation(model, validation_clients=1), run).source


def test_too_little_says_so(model: TrainedPlaceModel, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wayfare.places.calibration._FEWEST", 49)
    with pytest.raises(DataError, match=r"48 photographs of the run ask .* at least 49 are needed"):
        calibrate(model, run)


def test_all_wrong_says_so(model: TrainedPlaceModel, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wayfare.places.calibration._FEWEST_RIGHT", 60)
    with pytest.raises(DataError, match=r"of 96 answers \d+ were right: too few"):
        calibrate(model, run)


def test_a_query_is_removed_with_its_surroundings(
    model: TrainedPlaceModel, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second answer to each is never right, and its place never known."""
    seen: dict[str, np.ndarray] = {}

    def caught(scores: np.ndarray, right: np.ndarray, known: np.ndarray, source: str) -> Calibration:
        seen.update(right=right.reshape(-1, 2), known=known.reshape(-1, 2), scores=scores.reshape(-1, 2, 3))
        return calibration()

    monkeypatch.setattr("wayfare.places.calibration.fit", caught)
    calibrate(model, run)
    assert seen["known"][:, 0].all() and not seen["known"][:, 1].any()
    assert seen["right"][:, 0].any() and not seen["right"][:, 1].any()
    assert (seen["scores"][:, 1, 0] >= seen["scores"][:, 0, 0]).all()  # what is left is no nearer


def test_paired_frames_cannot_be_learnt_from(
    model: TrainedPlaceModel, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided = model.task.loaded.divided
    photos: PlacePhotos = replace(divided.photos, pairs=np.zeros((1, 2), np.int64))
    monkeypatch.setattr(PlaceSamples, "divided", replace(divided, photos=photos))
    with pytest.raises(DataError, match="paired frames"):
        calibrate(replace(model, task=replace(model.task)), run)
