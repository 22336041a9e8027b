"""COCO as pairs: a picture with its captions, and the kinds of things on it as labels.

    annotations/captions_<part>.json     train2017, val2017, ...: all parts that are there are taken together
    annotations/instances_<part>.json
    <part>/000000000009.jpg ...          also in images/<part>, images, or beside the annotations; there may be none

A pair's text are all its captions. A word counts if it is in the captions of 20 pictures to train on. Files may be
gzipped (.json.gz). Hashing papers use 5,000 queries and 10,000 to train on, drawn; so does this.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from wayfare.core.errors import DataError
from wayfare.hashing.data.base import PairFiles
from wayfare.hashing.data.source import PairSource, SplitSizes, find_pictures
from wayfare.io.entries import read_entries
from wayfare.io.findings import Findings, Problems, Progress, recogniser
from wayfare.io.folders import inside
from wayfare.io.probe import check_pictures

SIZES = SplitSizes(query=5000, train=10_000)
_CAPTIONS = re.compile(r"captions_(\w+)\.json(?:\.gz)?")


@dataclass(frozen=True)
class Coco(PairFiles):
    """Pictures with captions."""

    min_count: int = 20  # texts that a word of the vocabulary is in
    max_words: int = 10_000

    _counts: ClassVar[tuple[str, ...]] = ("query", "train", "min_count", "max_words")

    def read(self, path: Path, problems: Problems) -> PairSource:
        return replace(read(path, problems), min_count=self.min_count, max_words=self.max_words)


def read(path: Path, problems: Problems) -> PairSource:
    """The pairs of a folder with annotations."""
    ids: list[str] = []
    texts: list[str] = []
    found: list[list[int]] = []  # the categories of each pair
    files: list[Path | None] = []
    present = 0
    names: dict[int, str] = {}
    for part, captions, instances in _parts(path):
        pictures, texts_of = _captions(captions, problems)
        seen = _instances(instances, pictures, names, problems)
        rows = [number for number in sorted(pictures) if number in texts_of]
        ids += [pictures[number] for number in rows]
        texts += ["\n".join(texts_of[number]) for number in rows]
        found += [sorted(seen.get(number, ())) for number in rows]
        folders = [folder for name in (part, f"images/{part}", "images", ".") if (folder := path / name).is_dir()]
        here, count = find_pictures(folders, [pictures[number] for number in rows])
        files += here
        present += count
    categories = sorted(names)
    labels = np.zeros((len(ids), len(categories)), bool)
    column_of = {category: column for column, category in enumerate(categories)}
    for row, held in enumerate(found):
        labels[row, [column_of[category] for category in held]] = True
    kept = [row for row, file in enumerate(files) if file is not None] if present else range(len(ids))
    return PairSource(
        name="coco",
        ids=[ids[row] for row in kept],
        labels=labels[kept],
        names=[names[category] for category in categories],
        levels=(len(categories),),
        texts=[texts[row] for row in kept],
        root=path,
        files=[file for file in files if file is not None] if present else None,
        sizes=SIZES,
        left_out={"without a picture": len(ids) - present} if present else {},
        problems=problems,
    )


@recogniser
def recognises(path: Path) -> bool:
    """Whether it is a folder with captions and instances of the same pictures."""
    return path.is_dir() and bool(_parts(path))


def check(path: Path, strict: bool = False, progress: Progress | None = None) -> Findings:
    """Read all annotations, decode the pictures that are there."""
    source = read(path, Problems(strict))
    counts: dict[str, int | float | str] = {
        "pairs": len(source),
        **source.left_out,
        "pictures": check_pictures(source.files or [], source.problems, progress),
        "categories": len(source.names),
        "without a category": int((~source.labelled).sum()),
    }
    return Findings("coco", path, counts, source.problems)


def _parts(path: Path) -> list[tuple[str, Path, Path]]:
    """Each part's name, captions and instances."""
    folder = next((place for place in (path / "annotations", path) if place.is_dir()), None)
    if folder is None:
        raise DataError("no such folder" if not path.exists() else "expected a folder", path)
    found = []
    for file in sorted(folder.iterdir()):
        if match := _CAPTIONS.fullmatch(file.name):
            other = [folder / f"instances_{match[1]}.json", folder / f"instances_{match[1]}.json.gz"]
            if instances := next((file for file in other if file.is_file()), None):
                found.append((match[1], file, instances))
    if not found:
        raise DataError("no captions_<part>.json with a matching instances_<part>.json", folder)
    return found


def _captions(file: Path, problems: Problems) -> tuple[dict[int, str], dict[int, list[str]]]:
    """The pictures' names and captions, by their numbers."""
    captions: dict[int, list[str]] = {}

    def each(place: int, line: int, entry: Any) -> None:
        number = _number(entry, "image_id")
        caption = entry.get("caption") if isinstance(entry, dict) else None
        if number is None or not isinstance(caption, str):
            problems.add(f"annotations[{place}]: expected image_id and caption", file, line, remedy="remove the entry")
            return
        captions.setdefault(number, []).append(" ".join(caption.split()))

    facts = read_entries(file, "annotations", each)
    pictures: dict[int, str] = {}
    listed = facts.get("images")
    if not isinstance(listed, list):
        raise DataError("expected a list", file, field="images")
    for place, entry in enumerate(listed):
        number = _number(entry, "id")
        try:
            if number is None or not isinstance(entry.get("file_name"), str):
                raise ValueError("expected id and file_name")
            name = inside(entry["file_name"])
            if number in pictures:
                raise ValueError(f"id {number} appears twice")
            pictures[number] = name
        except ValueError as error:
            problems.add(str(error), file, field=f"images[{place}]", remedy="correct or remove the entry")
    for number in sorted(captions.keys() - pictures.keys()):
        problems.add(f"captions of picture {number}, which is not in the list of pictures", file, remedy="remove them")
    return pictures, captions


def _instances(file: Path, pictures: dict[int, str], names: dict[int, str], problems: Problems) -> dict[int, set[int]]:
    """The categories on each picture; their names are added to `names`."""
    held: dict[int, set[int]] = {}
    lines: dict[int, int] = {}  # of the first use of each category

    def each(place: int, line: int, entry: Any) -> None:
        number, category = _number(entry, "image_id"), _number(entry, "category_id")
        if number is None or category is None:
            what = f"annotations[{place}]: expected image_id and category_id"
            problems.add(what, file, line, remedy="remove the entry")
        elif number in pictures:
            held.setdefault(number, set()).add(category)
            lines.setdefault(category, line)

    facts = read_entries(file, "annotations", each)
    listed = facts.get("categories")
    if not isinstance(listed, list):
        raise DataError("expected a list", file, field="categories")
    for place, entry in enumerate(listed):
        number = _number(entry, "id")
        if number is None or not isinstance(entry.get("name"), str):
            raise DataError("expected id and name", file, field=f"categories[{place}]")
        if names.setdefault(number, entry["name"]) != entry["name"]:
            what = f"category {number} is {entry['name'][:40]!r} here and {names[number][:40]!r} elsewhere"
            raise DataError(what, file, field=f"categories[{place}]")
    for category, line in lines.items():
        if category not in names:
            raise DataError(f"category {category} is not in the list of categories", file, line, "category_id")
    return held


def _number(entry: Any, key: str) -> int | None:
    found = entry.get(key) if isinstance(entry, dict) else None
    return found if type(found) is int else None
