"""A partition from a file: of the same data it is taken as it is, of other data it is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wayfare.data.partition.file import File
from wayfare.data.partition.quantity import Quantity
from wayfare.data.partition.split import Split
from wayfare.errors import DataError

LABELS = np.arange(12) % 3
RNG = np.random.default_rng(0)


def stored(split: Split, file: Path) -> File:
    file.write_bytes(split.pack())
    return File(str(file))


def test_only_the_data_that_it_was_drawn_over(tmp_path: Path) -> None:
    drawn = Quantity(3)(LABELS, RNG)
    rule = stored(drawn, tmp_path / "p.safetensors")
    assert [part.tolist() for part in rule(LABELS, RNG)] == [part.tolist() for part in drawn]
    for other in (LABELS[:-1], LABELS[::-1]):
        with pytest.raises(DataError, match="drawn over other data"):
            rule(other, RNG)


def test_one_that_deals_out_a_part_goes_with_all_data_that_reach_as_far(tmp_path: Path) -> None:
    """Where a topology keeps samples back, the record is of the others: only how far it reaches can be seen."""
    drawn = Quantity(2)(LABELS[:6], RNG)
    part = Split(drawn.offsets, drawn.indices + 4, drawn.provenance | {"samples": None})
    rule = stored(part, tmp_path / "p.safetensors")
    assert sorted(rule(LABELS, RNG).pool().tolist()) == [4, 5, 6, 7, 8, 9]
    with pytest.raises(DataError, match="10 samples, here 9"):
        rule(LABELS[:9], RNG)
