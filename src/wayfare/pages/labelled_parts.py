"""Parts of the page about a data set whose pictures have words, labels, attributes or classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from wayfare.pages.dataset_parts import Card, Strip
from wayfare.pages.thumbnails import SMALL, PictureSource, Thumbnails, evenly

CARDS = 12  # pictures with their words
MIXED = 10  # pictures of each class where there are few classes
_KIND = 8
_ROW = 5  # pictures of each class
_MOST_CLASSES = 40
# the contact sheets by light and weather, and what labels and attributes call them
_CONDITIONS = {
    "By night": ("night",),
    "In the evening": ("evening", "sunset"),
    "In fog": ("fog", "foggy"),
    "In rain": ("rain", "rainy"),
    "In snow": ("snow", "snowy"),
}
Show = Callable[[int], PictureSource]  # the picture of a row


def word_cards(
    thumbnails: Thumbnails,
    rows: Sequence[int],
    show: Show,
    tags: Callable[[int], Sequence[str]],
    labels: Callable[[int], Sequence[str]],
) -> list[Card]:
    made = [(row, thumbnails.picture(show(row))) for row in rows]
    return [Card(picture, tags(row), labels(row)) for row, picture in made if picture is not None]


def class_rows(
    thumbnails: Thumbnails, names: Sequence[str], members: Callable[[int], np.ndarray], show: Show, most: int = _ROW
) -> list[Strip]:
    """A few pictures of each class, the most frequent classes if there are very many; in the order of the names."""
    rows = [members(place) for place in range(len(names))]
    common = sorted(sorted(range(len(names)), key=lambda place: -len(rows[place]))[:_MOST_CLASSES])
    return [
        Strip(names[place], thumbnails.pictures(map(show, evenly(rows[place], most)), SMALL), f"{len(rows[place]):,}")
        for place in common
        if len(rows[place])
    ]


def condition_strips(thumbnails: Thumbnails, names: Sequence[str], members: np.ndarray, show: Show) -> list[Strip]:
    """Contact sheets by light and weather, where labels tell and no data set before has shown them."""
    places = {name.lower(): place for place, name in enumerate(names)}
    strips = []
    for title, words in _CONDITIONS.items():
        known = [places[word] for word in words if word in places and title not in thumbnails.conditions]
        rows = np.flatnonzero(members[:, known].any(axis=1))
        if len(rows) and (pictures := thumbnails.pictures(map(show, evenly(rows, _KIND)))):
            thumbnails.conditions.add(title)
            strips.append(Strip(title, pictures))
    return strips
