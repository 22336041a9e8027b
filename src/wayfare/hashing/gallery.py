"""What the page shows of pictures with words and labels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from wayfare.hashing.data import fashion, mirflickr
from wayfare.hashing.data.source import PairSource
from wayfare.pages.counting import histogram, named
from wayfare.pages.dataset_parts import Bars
from wayfare.pages.gallery_parts import Gathered
from wayfare.pages.labelled_parts import CARDS, class_rows, condition_strips, word_cards
from wayfare.pages.thumbnails import PictureSource, Thumbnails, evenly


def gather_mirflickr(path: Path, thumbnails: Thumbnails) -> Gathered:
    """Photographs, tags, labels."""
    found = mirflickr.load(path)

    def show(row: int) -> PictureSource:
        return PictureSource(found.path(row), str(found.files[row]))

    def labels(row: int) -> list[str]:
        return [name for name, there in zip(found.classes, found.labels[row]) if there]

    tags = Counter(word for text in found.texts for word in set(str(text).split()))
    worded = np.flatnonzero(np.diff(found.tag_offsets) > 0)
    cards = word_cards(thumbnails, evenly(worded, CARDS), show, lambda row: str(found.texts[row]).split(), labels)
    return Gathered(
        counts={
            "photos": len(found),
            "tags in the vocabulary": len(found.vocabulary),
            "without such a tag": len(found) - len(worded),
            "classes": len(found.classes),
        },
        problems=found.problems,
        strips=condition_strips(thumbnails, found.classes, found.labels, show),
        cards=cards,
        classes=class_rows(thumbnails, found.classes, lambda place: np.flatnonzero(found.labels[:, place]), show),
        bars=[
            histogram(
                "Tags under a photo", "photos", np.array([len(str(text).split()) for text in found.texts]), "tags"
            ),
            histogram("Labels of a photo", "photos", found.labels.sum(axis=1), "labels"),
            Bars("Tags", "photos", list(tags), list(tags.values()), log=True),
            named("Labels", "photos", found.classes, found.labels.sum(axis=0)),
        ],
    )


def gather_fashion(path: Path, thumbnails: Thumbnails) -> Gathered:
    """Pictures, words, labels of two levels."""
    found = fashion.load(path)
    first, second = found.names or tuple(tuple(map(str, range(1, size + 1))) for size in found.levels)
    coarse, fine = found.coarse, found.fine
    words = found.words or tuple(f"word {place + 1}" for place in range(found.tags.shape[1]))

    def show(row: int) -> PictureSource:
        return PictureSource(found.images[row], f"{second[fine[row]]}, picture {row + 1}")

    def tags(row: int) -> list[str]:
        return [words[place] for place in np.flatnonzero(found.tags[row])]

    def labels(row: int) -> list[str]:
        return [first[coarse[row]], second[fine[row]]]

    return Gathered(
        counts={
            "pairs": len(found),
            "queries": found.queries,
            "words": len(words),
            "classes of the first level": len(first),
            "classes of the second level": len(second),
        },
        problems=found.problems,
        cards=word_cards(thumbnails, evenly(range(len(found)), CARDS), show, tags, labels),
        classes=class_rows(thumbnails, second, lambda place: np.flatnonzero(fine == place), show),
        bars=[
            histogram("Words of a picture", "pictures", found.tags.sum(axis=1, dtype=np.int64), "words"),
            named("Words", "pictures", words, found.tags.sum(axis=0, dtype=np.int64), log=True),
            named("Classes of the first level", "pictures", first, np.bincount(coarse, minlength=len(first))),
            named("Classes of the second level", "pictures", second, np.bincount(fine, minlength=len(second))),
        ],
    )


def gather_pairs(found: PairSource, thumbnails: Thumbnails) -> Gathered:
    """Pictures, where there are any, with texts and labels."""

    def show(row: int) -> PictureSource:
        if found.pictures is not None:
            return PictureSource(found.pictures.read(np.array([row]))[0], found.ids[row])
        return PictureSource((found.files or [])[row], found.ids[row])

    def words(row: int) -> list[str]:
        return found.texts[row].split() if found.texts else []

    def labels(row: int) -> list[str]:
        return [name for name, there in zip(found.names, found.labels[row]) if there]

    shown = found.files is not None or found.pictures is not None
    counts: dict[str, int | float | str] = {"pairs": len(found), **found.left_out, "labels": len(found.names)}
    bars = [
        histogram("Labels of a pair", "pairs", found.labels.sum(axis=1), "labels"),
        named("Labels", "pairs", found.names, found.labels.sum(axis=0)),
    ]
    if found.texts:
        lengths = np.array([len(words(row)) for row in range(len(found))])
        bars.append(histogram("Words of a text", "pairs", lengths, "words"))
    return Gathered(
        counts=counts,
        problems=found.problems,
        cards=word_cards(thumbnails, evenly(range(len(found)), CARDS), show, words, labels) if shown else [],
        classes=class_rows(thumbnails, found.names, lambda place: np.flatnonzero(found.labels[:, place]), show)
        if shown
        else [],
        bars=bars,
    )
