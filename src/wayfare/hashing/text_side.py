"""The text side: what is taken of a text, and the network that turns it into bits.

bag         which words of the vocabulary are in it, and a network on that; a word that no text to learn from has is not
            known
minilm      the vector of a frozen sentence encoder, computed once, and a head on it: any word can be read
wordllama   the same with an encoder that is five times smaller and knows only single words
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Progress
from wayfare.hashing.data.pairs import Paired
from wayfare.hashing.data.words import bags, tokens
from wayfare.hashing.nets import Layers
from wayfare.io.cache import cache_dir
from wayfare.io.weights import missing
from wayfare.nets.cached import cached_array, write_rows
from wayfare.nets.published import PUBLISHED
from wayfare.nets.sentences import MiniLM, SentenceEncoder, WordLlama

TextReader = Callable[[np.ndarray], Tensor]  # rows of all pairs -> a batch, as the encoder takes it
_FORM = 1  # raise it when the same encoder and texts give other features
_AT_ONCE = 1000
_NETWORKS: dict[str, type[SentenceEncoder]] = {"minilm": MiniLM, "wordllama": WordLlama}


class TextSide:
    """What is taken of texts; extend it for one of your own."""

    any_word: ClassVar[bool] = False  # whether texts of words that are not in the vocabulary can be read

    def reader(self, pairs: Paired, progress: Progress) -> TextReader:
        """Gives batches of the texts of these pairs; what takes long is done now."""
        raise NotImplementedError

    def inputs(self, texts: Sequence[str], words: Sequence[str]) -> Tensor:
        """The same of other texts, float32 (n, W); `words` is the vocabulary."""
        raise NotImplementedError

    def encoder(self, pairs: Paired, bits: int) -> nn.Module:
        """A batch -> float32 (n, bits)."""
        raise NotImplementedError

    def terms(self, pairs: Paired) -> tuple[str, ...]:
        """What must be the same on every device."""
        raise NotImplementedError

    def reads(self, text: str, words: frozenset[str]) -> bool:
        """Whether a text says anything: without a word that can be read, all texts have the same code."""
        raise NotImplementedError

    def is_word(self, word: str) -> bool:
        """Whether a word outside the vocabulary can be read as a word, and is probably no slip of the keyboard."""
        return False

    def missing_files(self) -> list[str]:
        """Files that the settings need and that do not exist."""
        return []


@dataclass(frozen=True)
class BagOfWords(TextSide):
    """One hidden layer on a bag of words."""

    hidden: int = 8192  # 0: no hidden layer

    def __post_init__(self) -> None:
        _check_hidden(self.hidden)

    def reader(self, pairs: Paired, progress: Progress) -> TextReader:
        def read(rows: np.ndarray) -> Tensor:
            found = pairs.bags[rows]
            return torch.from_numpy(found if isinstance(found, np.ndarray) else found.toarray())

        return read

    def inputs(self, texts: Sequence[str], words: Sequence[str]) -> Tensor:
        return torch.from_numpy(bags(texts, words).toarray())

    def encoder(self, pairs: Paired, bits: int) -> nn.Module:
        if not pairs.bags.shape[1]:
            raise ConfigError(
                f"{pairs.name}: no word is in enough of the {len(pairs.train)} texts to train on (data.min_count), so "
                "there is no vocabulary. Name another column of text, or let an encoder read them that knows words "
                "already: `wayfare data get wordllama` and model.text = 'wordllama'"
            )
        return Layers(pairs.bags.shape[1], self.hidden, bits)

    def terms(self, pairs: Paired) -> tuple[str, ...]:
        return (*pairs.words, str(pairs.bags.shape[1]))

    def reads(self, text: str, words: frozenset[str]) -> bool:
        return any(word in words for word in {*tokens(text), *text.lower().split(), *text.split()})


@dataclass(frozen=True)
class FrozenTexts(TextSide):
    """Vectors of a frozen sentence encoder, and a head on them."""

    hidden: int = 0  # 0: no hidden layer, which a federation averages better

    any_word: ClassVar[bool] = True
    name: ClassVar[str]
    width: ClassVar[int]

    def __post_init__(self) -> None:
        _check_hidden(self.hidden)

    def sentences(self) -> SentenceEncoder:
        """The encoder, from the cache."""
        return _encoder(self.name, str(PUBLISHED[self.name].path))

    def reader(self, pairs: Paired, progress: Progress) -> TextReader:
        found = self._features([str(text) for text in pairs.texts], progress)
        return lambda rows: torch.from_numpy(found[rows])

    def inputs(self, texts: Sequence[str], words: Sequence[str]) -> Tensor:
        found: Tensor = self.sentences()(texts) * self.width**0.5  # numbers of about 1
        return found

    def encoder(self, pairs: Paired, bits: int) -> nn.Module:
        if not any(pairs.texts) and len(pairs):
            raise ConfigError(f"the data {pairs.name!r} has no texts, only bags of words: set model.text = 'bag'")
        return Layers(self.width, self.hidden, bits)

    def terms(self, pairs: Paired) -> tuple[str, ...]:
        return (self.name,)

    def reads(self, text: str, words: frozenset[str]) -> bool:
        return bool(tokens(text))

    def is_word(self, word: str) -> bool:
        return self.sentences().is_word(word)

    def missing_files(self) -> list[str]:
        return missing(str(PUBLISHED[self.name].path))

    def _features(self, texts: Sequence[str], progress: Progress) -> np.ndarray:
        shape = len(texts), self.width
        if not texts:
            return np.empty(shape, np.float32)
        facts = "\n".join([str(_FORM), self.sentences().digest, torch.__version__, *texts])
        key = hashlib.sha256(facts.encode("utf-8", "replace")).hexdigest()[:32]
        starts = range(0, len(texts), _AT_ONCE)

        def write(path: object) -> None:
            parts = (self.inputs(texts[at : at + _AT_ONCE], ()).numpy() for at in starts)
            report = lambda done, total: progress("features of the texts", done, total)  # noqa: E731
            write_rows(path, shape, lambda: parts, report)  # type: ignore[arg-type]

        return cached_array(cache_dir() / "features" / key / "texts.npy", shape, write)


@dataclass(frozen=True)
class MiniLMTexts(FrozenTexts):
    """all-MiniLM-L6-v2."""

    name: ClassVar[str] = "minilm"
    width: ClassVar[int] = 384


@dataclass(frozen=True)
class WordLlamaTexts(FrozenTexts):
    """WordLlama."""

    name: ClassVar[str] = "wordllama"
    width: ClassVar[int] = 256


@cache
def _encoder(name: str, path: str) -> SentenceEncoder:
    """Read once for each file, which is compared with its digest."""
    return _NETWORKS[name](name, PUBLISHED[name].load())


def _check_hidden(hidden: int) -> None:
    if hidden < 0:
        raise ConfigError(f"model.text.hidden = {hidden}: expected at least 0")
