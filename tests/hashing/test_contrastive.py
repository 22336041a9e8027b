"""Contrastive alignment: the loss by hand, what is right for what, and what its terms do to the gradient."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from wayfare.core.errors import ConfigError
from wayfare.hashing.buffers import Buffers
from wayfare.hashing.contrastive import Contrastive, right_pairs
from wayfare.hashing.data.sample import SamplePairs
from wayfare.hashing.images import GivenImages
from wayfare.hashing.model import BagOfWords, PairEncoders
from wayfare.hashing.task import Hashing, Step

LABELS = torch.tensor([[1.0, 0, 1], [1, 1, 0], [0, 1, 1]])


def buffers() -> Buffers:
    """Three pairs; their texts point along x, y and x."""
    texts = torch.tensor([[2.0, 0], [0, 2], [5, 0]])
    found = Buffers(None, {"image": torch.zeros(3, 2), "text": texts}, (LABELS,))
    found.codes = torch.ones(3, 2)
    return found


def test_the_loss_by_hand() -> None:
    raw, rows = torch.tensor([[3.0, 0]]), torch.tensor([0])
    # cosines 1, 0, 1 at temperature 0.5: softmax of 2, 0, 2; only the pair's own text is right
    expected = -2 + math.log(2 * math.exp(2) + 1)
    assert float(Contrastive(0.5, 0).loss(buffers(), "image", rows, raw)) == pytest.approx(expected, rel=1e-6)
    # beside it (|1 - 3|^2 + |1 - 0|^2) / 2 = 2.5
    assert float(Contrastive(0.5, 0.1).loss(buffers(), "image", rows, raw)) == pytest.approx(expected + 0.25, rel=1e-6)


def test_names_of_labels_are_right_for_every_picture_that_has_them() -> None:
    found, rows = buffers(), torch.tensor([0, 1])
    found.asked[0] = torch.tensor([1.0, 0, 0])  # text 0 asks for label 0: pictures 0 and 1 have it
    assert right_pairs(found, "text", rows).tolist() == [[1, 1, 0], [0, 1, 0]]
    assert right_pairs(found, "image", torch.tensor([1, 2])).tolist() == [[1, 1, 0], [0, 0, 1]]


def test_texts_that_fit_a_picture_are_not_wrong_for_it() -> None:
    found, raw, rows = buffers(), torch.tensor([[3.0, 0]]), torch.tensor([0])
    found.asked[2] = torch.tensor([1.0, 0, 0])  # text 2 asks for label 0, which picture 0 has
    # of the cosines 1, 0, 1 at temperature 0.5 the last does not count
    expected = -2 + math.log(math.exp(2) + 1)
    assert float(Contrastive(0.5, 0).loss(found, "image", rows, raw)) == pytest.approx(expected, rel=1e-6)


def test_both_terms_change_the_gradient() -> None:
    slopes = []
    for gamma in (0.0, 1.0):
        raw = torch.tensor([[3.0, 1.0]], requires_grad=True)
        Contrastive(0.5, gamma).loss(buffers(), "image", torch.tensor([0]), raw).backward()
        assert raw.grad is not None
        slopes.append(raw.grad.clone())
    # |B - F|^2 / 2 alone: (3 - 1, 1 - 1)
    assert torch.allclose(slopes[1] - slopes[0], torch.tensor([[2.0, 0.0]]), atol=1e-6)
    assert slopes[0].abs().sum() > 0.01


@pytest.mark.parametrize(("temperature", "gamma"), [(0.0, 0.0), (-1.0, 0.0), (1.0, -1.0), (float("nan"), 0.0)])
def test_impossible_settings_are_refused(temperature: float, gamma: float) -> None:
    with pytest.raises(ConfigError, match=r"task\.base\."):
        Contrastive(temperature, gamma)


def asked_for(share: float, names: tuple[str, ...]) -> tuple[Hashing, Step, torch.Tensor]:
    """A task whose labels have these names, a batch after texts were replaced, and the texts before."""
    task = Hashing(SamplePairs(), PairEncoders(GivenImages(16), BagOfWords(16), bits=8), label_texts=share)
    object.__setattr__(task.loaded, "_pairs", replace(task.pairs, names=names))
    rows = task.pairs.train[:6]
    labels = torch.from_numpy(task.loaded.labels(rows)[-1]).float()
    batch = Step({"text": task.loaded.of("text", rows)}, labels, torch.arange(6))
    before = batch.inputs["text"].clone()
    task._ask_for_labels(batch, np.random.default_rng(0))
    return task, batch, before


def test_texts_are_replaced_by_names_of_their_own_labels() -> None:
    task, batch, before = asked_for(1.0, ("plant", "water", "Petal", "Leaf", "Wave", "Frost"))
    assert batch.asked is not None and torch.equal(batch.asked, batch.labels)  # each has one fine label
    names = [task.classes[int(row.argmax())].lower() for row in batch.labels]
    assert torch.equal(batch.inputs["text"], task.model.text.inputs(names, task.pairs.words))
    assert not torch.equal(batch.inputs["text"], before)


def test_names_that_cannot_be_read_replace_nothing() -> None:
    _, batch, before = asked_for(1.0, ("plant", "water", "nobody", "knows", "these", "names"))
    assert batch.asked is not None and not batch.asked.any()
    assert torch.equal(batch.inputs["text"], before)


def test_a_share_beyond_1_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"task\.label_texts"):
        Hashing(SamplePairs(), label_texts=1.5)
