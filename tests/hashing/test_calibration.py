"""What is close to a query: the level by hand, and none where too little is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wayfare.hashing.calibration import EVERYTHING, centres, close_scores, kind_of, level
from wayfare.hashing.task import Hashing


def test_the_level_by_hand() -> None:
    items = torch.eye(2)
    labels = np.eye(2, dtype=bool)
    # 21 queries whose first result is right, with cosines 0.8, 0.81, ..., 1; and one whose first result is wrong
    cosines = torch.linspace(0.8, 1.0, 21)
    asked = torch.stack([cosines, -(1 - cosines.square()).clamp(min=0).sqrt()], 1)
    asked = torch.cat([asked, torch.tensor([[0.75, -0.66]])])
    wanted = np.repeat(labels[:1], 22, 0)
    wanted[-1] = labels[1]
    # 5 % of 21 right ones: the second smallest
    assert level(asked, items, wanted, labels) == pytest.approx(0.81, abs=1e-5)
    assert level(asked[:19], items, wanted[:19], labels) == EVERYTHING  # fewer than 20


def test_several_words_are_compared_like_texts() -> None:
    assert [kind_of(text) for text in ("cat", "red shirt", "t-shirt", "")] == ["words", "text", "text", "words"]


def test_an_example_has_levels_for_both_views() -> None:
    task = Hashing.example()
    torch.manual_seed(0)
    net = task.network()
    middle = centres(task, net)
    rows = task.pairs.train
    mean = torch.nn.functional.normalize(task.features(net, "image", rows)).mean(0)
    assert middle.keys() == {"words", "text", "image"} and torch.allclose(middle["image"], mean, atol=1e-6)
    found = close_scores(task, net, middle)
    assert found.keys() == {"photos", "texts"} and all(-1 <= score <= 1 for score in found.values())
