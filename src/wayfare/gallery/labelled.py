"""What the page shows of pictures with words, labels, attributes or classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from wayfare.data import celeba, cifar, fashion, folder, mirflickr
from wayfare.data.findings import Problems
from wayfare.data.pair_source import Source
from wayfare.gallery.album import SMALL, Album, Wanted, evenly
from wayfare.gallery.counting import histogram, named
from wayfare.gallery.parts import Gathered
from wayfare.reports.dataset_parts import Bars, Card, Strip

_SAMPLE, _KIND, _CARDS = 16, 8, 12
_ROW = 5  # pictures of each class
_MOST_CLASSES = 40
_MIXED = 10  # pictures of each class where there are few classes
# what a contact sheet is wanted of, and what labels and attributes call it
_CONDITIONS = {
    "By night": ("night",),
    "In the evening": ("evening", "sunset"),
    "In fog": ("fog", "foggy"),
    "In rain": ("rain", "rainy"),
    "In snow": ("snow", "snowy"),
}
_Show = Callable[[int], Wanted]  # the picture of a row


def gather_mirflickr(path: Path, album: Album) -> Gathered:
    """Photographs, tags, labels."""
    found = mirflickr.load(path)

    def show(row: int) -> Wanted:
        return Wanted(found.path(row), str(found.files[row]))

    def labels(row: int) -> list[str]:
        return [name for name, there in zip(found.classes, found.labels[row]) if there]

    tags = Counter(word for text in found.texts for word in set(str(text).split()))
    worded = np.flatnonzero(np.diff(found.tag_offsets) > 0)
    cards = _cards(album, evenly(worded, _CARDS), show, lambda row: str(found.texts[row]).split(), labels)
    return Gathered(
        counts={
            "photos": len(found),
            "tags in the vocabulary": len(found.vocabulary),
            "without such a tag": len(found) - len(worded),
            "classes": len(found.classes),
        },
        problems=found.problems,
        strips=_conditions(album, found.classes, found.labels, show),
        cards=cards,
        classes=_rows(album, found.classes, lambda place: np.flatnonzero(found.labels[:, place]), show),
        bars=[
            histogram(
                "Tags under a photo", "photos", np.array([len(str(text).split()) for text in found.texts]), "tags"
            ),
            histogram("Labels of a photo", "photos", found.labels.sum(axis=1), "labels"),
            Bars("Tags", "photos", list(tags), list(tags.values()), log=True),
            named("Labels", "photos", found.classes, found.labels.sum(axis=0)),
        ],
    )


def gather_fashion(path: Path, album: Album) -> Gathered:
    """Pictures, words, labels of two levels."""
    found = fashion.load(path)
    first, second = found.names or tuple(tuple(map(str, range(1, size + 1))) for size in found.levels)
    coarse, fine = found.coarse, found.fine
    words = found.words or tuple(f"word {place + 1}" for place in range(found.tags.shape[1]))

    def show(row: int) -> Wanted:
        return Wanted(found.images[row], f"{second[fine[row]]}, picture {row + 1}")

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
        cards=_cards(album, evenly(range(len(found)), _CARDS), show, tags, labels),
        classes=_rows(album, second, lambda place: np.flatnonzero(fine == place), show),
        bars=[
            histogram("Words of a picture", "pictures", found.tags.sum(axis=1, dtype=np.int64), "words"),
            named("Words", "pictures", words, found.tags.sum(axis=0, dtype=np.int64), log=True),
            named("Classes of the first level", "pictures", first, np.bincount(coarse, minlength=len(first))),
            named("Classes of the second level", "pictures", second, np.bincount(fine, minlength=len(second))),
        ],
    )


def gather_pairs(found: Source, album: Album) -> Gathered:
    """Pictures, where there are any, with texts and labels."""

    def show(row: int) -> Wanted:
        if found.pictures is not None:
            return Wanted(found.pictures.read(np.array([row]))[0], found.ids[row])
        return Wanted((found.files or [])[row], found.ids[row])

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
        cards=_cards(album, evenly(range(len(found)), _CARDS), show, words, labels) if shown else [],
        classes=_rows(album, found.names, lambda place: np.flatnonzero(found.labels[:, place]), show) if shown else [],
        bars=bars,
    )


def gather_celeba(path: Path, album: Album) -> Gathered:
    """Pictures, where there are any, and which attributes they have."""
    found = celeba.load(path)
    counts: dict[str, int | float | str] = {"pictures": len(found), "attributes": len(found.names)}
    if found.partition is not None:
        counts |= {f"to {name}": len(found.part(number)) for number, name in enumerate(celeba.PARTS)}
    if found.identity is not None:
        counts["identities"] = len(np.unique(found.identity))
    strips: list[Strip] = []
    rows: list[Strip] = []
    if found.folder is not None:
        pictures = found.folder

        def show(row: int) -> Wanted:
            return Wanted(pictures / str(found.files[row]), str(found.files[row]))

        sample = album.pictures(show(row) for row in evenly(range(len(found)), _SAMPLE))
        strips = [Strip(f"{len(sample)} of {len(found):,} pictures", sample)]
        strips += _conditions(album, found.names, found.values, show)
        rows = _rows(album, found.names, lambda place: np.flatnonzero(found.values[:, place]), show)
    percent = [100 * float(share) for share in found.values.mean(axis=0)] if len(found) else []
    return Gathered(
        counts=counts,
        problems=found.problems,
        strips=[strip for strip in strips if strip.pictures],
        classes=rows,
        bars=[
            histogram("Attributes of a picture", "pictures", found.values.sum(axis=1), "attributes"),
            Bars("How common each attribute is", "% of the pictures", found.names[: len(percent)], percent),
        ],
    )


def gather_cifar(path: Path, album: Album) -> Gathered:
    """Small pictures in batches."""
    train, test = cifar.load(path)

    def show(row: int) -> Wanted:
        return Wanted(train.images[row], train.classes[train.labels[row]])

    shape = train.images.shape
    return Gathered(
        counts={
            "training pictures": len(train),
            "test pictures": len(test),
            "classes": len(train.classes),
            "size": f"{shape[2]} x {shape[1]}",
        },
        problems=Problems(),
        classes=_rows(album, train.classes, lambda place: np.flatnonzero(train.labels == place), show, _MIXED),
        bars=[named("Training pictures by class", "pictures", train.classes, np.bincount(train.labels))],
    )


def gather_folder(path: Path, album: Album) -> Gathered:
    """A folder of pictures for each class."""
    classes = folder.files_by_class(path)
    files = [file for members in classes.values() for file in members]
    sizes = np.array([len(members) for members in classes.values()])
    starts = np.cumsum(sizes) - sizes

    def show(row: int) -> Wanted:
        return Wanted(files[row], f"{files[row].parent.name}/{files[row].name}")

    def members(place: int) -> np.ndarray:
        return np.arange(starts[place], starts[place] + sizes[place])

    return Gathered(
        counts={"pictures": len(files), "classes": len(classes)},
        problems=Problems(),
        classes=_rows(album, tuple(classes), members, show, _MIXED),
        bars=[named("Pictures by class", "pictures", tuple(classes), sizes)],
    )


# ---- What they share


def _cards(
    album: Album,
    rows: Sequence[int],
    show: _Show,
    tags: Callable[[int], Sequence[str]],
    labels: Callable[[int], Sequence[str]],
) -> list[Card]:
    made = [(row, album.picture(show(row))) for row in rows]
    return [Card(picture, tags(row), labels(row)) for row, picture in made if picture is not None]


def _rows(
    album: Album, names: Sequence[str], members: Callable[[int], np.ndarray], show: _Show, most: int = _ROW
) -> list[Strip]:
    """A few pictures of each class, the most frequent classes if there are very many; in the order of the names."""
    rows = [members(place) for place in range(len(names))]
    common = sorted(sorted(range(len(names)), key=lambda place: -len(rows[place]))[:_MOST_CLASSES])
    return [
        Strip(names[place], album.pictures(map(show, evenly(rows[place], most)), SMALL), f"{len(rows[place]):,}")
        for place in common
        if len(rows[place])
    ]


def _conditions(album: Album, names: Sequence[str], members: np.ndarray, show: _Show) -> list[Strip]:
    """Contact sheets by light and weather, where labels tell and no data set before has shown them."""
    places = {name.lower(): place for place, name in enumerate(names)}
    strips = []
    for title, words in _CONDITIONS.items():
        known = [places[word] for word in words if word in places and title not in album.conditions]
        rows = np.flatnonzero(members[:, known].any(axis=1))
        if len(rows) and (pictures := album.pictures(map(show, evenly(rows, _KIND)))):
            album.conditions.add(title)
            strips.append(Strip(title, pictures))
    return strips
