"""The table of what classes do to each other: by hand, added over clients, and the baseline on real annotations."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

from scene_parts import scenes, shared
from wayfare.core.errors import ConfigError
from wayfare.core.seeds import rng_for
from wayfare.scenes import frequency
from wayfare.scenes.data import psg
from wayfare.scenes.recall import tally

OVER = [[0, 0, 10, 10], [5, 5, 15, 15], [50, 0, 60, 10]]  # the first two overlap
SOME = scenes(
    ([0, 1, 1], OVER, [[0, 1, 0], [0, 1, 0], [0, 1, 2], [1, 1, 0]]),
    ([0, 1], [OVER[0], OVER[2]], [[0, 1, 2]]),
)


def test_counts_by_hand() -> None:
    found = frequency.count(SOME)
    assert found.triplets[0, 1].tolist() == [2, 0, 2] and found.triplets.sum() == 4
    # The pairs 0-1 and 1-0 of the first image overlap; the others lie apart.
    assert found.overlapping[0, 1] == found.overlapping[1, 0] == 1 and found.overlapping.sum() == 2
    assert found.unrelated[0, 1] == 1 and found.unrelated[1, 0] == 3 and found.unrelated[1, 1] == 2


def test_log_table_by_hand() -> None:
    table = frequency.count(SOME).log_table()
    assert table.shape == (4, 4, 4) and table.dtype == np.float32
    np.testing.assert_allclose(table[0, 1], np.log([2 / 6 + 1e-3, 2 / 6 + 1e-3, 1e-3, 2 / 6 + 1e-3]), rtol=1e-6)
    np.testing.assert_allclose(table[3, 3], np.log([1.001, 1e-3, 1e-3, 1e-3]), rtol=1e-6)  # never seen


def test_baseline_by_hand() -> None:
    shares = frequency.count(SOME).probabilities()
    np.testing.assert_allclose(shares[0, 1], [0.2, 0.4, 0, 0.4])
    np.testing.assert_allclose(shares[3, 3], [1, 0, 0, 0])
    found = tally(frequency.guesses(frequency.count(SOME), SOME), SOME, cutoffs=(1, 2))
    # Of equal shares the smaller predicate is said: 0 in both images, where it is 2 of 4 triplets, and none of 1.
    assert found.metrics["R@2"] == pytest.approx((2 / 4 + 0) / 2)


def test_misfits_are_named() -> None:
    with pytest.raises(ConfigError, match="frequencies of 5 classes, scenes with 4"):
        frequency.guesses(frequency.count(scenes(classes=5)), SOME)
    with pytest.raises(ConfigError, match="too large"):
        frequency.count(scenes(classes=9000, predicates=10))


def test_on_the_papers_random_pool() -> None:
    """The expected figures are another program's, on other 2,000 held-out images; draws differ by half a point."""
    union = psg.load(shared("psg_union_24378.json.gz"))
    with zipfile.ZipFile(shared("paper_splits.zip")) as splits:
        clients = json.loads(splits.read("split_mini_Random.json"))
    pool = np.isin(union.image_ids.astype(str), np.concatenate(list(clients.values())))
    held_out = union.select(~pool).without("duplicates", "empty")
    test = held_out.select(np.sort(rng_for(0, "held-out").choice(len(held_out), 2000, replace=False)))
    metrics = tally(frequency.guesses(frequency.count(union.select(pool)), test), test).metrics
    print({name: round(100 * value, 1) for name, value in metrics.items()})
    expected = {"R@20": 46.8, "mR@20": 16.0, "R@50": 55.2, "mR@50": 20.1, "R@100": 58.9, "mR@100": 23.1}
    assert {name: 100 * metrics[name] for name in expected} == pytest.approx(expected, abs=1.5)
