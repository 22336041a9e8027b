"""Pairs in MATLAB files: one array for each thing.

    images (or IAll), YAll (TAll), LAll and perhaps XAll, in one file or in one each, as DCMH and UCCH have them:
    FLICKR-25K.mat; mirflickr25k-iall.mat, -yall, -lall, -iall-vgg; nus-wide-tc21-iall.mat, ...

Each array may lie either way: the number of rows is the number that all of them have in common. Texts that are whole
numbers from 0 to 255 are bags of words and come out sparse; other numbers are features and come out dense.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from wayfare.core.errors import DataError
from wayfare.hashing.data import fashion
from wayfare.hashing.data.source import Bags, PairSource, Stored
from wayfare.io import matfiles
from wayfare.io.cache import read_array
from wayfare.io.findings import Findings, Problems, Progress, recogniser
from wayfare.io.matfiles import Array

MOST_BYTES = 2**32  # of features
_NAMES = {
    "images": ("images", "IAll", "Image"),
    "texts": ("YAll", "TAll", "Tag", "tags"),
    "labels": ("LAll", "Label", "labels"),
    "features": ("XAll", "features"),
}
_ENDINGS = {"features": ("iall-vgg", "xall"), "images": ("iall",), "texts": ("yall", "tall"), "labels": ("lall",)}
MOST_CLASSES = 1000


def read(path: Path, problems: Problems, *, labels: str = "", turned: bool = False) -> PairSource:
    """The rows of one .mat file, or of a folder with a file for each array; their order is the split.

    `labels` is "10" or "21" where there are files of NUS-WIDE's tc10 and tc21; `turned` exchanges height and width.
    """
    found = _parts(path, labels)
    for part in ("texts", "labels"):
        if part not in found:
            raise DataError(f"no {_NAMES[part][0]} in it", path, remedy="expected images or IAll, YAll and LAll")
    texts = found["texts"]
    count = _rows(list(found.values()), path)
    pictures = None
    if "images" in found:
        images = fashion.pixels(found["images"], fashion.image_axes(found["images"], count))
        pictures = stored(images, turned)
    matrix = label_matrix(found["labels"], count)
    return PairSource(
        name="rows",
        ids=[str(row + 1) for row in range(count)],
        labels=matrix,
        names=[f"label {place + 1}" for place in range(matrix.shape[1])],
        levels=(matrix.shape[1],),
        bags=_text_columns(texts, _across(texts, count)),
        pictures=pictures,
        features=numbers(found["features"], _across(found["features"], count)) if "features" in found else None,
        in_order=True,
        problems=problems,
    )


@recogniser
def recognises(path: Path) -> bool:
    """Whether it is a file, or a folder of files, with texts and labels."""
    return {"texts", "labels"} <= set(_parts(path))


def check(path: Path, strict: bool = False, progress: Progress | None = None) -> Findings:
    """Read all of it."""
    return findings("mat_pairs", path, read(path, Problems(strict)), progress)


def findings(layout: str, path: Path, source: PairSource, progress: Progress | None) -> Findings:
    """What there is, of rows that have been read without a fault."""
    if progress is not None:
        progress(len(source), len(source))
    counts: dict[str, int | float | str] = {"pairs": len(source)}
    if source.pictures is not None:
        counts["size"] = f"{source.pictures.size[1]} x {source.pictures.size[0]}"
    counts |= {
        "columns of texts": 0 if source.bags is None else source.bags.shape[1],
        "without a word": int((~source.worded).sum()),
        "labels": len(source.names),
        "without a label": int((~source.labelled).sum()),
    }
    return Findings(layout, path, counts, source.problems)


def _parts(path: Path, labels: str = "") -> dict[str, Array]:
    """The arrays by what they are; of the files of tc10 and of tc21, those that `labels` says."""
    if not path.is_dir():
        return _in_one(path)
    files = sorted(file for file in path.iterdir() if file.suffix.lower() == ".mat")
    if labels.isdecimal():
        files = [file for file in files if f"tc{labels}" in file.stem.lower()]
    if len(files) == 1:
        return _in_one(files[0])
    found: dict[str, Array] = {}
    for file in files:
        stem = file.stem.lower()
        part = next((part for part, endings in _ENDINGS.items() if stem.endswith(endings)), None)
        if part is None:
            continue
        if part in found:
            what = f"two files of {part}: {found[part].file.name} and {file.name}"
            raise DataError(what, path, remedy="say which labels (10 or 21), or move one of them away")
        found[part] = matfiles.array(file, *_NAMES[part])
    return found


def _in_one(path: Path) -> dict[str, Array]:
    by_name = {name.lower(): item for name, item in matfiles.arrays(path).items()}
    found = {}
    for part, names in _NAMES.items():
        if name := next((name.lower() for name in names if name.lower() in by_name), ""):
            found[part] = by_name[name]
    return found


def _rows(found: Sequence[Array], path: Path) -> int:
    """The largest number that is a side of all the arrays; that of the others are colours, words, labels."""
    common = set.intersection(*(set(item.shape) for item in found))
    if not common or max(common) < 2:
        shapes = ", ".join(f"{item.name} {shown(item)}" for item in found)
        raise DataError(
            f"the arrays have different numbers of rows: {shapes}", path, remedy="are they of one data set?"
        )
    return max(common)


def _across(table: Array, count: int) -> bool:
    """Whether rows of a table lie across."""
    if len(table.shape) != 2 or count not in table.shape:
        raise DataError(f"expected a table of {count} rows, found {shown(table)}", table.file, field=table.name)
    return table.shape[0] != count


def shown(item: Array) -> str:
    return " x ".join(map(str, item.shape))


def stored(images: np.ndarray, turned: bool) -> Stored:
    images = images.transpose(0, 2, 1, 3) if turned else images
    return Stored(images, np.arange(len(images)), images.shape[1:3])


def label_matrix(table: Array, count: int) -> np.ndarray:
    """bool (N, C), of zeros and ones or of one class number each, from 1."""
    across = _across(table, count)
    if table.shape[0 if across else 1] > 1:
        return fashion.matrix(table, across, 1).astype(bool)
    found = numbers(table, across)[:, 0]
    if not ((found >= 1) & (found <= MOST_CLASSES) & (found == np.trunc(found))).all():
        raise DataError(f"expected class numbers from 1 to {MOST_CLASSES}", table.file, field=table.name)
    return np.asarray(found[:, None] == np.arange(1, int(found.max()) + 1))


def _text_columns(table: Array, across: bool) -> Bags:
    try:
        counts = fashion.matrix(table, across, 255)
    except DataError:  # other numbers than counts; if the file is damaged, the next line says so too
        return numbers(table, across)
    return csr_array(counts).astype(np.float32)


def numbers(table: Array, across: bool) -> np.ndarray:
    """float32 (rows, columns)."""
    if math.prod(table.shape) * 4 > MOST_BYTES:
        raise DataError(f"too large: {shown(table)}", table.file, field=table.name)

    def finite(piece: np.ndarray) -> np.ndarray:
        if not np.isfinite(piece).all():
            raise DataError("expected finite numbers, found NaN or infinity", table.file, field=table.name)
        return piece

    out = np.zeros(table.shape[::-1] if across else table.shape, np.float32)
    table.copy_to(out.T if across else out, finite)
    return out


def read_features(path: Path, count: int) -> np.ndarray:
    """float32 (N, W): image features that somebody computed, in a .npy or .mat file."""
    if path.suffix.lower() == ".mat":
        table = matfiles.array(path, *_NAMES["features"])
        return numbers(table, _across(table, count))
    found = read_array(path)
    if found.ndim != 2 or len(found) != count or found.dtype.kind not in "iuf":
        what = f"expected numbers in {count} rows, a row for each pair, found {found.dtype} {found.shape}"
        raise DataError(what, path)
    found = np.asarray(found, np.float32)
    if not np.isfinite(found).all():
        raise DataError("expected finite numbers, found NaN or infinity", path)
    return found
