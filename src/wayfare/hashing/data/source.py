"""What a reader of image-text pairs gives: rows as the files have them, not split yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from wayfare.core.errors import DataError
from wayfare.hashing.data.words import tokens
from wayfare.io.findings import Problems

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Bags: TypeAlias = "csr_array | np.ndarray"  # float32 (N, D): bags of words are sparse, other features of texts dense
Drop = Literal["unlabelled", "untexted"]


class SplitSizes(NamedTuple):
    """How many rows are queries and how many are learnt from; 0: a tenth of all, and all others."""

    query: int = 0
    train: int = 0


class PairPictures(Protocol):
    """Pictures of one size, by row."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        ...

    def read(self, rows: np.ndarray) -> np.ndarray:
        """uint8 (n, H, W, 3) RGB, an array of the caller's own."""
        ...


@dataclass(frozen=True)
class Stored:
    """Pictures in one array, in memory or mapped, or anything that is indexed in the same way; `rows` of them."""

    images: Any
    rows: np.ndarray
    size: tuple[int, int]

    def read(self, rows: np.ndarray) -> np.ndarray:
        """uint8 (n, H, W, 3) RGB."""
        return np.ascontiguousarray(self.images[self.rows[rows]])


@dataclass(frozen=True)
class PairSource:
    """N pairs of a data set. Pictures are there, or `files` below `root`, or neither."""

    name: str
    ids: Sequence[str]
    labels: np.ndarray  # bool (N, C)
    names: Sequence[str]
    levels: tuple[int, ...]
    texts: Sequence[str] = ()  # (): no text is known
    bags: Bags | None = None  # (N, D); None: made of the texts
    words: tuple[str, ...] = ()
    pictures: Stored | None = None
    root: Path = Path()
    files: Sequence[Path] | None = None
    features: np.ndarray | None = None  # float32 (N, W)
    roles: np.ndarray | None = None  # str objects (N,): query, train or retrieval, where the data says it
    in_order: bool = False  # the order of the rows is the split
    sizes: SplitSizes = SplitSizes()  # of the paper, or the data's own
    drop: tuple[Drop, ...] = ("unlabelled",)
    min_count: int = 1  # of the words, where bags are made of the texts
    max_words: int = 10_000
    left_out: Mapping[str, int] = field(default_factory=dict)  # pairs that the reader left out, by the reason
    problems: Problems = field(default_factory=Problems)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def labelled(self) -> np.ndarray:
        """bool (N,): which pairs have a label, of the last level if there are several."""
        return np.asarray(self.labels[:, sum(self.levels[:-1]) :].any(axis=1))

    @property
    def worded(self) -> np.ndarray:
        """bool (N,): which pairs have a word; where there is a vocabulary, one of it."""
        if self.bags is None:
            return np.array([bool(tokens(text)) for text in self.texts], bool)
        return np.asarray(abs(self.bags).sum(axis=1)).reshape(len(self)) > 0


def strings(values: Sequence[str]) -> np.ndarray:
    """str objects (N,), also of values that NumPy would turn into something else."""
    found = np.empty(len(values), object)
    found[:] = list(values)
    return found


def find_file(root: Path, *names: str) -> Path | None:
    """The first file of one of these names, in any case, in a folder or up to two folders below it."""
    wanted = {name.lower() for name in names}
    level = [root]
    for _ in range(3):
        entries = sorted(entry for folder in level for entry in _entries(folder))
        for entry in entries:
            if entry.name.lower() in wanted and entry.is_file():
                return entry
        level = [entry for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    return None


def needed_file(root: Path, *names: str) -> Path:
    """The same, or a DataError."""
    found = find_file(root, *names)
    if found is None:
        raise DataError(f"no {names[0]} in it", root, remedy="is it the right folder?")
    return found


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return []


def find_pictures(folders: Sequence[Path], names: Sequence[str]) -> tuple[list[Path | None], int]:
    """Each name's file in the first of the folders that has it, None where none has; and how many were found.

    Names use "/", as `folders.inside` gives them; "" is no file's. Each folder is listed once: checking hundreds of
    thousands of files one by one is slow on a network drive.
    """
    held: dict[tuple[Path, str], frozenset[str]] = {}

    def has(folder: Path, name: str) -> bool:
        below, _, last = name.rpartition("/")
        if (folder, below) not in held:
            held[folder, below] = frozenset(entry.name for entry in _entries(folder / below))
        return last in held[folder, below]

    found = [next((folder / name for folder in folders if has(folder, name)), None) for name in names]
    return found, sum(file is not None for file in found)
