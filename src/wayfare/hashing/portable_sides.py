"""The two sides of a trained hashing model as plain modules: a picture, or a text's words, to what codes are signs of.

How a text becomes numbers is in the part's `preparing`: a bag of the vocabulary's words, or the tokens of a tokenizer.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from wayfare.core.errors import ConfigError
from wayfare.hashing.data.words import bags
from wayfare.hashing.hash_model import HashModel
from wayfare.hashing.nets import CNNF, Layers
from wayfare.hashing.task import Hashing
from wayfare.hashing.text_side import BagOfWords, FrozenTexts
from wayfare.nets.sentences import LONGEST, SentenceEncoder
from wayfare.portable import BATCH, PortableInput, PortablePart, as_input, picture_input, picture_preparing, spread_rows

_TOKENS = "tokens"


def portable_sides(model: HashModel, task: Hashing) -> tuple[PortablePart, ...]:
    """The sides that can be used on other photos and texts; `task` has the run's own pairs."""
    parts = []
    net = _settled(model.net)
    if model.task.model.image.reads_photos:
        parts.append(_picture_part(model, net, task))
    text = model.task.model.text
    if isinstance(text, FrozenTexts):
        parts.append(_sentence_part(net, text, task))
    elif isinstance(text, BagOfWords) and model.words:
        parts.append(_bag_part(net, model.words, task))
    if not parts:
        raise ConfigError(
            f"model {model.title} was trained on features and words given as numbers: it can read neither photos nor "
            "texts, so there is nothing to export"
        )
    return tuple(parts)


def _settled(net: nn.Module) -> nn.Module:
    """A copy whose layers do not depend on what a batch holds."""
    found = copy.deepcopy(net).cpu().eval()
    for part in found.modules():
        if isinstance(part, Layers):
            part.skips_empty = False
    return found


class _Side(nn.Module):
    """What every side ends with."""

    def __init__(self, net: nn.Module, view: str) -> None:
        super().__init__()
        self.net, self.view = net, view

    def ended(self, inputs: Tensor) -> Tensor:
        raw = self.net.encode(self.view, inputs)  # type: ignore[operator]
        found: Tensor = self.net.enhance(self.view, raw)  # type: ignore[operator]
        return found


class PictureSide(_Side):
    """Pictures from 0 to 1."""

    def __init__(self, net: nn.Module, trunk: nn.Module | None) -> None:
        super().__init__(net, "image")
        self.trunk = trunk

    def forward(self, pictures: Tensor) -> Tensor:
        return self.ended(255 * pictures if self.trunk is None else self.trunk(pictures))


class BagSide(_Side):
    """Bags of words."""

    def forward(self, bag: Tensor) -> Tensor:
        return self.ended(bag)


class SentenceSide(_Side):
    """Tokens, and which of them count."""

    def __init__(self, net: nn.Module, sentences: SentenceEncoder) -> None:
        super().__init__(net, "text")
        self.sentences = sentences

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        return self.ended(normalize(self.sentences.pooled(tokens, mask)) * self.sentences.width**0.5)


def _picture_part(model: HashModel, net: nn.Module, task: Hashing) -> PortablePart:
    side, size = model.task.model.image, model.size
    trunk = model.trunk if isinstance(model.trunk, nn.Module) else None
    if model.trunk is not None and trunk is None:
        raise ConfigError(f"model {model.title}: its frozen network is no torch module, so it cannot be exported")
    if trunk is None and not any(isinstance(part, CNNF) for part in net.modules()):
        raise ConfigError(f"model {model.title}: a {type(side).__name__} of your own cannot be exported")

    def own(count: int) -> tuple[Tensor, ...]:
        pictures = task.pairs.pictures
        if pictures is None:
            raise ConfigError("the run's data has no pictures")
        return (as_input(np.asarray(pictures.read(_judged(task, count)))),)

    module = PictureSide(net, trunk).eval()
    return PortablePart("image", module, (picture_input(size),), "vector", picture_preparing(size), own=own)


def _bag_part(net: nn.Module, words: Sequence[str], task: Hashing) -> PortablePart:
    example = torch.zeros(2, len(words))
    example[:, 0] = 1
    preparing: dict[str, Any] = {
        "kind": "bag of words", "words": list(words),
        "rule": "NFKC, lower case; runs of letters, marks and digits are words, each Japanese or Chinese character is "
        "one; 1 for each word of the list that occurs",
    }  # fmt: skip

    def own(count: int) -> tuple[Tensor, ...]:
        return (torch.from_numpy(bags(_texts(task, count), words).toarray()),)

    inputs = (PortableInput("bag", example, {0: BATCH}),)
    return PortablePart("text", BagSide(net, "text").eval(), inputs, "vector", preparing, own=own)


def _sentence_part(net: nn.Module, text: FrozenTexts, task: Hashing) -> PortablePart:
    sentences = text.sentences()
    preparing = {
        "kind": "tokens", "tokenizer": "tokenizer.json", "special_tokens": sentences.special, "longest": LONGEST,
        "padding": "with 0, where the mask is 0",
    }  # fmt: skip

    def own(count: int) -> tuple[Tensor, ...]:
        return sentences.tokens(_texts(task, count))

    free = {0: BATCH, 1: _TOKENS}
    examples = sentences.tokens(["a red shirt with stripes", "a dog"])
    inputs = tuple(PortableInput(name, each, free) for name, each in zip((_TOKENS, "mask"), examples))
    module = SentenceSide(net, copy.deepcopy(sentences)).eval()
    return PortablePart("text", module, inputs, "vector", preparing, own=own, files={
        "tokenizer.json": sentences.tokenizer_json.encode(),
    })  # fmt: skip


def _judged(task: Hashing, count: int) -> np.ndarray:
    """Rows of the queries, which nobody learnt from; of all pairs where there are none."""
    rows = task.pairs.query if len(task.pairs.query) else np.arange(len(task.pairs))
    return np.asarray(rows[spread_rows(len(rows), count)])


def _texts(task: Hashing, count: int) -> list[str]:
    texts = [str(text) for text in task.pairs.texts[_judged(task, count)] if text]
    return texts or list(task.pairs.words[:count])
