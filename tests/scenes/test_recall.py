"""R@K and mR@K: worked by hand, and against a loop over every triplet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scene_parts import plain_recall, random_scenes, scenes
from wayfare.core.errors import ConfigError, DataError
from wayfare.scenes.pairs import all_pairs, box_overlaps
from wayfare.scenes.recall import Guesses, ranked, tally

FAR = [[0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10]]


def said(pairs: np.ndarray, **guesses: tuple[int, float]) -> np.ndarray:
    """Probabilities (P, 4) of three predicates: s0_1=(2, 0.9) gives the pair 0, 1 the predicate 2."""
    rows = np.zeros((len(pairs), 4), np.float32)
    for name, (predicate, value) in guesses.items():
        ends = [int(end) for end in name[1:].split("_")]
        rows[np.flatnonzero((pairs == ends).all(1))[0], predicate + 1] = value
    rows[:, 0] = 1 - rows.sum(1)
    return rows


def test_by_hand_with_cutoffs_of_one_and_two() -> None:
    # The first image has three triplets: 0-1 by 0, 1-2 by 1, 0-2 by 1; the second has one: 0-1 by 0.
    truth = scenes(([0, 1, 2], FAR, [[0, 1, 0], [1, 2, 1], [0, 2, 1]]), ([0, 1], FAR[:2], [[0, 1, 0]]))
    pairs = all_pairs(truth)
    probabilities = said(pairs, s0_1=(0, 0.9), s1_2=(1, 0.8), s0_2=(2, 0.7), s3_4=(2, 0.4), s4_3=(0, 0.3))
    found = tally(ranked(probabilities, pairs, truth), truth, cutoffs=(1, 2))
    # At 1: (1/3 + 0) / 2; at 2: (2/3 + 0) / 2. Predicate 0: images 1 and 2 have 1 and 0; predicate 1: 0, then 1/2.
    assert found.metrics == pytest.approx({
        "R@1": 1 / 6, "mR@1": (1 / 2 + 0 + 0) / 3, "mR@1/present": 1 / 4,
        "R@2": 1 / 3, "mR@2": (1 / 2 + 1 / 2 + 0) / 3, "mR@2/present": 1 / 2,
    })  # fmt: skip
    assert found.having.tolist() == [2, 1, 0]
    np.testing.assert_allclose(found.by_predicate, [[0.5, 0, 0], [0.5, 0.5, 0]])


def test_a_second_predicate_of_a_pair_is_found_without_constraint_only() -> None:
    truth = scenes(([0, 1], FAR[:2], [[0, 1, 0], [0, 1, 1]]))
    pairs = all_pairs(truth)
    probabilities = np.array([[0.1, 0.5, 0.4, 0], [0.7, 0.1, 0.1, 0.1]], np.float32)
    assert tally(ranked(probabilities, pairs, truth), truth).metrics["R@20"] == 0.5
    free = tally(ranked(probabilities, pairs, truth, constraint=False), truth, cutoffs=(1, 2)).metrics
    assert (free["ngR@1"], free["ngR@2"]) == (0.5, 1)


def test_scores_of_objects_count() -> None:
    truth = scenes(([0, 1, 2], FAR, [[0, 1, 0]]))
    pairs = all_pairs(truth)
    probabilities = said(pairs, s0_1=(0, 0.6), s1_2=(0, 0.5))
    scores = np.array([0.5, 1, 1], np.float32)  # 0.3 for the first, 0.5 for the second
    assert tally(ranked(probabilities, pairs, truth), truth, cutoffs=(1,)).metrics["R@1"] == 1
    assert tally(ranked(probabilities, pairs, truth, scores), truth, cutoffs=(1,)).metrics["R@1"] == 0


def test_detections_need_class_and_half_the_area() -> None:
    truth = scenes(([0, 1], [[0, 0, 10, 10], [20, 0, 30, 10]], [[0, 1, 0]]))

    def found(width: float, label: int, overlaps: np.ndarray | None = None) -> float:
        seen = scenes(([3, label, 0], [[0, 0, 10, 10], [20, 0, 20 + width, 10], [0, 0, 10, 10]], []))
        pairs = all_pairs(seen)
        return tally(ranked(said(pairs, s2_1=(0, 1)), pairs, seen), truth, seen, overlaps).metrics["R@20"]

    assert found(20, 1) == 1  # IoU exactly one half
    assert found(20.1, 1) == 0
    assert found(10, 2) == 0
    # Masks may agree where boxes do not: detections x annotated objects.
    assert found(20.1, 1, np.array([0, 0, 0, 0.7, 0.6, 0])) == 1
    assert found(20, 1, np.array([0, 0, 0, 0.4, 0.6, 0])) == 0


def test_a_guess_may_hit_two_triplets() -> None:
    twins = [[0, 0, 10, 10], [0, 0, 10, 9], [20, 0, 30, 10]]
    truth = scenes(([0, 0, 1], twins, [[0, 2, 0], [1, 2, 0]]))
    pairs = all_pairs(truth)
    guesses = ranked(said(pairs, s0_2=(0, 1)), pairs, truth)
    assert tally(guesses, truth, cutoffs=(1,)).metrics["R@1"] == 0.5
    assert tally(guesses, truth, truth, cutoffs=(1,)).metrics["R@1"] == 1


def test_images_without_guesses_count_zero_or_are_skipped() -> None:
    truth = scenes(([0, 1], FAR[:2], [[0, 1, 0]]), ([0, 1], FAR[:2], [[0, 1, 1]]), ([0, 1], FAR[:2], []))
    seen = scenes(([0, 1], FAR[:2], []), ([0], FAR[:1], []), ([], [], []))
    pairs = all_pairs(seen)
    guesses = ranked(said(pairs, s0_1=(0, 1)), pairs, seen)
    usual, paper = tally(guesses, truth, seen), tally(guesses, truth, seen, as_paper=True)
    assert (usual.images, usual.skipped, usual.metrics["R@20"]) == (2, 1, 0.5)
    assert (paper.images, paper.skipped, paper.metrics["R@20"]) == (1, 2, 1)
    assert (usual.metrics["mR@20/present"], paper.metrics["mR@20/present"]) == (0.5, 1)
    with pytest.raises(DataError, match="no image has an annotated triplet"):
        _ = tally(
            ranked(np.zeros((0, 4)), all_pairs(seen.select(np.array([2]))), seen), scenes(*[([], [], [])] * 3)
        ).metrics


def test_what_is_no_number_is_no_guess() -> None:
    truth = scenes(([0, 1, 2], FAR, [[0, 1, 0], [1, 2, 1]]))
    pairs = all_pairs(truth)
    probabilities = said(pairs, s0_1=(0, 0.5), s1_2=(1, 0.4))
    probabilities[np.flatnonzero((pairs == [0, 1]).all(1))] = np.nan
    for constraint in (True, False):
        guesses = ranked(probabilities, pairs, truth, constraint=constraint)
        assert [0, 1] not in guesses.triplets[:, :2].tolist()
        assert tally(guesses, truth, cutoffs=(1,)).recall.tolist() == [0.5]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_as_the_loop_over_triplets(seed: int, constraint: bool, as_paper: bool, detected: bool, coarse: bool) -> None:
    rng = np.random.default_rng(seed)
    truth = random_scenes(rng, 5)
    if not len(truth.relations):
        return
    seen = random_scenes(rng, 5) if detected and rng.random() < 0.5 else truth
    pairs = all_pairs(seen)
    values = rng.random((len(pairs), 4), np.float32)
    if coarse:  # many equal scores
        values = np.round(values * 4) / 4
    scores = rng.choice(np.array([0.25, 0.5, 1], np.float32), len(seen.labels))
    image = seen.object_images[pairs[:, 0]]
    given_pairs: list[dict[tuple[int, int], np.ndarray]] = [{} for _ in range(5)]
    for row, (s, o), place in zip(values, pairs.tolist(), image.tolist()):
        start = int(seen.object_offsets[place])
        given_pairs[place][s - start, o - start] = row
    own = [scores[seen.object_images == place] for place in range(5)]
    cutoffs, detections = (1, 3, 8), seen if detected else None
    found = tally(
        ranked(values, pairs, seen, scores, constraint=constraint, most=8),
        truth, detections, cutoffs=cutoffs, as_paper=as_paper,
    )  # fmt: skip
    if found.images:
        expected = plain_recall(
            given_pairs,
            truth,
            detections=detections,
            scores=own,
            constraint=constraint,
            as_paper=as_paper,
            cutoffs=cutoffs,
        )
        assert found.metrics == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("constraint", [True, False])
def test_guesses_of_parts_are_those_of_the_whole(constraint: bool) -> None:
    rng = np.random.default_rng(3)
    truth = random_scenes(rng, 40)
    values = rng.random((len(all_pairs(truth)), 4), np.float32)
    whole = ranked(values, all_pairs(truth), truth, constraint=constraint)
    parts, start = [], 0
    for chosen in (np.arange(25), np.arange(25, 40)):
        part = truth.select(chosen)
        pairs = all_pairs(part)
        parts.append(ranked(values[start : start + len(pairs)], pairs, part, constraint=constraint))
        start += len(pairs)
    joined = Guesses.joined(parts)
    for name in ("image", "triplets", "scores"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))


def test_misfits_are_named() -> None:
    truth = scenes(([0, 1], FAR[:2], [[0, 1, 0]]))
    pairs = all_pairs(truth)
    guesses = ranked(np.ones((2, 4), np.float32), pairs, truth)
    with pytest.raises(DataError, match=r"shape \(3, 4\), expected \(2, predicates \+ 1\)"):
        ranked(np.ones((3, 4), np.float32), pairs, truth)
    two = truth.select(np.array([0, 0]))
    with pytest.raises(DataError, match="not ordered by image"):
        ranked(np.ones((4, 4), np.float32), all_pairs(two)[::-1], two)
    with pytest.raises(DataError, match="guesses for 1 images, annotations of 2"):
        tally(guesses, scenes(([0], FAR[:1], []), ([0], FAR[:1], [])))
    with pytest.raises(DataError, match=r"shape \(3,\), expected \(4,\)"):
        tally(guesses, truth, truth, np.ones(3))
    with pytest.raises(ConfigError, match="cutoffs"):
        tally(guesses, truth, cutoffs=())
    with pytest.raises(ConfigError, match="same graph constraint"):
        Guesses.joined([guesses, ranked(np.ones((2, 4), np.float32), pairs, truth, constraint=False)])


def test_overlaps_of_boxes() -> None:
    seen = scenes(([0], [[0, 0, 10, 10]], []), ([0, 0], [[0, 0, 4, 4], [2, 0, 6, 4]], []))
    truth = scenes(([0, 0], [[5, 0, 15, 10], [50, 0, 60, 10]], []), ([0], [[0, 0, 4, 4]], []))
    np.testing.assert_allclose(box_overlaps(seen, truth), [1 / 3, 0, 1, 1 / 3])


def test_order_of_scores() -> None:
    # Also of those below zero, which log-probabilities are; the two zeros are equal, and equal ones keep their order.
    truth = scenes(([0] * 3, FAR, []))
    values = np.array([[0, -1.5], [0, 0.0], [0, -0.0], [0, 2.5], [0, -np.inf], [0, -3]], np.float32)
    found = ranked(values, all_pairs(truth), truth)
    assert found.scores.tolist() == [2.5, 0, 0, -1.5, -3]
    assert found.triplets[:, :2].tolist() == all_pairs(truth)[[3, 1, 2, 0, 5]].tolist()
