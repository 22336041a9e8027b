"""Statistics of a split against numbers worked out by hand."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest

from wayfare.core.errors import ConfigError
from wayfare.partition.heterogeneity import counts, describe
from wayfare.partition.random import Random
from wayfare.partition.split import Split, VirtualSplit

LABELS = np.array([0, 0, 0, 1, 0, 1, 2, 3])
SPLIT = Split.from_parts([np.array([0, 1, 2, 3]), np.array([4, 5, 6, 7])])


def test_by_hand() -> None:
    # Client 0 has shares (3/4, 1/4, 0, 0), client 1 a quarter of each; together (1/2, 1/4, 1/8, 1/8).
    # Entropy / log 4: (log 4 - 3/4 log 3) / log 4 = 0.405639 and 1.
    # TV: (1/4 + 0 + 1/8 + 1/8) / 2 = 1/4 and (1/4 + 0 + 1/8 + 1/8) / 2 = 1/4. Largest share: 3/4 and 1/4.
    found = describe(SPLIT, LABELS, 4)
    assert found == {
        "clients": 2,
        "samples": 8,
        "size_mean": 4.0,
        "size_sd": 0.0,
        "size_min": 4,
        "size_max": 4,
        "classes": 4,
        "entropy": pytest.approx((0.4056390622295664 + 1) / 2, abs=1e-12),
        "total_variation": pytest.approx(0.25, abs=1e-12),
        "largest_share": pytest.approx(0.5, abs=1e-12),
    }
    json.dumps(found)


def test_classes_by_name_or_from_the_labels() -> None:
    assert describe(SPLIT, LABELS, ["a", "b", "c", "d"]) == describe(SPLIT, LABELS, 4) == describe(SPLIT, LABELS)


def test_sizes_by_hand_and_empty_clients() -> None:
    # sizes 1, 3, 0: mean 4/3, variance (1 + 9 + 0)/3 - 16/9 = 14/9
    split = Split.from_parts([np.array([0]), np.array([1, 2, 3]), np.array([], np.int64)])
    found = describe(split)
    assert (found["size_mean"], found["size_sd"]) == (pytest.approx(4 / 3), pytest.approx((14 / 9) ** 0.5))
    assert (found["size_min"], found["size_max"]) == (0, 3)
    assert "entropy" not in found
    # largest shares 1 and 2/3 of the two clients that have any
    assert describe(split, LABELS, 4)["largest_share"] == pytest.approx(5 / 6)


def test_nobody_and_one_class() -> None:
    nobody = describe(SPLIT.select([]), LABELS, 4)
    assert (nobody["clients"], nobody["samples"], nobody["size_mean"], nobody["entropy"]) == (0, 0, None, None)
    one = describe(SPLIT, np.zeros(8, np.int64), 1)
    assert (one["entropy"], one["total_variation"], one["largest_share"]) == (0.0, 0.0, 1.0)


def test_counts() -> None:
    table = counts(SPLIT, LABELS, 5)
    assert table.tolist() == [[3, 1, 0, 0, 0], [1, 1, 1, 1, 0]]
    assert counts(SPLIT, LABELS, 5, limit=1).tolist() == [[3, 1, 0, 0, 0]]
    assert counts(SPLIT.select([]), LABELS, 5).shape == (0, 5)


def test_blocks_do_not_show() -> None:
    labels = np.arange(3000) % 7
    split = Random(1000)(labels, np.random.default_rng(0))
    table = counts(split, labels, 7, limit=1000)
    assert table.tolist() == [np.bincount(labels[row], minlength=7).tolist() for row in split]
    shares = table / table.sum(axis=1, keepdims=True)
    assert describe(split, labels, 7)["largest_share"] == pytest.approx(shares.max(axis=1).mean())


def test_memory_does_not_grow_with_clients() -> None:
    labels = np.arange(500) % 10

    def peak(clients: int) -> int:
        split = VirtualSplit(clients, 20, 500, seed=1)
        tracemalloc.start()
        describe(split, labels, 10)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(2048) < 1.2 * peak(512)


def test_labels_of_another_data_set() -> None:
    with pytest.raises(ConfigError, match="another data set"):
        describe(SPLIT, LABELS[:5], 4)
    with pytest.raises(ConfigError, match=r"labels run 0\.\.3, with 3 classes"):
        counts(SPLIT, LABELS, 3)
