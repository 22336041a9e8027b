"""Augmentation by hand, against kornia's own hue, and what must hold for every setting."""

from __future__ import annotations

import copy
import importlib.util
import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wayfare.core.errors import ConfigError
from wayfare.places import augment
from wayfare.places.augment import (
    ClientJitter,
    ColourJitter,
    JitterCrop,
    NoAugmentation,
    crop_box,
    shift_hue,
)

OFF = dict.fromkeys(("brightness", "contrast", "saturation", "hue", "crop"), 0.0)
KINDS = [ColourJitter, JitterCrop, ClientJitter]


class Given:
    """Stands in for a generator: these numbers for each picture."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = np.array(numbers)

    def random(self, shape: tuple[int, int] | int) -> np.ndarray:
        return np.broadcast_to(self.numbers, shape).copy()


def steps(brightness: float = 0.5, contrast: float = 0.5, saturation: float = 0.5, hue: float = 0.5) -> Any:
    """A chosen picture; 0 to 1 stand for the least to the greatest factor, 0.5 for none."""
    return Given(0, brightness, contrast, saturation, hue, 0, 0.5, 0.5, 0.5)


def row(*pixels: tuple[float, float, float]) -> Tensor:
    """One picture, one pixel high."""
    return torch.tensor(pixels, dtype=torch.float32).T[None, :, None, :].contiguous()


def pixels(pictures: Tensor) -> list[Any]:
    return [pytest.approx(pixel, abs=1e-6) for pixel in pictures[0, :, 0].T.tolist()]


def some(count: int = 6, height: int = 12, width: int = 16) -> Tensor:
    return torch.from_numpy(np.random.default_rng(count).random((count, 3, height, width), dtype=np.float32))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# ---- by hand


def test_brightness_multiplies() -> None:
    picture = torch.tensor([0.4, 0.8])[:, None, None, None].expand(2, 3, 4, 5)
    brighter = ColourJitter(brightness=0.6)(picture, steps(brightness=0.75), rng())  # 1 + 0.6 / 2
    assert brighter[0].unique().tolist() == pytest.approx([0.52])
    assert brighter[1].unique().tolist() == [1.0]
    assert ColourJitter()(picture, steps(brightness=0), rng())[0].unique().tolist() == pytest.approx([0.4 * 0.3])
    assert ColourJitter()(picture, steps(brightness=1), rng())[0].unique().tolist() == pytest.approx([0.4 * 1.7])


def test_contrast_is_about_the_mean_grey() -> None:
    changed = ColourJitter(contrast=1)(row((0.2, 0.2, 0.2), (0.6, 0.6, 0.6)), steps(contrast=0.75), rng())
    assert pixels(changed) == [[0.1] * 3, [0.7] * 3]  # 0.4 -+ 1.5 * 0.2


def test_saturation_is_about_the_own_grey() -> None:
    changed = ColourJitter(saturation=1)(row((1, 0, 0), (0.3, 0.3, 0.3)), steps(saturation=0.25), rng())
    assert pixels(changed) == [[0.6495, 0.1495, 0.1495], [0.3] * 3]  # half way to 0.299


def test_hue_turns_the_circle() -> None:
    colours = row((1, 0, 0), (0.8, 0.5, 0.2), (0.3, 0.3, 0.3), (0, 0, 0))
    third = ColourJitter()(colours, steps(hue=5 / 6), rng())  # 0.5 * (2 * 5 / 6 - 1) = 1/3 of a turn
    assert pixels(third) == [[0, 1, 0], [0.2, 0.8, 0.5], [0.3] * 3, [0] * 3]
    half = ColourJitter()(colours, steps(hue=0), rng())
    assert pixels(half) == [[0, 1, 1], [0.2, 0.5, 0.8], [0.3] * 3, [0] * 3]


def test_brightness_comes_before_contrast() -> None:
    changed = ColourJitter(brightness=1, contrast=1)(
        row((0.5, 0.5, 0.5), (1, 1, 1)), steps(brightness=0.75, contrast=0.25), rng()
    )
    assert pixels(changed) == [[0.8125] * 3, [0.9375] * 3]  # 0.75 and 1 (not 1.5), half way to 0.875


def test_contrast_comes_before_saturation_and_saturation_before_hue() -> None:
    # contrast 2: grey mean (0.299 + 1) / 2 = 0.6495, the red pixel becomes 1.3505 -> 1, -0.6495 -> 0: it stays pure
    # saturation 0.5: 0.6495, 0.1495, 0.1495; a third of a turn moves the high value to green
    changed = ColourJitter(contrast=1, saturation=1)(
        row((1, 0, 0), (1, 1, 1)), steps(contrast=1, saturation=0.25, hue=5 / 6), rng()
    )
    assert pixels(changed) == [[0.1495, 0.6495, 0.1495], [1] * 3]


@pytest.mark.parametrize(
    ("crop", "draw", "box"),
    [
        (0.5, (1, 0.5, 0.5, 0.999), (15, 59, 71, 141)),  # sqrt(0.5) of each side; 30 and 60 places to lie at
        (0.5, (1, 1, 0, 0), (0, 0, 61, 163)),  # sqrt(0.5 * 3/4), sqrt(0.5 * 4/3)
        (0.5, (1, 0, 0, 0), (0, 0, 82, 122)),
        (0.1, (1, 1, 0, 0.999), (0, 0, 90, 200)),  # 0.9 / 0.81: as wide as the picture, no wider
        (0.5, (0, 1, 0.999, 0.999), (0, 0, 100, 200)),
    ],
)
def test_crop_boxes(crop: float, draw: tuple[float, ...], box: tuple[int, ...]) -> None:
    assert crop_box(100, 200, crop, np.array(draw)) == box


def test_crop_is_enlarged_between_its_pixels() -> None:
    grey = row(*((value,) * 3 for value in (0.0, 0.2, 0.4, 0.6)))
    draw: Any = Given(0, 0.5, 0.5, 0.5, 0.5, 1, 0, 0, 0.5)  # 4 * sqrt(0.5 * 3/4) = 2.4 wide, the second of 3 places
    changed = JitterCrop()(grey, draw, rng())
    assert pixels(changed) == [[value] * 3 for value in (0.2, 0.25, 0.35, 0.4)]  # a quarter of a pixel on either side


def test_the_whole_picture_is_a_crop_that_changes_nothing() -> None:
    assert torch.equal(JitterCrop(1.0, **OFF)(some(), rng(), rng()), some())


def test_white_stays_white_when_enlarged() -> None:
    white = torch.ones(50, 3, 97, 131)  # torch's weights of the pixels around can add up to a little more than 1
    assert JitterCrop(1.0, **{**OFF, "crop": 0.9})(white, rng(), rng()).amax() == 1


def test_hue_is_that_of_kornia() -> None:
    from kornia.enhance import adjust_hue

    pictures = some(3, 40, 50)
    eighths = (pictures * 8).round() / 8  # many pixels with equal channels, grey, black and white among them
    for picture in (*pictures, *eighths):
        for turns in (-0.5, -0.27, 0.0, 0.1, 0.5):
            torch.testing.assert_close(
                shift_hue(picture, turns), adjust_hue(picture, 2 * math.pi * turns), atol=3e-6, rtol=0
            )


# ---- randomness


def test_none_does_and_draws_nothing() -> None:
    pictures, random = some(), rng()
    assert NoAugmentation()(pictures, random, rng()) is pictures
    assert random.random() == rng().random()


def test_probability() -> None:
    pictures = some(1000, 2, 2)
    assert torch.equal(JitterCrop(0.0)(pictures, rng(), rng()), pictures)
    for probability in (0.5, 0.8, 1.0):
        changed = ColourJitter(probability, contrast=0, saturation=0, hue=0)(pictures, rng(), rng())
        share = (changed != pictures).flatten(1).any(1).float().mean().item()
        assert share == pytest.approx(probability, abs=0.05)  # standard error 0.016


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_come_from_the_generators_only(kind: type[ColourJitter]) -> None:
    pictures, before = some(), some()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = kind()(pictures, rng(5), rng(6))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(kind()(pictures, rng(5), rng(6)), first)
    assert not torch.equal(kind()(pictures, rng(7), rng(6)), first)
    assert torch.equal(pictures, before)


@pytest.mark.parametrize("kind", KINDS)
def test_other_pictures_of_the_batch_do_not_matter(kind: type[ColourJitter]) -> None:
    pictures, change = some(9), kind()
    whole = change(pictures, rng(), rng(1))
    random = rng()
    parts = [change(part, random, rng(1)) for part in pictures.split([1, 5, 3])]
    assert torch.equal(torch.cat(parts), whole)
    others = 1 - pictures
    others[4] = pictures[4]
    assert torch.equal(change(others, rng(), rng(1))[4], whole[4])


def test_crop_follows_the_same_jitter() -> None:
    pictures = some(20)
    jittered, cropped = ColourJitter()(pictures, rng(), rng()), JitterCrop()(pictures, rng(), rng())
    changed = (jittered != pictures).flatten(1).any(1)
    assert torch.equal((cropped != pictures).flatten(1).any(1), changed)
    assert not torch.equal(jittered, cropped)
    assert torch.equal(JitterCrop(crop=0)(pictures, rng(), rng()), jittered)


def test_a_client_has_its_own_factors() -> None:
    picture = some(1).expand(40, -1, -1, -1)
    client = rng(3)
    kept = copy.deepcopy(client.bit_generator.state)
    first = ClientJitter()(picture, rng(), client)
    touched = (first != picture).flatten(1).any(1)
    assert 10 < touched.sum() < 30  # a probability of 0.5 here too
    assert all(torch.equal(each, first[touched][0]) for each in first[touched])
    assert client.bit_generator.state == kept
    again = ClientJitter(1.0)(picture, rng(9), client)
    assert torch.equal(again[0], first[touched][0])
    assert not torch.equal(ClientJitter(1.0)(picture, rng(9), rng(4))[0], again[0])


# ---- for all


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    strengths=st.tuples(*[st.floats(0, 1)] * 3, st.floats(0, 0.5), st.floats(0, 0.99)),
    shape=st.tuples(st.integers(0, 4), st.just(3), st.integers(1, 9), st.integers(1, 9)),
    levels=st.sampled_from([1, 2, 255]),
    last=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_shape_range_and_memory(
    kind: type[ColourJitter], strengths: tuple[float, ...], shape: tuple[int, ...], levels: int, last: bool, seed: int
) -> None:
    change = kind(0.7, *strengths) if kind is JitterCrop else kind(0.7, *strengths[:-1])
    values = rng(seed).integers(0, levels + 1, shape) / levels
    memory = torch.channels_last if last else torch.contiguous_format
    pictures = torch.from_numpy(values.astype(np.float32)).contiguous(memory_format=memory)
    changed = change(pictures, rng(seed), rng(seed + 1))
    assert changed.shape == pictures.shape and changed.dtype == torch.float32
    assert changed.is_contiguous(memory_format=memory)
    assert not changed.numel() or (changed.amin() >= 0 and changed.amax() <= 1)
    plain = change(pictures.contiguous(), rng(seed), rng(seed + 1))
    assert torch.equal(changed, plain)


# ---- misuse


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"probability": 1.5}, "augment.probability = 1.5: expected 0 to 1"),
        ({"brightness": -0.1}, "brightness = -0.1"),
        ({"contrast": math.nan}, "contrast = nan"),
        ({"saturation": 2}, "saturation = 2"),
        ({"hue": 0.7}, "hue = 0.7: expected 0 to 0.5"),
        ({"crop": 1}, "crop = 1: expected at least 0"),
    ],
)
def test_settings_that_cannot_be(setting: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        JitterCrop(**setting)


def test_pictures_that_cannot_be() -> None:
    jitter = ColourJitter()
    with pytest.raises(ValueError, match=r"-2..2.*before normalising"):
        jitter(torch.tensor([-2.0, 2.0] * 6).view(1, 3, 2, 2), rng(), rng())
    with pytest.raises(ValueError, match="nan"):
        jitter(torch.full((1, 3, 2, 2), math.nan), rng(), rng())
    with pytest.raises(ValueError, match=r"uint8 .*expected float32"):
        jitter(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), rng(), rng())
    with pytest.raises(ValueError, match=r"\(1, 2, 2, 3\)"):
        jitter(torch.zeros(1, 2, 2, 3), rng(), rng())


def test_kornia_waits_until_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kornia", None)  # cannot be imported
    spec = importlib.util.spec_from_file_location("augment_without_kornia", augment.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert module.NoAugmentation()(some(), rng(), rng()) is not None
    with pytest.raises(ImportError, match="kornia"):
        module.ColourJitter(1.0)(some(), rng(), rng())
