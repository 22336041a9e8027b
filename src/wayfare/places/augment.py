"""Augmentation of photographs in training.

Collaborative Visual Place Recognition through Federated Learning (Dutto et al., 2024), Sec. 5.5, Tab. 5 and App. B. A
class each:

    none            photographs as they are: the baseline, and what all other tables of the paper use
    jitter          brightness, contrast, saturation and hue, drawn for each photograph
    jitter_crop     the same, and then a random part of the photograph, enlarged to the whole
    client_jitter   brightness, contrast, saturation and hue drawn once for each client, as if each had a camera of its
                    own; a setting that does harm (-7.5 points of R@1), to show what unlike clients cost

What the paper leaves open, and what is done here:

- The strengths are those of CosPlace, from the same group. Every factor is uniform in 1 +- strength; hue is in turns.
- The order is that of the deep visual geo-localization benchmark: brightness, contrast, saturation, hue, crop, with
  values kept within 0..1 after each. Contrast moves colours away from the photograph's mean grey, saturation away from
  the pixel's own grey, as in Pillow.
- App. B applies augmentation "with 50% probability" and excepts nothing: a photograph gets all steps or none, and
  client_jitter follows the same rule. With `probability` 1 it is a camera that is never without its colour cast.
- "Varying levels of color jitter among clients" could also be read as a strength for each client with factors drawn
  for each photograph. Here a client's factors are constant, because cameras are what the text wants to imitate; they
  come from the same range as those of jitter.
- The crop's share of the area is uniform in 1 - crop .. 1. Its shape relative to the photograph's is log-uniform in
  3/4 .. 4/3, or as much of that as fits. RandomResizedCrop draws again where a shape does not fit, which makes large
  crops rarer.

Which photographs of a triplet are augmented is the caller's choice. Bits are the same for the same number of torch
threads (engines use one): torch's mean and its enlarging round differently with more.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from wayfare.core.errors import ConfigError

NUMBERS = 9  # drawn for each picture: is it chosen, four for the jitter, four for the crop
JITTER, CROP = slice(1, 5), slice(5, 9)


class Augmentation:
    """What happens to pictures before they are normalised and trained on: a frozen dataclass of settings."""

    changes: ClassVar[bool] = True  # False: pictures stay as they are, so what frozen layers make of them may be kept

    def __call__(self, pictures: Tensor, rng: np.random.Generator, client: np.random.Generator) -> Tensor:
        """Pictures float32 (N, 3, H, W) in 0..1, some of them changed; a new tensor in the same memory format.

        `client` should depend on nothing but the client. It must not be moved on: the same generator gives the same
        numbers every time.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class NoAugmentation(Augmentation):
    """Pictures as they are; nothing is drawn."""

    changes: ClassVar[bool] = False

    def __call__(self, pictures: Tensor, rng: np.random.Generator, client: np.random.Generator) -> Tensor:
        return pictures


@dataclass(frozen=True)
class ColourJitter(Augmentation):
    """Brightness, contrast, saturation and hue, drawn for each photograph."""

    probability: float = 0.5  # App. B
    brightness: float = 0.7  # this and the following are CosPlace's; the paper gives none
    contrast: float = 0.7
    saturation: float = 0.7
    hue: float = 0.5  # turns of the colour circle; 0.5 is any hue

    def __post_init__(self) -> None:
        values = {"probability": self.probability, "brightness": self.brightness}
        for name, value in {**values, "contrast": self.contrast, "saturation": self.saturation}.items():
            if not 0 <= value <= 1:
                raise ConfigError(f"augment.{name} = {value}: expected 0 to 1")
        if not 0 <= self.hue <= 0.5:
            raise ConfigError(f"augment.hue = {self.hue}: expected 0 to 0.5 (turns)")

    def __call__(self, pictures: Tensor, rng: np.random.Generator, client: np.random.Generator) -> Tensor:
        """Each picture takes `NUMBERS` numbers from `rng`, used or not: what happens to it does not depend on the
        pictures beside it, and jitter and jitter_crop give it the same colours."""
        _check(pictures)
        draws = self._draws(len(pictures), rng, client)
        changed = pictures.detach().clone()
        # one at a time: a picture stays in the processor's cache from step to step, a batch would not
        for number in np.flatnonzero(draws[:, 0] < self.probability):
            picture = self._changed(pictures[number].detach().contiguous(), draws[number])
            changed[number] = picture.clamp(0, 1)
        return changed

    def _draws(self, count: int, rng: np.random.Generator, client: np.random.Generator) -> np.ndarray:
        return rng.random((count, NUMBERS))

    def _changed(self, picture: Tensor, draw: np.ndarray) -> Tensor:
        from kornia import enhance  # a quarter of a second to import; only training needs it

        strengths = (self.brightness, self.contrast, self.saturation, self.hue)
        brightness, contrast, saturation, turns = ((2 * draw[JITTER] - 1) * strengths).tolist()
        # a strength of 0 switches its step off
        if brightness:
            picture = enhance.adjust_brightness_accumulative(picture, 1 + brightness)
        if contrast:
            picture = enhance.adjust_contrast_with_mean_subtraction(picture, 1 + contrast)
        if saturation:
            picture = enhance.adjust_saturation_with_gray_subtraction(picture, 1 + saturation)
        return shift_hue(picture, turns) if turns else picture


