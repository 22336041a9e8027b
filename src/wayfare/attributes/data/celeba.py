"""CelebA: a table of yes-or-no attributes of many pictures.

    list_attr_celeba.txt       202599 / names of the attributes / 000001.jpg -1  1 ...
    list_eval_partition.txt    000001.jpg 0     0 to train with, 1 to validate, 2 to test
    identity_CelebA.txt        000001.jpg 2880  may be absent, and so may the pictures, img_align_celeba/000001.jpg
    list_attr_celeba.csv       image_id,name,...   as Kaggle has them; list_eval_partition.csv: image_id,partition
    *.npz                      the table alone: `bits` (numpy.packbits of each row), `names`, `partition`

Any number of attributes is read. The folders Anno, Eval and Img of the authors' own archive are known too.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from wayfare.attributes.data import AttributeData
from wayfare.attributes.table import PARTS, AttributeTable
from wayfare.core import protocols
from wayfare.core.errors import ConfigError, DataError
from wayfare.io.findings import Findings, Problems, Progress, recogniser
from wayfare.io.probe import check_pictures
from wayfare.io.tables import read_text

_MAX_ATTRIBUTES = 10_000
_MAX_BYTES = 2**30
_FOLDERS = (".", "Anno", "Eval", "anno", "eval", "celeba")
_PICTURES = ("img_align_celeba", "img_align_celeba/img_align_celeba", "Img/img_align_celeba", "img_celeba", "images")
_VALUES = {"1": True, "-1": False}


@dataclass(frozen=True)
class CelebA(AttributeData):
    """CelebA, or any table in its form."""

    path: str = ""  # the folder, its list of attributes, or the packed .npz table
    cache: float = 8.0  # GiB on disk for decoded pictures; beyond it they are read each time
    own: bool = False  # the data is a device's own: it needs no test part

    def __post_init__(self) -> None:
        if self.cache < 0:
            raise ConfigError(f"data.cache = {self.cache}: expected at least 0 GiB")

    def load(self, progress: protocols.Progress) -> AttributeTable:
        if not self.path:
            raise ConfigError(
                "data.path is missing: expected CelebA's folder. Without CelebA: data.name = 'synthetic' and "
                "model.name = 'table'"
            )
        return load(Path(self.path))

    def on_folder(self, path: str) -> Self | None:
        return replace(self, path=path, own=True)


def load(path: Path, *, strict: bool = False, pictures: bool = False) -> AttributeTable:
    """The table of a folder, of its list of attributes, or of a packed .npz file.

    A line that cannot be used is left out and listed in `problems`, and so is, with `pictures`, one whose picture is
    not there; `strict` raises it.
    """
    return _load(path, Problems(strict), pictures)


@recogniser
def recognises(path: Path) -> bool:
    """Whether it is a folder with CelebA's lists, or one of the files that hold the attributes."""
    if path.is_dir():
        return _table_of(path) is not None
    if not path.is_file():
        return False
    return _is_list(path) or (path.suffix == ".npz" and {"bits.npy", "names.npy"} <= set(_members(path)))


def check(path: Path, strict: bool = False, progress: Progress | None = None) -> Findings:
    """Read all lists, and decode all pictures where there are any."""
    problems = Problems(strict)
    table = _load(path, problems, pictures=False)
    counts: dict[str, int | float | str] = {"rows": len(table), "attributes": len(table.names)}
    if table.partition is not None:
        counts |= {f"to {name}": int((table.partition == number).sum()) for number, name in enumerate(PARTS)}
    if table.identity is not None:
        counts["identities"] = len(np.unique(table.identity))
    if table.folder is not None:
        found = table.with_pictures()
        counts["whole pictures"] = check_pictures([table.folder / name for name in found.files], problems, progress)
    return Findings("celeba", path, counts, problems)


