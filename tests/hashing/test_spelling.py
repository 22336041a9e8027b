"""Words read as known ones: forms, slips by hand, and what is left alone."""

from __future__ import annotations

import pytest

from wayfare.hashing.spelling import counted, nearest, read, slips

KNOWN = counted(["shirt", "bag", "women", "watch", "knives", "berry", "short", "handbags", "b&w", "red"])


@pytest.mark.parametrize(
    ("word", "other", "expected"),
    [("shrit", "shirt", 1), ("shirt", "shirt", 0), ("shirtt", "shirt", 1), ("sirt", "shirt", 1), ("short", "shirt", 1),
     ("abcd", "wxyz", 3), ("handbgas", "handbags", 1), ("hamdbgas", "handbags", 2)],
)  # fmt: skip
def test_slips_by_hand(word: str, other: str, expected: int) -> None:
    assert slips(word, other, 2) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [("bags", "bag"), ("watches", "watch"), ("knife", "knives"), ("berries", "berry"), ("shrit", "shirt"),
     ("handbag", "handbags"), ("hamdbgas", "handbags"), ("wmoen", "women"), ("rad", None), ("xyzzy", None),
     ("2019", None)],
)  # fmt: skip
def test_the_nearest_known_word(word: str, expected: str | None) -> None:
    assert nearest(word, KNOWN) == expected


def test_a_text_is_read_word_by_word() -> None:
    reading = read("Red shrit, b&w xyzzy", KNOWN)
    assert reading.text == "Red shirt b&w xyzzy"
    assert reading.changed == {"shrit": "shirt"} and reading.unknown == ("xyzzy",)


def test_words_of_the_language_are_left_alone() -> None:
    assert read("shore", KNOWN).changed == {"shore": "short"}
    assert read("shore", KNOWN, lambda word: word == "shore").changed == {}
    sweaters = read("sweaters", {"sneakers": 1}, lambda word: word == "sweater")
    assert sweaters.text == "sweaters" and not sweaters.changed and not sweaters.unknown
    assert read("sweaters", {"sneakers": 1}).changed == {"sweaters": "sneakers"}


def test_the_more_frequent_of_two_wins() -> None:
    assert nearest("shxrt", counted(["shirt", "short"])) == "shirt"
    assert nearest("shxrt", counted(["short", "shirt"])) == "short"
    assert nearest("shrit", counted(["shift", "shirt"])) == "shirt"  # less frequent, but of the same letters
