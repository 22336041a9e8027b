"""The Wikipedia set: features of pictures and texts of featured articles, in ten categories.

    raw_features.mat                             I_tr, I_te (128 columns), T_tr, T_te (10 topics)
    trainset_txt_img_cat.list, testset_...       a text's id, a picture's id and a category from 1, on each line
    categories.list                              may be absent: the names
    wikiData.mat                                 instead of all that: with L_tr, L_te, categories or zeros and ones

There are no pictures and no texts in it, only features. The 693 test pairs are queries, the 2,173 training pairs are
searched.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wayfare.core.errors import DataError
from wayfare.hashing.data import mat_pairs
from wayfare.hashing.data.base import PairFiles
from wayfare.hashing.data.source import PairSource, SplitSizes
from wayfare.io import matfiles
from wayfare.io.findings import Findings, Problems, Progress, recogniser
from wayfare.io.tables import read_text

_FILES = ("raw_features.mat", "wikidata.mat", "wikipedia.mat")
_LISTS = {"te": "testset_txt_img_cat.list", "tr": "trainset_txt_img_cat.list"}


@dataclass(frozen=True)
class Wikipedia(PairFiles):
    """Features of pictures and texts."""

    def read(self, path: Path, problems: Problems) -> PairSource:
        return read(path, problems)


def read(path: Path, problems: Problems) -> PairSource:
    """Features of pictures and texts; the test pairs are queries, the training pairs are searched."""
    file = _file(path)
    arrays = {name.lower(): item for name, item in matfiles.arrays(file).items()}
    parts: dict[str, list[np.ndarray]] = {"i": [], "t": [], "l": []}
    ids: list[str] = []
    for part in ("te", "tr"):
        for kind in ("i", "t"):
            if f"{kind}_{part}" not in arrays:
                remedy = "expected I_tr, I_te, T_tr, T_te"
                raise DataError(f"has no array '{kind.upper()}_{part}'", file, remedy=remedy)
        image, text = arrays[f"i_{part}"], arrays[f"t_{part}"]
        count = image.shape[0]
        if len(text.shape) != 2 or text.shape[0] != count or len(image.shape) != 2 or not count:
            found = f"{mat_pairs.shown(text)}, but {image.name} is {mat_pairs.shown(image)}"
            what = f"{found}: expected tables of as many rows"
            raise DataError(what, file, field=text.name)
        parts["i"].append(mat_pairs.numbers(image, False))
        parts["t"].append(mat_pairs.numbers(text, False))
        if f"l_{part}" in arrays:
            parts["l"].append(mat_pairs.label_matrix(arrays[f"l_{part}"], count))
            ids += [f"{part} {row + 1}" for row in range(count)]
        else:
            names, listed = _listed(file.parent / _LISTS[part], count)
            parts["l"].append(listed)
            ids += names
    classes = max(part.shape[1] for part in parts["l"])
    for kind in ("i", "t"):
        first, second = parts[kind]
        if first.shape[1] != second.shape[1]:
            what = f"{first.shape[1]} and {second.shape[1]} columns of {kind.upper()}_te and {kind.upper()}_tr"
            raise DataError(f"{what}: expected as many", file)
    labels = np.concatenate([np.pad(part, ((0, 0), (0, classes - part.shape[1]))) for part in parts["l"]])
    return PairSource(
        name="wikipedia",
        ids=ids,
        labels=labels,
        names=_categories(file.parent / "categories.list", classes),
        levels=(classes,),
        bags=np.concatenate(parts["t"]),
        features=np.concatenate(parts["i"]),
        in_order=True,
        sizes=SplitSizes(query=len(parts["i"][0])),
        problems=problems,
    )


@recogniser
def recognises(path: Path) -> bool:
    """Whether it is a file, or a folder with one, of features of these names."""
    return {"i_te", "t_te"} <= {name.lower() for name in matfiles.arrays(_file(path))}


def check(path: Path, strict: bool = False, progress: Progress | None = None) -> Findings:
    """Read all of it."""
    return mat_pairs.findings("wikipedia", path, read(path, Problems(strict)), progress)


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    files = {file.name.lower(): file for file in sorted(path.iterdir()) if file.suffix.lower() == ".mat"}
    known = [files[name] for name in _FILES if name in files] or list(files.values())
    if not known:
        raise DataError("no raw_features.mat or wikiData.mat in it", path)
    return known[0]


def _listed(file: Path, count: int) -> tuple[list[str], np.ndarray]:
    """The texts' ids and bool (N, C): lines of a text's id, a picture's id and a category from 1."""
    ids: list[str] = []
    numbers: list[int] = []
    for line, row in enumerate(read_text(file).splitlines(), 1):
        words = row.split()
        if not words:
            continue
        if len(words) != 3 or not words[2].isdecimal() or not 1 <= int(words[2][:9]) <= mat_pairs.MOST_CLASSES:
            what = f"expected a text, a picture and a category from 1, found {row[:60]!r}"
            raise DataError(what, file, line)
        ids.append(words[0])
        numbers.append(int(words[2]))
    if len(ids) != count:
        raise DataError(f"{len(ids)} lines, but {count} rows of features", file, remedy="are they of one data set?")
    return ids, np.array(numbers)[:, None] == np.arange(1, max(numbers) + 1)


def _categories(file: Path, count: int) -> list[str]:
    names = read_text(file).split() if file.is_file() else []
    return names if len(names) == count else [f"label {place + 1}" for place in range(count)]
