"""Vectors of words that labels begin with: WordLlama's, or those of a text file in GloVe's form.

Such a file has a word and its numbers on each line. A class that is no word of it gets the vector of its longest word,
and one without that normal numbers. WordLlama (`wayfare data get wordllama`) reads any name; its vectors are scaled to
numbers of about 1, as large as the normal ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from wayfare.core.errors import DataError
from wayfare.nets.published import PUBLISHED
from wayfare.nets.sentences import WordLlama
from wayfare.scenes.heads.common import normal_rows
from wayfare.scenes.labels import plain

WORDLLAMA = "wordllama"
_REMEDY = "give a text file in GloVe's form"


def word_vectors(source: str, names: Sequence[str]) -> Tensor:
    """float32 (names, as wide as the source's)."""
    if source == WORDLLAMA:
        encoder = WordLlama(WORDLLAMA, PUBLISHED[WORDLLAMA].load())
        rows: Tensor = encoder([plain(name) for name in names]) * encoder.width**0.5
        return rows
    return _from_file(Path(source), names)


def _from_file(file: Path, names: Sequence[str]) -> Tensor:
    wanted = {word for name in names for word in (name, _longest(name))}
    found: dict[str, np.ndarray] = {}
    width = 0
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                word, _, rest = line.partition(" ")
                width = width or len(rest.split())
                if word in wanted:
                    found[word] = _vector(rest, width, file, number)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read word vectors: {error}", file, remedy=_REMEDY) from error
    if not width:
        raise DataError("no word and numbers", file, 1, remedy=_REMEDY)
    table = normal_rows(len(names), width)
    for row, name in enumerate(names):
        known = found.get(name, found.get(_longest(name)))
        if known is not None:
            table[row] = known
    return torch.from_numpy(table)


def _vector(text: str, width: int, file: Path, line: int) -> np.ndarray:
    try:
        numbers = [float(part) for part in text.split()]
    except ValueError as error:
        raise DataError(str(error), file, line, remedy="expected a word and its numbers") from error
    if len(numbers) != width or not all(map(math.isfinite, numbers)):
        raise DataError(
            f"{len(numbers)} numbers, expected {width} finite ones", file, line, remedy="use vectors as wide as labels"
        )
    return np.array(numbers, np.float32)


def _longest(name: str) -> str:
    return max(name.split() or [""], key=len)
