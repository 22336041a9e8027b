"""A small sentence encoder in the cache in place of a published one: eight words, four numbers each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from wayfare.core.bundle import digest
from wayfare.hashing.text_side import WordLlamaTexts
from wayfare.nets.published import PUBLISHED
from wayfare.nets.sentences import TOKENIZER

WORDS = ("[UNK]", "red", "blue", "petal", "bloom", "wave", "frost", "leaf")


def tokenizer(words: tuple[str, ...] = WORDS) -> Tensor:
    """Whole words, parted by spaces."""
    tokenizers = pytest.importorskip("tokenizers")
    found = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: at for at, word in enumerate(words)}, "[UNK]"))
    found.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return torch.frombuffer(bytearray(found.to_str().encode()), dtype=torch.uint8)


def vectors() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(len(WORDS), WordLlamaTexts.width)


def use_small_wordllama(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`model.text = "wordllama"` reads these eight words for the rest of a test."""
    monkeypatch.setenv("WAYFARE_CACHE", str(cache))
    weights = {"embedding.weight": vectors(), TOKENIZER: tokenizer()}
    known = replace(PUBLISHED["wordllama"], tensors_digest=digest(weights))
    monkeypatch.setitem(PUBLISHED, "wordllama", known)
    known.path.parent.mkdir(parents=True, exist_ok=True)
    save_file(weights, known.path)