def _load(path: Path, problems: Problems, pictures: bool) -> AttributeTable:
    if path.suffix == ".npz" and not path.is_dir():
        return replace(_read_packed(path), problems=problems)
    root = path if path.is_dir() else path.parent
    file = _table_of(path) if path.is_dir() else path
    if file is None:
        raise DataError("no CelebA here: expected list_attr_celeba.txt or list_attr_celeba.csv", path)
    if not path.is_dir() and path.parent.name.lower() == "anno":
        root = path.parent.parent
    table = _read_table(file, problems)
    partition = _beside(root, "list_eval_partition.txt", "list_eval_partition.csv")
    if partition is not None:
        table = _joined(table, "partition", partition, _read_numbers(partition, "partition", 2, problems))
    identity = _beside(root, "identity_CelebA.txt", "identity_CelebA.csv")
    if identity is not None:
        table = _joined(table, "identity", identity, _read_numbers(identity, "identity", 2**31, problems))
    folder = next((root / name for name in _PICTURES if (root / name).is_dir()), None)
    table = replace(table, folder=folder)
    return table.with_pictures() if pictures else table


def _table_of(folder: Path) -> Path | None:
    return _beside(folder, "list_attr_celeba.txt", "list_attr_celeba.csv")


def _is_list(file: Path) -> bool:
    return file.name in ("list_attr_celeba.txt", "list_attr_celeba.csv")


def _beside(root: Path, *names: str) -> Path | None:
    files = [root / folder / name for name in names for folder in _FOLDERS]
    return next((file for file in files if file.is_file()), None)


# ---- The lists


def _read_table(file: Path, problems: Problems) -> AttributeTable:
    rows = _rows(file)
    line, header = next(rows, (1, []))
    stated = None
    if file.suffix == ".csv":
        if not header or header[0] != "image_id":
            raise DataError("no column 'image_id' at the start", file, line, "image_id", "is it Kaggle's CelebA?")
        header = header[1:]
    else:
        if len(header) != 1 or not header[0].isdecimal() or len(header[0]) > 15:
            raise DataError("expected the number of pictures on the first line", file, line)
        stated = int(header[0])
        line, header = next(rows, (2, []))
    if not header or len(header) > _MAX_ATTRIBUTES:
        raise DataError(f"expected the attributes' names, found {len(header)} words", file, line)
    if len(set(header)) != len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise DataError(f"two attributes are called {twice[:40]!r}", file, line, twice[:40], "rename one")
    first_seen: dict[str, int] = {}
    bits = bytearray()
    count = 0
    for count, (line, words) in enumerate(rows, 1):  # noqa: B007, used below
        if len(words) != len(header) + 1:
            what = f"{len(words) - 1} values, expected {len(header)}"
            problems.add(what, file, line, remedy="correct or remove the line")
        elif unknown := set(words[1:]) - _VALUES.keys():
            name = header[words.index(min(unknown), 1) - 1]
            problems.add(f"expected 1 or -1, found {min(unknown)[:40]!r}", file, line, name[:40], "correct the line")
        elif _usable_name(file, line, words[0], first_seen, problems):
            bits += bytes([_VALUES[word] for word in words[1:]])
    if stated is not None and stated != line - 2:
        problems.add(
            f"it says {stated} pictures, but {line - 2} follow", file, 1, remedy="correct the number, or the file"
        )
    values = np.frombuffer(bytes(bits), bool).reshape(-1, len(header))
    return AttributeTable(tuple(header), _names(first_seen), values, problems=problems)


def _read_numbers(file: Path, what: str, most: int, problems: Problems) -> dict[str, int]:
    """A list of pictures with one whole number each."""
    found: dict[str, int] = {}
    first_seen: dict[str, int] = {}
    for line, words in _rows(file):
        if line == 1 and file.suffix == ".csv":
            if words[:1] != ["image_id"]:
                raise DataError("no column 'image_id' at the start", file, 1, "image_id")
        elif len(words) != 2:
            problems.add(f"expected a picture and its {what}, found {len(words)} words", file, line)
        elif not (words[1].isdecimal() and len(words[1]) < 15 and int(words[1]) <= most):
            problems.add(f"expected a whole number from 0 to {most}, found {words[1][:40]!r}", file, line, what)
        elif _usable_name(file, line, words[0], first_seen, problems):
            found[words[0]] = int(words[1])
    return found


