"""FashionVC and Ssense: pictures, bags of words and labels of two levels, in MATLAB files.

    image.mat    Image (N, H, W, 3), also (H, W, 3, N) or (N, 3, H, W)
    tag.mat      Tag (N, T): 1 where a word of the vocabulary is in the description
    label.mat    Label (N, C1 + C2): one of the C1 classes of the first level and one of the C2 of the second
    levels.json  ours, may be absent: {"levels": [8, 27], "queries": 3000, "names": [[...], [...]], "words": [...]}

Files may be of version 5, 7 or 7.3, each of its own. The order of the rows is the split: the first ones are queries.
How many classes are on each level is known for FashionVC and Ssense by their shape; otherwise levels.json or the caller
says it. Pictures come out as uint8 (N, H, W, 3) RGB; large ones are brought into that order once, in the cache, and
mapped into memory.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.errors import DataError
from wayfare.io import matfiles
from wayfare.io.cache import cache_dir, new_folder, read_array
from wayfare.io.findings import Findings, Problems, Progress, recogniser
from wayfare.io.matfiles import Array
from wayfare.io.tables import read_json

IN_MEMORY = 2**29  # bytes of pictures that are read at once; more go through the cache
KNOWN = {(19862, 35): ((8, 27), 3000), (15696, 32): ((4, 28), 2000)}  # rows and columns of labels: FashionVC, Ssense
_FILES = {"image": ("image", "images"), "tag": ("tag", "tags", "text"), "label": ("label", "labels")}
_FORM = 1  # of the cache
_LARGEST = 2**31  # values of tags and of labels


@dataclass(frozen=True)
class FashionRows:
    """N pictures with their words and labels."""

    images: np.ndarray  # uint8 (N, H, W, 3)
    tags: np.ndarray  # uint8 (N, T)
    labels: np.ndarray  # uint8 (N, C1 + C2)
    levels: tuple[int, int]
    queries: int  # so many of the first rows
    names: tuple[tuple[str, ...], tuple[str, ...]] | None = None  # of the classes of both levels
    words: tuple[str, ...] | None = None  # of the tags
    problems: Problems = field(default_factory=Problems)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def coarse(self) -> np.ndarray:
        """int64 (N,): the class of the first level."""
        return np.asarray(self.labels[:, : self.levels[0]].argmax(axis=1))

    @property
    def fine(self) -> np.ndarray:
        """int64 (N,): the class of the second level, from 0."""
        return np.asarray(self.labels[:, self.levels[0] :].argmax(axis=1))

    @property
    def parents(self) -> np.ndarray:
        """int64 (C2,): the class of the first level that each one of the second belongs to; -1 where no row says."""
        found = np.full(self.levels[1], -1, np.int64)
        found[self.fine] = self.coarse
        return found


def load(path: Path, *, levels: tuple[int, int] | None = None, problems: Problems | None = None) -> FashionRows:
    """The pairs of a folder; rows without exactly one label of each level are left out and listed in `problems`."""
    files = _files(path)
    image, tag = matfiles.array(files["image"], "Image", "IAll"), matfiles.array(files["tag"], "Tag", "YAll")
    label = matfiles.array(files["label"], "Label", "LAll")
    count, across = _orientation(image, tag, label)
    axes = image_axes(image, count)
    tags, labels = matrix(tag, across, 255), matrix(label, across, 1)
    facts = _facts(path / "levels.json")
    known, queries = KNOWN.get(labels.shape, (None, 0))
    chosen = _levels(levels or facts.get("levels") or known, labels.shape[1], files["label"])
    pairs = FashionRows(
        images=pixels(image, axes),
        tags=tags,
        labels=labels,
        levels=chosen,
        queries=facts.get("queries", queries),
        names=_named(facts.get("names"), chosen, path / "levels.json"),
        words=_worded(facts.get("words"), tags.shape[1], path / "levels.json"),
        problems=Problems() if problems is None else problems,
    )
    return _usable(pairs, files["label"])


@recogniser
def recognises(path: Path) -> bool:
    """Whether it is a folder with the three files."""
    return path.is_dir() and bool(_files(path))


def check(path: Path, strict: bool = False, progress: Progress | None = None) -> Findings:
    """Read all of it, and see whether each class of the second level belongs to one of the first."""
    pairs = load(path, problems=Problems(strict))
    known = len(set(pairs.fine.tolist()))
    for number in range(pairs.levels[1]):
        parents = np.unique(pairs.coarse[pairs.fine == number])
        if len(parents) > 1:
            what = f"class {number} of the second level is under {len(parents)} of the first: {parents[:5].tolist()}"
            pairs.problems.add(what, path / "label.mat", remedy="is the number of classes of each level right?")
    if progress is not None:
        progress(len(pairs), len(pairs))
    counts: dict[str, int | float | str] = {
        "pairs": len(pairs),
        "queries": pairs.queries,
        "size": f"{pairs.images.shape[2]} x {pairs.images.shape[1]}",
        "words": pairs.tags.shape[1],
        "without a word": int((~pairs.tags.any(axis=1)).sum()),
        "classes of the first level": pairs.levels[0],
        "classes of the second level": pairs.levels[1],
        "of these with examples": known,
    }
    return Findings("fashion", path, counts, pairs.problems)


# ---- Files and shapes


def _files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise DataError("no such folder" if not folder.exists() else "expected the folder of the three files", folder)
    stems = {file.stem.lower(): file for file in sorted(folder.iterdir()) if file.suffix.lower() == ".mat"}
    found = {}
    for kind, names in _FILES.items():
        file = next((stems[name] for name in names if name in stems), None)
        if file is None:
            raise DataError(f"no {kind}.mat in it: expected image.mat, tag.mat and label.mat", folder)
        found[kind] = file
    return found


def _orientation(image: Array, tag: Array, label: Array) -> tuple[int, bool]:
    """The number of rows, and whether they lie across: both orientations are passed around."""
    for item in (tag, label):
        if len(item.shape) != 2:
            raise DataError(f"expected a table, found {_shown(item.shape)}", item.file, field=item.name)
    for axis in (0, 1):
        count = label.shape[axis]
        if tag.shape[axis] == count and count in image.shape and count > 0:
            return count, axis == 1
    shapes = ", ".join(f"{item.name} {_shown(item.shape)}" for item in (image, tag, label))
    raise DataError(
        f"the arrays have different numbers of rows: {shapes}", label.file, remedy="are they of one data set?"
    )


def image_axes(image: Array, count: int) -> tuple[int, ...]:
    """Which axes are row, height, width and colour."""
    for axes in ((0, 1, 2, 3), (3, 0, 1, 2), (0, 2, 3, 1), (3, 1, 2, 0)):
        shape = tuple(image.shape[axis] for axis in axes) if len(image.shape) == 4 else ()
        if shape and shape[0] == count and shape[3] == 3 and min(shape) > 0:
            return axes
    what = f"expected {count} pictures, ({count}, height, width, 3), found {_shown(image.shape)}"
    raise DataError(what, image.file, field=image.name)


def _shown(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _facts(file: Path) -> dict[str, Any]:
    found = read_json(file) if file.is_file() else {}
    if not isinstance(found, dict):
        raise DataError("expected an object", file)
    levels, queries = found.get("levels"), found.get("queries", 0)
    if "levels" in found and not (isinstance(levels, list) and len(levels) == 2 and all(map(_is_count, levels))):
        raise DataError("expected the number of classes of both levels", file, field="levels")
    if not _is_count(queries):
        raise DataError("expected a number of rows", file, field="queries")
    return found


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _levels(levels: Any, columns: int, file: Path) -> tuple[int, int]:
    if levels is None:
        remedy = 'say levels=(first, second), or write {"levels": [first, second]} to levels.json beside it'
        raise DataError(f"{columns} columns: how many belong to the first level?", file, remedy=remedy)
    first, second = levels
    if min(first, second) < 1 or first + second != columns:
        raise DataError(f"{columns} columns, expected {first} + {second}", file, remedy="give the right levels")
    return first, second


def _named(names: Any, levels: tuple[int, int], file: Path) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    if names is None:
        return None
    lists = names if isinstance(names, list) and all(isinstance(part, list) for part in names) else []
    if [len(part) for part in lists] != list(levels) or not all(
        isinstance(name, str) for part in lists for name in part
    ):
        raise DataError(f"expected {levels[0]} and {levels[1]} names", file, field="names")
    return tuple(lists[0]), tuple(lists[1])


def _worded(words: Any, count: int, file: Path) -> tuple[str, ...] | None:
    if words is None:
        return None
    if not isinstance(words, list) or len(words) != count or not all(isinstance(word, str) for word in words):
        raise DataError(f"expected {count} words, one for each column of tags", file, field="words")
    return tuple(words)


# ---- Values


def matrix(table: Array, across: bool, most: int) -> np.ndarray:
    """uint8 (rows, columns), from whatever numbers they are."""
    if math.prod(table.shape) > _LARGEST:
        raise DataError(f"too large: {_shown(table.shape)}", table.file, field=table.name)
    out = np.zeros(table.shape, np.uint8)
    table.copy_to(out, lambda piece: _whole_bytes(piece, most, table))
    return np.ascontiguousarray(out.T if across else out)


def _whole_bytes(piece: np.ndarray, most: int, source: Array) -> np.ndarray:
    good = (piece >= 0) & (piece <= most)  # false for NaN
    if piece.dtype.kind == "f":
        good &= piece == np.trunc(piece)
    if not good.all():
        what = f"expected whole numbers from 0 to {most}, found {piece[~good].flat[0]}"
        raise DataError(what, source.file, field=source.name)
    return piece.astype(np.uint8)


def pixels(image: Array, axes: tuple[int, ...]) -> np.ndarray:
    """uint8 (N, H, W, 3) in that order, in memory or mapped."""
    shape = tuple(image.shape[axis] for axis in axes)
    brightest = 0.0

    def to_bytes(piece: np.ndarray) -> np.ndarray:
        nonlocal brightest
        if piece.dtype == np.uint8:
            return piece
        if not ((piece >= 0) & (piece <= 255)).all():
            raise DataError("expected values from 0 to 255", image.file, field=image.name)
        brightest = max(brightest, float(piece.max(initial=0)))
        rounded: np.ndarray = np.rint(piece).astype(np.uint8)
        return rounded

    def fill(out: np.ndarray) -> None:
        image.copy_to(out.transpose(np.argsort(axes)), to_bytes)
        if 0 < brightest <= 1:
            raise DataError("values from 0 to 1: expected 0 to 255", image.file, field=image.name, remedy="scale them")

    if math.prod(shape) <= IN_MEMORY:
        out = np.zeros(shape, np.uint8)
        fill(out)
        return out
    facts = image.file.stat()
    key = f"{_FORM} {image.file.resolve()} {facts.st_size} {facts.st_mtime_ns} {image.name} {axes}"
    target = cache_dir() / "mat" / hashlib.sha256(key.encode()).hexdigest()[:32]
    with new_folder(target) as part:
        if part is not None:
            fill(_reserve(part / "images.npy", shape))
    return read_array(target / "images.npy")


def _reserve(file: Path, shape: tuple[int, ...]) -> np.ndarray:
    """A new .npy file, mapped. Its space is taken first: a disk found full through a map would end the process."""
    try:
        with file.open("wb") as out:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(out, header)
            out.flush()
            os.posix_fallocate(out.fileno(), 0, out.tell() + math.prod(shape))
    except OSError as error:
        remedy = "free some space there, or set WAYFARE_CACHE to a folder that can be written"
        raise DataError(f"cannot be written: {error.strerror or error}", file, remedy=remedy) from error
    return np.lib.format.open_memmap(file, "r+")


def _usable(pairs: FashionRows, file: Path) -> FashionRows:
    """Without rows that have none or several classes on a level."""
    first = pairs.labels[:, : pairs.levels[0]].sum(axis=1, dtype=np.int64)
    second = pairs.labels[:, pairs.levels[0] :].sum(axis=1, dtype=np.int64)
    good = (first == 1) & (second == 1)
    for row in np.flatnonzero(~good):
        what = f"{first[row]} classes of the first level and {second[row]} of the second, expected one of each"
        pairs.problems.add(what, file, field=f"Label({row + 1}, :)", remedy="correct or remove the row")
    queries = min(pairs.queries, len(pairs))
    if good.all():
        return replace(pairs, queries=queries)
    kept = np.flatnonzero(good)
    return replace(
        pairs,
        images=pairs.images[kept],
        tags=pairs.tags[kept],
        labels=pairs.labels[kept],
        queries=int(good[:queries].sum()),
    )
