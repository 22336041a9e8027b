"""Stored partitions."""

import numpy as np
import pytest

from wayfare.core.errors import DataError
from wayfare.partition.dirichlet import Dirichlet
from wayfare.partition.file import File
from wayfare.partition.split import Split


@pytest.fixture
def stored(tmp_path):
    labels = np.arange(100) % 4
    split = Dirichlet(5, 0.5)(labels, np.random.default_rng(3))
    (tmp_path / "split").write_bytes(split.pack())
    return tmp_path / "split", labels, split


def test_a_stored_partition_comes_back_whatever_the_seed(stored):
    path, labels, split = stored
    again = File(str(path))(labels, np.random.default_rng(99))
    assert again.pack() == split.pack()


@pytest.mark.parametrize("change", ["more samples", "other labels"])
def test_other_data_is_refused(stored, change):
    path, labels, _ = stored
    other = np.append(labels, 0) if change == "more samples" else labels[::-1]
    with pytest.raises(DataError, match="other data"):
        File(str(path))(other, np.random.default_rng(0))


def test_a_missing_or_damaged_file_is_named(stored, tmp_path):
    path, labels, _ = stored
    with pytest.raises(DataError, match="nowhere"):
        File(str(tmp_path / "nowhere"))(labels, np.random.default_rng(0))
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError):
        File(str(path))(labels, np.random.default_rng(0))


def test_one_that_deals_out_a_part_goes_with_all_data_that_reach_as_far(stored):
    """Where a topology keeps samples back, the record is of the others: only how far it reaches can be seen."""
    path, _, split = stored
    part = Split(split.offsets, split.indices + 4, split.provenance | {"samples": None})
    path.write_bytes(part.pack())
    again = File(str(path))(np.zeros(104, np.int64), np.random.default_rng(0))
    assert sorted(again.pool().tolist()) == [*range(4, 104)]
    with pytest.raises(DataError, match="104 samples, here 103"):
        File(str(path))(np.zeros(103, np.int64), np.random.default_rng(0))
