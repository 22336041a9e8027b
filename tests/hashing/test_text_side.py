"""Text sides: what they take of texts, what they can read, and what they say when an encoder is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from small_texts import use_small_wordllama, vectors
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import silent
from wayfare.hashing.data.sample import SamplePairs, sample
from wayfare.hashing.images import DinoImages, GivenImages
from wayfare.hashing.model import BagOfWords, PairEncoders
from wayfare.hashing.task import Hashing
from wayfare.hashing.text_side import MiniLMTexts, WordLlamaTexts

KNOWN = frozenset({"red", "b&w"})


def test_a_bag_reads_its_own_words_and_an_encoder_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_wordllama(tmp_path, monkeypatch)
    bag, side = BagOfWords(), WordLlamaTexts()
    assert bag.reads("Red thing", KNOWN) and bag.reads("B&W", KNOWN) and not bag.reads("blue", KNOWN)
    assert side.reads("blue", KNOWN) and not side.reads("?!", KNOWN)
    assert side.is_word("petal") and not bag.is_word("petal")
    assert side.any_word and not bag.any_word


def test_features_of_texts_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_wordllama(tmp_path, monkeypatch)
    pairs, side = sample(0), WordLlamaTexts()
    pairs = replace(pairs, texts=np.array(["red petal", *pairs.texts[1:]], object))
    found = side.reader(pairs, silent)(np.array([0]))
    expected = normalize(vectors()[[1, 3]].mean(0), dim=0) * side.width**0.5
    assert torch.allclose(found[0], expected, atol=1e-5)
    monkeypatch.setattr(WordLlamaTexts, "inputs", lambda *_: pytest.fail("they are in the cache"))
    assert torch.equal(side.reader(pairs, silent)(np.array([0])), found)


def test_a_vocabulary_need_not_be_agreed_on_where_any_word_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_wordllama(tmp_path, monkeypatch)
    for side, agreed in ((BagOfWords(8), True), (WordLlamaTexts(), False)):
        task = Hashing(SamplePairs(), PairEncoders(GivenImages(8), side, bits=8))
        assert ("petal" in task.terms) is agreed
        assert task.network().encode("text", task.loaded.of("text", np.arange(3))).shape == (3, 8)


def test_an_encoder_that_was_not_fetched_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path))
    with pytest.raises(DataError, match="wayfare data get minilm"):
        MiniLMTexts().inputs(["red"], ())
    missing = PairEncoders(DinoImages(), MiniLMTexts()).missing_files()
    assert [Path(file).name for file in missing] == ["dinov2-s.safetensors", "minilm.safetensors"]


def test_settings_and_data_that_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.text\.hidden = -1"):
        WordLlamaTexts(hidden=-1)
    with pytest.raises(ConfigError, match=r"model\.image\.side = 100: expected a multiple of 14"):
        DinoImages(side=100)
    bare = replace(sample(0), texts=np.array([""] * 160, object))
    with pytest.raises(ConfigError, match=r"has no texts, only bags of words: set model\.text = 'bag'"):
        MiniLMTexts().encoder(bare, 8)
