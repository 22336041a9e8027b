"""MIRFlickr-25K in its original folders: photographs, what their takers wrote under them, and what is on them.

mirflickr/im1.jpg ...                              also directly in the folder, or in `images` or `mirflickr25k`
mirflickr/meta/tags/tags1.txt ...                  a tag on each line
mirflickr/doc/common_tags.txt                      the tags of at least 20 photographs, and of how many
mirflickr25k_annotations_v080/<class>.txt          numbers of the photographs that show it, perhaps only a little
mirflickr25k_annotations_v080/<class>_r1.txt       of those that show it clearly; not for all classes
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from wayfare.core.errors import DataError
from wayfare.io.findings import Findings, Problems, Progress, recogniser
from wayfare.io.probe import check_pictures
from wayfare.io.tables import read_text

MIN_COUNT = 20  # photographs that a tag must be under to count as common
Labels = Literal["potential", "relevant", "all"]
_STRICTER = "_r1"
_PICTURE = re.compile(r"im(\d{1,12})\.(?:jpe?g|png)", re.IGNORECASE)
_FOLDERS = ("mirflickr", "mirflickr25k", "images", "mirflickr25k/mirflickr", ".")
_NO_CLASSES = ("readme", "license", "licence")
_MAX_TAGS = 10_000  # under one photograph


@dataclass(frozen=True)
class TaggedPhotos:
    """N photographs, the tags under them as far as they are in a vocabulary, and their labels."""

    folder: Path
    files: np.ndarray  # str objects (N,): names in the folder
    numbers: np.ndarray  # int64 (N,): 7 for im7.jpg
    texts: np.ndarray  # str objects (N,): all tags, also those that are not in the vocabulary
    vocabulary: tuple[str, ...]
    tag_offsets: np.ndarray  # int64 (N + 1,)
    tags: np.ndarray  # int32: each photograph's places in the vocabulary, one after the other, rising
    classes: tuple[str, ...]
    labels: np.ndarray  # bool (N, C)
    problems: Problems = field(default_factory=Problems)

    def __len__(self) -> int:
        return len(self.files)

    def path(self, index: int) -> Path:
        """The photograph's file."""
        return self.folder / str(self.files[index])


def load(
    path: Path,
    *,
    min_count: int | None = None,
    labels: Labels = "potential",
    problems: Problems | None = None,
) -> TaggedPhotos:
    """The photographs of a folder.

    The vocabulary is that of common_tags.txt or, if `min_count` is given or there is no such file, the tags that are
    under so many photographs (20), the most frequent first. `labels` are the 24 classes, the 14 stricter ones
    ("relevant"), or all. What cannot be used is listed in `problems`.
    """
    problems = Problems() if problems is None else problems
    layout = _layout(path)
    numbers, names = _pictures(layout.pictures)
    tags, kept = _read_tags(layout.tags, numbers, problems)
    numbers, names = [numbers[place] for place in kept], [names[place] for place in kept]
    common = layout.common if min_count is None else None
    vocabulary = _common_tags(common, problems) if common is not None else _frequent(tags, min_count or MIN_COUNT)
    place_of = {word: place for place, word in enumerate(vocabulary)}
    bags = [sorted({place_of[word] for word in words if word in place_of}) for words in tags]
    classes, matrix = _read_labels(layout.annotations, numbers, labels, problems)
    return TaggedPhotos(
        folder=layout.pictures,
        files=_strings(names),
        numbers=np.array(numbers, np.int64),
        texts=_strings([" ".join(words) for words in tags]),
        vocabulary=vocabulary,
        tag_offsets=np.append(0, np.cumsum([len(bag) for bag in bags], dtype=np.int64)),
        tags=np.array([place for bag in bags for place in bag], np.int32),
        classes=classes,
        labels=matrix,
        problems=problems,
    )


@recogniser
def recognises(path: Path) -> bool:
    """Whether it is a folder with numbered photographs and their tags."""
    return path.is_dir() and _layout(path) is not None


def check(path: Path, strict: bool = False, progress: Progress | None = None) -> Findings:
    """Read all lists, decode all photographs."""
    photos = load(path, labels="all", problems=Problems(strict))
    whole = check_pictures([photos.path(index) for index in range(len(photos))], photos.problems, progress)
    stricter = sum(name.endswith(_STRICTER) for name in photos.classes)
    counts: dict[str, int | float | str] = {
        "photographs": len(photos),
        "whole photographs": whole,
        "common tags": len(photos.vocabulary),
        "without a common tag": int((np.diff(photos.tag_offsets) == 0).sum()),
        "classes": len(photos.classes) - stricter,
        "stricter classes": stricter,
        "without a label": int((~photos.labels.any(axis=1)).sum()),
    }
    return Findings("mirflickr", path, counts, photos.problems)


# ---- Where everything is


@dataclass(frozen=True)
class _Layout:
    pictures: Path
    tags: Path
    annotations: Path
    common: Path | None


