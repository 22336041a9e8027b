"""Pairs: which there are, which are drawn for training, and which detections stand for a relation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scene_parts import random_scenes, scenes
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.seeds import rng_for
from wayfare.scenes.pairs import (
    PairLimits,
    all_pairs,
    crossed,
    detected_pairs,
    expanded,
    segment_overlaps,
    training_pairs,
)


def row(count: int) -> list[list[float]]:
    """Boxes side by side."""
    return [[10.0 * place, 0, 10.0 * place + 10, 10] for place in range(count)]


def test_all_ordered_pairs() -> None:
    some = scenes(([0, 0], row(2), []), ([0], row(1), []), ([], [], []), ([0, 1, 2], row(3), []))
    assert all_pairs(some).tolist() == [[0, 1], [1, 0], [3, 4], [3, 5], [4, 3], [4, 5], [5, 3], [5, 4]]
    assert crossed(np.array([0, 1, 3]), np.array([0, 2, 3])).tolist() == [[0, 0], [0, 1], [1, 2], [2, 2]]
    assert [part.tolist() for part in expanded(np.array([2, 0, 1]))] == [[0, 0, 2], [0, 1, 0]]


def test_small_images_give_every_pair_but_reversed_relations() -> None:
    some = scenes(([0, 1, 2], row(3), [[0, 1, 2], [2, 2, 0]]))
    pairs, targets = training_pairs(some, rng_for(1))
    # 1, 0 is neither related nor background; the relation of 2 with itself is no pair.
    assert pairs.tolist() == [[0, 1], [0, 2], [1, 2], [2, 0], [2, 1]]
    assert targets.tolist() == [3, 0, 0, 0, 0]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(0, 4))
def test_samples_keep_to_their_limits(seed: int, most: int, positive: int) -> None:
    positive = min(positive, most)
    some = random_scenes(np.random.default_rng(seed), 6)
    pairs, targets = training_pairs(some, rng_for(seed), PairLimits(most, positive))
    keys = [*zip(some.object_images[pairs[:, 0]].tolist(), *pairs.T.tolist())]
    assert keys == sorted(set(keys))
    for place in range(len(some)):
        here, start = some.object_images[pairs[:, 0]] == place, some.object_offsets[place]
        local, said = (pairs[here] - start).tolist(), targets[here]
        count = len(some[place].labels)
        related = {(s, o) for s, o, _ in some[place].relations.tolist() if s != o}
        either = related | {(o, s) for s, o in related}
        assert (said > 0).sum() == min(positive, len(related))
        assert (said == 0).sum() == min(most - (said > 0).sum(), count * (count - 1) - len(either))
        known = {(s, o, p + 1) for s, o, p in some[place].relations.tolist()}
        for (s, o), target in zip(local, said.tolist()):
            assert (s, o, target) in known if target else (s, o) not in either


def test_predicates_of_a_pair_are_drawn_evenly() -> None:
    some = scenes(*[([0, 1], row(2), [[0, 1, 0], [0, 1, 2]])] * 2000)
    targets = training_pairs(some, rng_for(4)).targets
    assert set(targets.tolist()) == {1, 3}
    assert (targets == 1).mean() == pytest.approx(0.5, abs=0.04)  # 3.6 deviations
    np.testing.assert_array_equal(targets, training_pairs(some, rng_for(4)).targets)
    assert (targets != training_pairs(some, rng_for(5)).targets).any()


def test_background_is_drawn_evenly() -> None:
    some = scenes(*[([0, 1, 2], row(3), [[0, 1, 0]])] * 2000)  # 0-2, 1-2, 2-0, 2-1 are free
    pairs, targets = training_pairs(some, rng_for(6), PairLimits(most=2, positive=1))
    local = pairs[targets == 0] % 3
    _, times = np.unique(local[:, 0] * 3 + local[:, 1], return_counts=True)
    assert len(times) == 4 and times.sum() == 2000
    np.testing.assert_allclose(times / 2000, 0.25, atol=0.04)


def test_detections_that_stand_for_a_relation() -> None:
    truth = scenes(([0, 1], [[0, 0, 10, 10], [50, 0, 60, 10]], [[0, 1, 1]]))
    # 0: the subject; 1: the same at IoU 0.8; 2: the object; 3: its place, another class; 4: IoU exactly one half.
    boxes = [[0, 0, 10, 10], [0, 0, 10, 8], [50, 0, 60, 10], [50, 0, 60, 10], [50, 0, 60, 5]]
    seen = scenes(([0, 0, 1, 2, 1], boxes, []))
    pairs, targets = detected_pairs(seen, truth, rng_for(1))
    positive = pairs[targets > 0].tolist()
    assert positive == [[0, 2], [1, 2]] and set(targets[targets > 0].tolist()) == {2}
    background = {tuple(pair) for pair in pairs[targets == 0].tolist()}
    assert len(background) == 20 - 4 and (2, 0) not in background and (0, 4) in background
    # By masks it is the fourth that is the object's equal: detections x annotated objects.
    overlaps = np.array([[0.9, 0], [0, 0], [0, 0], [0, 0.9], [0, 0.6]]).ravel()
    pairs, targets = detected_pairs(seen, truth, rng_for(1), overlaps=overlaps)
    assert pairs[targets > 0].tolist() == [[0, 4]]


def test_pairs_of_detections_are_drawn_by_their_overlap() -> None:
    truth = scenes(*[([0, 1], [[0, 0, 10, 10], [50, 0, 60, 10]], [[0, 1, 1]])] * 3000)
    boxes = [[0, 0, 10, 10], [0, 0, 10, 6], [50, 0, 60, 10]]
    seen = scenes(*[([0, 0, 1], boxes, [])] * 3000)
    pairs, targets = detected_pairs(seen, truth, rng_for(2), each=1)
    assert (targets > 0).sum() == 3000
    first = (pairs[targets > 0][:, 0] % 3 == 0).mean()
    assert first == pytest.approx(1 / 1.6, abs=0.03)  # IoU of 1 and 0.6; 3.4 deviations
    # The one that was not drawn is not background: of 1-2 and 2-1 there is nothing.
    assert set(map(tuple, (pairs[targets == 0] % 3).tolist())) == {(0, 1), (1, 0)}


def test_at_most_four_pairs_for_a_relation() -> None:
    boxes = [[0, 0, 10, 10]] * 3 + [[50, 0, 60, 10]] * 3
    truth = scenes(([0, 1], [boxes[0], boxes[3]], [[0, 1, 0]]), ([0, 1], [boxes[0], boxes[3]], []))
    seen = scenes(*[([0, 0, 0, 1, 1, 1], boxes, [])] * 2)
    pairs, targets = detected_pairs(seen, truth, rng_for(3))
    image = seen.object_images[pairs[:, 0]]
    assert np.bincount(image[targets > 0], minlength=2).tolist() == [4, 0]
    assert np.bincount(image[targets == 0]).tolist() == [12, 30]


def test_overlaps_of_segments() -> None:
    seen = np.array([[0, 0, 1], [0, -1, 1]])
    meant = np.array([[0, 0, 0], [-1, 1, 1]])
    # 0-0: 2 in common of 4; 0-1: 0; 1-0: 1 of 4; 1-1: 1 of 3; the third detection has no pixel left.
    np.testing.assert_allclose(segment_overlaps(seen, meant, 3, 2), [[0.5, 0], [0.25, 1 / 3], [0, 0]])
    with pytest.raises(DataError, match="not of the same picture"):
        segment_overlaps(seen, meant[:1], 2, 2)


def test_misfits_are_named() -> None:
    some = scenes(([0, 1], row(2), [[0, 1, 0]]))
    with pytest.raises(ConfigError, match="no more positive"):
        training_pairs(some, rng_for(1), PairLimits(10, 11))
    with pytest.raises(ConfigError, match="at least one detected pair"):
        detected_pairs(some, some, rng_for(1), each=0)
    with pytest.raises(DataError, match="detections of 1 images, annotations of 2"):
        detected_pairs(some, some.select(np.array([0, 0])), rng_for(1))
    with pytest.raises(DataError, match=r"shape \(2,\), expected \(4,\)"):
        detected_pairs(some, some, rng_for(1), overlaps=np.ones(2))