def _rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Lines that are not empty, in words."""
    separator = "," if file.suffix == ".csv" else None
    for number, line in enumerate(read_text(file).split("\n"), 1):
        if words := [word.strip() for word in line.split(separator)] if line.strip() else []:
            yield number, words


def _usable_name(file: Path, line: int, name: str, first_seen: dict[str, int], problems: Problems) -> bool:
    """Whether it names a picture, and for the first time."""
    if not name.isprintable() or not 0 < len(name) <= 200 or "/" in name or name in (".", ".."):
        problems.add(f"not the name of a picture: {name[:40]!r}", file, line, remedy="correct or remove the line")
    elif (first := first_seen.setdefault(name, line)) != line:
        problems.add(f"{name} is already on line {first}", file, line, remedy="remove one of them")
    else:
        return True
    return False


def _joined(table: AttributeTable, key: str, file: Path, numbers: dict[str, int]) -> AttributeTable:
    """The table with one more column; rows that lack it are left out, and those that only it has are listed."""
    known = np.array([name in numbers for name in table.files], bool)
    for name in table.files[~known]:
        table.problems.add(f"no line for {name}, which has attributes", file, field=key, remedy="add one")
    for name in sorted(numbers.keys() - set(table.files)):
        table.problems.add(f"{name} has no attributes", file, field=key, remedy="remove its line")
    kept = table.select(known)
    column = np.array([numbers[name] for name in kept.files], np.int64)
    return replace(kept, partition=column.astype(np.uint8)) if key == "partition" else replace(kept, identity=column)


def _names(names: dict[str, int]) -> np.ndarray:
    return np.array([*names, None], object)[:-1]


# ---- The packed table


def _read_packed(file: Path) -> AttributeTable:
    names = _member(file, "names")
    if names.ndim != 1 or names.dtype.kind not in "US" or not 0 < len(names) <= _MAX_ATTRIBUTES:
        raise DataError(f"expected a row of names, found {names.dtype} {names.shape}", file, field="names")
    bits, width = _member(file, "bits"), -(-len(names) // 8)
    if bits.dtype != np.uint8 or bits.ndim != 2 or bits.shape[1] != width:
        what = f"expected uint8 (N, {width}) for {len(names)} names, found {bits.dtype} {bits.shape}"
        raise DataError(what, file, field="bits")
    partition = None
    if "partition.npy" in _members(file):
        partition = _member(file, "partition")
        if (
            partition.shape != (len(bits),)
            or partition.dtype.kind not in "iu"
            or not np.isin(partition, (0, 1, 2)).all()
        ):
            what = f"expected {len(bits)} of 0, 1 and 2, found {partition.dtype} {partition.shape}"
            raise DataError(what, file, field="partition")
        partition = partition.astype(np.uint8)
    try:
        words = tuple(str(name) for name in names.astype(str))
    except ValueError as error:
        raise DataError(f"not text: {error}", file, field="names") from error
    if len(set(words)) != len(words):
        raise DataError("two attributes have one name", file, field="names")
    values = np.unpackbits(bits, axis=1, count=len(names)).astype(bool)
    files = np.array([f"{number:06d}.jpg" for number in range(1, len(bits) + 1)] + [None], object)[:-1]
    return AttributeTable(words, files, values, partition)


def _members(file: Path) -> list[str]:
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.namelist()
    except Exception as error:  # damaged archives raise nearly anything
        raise DataError(f"not a readable .npz file: {error}", file) from error


def _member(file: Path, name: str) -> np.ndarray:
    """One array of an .npz file. It is not larger than its bytes: numpy itself would believe the stated shape."""
    try:
        with zipfile.ZipFile(file) as archive:
            if f"{name}.npy" not in archive.namelist():
                raise DataError("it is missing", file, field=name)
            if (size := archive.getinfo(f"{name}.npy").file_size) > _MAX_BYTES:
                raise DataError(f"too large: {size} bytes, at most {_MAX_BYTES} are read", file, field=name)
            content = io.BytesIO(archive.read(f"{name}.npy"))
        version = np.lib.format.read_magic(content)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, fortran, dtype = read_header[version](content)
        if dtype.hasobject:
            remedy = "save it as text or numbers; Python objects are never loaded"
            raise DataError("it holds Python objects", file, field=name, remedy=remedy)
        return np.frombuffer(content.read(), dtype).reshape(shape, order="F" if fortran else "C")
    except DataError:
        raise
    except Exception as error:  # damaged archives raise nearly anything
        raise DataError(f"not a readable array: {error or type(error).__name__}", file, field=name) from error
