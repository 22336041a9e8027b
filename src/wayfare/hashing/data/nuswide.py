"""NUS-WIDE as pairs: from MATLAB files (mat_pairs.py), or from the original lists.

    Groundtruth/AllLabels/Labels_<concept>.txt      a 0 or 1 for each picture
    ImageList/Imagelist.txt                         actor\\0001_2124494179.jpg ...
    NUS_WID_Tags/AllTags1k.txt, TagList1k.txt       which of 1,000 tags each has; the tags
    Concepts81.txt                                  may be absent

Pictures are looked for in Flickr, images, or beside the lists; there may be none, since they are given on request only.
The paper takes the 21 most frequent concepts and the pictures that have one: 195,834. `labels` may be another number,
or "all". The 2,100 queries and the 10,500 to train on are drawn, but of MATLAB files they are the first rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from wayfare.core.errors import ConfigError, DataError
from wayfare.hashing.data import mat_pairs
from wayfare.hashing.data.base import PairFiles
from wayfare.hashing.data.source import PairSource, SplitSizes, find_file, find_pictures, needed_file
from wayfare.hashing.data.words import sparse_rows
from wayfare.io.findings import Findings, Problems, Progress, recogniser
from wayfare.io.folders import inside
from wayfare.io.probe import check_pictures
from wayfare.io.tables import read_text

SIZES = SplitSizes(query=2100, train=10_500)
CONCEPTS = 21
_BLOCK = 2**22  # bytes of a list that are looked at together
_PREFIX = "labels_"
_KINDS = np.full(256, 2, np.uint8)  # of bytes: 0 space, 1 a flag, 2 neither
_KINDS[list(b" \t\r\n")] = 0
_KINDS[list(b"01")] = 1


@dataclass(frozen=True)
class NusWide(PairFiles):
    """The set in one of both forms."""

    labels: str = ""  # how many of the most frequent concepts, or "all"; of MATLAB files "10" or "21" says which
    turned: bool = False  # exchange height and width of pictures in arrays

    def read(self, path: Path, problems: Problems) -> PairSource:
        if not path.exists():
            raise DataError("no such file or folder", path)
        if path.is_file() or mat_pairs.recognises(path) or not recognises(path):
            found = mat_pairs.read(path, problems, labels=self.labels, turned=self.turned)
            return replace(found, name="nuswide", sizes=SIZES)
        return read(path, problems, self.labels)


def read(path: Path, problems: Problems, chosen: str = "") -> PairSource:
    """The pairs of the original lists."""
    names = _picture_names(needed_file(path, "Imagelist.txt"))
    words = _lines(needed_file(path, "TagList1k.txt"))
    tags = _flags(needed_file(path, "AllTags1k.txt"), len(words), len(names))
    concepts, labels = _frequent(*_labels(path, len(names)), chosen)
    places = [np.flatnonzero(row) for row in tags]
    folders = [place for name in ("Flickr", "images", "Images", "ImageList", ".") if (place := path / name).is_dir()]
    files, present = find_pictures(folders, names)
    rows = [row for row, file in enumerate(files) if file is not None] if present else range(len(names))
    return PairSource(
        name="nuswide",
        ids=[names[row] for row in rows],
        labels=labels[rows],
        names=concepts,
        levels=(len(concepts),),
        texts=[" ".join(words[place] for place in places[row]) for row in rows],
        bags=sparse_rows([places[row] for row in rows], len(words)),
        words=tuple(words),
        root=path,
        files=[file for file in files if file is not None] if present else None,
        sizes=SIZES,
        left_out={"without a picture": len(names) - present} if present else {},
        problems=problems,
    )


@recogniser
def recognises(path: Path) -> bool:
    """Whether it is a folder with the lists of labels and of pictures."""
    return path.is_dir() and _label_folder(path) is not None and find_file(path, "Imagelist.txt") is not None


def check(path: Path, strict: bool = False, progress: Progress | None = None) -> Findings:
    """Read all lists, decode the pictures that are there."""
    source = read(path, Problems(strict), "all")
    counts: dict[str, int | float | str] = {
        "pairs": len(source),
        **source.left_out,
        "pictures": check_pictures(source.files or [], source.problems, progress),
        "tags": len(source.words),
        "without a tag": int((~source.worded).sum()),
        "concepts": len(source.names),
        "without a concept": int((~source.labelled).sum()),
    }
    return Findings("nuswide", path, counts, source.problems)


def _label_folder(path: Path) -> Path | None:
    known = (path / "Groundtruth" / "AllLabels", path / "AllLabels", path / "Groundtruth", path)
    return next((folder for folder in known if folder.is_dir() and any(folder.glob("Labels_*.txt"))), None)


def _labels(path: Path, count: int) -> tuple[list[str], np.ndarray]:
    folder = _label_folder(path) or path
    files = {file.stem[len(_PREFIX) :]: file for file in sorted(folder.glob("Labels_*.txt"))}
    listed = find_file(path, "Concepts81.txt")
    names = list(dict.fromkeys(_lines(listed))) if listed is not None else list(files)
    if absent := [name for name in names if name not in files]:
        raise DataError(f"no Labels_{absent[0]}.txt in it, but {listed} names it", folder)
    return names, np.concatenate([_flags(files[name], 1, count) for name in names], axis=1)


def _frequent(names: list[str], labels: np.ndarray, which: str) -> tuple[list[str], np.ndarray]:
    """The most frequent concepts, in the order of the list; of equally frequent ones the first."""
    if which and which != "all" and not (which.isdecimal() and 1 <= int(which) <= len(names)):
        raise ConfigError(f"labels = {which!r}: expected a number of concepts, up to {len(names)}, or 'all'")
    count = len(names) if which == "all" else min(int(which or CONCEPTS), len(names))
    kept = np.sort(np.argsort(-labels.sum(axis=0, dtype=np.int64), kind="stable")[:count])
    return [names[place] for place in kept], labels[:, kept]


def _picture_names(file: Path) -> list[str]:
    names = []
    for line, name in enumerate(_lines(file, keep_empty=True), 1):
        try:
            names.append(inside(name))
        except ValueError as error:
            raise DataError(str(error), file, line) from error
    return names


def _lines(file: Path, keep_empty: bool = False) -> list[str]:
    lines = [line.strip() for line in read_text(file).rstrip().splitlines()]
    if not lines:
        raise DataError("an empty list", file)
    return lines if keep_empty else [line for line in lines if line]


def _flags(file: Path, columns: int, rows: int) -> np.ndarray:
    """bool (rows, columns) from lines of 0 and 1 with space between them; half a gigabyte takes seconds."""
    parts, line = [], 1
    for block in _blocks(file):
        data = np.frombuffer(block, np.uint8)
        kind = _KINDS[data]
        digit = kind == 1
        bad = kind == 2
        bad[1:] |= digit[1:] & digit[:-1]
        ends = np.flatnonzero(data == ord("\n"))
        if bad.any():
            place = int(np.argmax(bad))
            what = f"expected 0 and 1 with space between them, found {bytes(block[max(place - 1, 0) : place + 9])!r}"
            raise DataError(what, file, line + int(np.searchsorted(ends, place)))
        held = np.add.reduceat(digit, np.append(0, ends[:-1] + 1), dtype=np.int64)
        wrong = (held != columns) & (held != 0)
        if wrong.any():
            place = int(np.argmax(wrong))
            raise DataError(f"{held[place]} values, expected {columns}", file, line + place)
        parts.append((data[digit] == ord("1")).reshape(-1, columns))
        line += len(ends)
    found = np.concatenate(parts) if parts else np.zeros((0, columns), bool)
    if len(found) != rows:
        raise DataError(f"{len(found)} rows, but {rows} pictures in the list", file, remedy="is the file complete?")
    return found


def _blocks(file: Path) -> Iterator[bytes]:
    """The file in pieces of whole lines; each ends with one."""
    try:
        with file.open("rb") as source:
            rest = b""
            while piece := source.read(_BLOCK):
                whole, mark, after = (rest + piece).rpartition(b"\n")
                rest = after
                if mark:
                    yield whole + mark
                elif len(rest) > _BLOCK:
                    raise DataError("a line without an end", file, remedy="is it a text file?")
            if rest:
                yield rest + b"\n"
    except OSError as error:
        raise DataError(f"cannot be read: {error}", file) from error
