"""Sentence encoders that never train: texts of any words to vectors of length 1.

    minilm      all-MiniLM-L6-v2 (Wang et al., Reimers): a transformer of 6 layers, 384 wide; 22,713,216 parameters
    wordllama   WordLlama: a vector for each of 32,000 pieces of words, 256 wide; a text is their mean

Both come with a tokenizer, which is kept among their tensors as the bytes of its JSON file (`TOKENIZER`), so that one
file is a whole encoder. `wayfare data get minilm` and `wordllama` bring them into the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, linear, normalize, scaled_dot_product_attention

from wayfare.core.bundle import digest
from wayfare.core.errors import DataError

TOKENIZER = "tokenizer"
LONGEST = 128  # tokens of a text; what follows is left out
_EPS = 1e-12
_PART = 64  # texts that go through a network together
_LAYER = "encoder.layer.{}."


class SentenceEncoder(nn.Module):
    """Texts to float32 (n, width) of length 1; `name` is the one of its published weights."""

    special = True  # whether a text begins and ends with special tokens

    def __init__(self, name: str, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.name, self.digest = name, digest(weights)
        self._weights = {key: tensor for key, tensor in weights.items() if key != TOKENIZER}
        self.tokenizer_json = bytes(weights[TOKENIZER].numpy()).decode()
        self._tokenizer = _tokenizer(name, self.tokenizer_json)

    @property
    def width(self) -> int:
        """How many numbers a text becomes."""
        raise NotImplementedError

    def pooled(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Vectors (n, width) of tokens (n, L), of which those count where `mask` (n, L) is 1."""
        raise NotImplementedError

    def is_word(self, word: str) -> bool:
        """Whether a word is one piece for the tokenizer, as most words in use are."""
        return len(self._tokenizer.encode(word.lower(), add_special_tokens=False).ids) == 1

    @torch.no_grad()
    def forward(self, texts: Sequence[str]) -> Tensor:
        """Texts of similar length go together: padding takes time."""
        found = torch.zeros(len(texts), self.width)
        coded = self._coded(texts)
        order = sorted(range(len(texts)), key=lambda row: (len(coded[row]), row))
        for start in range(0, len(order), _PART):
            rows = order[start : start + _PART]
            found[rows] = normalize(self.pooled(*_padded([coded[row] for row in rows])))
        return found

    def tokens(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """What `pooled` takes, of these texts together."""
        return _padded(self._coded(texts))

    def _coded(self, texts: Sequence[str]) -> list[list[int]]:
        coded = self._tokenizer.encode_batch([text.strip() for text in texts], add_special_tokens=self.special)
        return [each.ids for each in coded]


class MiniLM(SentenceEncoder):
    """A BERT: the mean of the last layer's tokens."""

    heads = 12

    @property
    def width(self) -> int:
        return self._weights["embeddings.word_embeddings.weight"].shape[1]

    def pooled(self, tokens: Tensor, mask: Tensor) -> Tensor:
        w = self._weights
        x = w["embeddings.word_embeddings.weight"][tokens] + w["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x + w["embeddings.position_embeddings.weight"][: tokens.shape[1]], "embeddings.LayerNorm")
        unseen = mask[:, None, None, :] > 0
        layer = 0
        while _LAYER.format(layer) + "output.dense.weight" in w:
            x = self._layer(x, unseen, _LAYER.format(layer))
            layer += 1
        return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)

    def _layer(self, x: Tensor, mask: Tensor, at: str) -> Tensor:
        parts = [self._linear(x, f"{at}attention.self.{part}") for part in ("query", "key", "value")]
        query, key, value = (part.reshape(*part.shape[:2], self.heads, -1).transpose(1, 2) for part in parts)
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2).flatten(2)
        x = self._norm(x + self._linear(mixed, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm")
        wide = gelu(self._linear(x, f"{at}intermediate.dense"))
        return self._norm(x + self._linear(wide, f"{at}output.dense"), f"{at}output.LayerNorm")

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return linear(x, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return layer_norm(x, weight.shape, weight, bias, _EPS)


class WordLlama(SentenceEncoder):
    """The mean of the vectors of a text's pieces."""

    special = False

    @property
    def width(self) -> int:
        return self._weights["embedding.weight"].shape[1]

    def pooled(self, tokens: Tensor, mask: Tensor) -> Tensor:
        vectors = self._weights["embedding.weight"][tokens].float()
        return (vectors * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def weights_only(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The published tensors without the numbers of positions, which are no weights."""
    return {name: tensor for name, tensor in tensors.items() if not name.endswith("position_ids")}


def _padded(coded: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """Tokens, int64 (n, L), with 0 after the end of each text, and a mask that is 0 there."""
    most = max(map(len, coded))
    tokens = torch.tensor([ids + [0] * (most - len(ids)) for ids in coded]).long()
    mask = torch.tensor([[1.0] * len(ids) + [0.0] * (most - len(ids)) for ids in coded])
    return tokens.reshape(len(coded), most), mask.reshape(len(coded), most)


def _tokenizer(name: str, content: str) -> Any:
    # a tenth of a second that only these encoders need
    try:
        found = Tokenizer.from_str(content)
    except Exception as error:  # the library raises plain Exception
        raise DataError(
            f"the tokenizer of {name} cannot be read: {error}", remedy=f"wayfare data get {name}"
        ) from error
    found.no_padding()
    found.enable_truncation(LONGEST)
    return found
