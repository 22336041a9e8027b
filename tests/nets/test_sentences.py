"""Sentence encoders beside what they are by definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from small_texts import WORDS, tokenizer, vectors
from wayfare.core.errors import DataError
from wayfare.nets.sentences import TOKENIZER, MiniLM, WordLlama, weights_only

WIDTH, HEADS = 24, 12


def test_wordllama_is_the_mean_of_the_words_at_length_1() -> None:
    net = WordLlama("wordllama", {"embedding.weight": torch.tensor([[0.0, 0], [3, 1], [1, 3]]), TOKENIZER: tokenizer()})
    found = net(["red blue", "red", ""])
    assert torch.allclose(found[0], torch.tensor([0.5, 0.5]).sqrt())  # the mean of (3, 1) and (1, 3) is (2, 2)
    assert torch.allclose(found[1], torch.tensor([3.0, 1.0]) / 10**0.5)
    assert found[2].tolist() == [0, 0]
    assert net.is_word("red") and not net.is_word("red blue")


def bert(layer: nn.TransformerEncoderLayer) -> dict[str, Tensor]:
    """One of torch's layers under BERT's names."""
    torch.manual_seed(1)
    at, (query, key, value) = "encoder.layer.0.", layer.self_attn.in_proj_weight.chunk(3)
    found = {f"{at}attention.self.{name}.weight": part for name, part in
             (("query", query), ("key", key), ("value", value))}  # fmt: skip
    biases = layer.self_attn.in_proj_bias.chunk(3)
    found |= {f"{at}attention.self.{name}.bias": part for name, part in zip(("query", "key", "value"), biases)}
    parts = {
        "attention.output.dense": layer.self_attn.out_proj, "attention.output.LayerNorm": layer.norm1,
        "intermediate.dense": layer.linear1, "output.dense": layer.linear2, "output.LayerNorm": layer.norm2,
    }  # fmt: skip
    for name, part in parts.items():
        found |= {f"{at}{name}.weight": part.weight, f"{at}{name}.bias": part.bias}
    return {
        **found,
        "embeddings.word_embeddings.weight": torch.randn(len(WORDS), WIDTH),
        "embeddings.token_type_embeddings.weight": torch.zeros(2, WIDTH),
        "embeddings.position_embeddings.weight": torch.randn(16, WIDTH),
        "embeddings.LayerNorm.weight": torch.ones(WIDTH),
        "embeddings.LayerNorm.bias": torch.zeros(WIDTH),
        TOKENIZER: tokenizer(),
    }


def test_minilm_is_torchs_own_encoder_layer_and_padding_changes_nothing() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 2 * WIDTH, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True
    ).eval()
    weights = {name: tensor.detach() for name, tensor in bert(layer).items()}
    net = MiniLM("minilm", weights)
    words = weights["embeddings.word_embeddings.weight"][[1, 3]] + weights["embeddings.position_embeddings.weight"][:2]
    expected = layer(nn.functional.layer_norm(words, (WIDTH,), eps=1e-12)[None]).mean(1)
    alone, beside = net(["red petal"])[0], net(["red petal", "blue wave frost leaf"])[0]
    assert torch.allclose(alone, normalize(expected)[0], atol=1e-5)
    assert torch.allclose(alone, beside, atol=1e-6)


def test_a_tokenizer_that_cannot_be_read_is_named() -> None:
    with pytest.raises(DataError, match="tokenizer of wordllama cannot be read"):
        WordLlama("wordllama", {"embedding.weight": vectors(), TOKENIZER: torch.zeros(3, dtype=torch.uint8)})


def test_numbers_of_positions_are_no_weights() -> None:
    assert weights_only({"embeddings.position_ids": torch.zeros(1), "a": torch.ones(1)}).keys() == {"a"}