def _layout(root: Path) -> _Layout:
    if not root.is_dir():
        raise DataError("no such folder" if not root.exists() else "expected a folder", root)
    pictures = next((root / name for name in _FOLDERS if _has_pictures(root / name)), None)
    if pictures is None:
        raise DataError("no MIRFlickr here: expected mirflickr/im1.jpg ...", root)
    around = (pictures, root, root / "mirflickr", pictures.parent)
    tags = _first(folder / name for folder in around for name in ("meta/tags", "tags"))
    if tags is None:
        raise DataError("no tags for the photographs: expected meta/tags/tags1.txt ...", pictures)
    lists = [folder for near in around if near.is_dir() for folder in sorted(near.glob("*annotations*"))]
    annotations = _first(lists)
    if annotations is None:
        remedy = "unpack mirflickr25k_annotations_v080.zip there"
        raise DataError("no lists of labels: expected a folder mirflickr25k_annotations_v080", root, remedy=remedy)
    common = [folder / name for folder in around for name in ("doc/common_tags.txt", "common_tags.txt")]
    return _Layout(pictures, tags, annotations, next((file for file in common if file.is_file()), None))


def _first(folders: Iterable[Path]) -> Path | None:
    return next((folder for folder in folders if folder.is_dir()), None)


def _has_pictures(folder: Path) -> bool:
    return folder.is_dir() and any(_PICTURE.fullmatch(entry.name) for entry in folder.iterdir())


def _pictures(folder: Path) -> tuple[list[int], list[str]]:
    """Numbers and names of the photographs, by number."""
    found: dict[int, str] = {}
    for name in sorted(entry.name for entry in folder.iterdir()):
        if match := _PICTURE.fullmatch(name):
            found.setdefault(int(match[1]), name)
    numbers = sorted(found)
    return numbers, [found[number] for number in numbers]


# ---- Tags


def _read_tags(folder: Path, numbers: Sequence[int], problems: Problems) -> tuple[list[list[str]], list[int]]:
    """The tags of each photograph that has a file of them, and the places of those photographs."""
    tags, kept = [], []
    for place, number in enumerate(numbers):
        file = folder / f"tags{number}.txt"
        try:
            words = [line.strip() for line in _lines(file) if line.strip()]
            if len(words) > _MAX_TAGS:
                raise DataError(f"{len(words)} tags, at most {_MAX_TAGS} are read", file)
        except DataError as error:
            problems.note(error)
            continue
        tags.append(words)
        kept.append(place)
    return tags, kept


def _lines(file: Path) -> list[str]:
    return read_text(file).replace("\r\n", "\n").split("\n")


def _common_tags(file: Path, problems: Problems) -> tuple[str, ...]:
    first_seen: dict[str, int] = {}
    for number, line in enumerate(_lines(file), 1):
        words = line.split()
        if not words:
            continue
        if len(words) > 2 or (len(words) == 2 and not words[1].isdecimal()):
            problems.add(f"expected a tag and a number, found {line[:40]!r}", file, number, remedy="correct the line")
        elif (first := first_seen.setdefault(words[0], number)) != number:
            problems.add(f"{words[0][:40]!r} is already on line {first}", file, number, remedy="remove one of them")
    return tuple(first_seen)


def _frequent(tags: Sequence[Sequence[str]], least: int) -> tuple[str, ...]:
    counts = Counter(word for words in tags for word in set(words))
    common = [(-count, word) for word, count in counts.items() if count >= least]
    return tuple(word for _, word in sorted(common))


# ---- Labels


def _read_labels(
    folder: Path, numbers: Sequence[int], which: Labels, problems: Problems
) -> tuple[tuple[str, ...], np.ndarray]:
    files = sorted(file for file in folder.iterdir() if file.suffix == ".txt" and file.is_file())
    files = [file for file in files if not file.stem.lower().startswith(_NO_CLASSES)]
    if which != "all":
        files = [file for file in files if file.stem.endswith(_STRICTER) == (which == "relevant")]
    if not files:
        raise DataError("no lists of labels: expected people.txt, sky.txt, ...", folder)
    row_of = {number: row for row, number in enumerate(numbers)}
    matrix = np.zeros((len(numbers), len(files)), bool)
    for column, file in enumerate(files):
        for line, word in enumerate(_lines(file), 1):
            word = word.strip()
            if not word:
                continue
            row = row_of.get(int(word)) if word.isdecimal() and len(word) <= 12 else None
            if row is None:
                what = "no photograph of this number" if word.isdecimal() else "expected a photograph's number"
                problems.add(f"{what}: {word[:40]!r}", file, line, remedy="remove the line, or add the photograph")
            elif matrix[row, column]:
                problems.add(f"photograph {word} appears twice", file, line, remedy="remove one of them")
            else:
                matrix[row, column] = True
    return tuple(file.stem for file in files), matrix


def _strings(values: Sequence[str]) -> np.ndarray:
    return np.array([*values, None], object)[:-1]
