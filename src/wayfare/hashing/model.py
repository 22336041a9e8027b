"""The model: an encoder for each side, and the number of bits of a code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor, nn

from wayfare.components import part
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Model
from wayfare.hashing.data.pairs import Paired
from wayfare.hashing.images import ImageSide
from wayfare.hashing.nets import Encoders, Layers


class TextSide:
    """The network that turns a text into bits; extend it for one of your own."""

    def encoder(self, pairs: Paired, bits: int) -> nn.Module:
        """Bags of words or other features of texts, (n, D) -> float32 (n, bits)."""
        raise NotImplementedError


@dataclass(frozen=True)
class BagOfWords(TextSide):
    """One hidden layer on a bag of words."""

    hidden: int = 8192  # 0: no hidden layer

    def __post_init__(self) -> None:
        if self.hidden < 0:
            raise ConfigError(f"model.text.hidden = {self.hidden}: expected at least 0")

    def encoder(self, pairs: Paired, bits: int) -> nn.Module:
        return Layers(pairs.bags.shape[1], self.hidden, bits)


@dataclass(frozen=True)
class PairEncoders(Model):
    """Two networks that turn a picture and a text into `bits` numbers each, whose signs are the code."""

    image: ImageSide = part(
        "image",
        "frozen",
        {
            "frozen": "wayfare.hashing.images:FrozenImages",
            "pixels": "wayfare.hashing.images:PixelImages",
            "file": "wayfare.hashing.images:GivenImages",
        },
    )
    text: TextSide = part("text", "words", {"words": "wayfare.hashing.model:BagOfWords"})
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
        return self.image.missing_files()