@dataclass(frozen=True)
class JitterCrop(ColourJitter):
    """The same, and then a random part of the photograph, enlarged to the whole."""

    crop: float = 0.5  # the smallest crop keeps 1 - crop of the area

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.crop < 1:
            raise ConfigError(f"augment.crop = {self.crop}: expected at least 0 (the whole picture) and below 1")

    def _changed(self, picture: Tensor, draw: np.ndarray) -> Tensor:
        from kornia.geometry.transform import resize  # as above

        picture = super()._changed(picture, draw)
        height, width = picture.shape[1:]
        top, left, tall, wide = crop_box(height, width, self.crop, draw[CROP])
        part = picture[None, :, top : top + tall, left : left + wide]
        return resize(part, (height, width), "bilinear", align_corners=False)[0]


@dataclass(frozen=True)
class ClientJitter(ColourJitter):
    """The same colours for all photographs of a client, as if each client had a camera of its own."""

    def _draws(self, count: int, rng: np.random.Generator, client: np.random.Generator) -> np.ndarray:
        draws = super()._draws(count, rng, client)
        draws[:, JITTER] = copy.deepcopy(client).random(4)
        return draws


def shift_hue(picture: Tensor, turns: float) -> Tensor:
    """Turn the colour circle of a picture (3, H, W); brightest and darkest channel keep their values.

    What kornia.enhance.adjust_hue does by way of HSV, in about a fifth of the time. The circle has six parts, with red
    at 0, green at 2 and blue at 4. A channel has the highest value up to one part away from its own colour, the lowest
    from two parts on, and goes down evenly between.
    """
    low, high = picture.amin(0), picture.amax(0)
    spread = high - low
    scale = torch.where(spread > 0, spread, 1.0)
    red, green, blue = picture
    place = torch.where(
        red == high,
        (green - blue) / scale,
        torch.where(green == high, (blue - red) / scale + 2, (red - green) / scale + 4),
    )
    away = place + 6 * turns - picture.new_tensor([0.0, 2.0, 4.0])[:, None, None]
    away.sub_((away / 6).round_().mul_(6)).abs_()  # the shorter way around, 0 to 3
    return away.neg_().add_(2).clamp_(0, 1).mul_(spread).add_(low)


def crop_box(height: int, width: int, crop: float, draw: np.ndarray) -> tuple[int, int, int, int]:
    """Top, left, height and width of a crop, from four numbers in 0..1: area, shape, and where it lies."""
    area, shape, down, across = draw.tolist()
    area = 1 - crop * area
    most = min(math.log(4 / 3), -math.log(area))  # a shape further from the picture's would not fit into it
    stretch = math.exp((2 * shape - 1) * most)
    tall = max(1, min(height, round(height * math.sqrt(area / stretch))))
    wide = max(1, min(width, round(width * math.sqrt(area * stretch))))
    return int(down * (height - tall + 1)), int(across * (width - wide + 1)), tall, wide


def _check(pictures: Tensor) -> None:
    """Refuse pictures that would silently be changed into nonsense."""
    if pictures.dtype != torch.float32 or pictures.ndim != 4 or pictures.shape[1] != 3:
        raise ValueError(f"pictures {pictures.dtype} {tuple(pictures.shape)}: expected float32 (N, 3, H, W)")
    if pictures.numel():
        low, high = float(pictures.amin()), float(pictures.amax())
        if not (low >= 0 and high <= 1):
            raise ValueError(f"pictures with values in {low:g}..{high:g}: expected 0..1; augment before normalising")
