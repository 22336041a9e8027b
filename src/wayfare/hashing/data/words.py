"""Text as a bag of words: which words of a vocabulary are in it.

A word is a run of letters, digits and the marks that belong to letters, in lower case and in Unicode's compatible form
(NFKC). Punctuation separates words, so "men's" is "men" and "s". Each Chinese or Japanese character is a word, since
these languages have no spaces. A bag holds 1 for each word that occurs, however often, and 0 elsewhere; a text without
a known word is all zeros. Vocabularies of data sets may contain words with punctuation ("b&w"): these are found if they
stand between spaces.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_ASCII = re.compile(r"[a-z0-9]+")
_SINGLE = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")


def tokens(text: str) -> list[str]:
    """The words of a text, in their order."""
    if text.isascii():
        return _ASCII.findall(text.lower())
    text = unicodedata.normalize("NFKC", text).lower()
    kept = "".join(letter if unicodedata.category(letter)[0] in "LMN" else " " for letter in text)
    return _SINGLE.sub(r" \1 ", kept).split()


def vocabulary(texts: Iterable[str], min_count: int = 1, max_words: int = 0) -> tuple[str, ...]:
    """The words of at least `min_count` texts, the most frequent first; at most `max_words` of them, if that is not 0.

    Words that are equally frequent come in the order of their letters.
    """
    counts = Counter(word for text in texts for word in set(tokens(text)))
    ranked = sorted((-count, word) for word, count in counts.items() if count >= min_count)
    return tuple(word for _, word in ranked[: max_words or None])


def bags(texts: Iterable[str], words: Sequence[str]) -> csr_array:
    """float32 (N, D): the bag of each text, as a sparse array."""
    place_of = {word: place for place, word in enumerate(words)}
    return sparse_rows([_places(text, place_of) for text in texts], len(words))


def sparse_rows(places: Sequence[Sequence[int] | np.ndarray], columns: int) -> csr_array:
    """float32 (N, columns): 1 at each row's places, which rise."""
    ends = np.append(0, np.cumsum([len(row) for row in places], dtype=np.int64))
    columns_of = np.array([place for row in places for place in row], np.int32)
    return csr_array((np.ones(len(columns_of), np.float32), columns_of, ends), shape=(len(places), columns))


def _places(text: str, place_of: dict[str, int]) -> list[int]:
    found = {*tokens(text), *text.lower().split(), *text.split()}
    return sorted(place_of[word] for word in found if word in place_of)
