"""Overlap, chance and oracle by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytest import approx
from tour import facts, meet

from wayfare.core.exchange import Meeting
from wayfare.encounters.predictors.chance import Chance
from wayfare.encounters.predictors.oracle import Oracle
from wayfare.encounters.predictors.overlap import Overlap, label_overlap

A, B, C = 0, 1, 2


def meeting(pairs: list[tuple[int, int]], **given: Any) -> Meeting:
    many = max(map(max, pairs)) + 1
    known = facts([0.5] * many, labels=given.pop("labels", None), targets=given.pop("targets", None))
    return meet(0, pairs, known, {"can_send": np.ones(many), "score": known.score}, **given)


def test_overlap_by_hand() -> None:
    # A wants 0 and 1; B has three of class 1 and one of class 2: min(.5, 0) + min(.5, .75) + 0 = 0.5
    # B wants 2 only; A has one of each: 1/3. C has no pictures and wants nothing.
    near = meeting(
        [(A, B), (A, C)], labels=[[1, 1, 1], [0, 3, 1], [0, 0, 0]], targets=[[1, 1, 0], [0, 0, 1], [0, 0, 0]]
    )
    assert label_overlap(near) == approx([1 / 2, 0, 1 / 3, 0])
    # mine + overlap / 4 of what is missing: 0.2 + 0.8/8, 0.2, 0.4 + 0.6/12, 1
    assert Overlap().predict(np.array([0.2, 0.2, 0.4, 1.0]), near) == approx([0.3, 0.2, 0.45, 1.0])
    assert Overlap(rate=1.0).predict(np.full(4, 0.0), near) == approx([1 / 2, 0, 1 / 3, 0])


def test_chance_by_hand() -> None:
    # chance = 3/4 of a 1024th and a quarter of a 2^20th: A (the first of the pair) draws 0.75 (and a little),
    # B draws 0.25: gains of 0.2 * 0.5 and 0.2 * -0.5
    near = meeting([(A, B)], chance=[0.75 / 2**10 + 0.25 / 2**20])
    assert Chance().predict(np.array([0.5, 0.5]), near) == approx([0.6, 0.4], abs=1e-3)
    assert Chance().predict(np.array([0.95, 0.05]), near) == approx([1.0, 0.0])


def test_chance_is_even_and_independent_of_direction_and_of_gossip() -> None:
    many = 20_000
    chance = np.random.default_rng(5).random(many)
    near = meeting([(2 * i, 2 * i + 1) for i in range(many)], chance=chance)
    gain = Chance(spread=0.5).predict(np.full(2 * many, 0.5), near) - 0.5
    # uniform from -0.5 to 0.5: mean 0, variance 1/12; four standard errors of the mean are 0.0058
    assert abs(gain.mean()) < 0.0058
    assert gain.var() == approx(1 / 12, rel=0.03)
    one, other = gain[:many], gain[many:]
    for pair in ((one, other), (one, chance), (other, chance)):
        assert abs(np.corrcoef(*pair)[0, 1]) < 4 / many**0.5


def test_oracle_looks() -> None:
    def look(me: np.ndarray, peer: np.ndarray) -> np.ndarray:
        return 0.1 * me + 0.01 * peer

    assert Oracle().predict(np.zeros(2), meeting([(1, 2)], merged_accuracy=look)) == approx([0.12, 0.21])
