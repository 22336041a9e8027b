"""Words of a query that a model or an index does not know, read as words that they do: other forms, and slips.

form        "bags" is read as "bag", and "knife" as "knives", if only the other form is known
slip        "shrit" is read as "shirt": one letter missing, added, exchanged or swapped with the next; two in words of
            eight letters or more. Words of fewer than four letters are left alone
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from wayfare.hashing.data.words import tokens

_SHORTEST, _LONG = 4, 8  # letters of a word in which slips are looked for, and of one that may have two


class Reading(NamedTuple):
    """A text as it is read, what was read differently, and words that could not be read."""

    text: str
    changed: dict[str, str]
    unknown: tuple[str, ...]


IsWord = Callable[[str], bool]


def no_word(word: str) -> bool:
    """For encoders that know the words of their texts only."""
    return False


def read(text: str, known: Mapping[str, int], is_word: IsWord = no_word) -> Reading:
    """A text with its unknown words replaced; `known` says how often each word occurs.

    A word that is not known is left as it is if it, or another form of it, `is_word`: "sweaters" is no slip of
    "sneakers".
    """
    changed: dict[str, str] = {}
    unknown: list[str] = []
    parts = []
    for part in text.split():
        if part in known or part.lower() in known:  # vocabularies may hold words with signs in them
            parts.append(part)
            continue
        for word in tokens(part):
            reading = word if word in known or is_word(word) else nearest(word, known, is_word)
            if reading is None:
                unknown.append(word)
            elif reading != word:
                changed[word] = reading
            parts.append(reading or word)
    return Reading(" ".join(parts), changed, tuple(dict.fromkeys(unknown)))


def nearest(word: str, known: Mapping[str, int], is_word: IsWord = no_word) -> str | None:
    """The other form of a word, or else the known word of the fewest slips; itself, if another form of it is a word.

    Of several it is one with the same letters ("shrit" is "shirt" before "shift"), and then the most frequent.
    """
    for form in forms(word):
        if form in known:
            return form
    if any(map(is_word, forms(word))):
        return word
    if len(word) < _SHORTEST or word.isdigit():
        return None
    most = 2 if len(word) >= _LONG else 1
    letters = sorted(word)
    close = [
        (slips(word, other, most), sorted(other) != letters, -count, other)
        for other, count in known.items()
        if _may_be(word, other, most)
    ]
    found = min((entry for entry in close if entry[0] <= most), default=None)
    return None if found is None else found[3]


def _may_be(word: str, other: str, most: int) -> bool:
    """Whether it is worth counting: people rarely get the first letter wrong."""
    return len(other) >= _SHORTEST - 1 and abs(len(word) - len(other)) <= most and word[0] == other[0]


def forms(word: str) -> Iterator[str]:
    """The singular or plural of an English word, by its ending."""
    if word.endswith("ies"):
        yield word[:-3] + "y"
    if word.endswith("ves"):
        yield word[:-3] + "f"
        yield word[:-3] + "fe"
    if word.endswith("es"):
        yield word[:-2]
    if word.endswith("s") and not word.endswith("ss"):
        yield word[:-1]
    if word.endswith("y"):
        yield word[:-1] + "ies"
    if word.endswith("f"):
        yield word[:-1] + "ves"
    if word.endswith("fe"):
        yield word[:-2] + "ves"
    yield word + "s"
    yield word + "es"


def slips(word: str, other: str, most: int) -> int:
    """Letters to be added, left out, exchanged or swapped with the next; beyond `most` it is most + 1."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(word, 1):
        before, row, last = row, [at], before
        for place, wanted in enumerate(other, 1):
            cost = min(before[place] + 1, row[place - 1] + 1, before[place - 1] + (letter != wanted))
            if at > 1 and place > 1 and letter == other[place - 2] and word[at - 2] == wanted:
                cost = min(cost, last[place - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]


def counted(words: Iterable[str]) -> dict[str, int]:
    """Words in the order of their frequency, the most frequent first, as `read` takes them."""
    listed = list(dict.fromkeys(words))
    return {word: len(listed) - place for place, word in enumerate(listed)}
