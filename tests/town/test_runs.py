"""Rows of pixels as runs."""

from __future__ import annotations

import numpy as np

from wayfare.town.runs import runs


def test_a_run_ends_where_another_number_or_another_row_begins() -> None:
    starts, lengths = runs(np.array([7, 7, 2, 2, 2, 2, 5, 5, 5, 5, 5, 3]), width=4)
    assert starts.tolist() == [0, 2, 4, 6, 8, 11]
    assert lengths.tolist() == [2, 2, 2, 2, 3, 1]


def test_a_picture_of_one_number_has_a_run_in_each_row() -> None:
    starts, lengths = runs(np.zeros(6, np.int16), width=3)
    assert (starts.tolist(), lengths.tolist()) == ([0, 3], [3, 3])
    assert runs(np.zeros(1, np.int16), width=1)[1].tolist() == [1]
