"""Scores that mean something: how many relations with such a score are annotated."""

from __future__ import annotations

import numpy as np
import pytest

from scene_parts import scenes
from wayfare.scenes.recall import Guesses
from wayfare.scenes.sureness import Sureness, fit_sureness, hits

BOX = [0, 0, 10, 10]


def guesses(rows: list[tuple[int, int, int, int, float]]) -> Guesses:
    """Picture, subject, object, predicate, score."""
    table = np.array([row[:4] for row in rows], np.int64)
    return Guesses(
        int(table[:, 0].max()) + 1, table[:, 0], table[:, 1:], np.array([r[4] for r in rows], np.float32), True
    )


def test_hits_by_hand() -> None:
    truth = scenes(([0, 1], [BOX] * 2, [[0, 1, 2]]), ([0, 1], [BOX] * 2, [[1, 0, 0]]))
    some = guesses([(0, 0, 1, 2, 0.9), (0, 1, 0, 2, 0.5), (1, 1, 0, 0, 0.9), (1, 0, 1, 0, 0.1)])
    assert hits(some, truth).tolist() == [True, False, True, False]


def test_a_score_becomes_the_share_that_is_right() -> None:
    """Of relations scored 0.9 half are right, of those scored 0.5 a tenth: that is what is said of them afterwards."""
    pictures, rows = [], []
    for number in range(400):
        sure = number % 2 == 0
        right = number // 2 % (2 if sure else 10) == 0
        pictures.append(([0, 1], [BOX] * 2, [[0, 1, 0 if right else 1]]))
        rows.append((number, 0, 1, 0, 0.9 if sure else 0.5))
    found = fit_sureness(guesses(rows), scenes(*pictures))
    assert found.of(np.array([0.9, 0.5])) == pytest.approx([0.5, 0.1], abs=0.01)
    scores = np.linspace(0, 1, 50)
    assert (np.diff(found.of(scores)) > 0).all()  # the order stays


def test_too_little_to_go_by_changes_nothing() -> None:
    truth = scenes(([0, 1], [BOX] * 2, [[0, 1, 0]]))
    found = fit_sureness(guesses([(0, 0, 1, 0, 0.7)]), truth)
    assert found == Sureness() and found.of(np.array([0.0, 0.7])).tolist() == [0.0, 0.7]
