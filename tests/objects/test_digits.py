"""The bundled digits."""

from __future__ import annotations

from collections import Counter

import numpy as np
from sklearn.datasets import load_digits

from wayfare.io.pictures import Pictures
from wayfare.objects.data.digits import Digits


def load() -> tuple[Pictures, Pictures]:
    return Digits().load(lambda *_: None)


def test_all_digits_are_there_once_and_the_split_is_stratified() -> None:
    train, test = load()
    assert len(train) + len(test) == 1797
    assert train.images.shape[1:] == test.images.shape[1:] == (8, 8, 1)
    assert train.images.dtype == np.uint8
    assert train.classes == tuple("0123456789")
    for digit in range(10):
        held_out, rest = int((test.labels == digit).sum()), int((train.labels == digit).sum())
        assert held_out == (held_out + rest) // 5
    everything = {image.tobytes() for image in np.concatenate([train.images, test.images])}
    assert len(everything) == len(np.unique(load_digits().images.reshape(1797, -1), axis=0))


def test_values_are_scaled_to_bytes() -> None:
    train, _ = load()
    # the first picture is a 0 whose first row is 0 0 5 13 9 1 0 0 of 16: 5 becomes 5 * 255 / 16 = 79.7
    assert train.labels[0] == 0
    assert train.images[0, 0, :, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]
    assert train.images.max() == 255


def test_the_split_never_changes() -> None:
    first, second = load()[1], load()[1]
    np.testing.assert_array_equal(first.images, second.images)
    np.testing.assert_array_equal(first.labels, second.labels)
    seen: Counter[int] = Counter()
    expected = []  # told in another way: each time a digit is seen for the fifth time, it is held out
    for label in load_digits().target.tolist():
        seen[label] += 1
        expected += [label] if seen[label] % 5 == 0 else []
    assert first.labels.tolist() == expected
