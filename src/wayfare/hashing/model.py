"""The model: an encoder for each side, and the number of bits of a code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from wayfare.components import part
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Model
from wayfare.hashing.data.pairs import Paired
from wayfare.hashing.images import ImageSide
from wayfare.hashing.nets import Encoders
from wayfare.hashing.text_side import BagOfWords, TextSide

__all__ = ["BagOfWords", "PairEncoders", "TextSide"]


@dataclass(frozen=True)
class PairEncoders(Model):
    """Two networks that turn a picture and a text into `bits` numbers each, whose signs are the code."""

    image: ImageSide = part(
        "image",
        "frozen",
        {
            "frozen": "wayfare.hashing.images:FrozenImages",
            "efficientnet_lite0": "wayfare.hashing.images:FrozenImages",
            "dinov2-s": "wayfare.hashing.images:DinoImages",
            "pixels": "wayfare.hashing.images:PixelImages",
            "cnnf": "wayfare.hashing.images:PixelImages",
            "file": "wayfare.hashing.images:GivenImages",
        },
    )
    text: TextSide = part(
        "text",
        "words",
        {
            "words": "wayfare.hashing.text_side:BagOfWords",
            "bag": "wayfare.hashing.text_side:BagOfWords",
            "minilm": "wayfare.hashing.text_side:MiniLMTexts",
            "wordllama": "wayfare.hashing.text_side:WordLlamaTexts",
        },
    )
    bits: int = 32

    def __post_init__(self) -> None:
        if self.bits < 1:
            raise ConfigError(f"model.bits = {self.bits}: expected at least 1")

    def network(self, pairs: Paired, class_codes: Tensor | None = None) -> Encoders:
        """Untrained, for texts and pictures as these pairs have them."""
        text = self.text.encoder(pairs, self.bits)
        return Encoders(self.image.encoder(pairs, self.bits), text, self.bits, class_codes)

    def without_weights(self) -> Self:
        """The same without files of weights."""
        return replace(self, image=self.image.without_weights())

    def missing_files(self) -> list[str]:
        return self.image.missing_files() + self.text.missing_files()
