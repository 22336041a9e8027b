"""Sets of video frames: a query run and a reference run along the same way, and which frames show the same place.

    query/  ref/            frames in the order of the numbers in their names
    or *qImages.npy  *dbImages.npy          their names, as arrays of strings
    ground_truth.csv        query, reference: a pair on each line, as file names or as numbers from 0
    ground_truth.json       [[query, [reference, ...]], ...] or {query: [reference, ...]}
    ground_truth.npy        an array of integers (P, 2), or of [query, [reference, ...]] as VPR-Bench has them
    *pIdx.npy               a list of references for each query in *qIdx.npy, or for all queries (gsv-cities)

The last two are arrays of objects, which numpy saves as pickles, programs that run when they are read. Their numbers
are read without that. Where both runs have equally many frames, in step, a tolerance in frames is enough.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.errors import DataError
from wayfare.io.findings import Problems
from wayfare.io.folders import inside
from wayfare.io.images import SUFFIXES
from wayfare.io.pickled_arrays import object_array
from wayfare.io.tables import read_csv, read_json, text
from wayfare.places.data.place_photos import Group, PlacePhotos, text_column

QUERIES = ("query", "queries")
REFERENCES = ("database", "db", "ref", "reference", "references")
_TRUTH = re.compile(r"(ground_truth|matches|.*pIdx)[^/]*\.(csv|json|npy)", re.IGNORECASE)
_MAX_BYTES = 2**28


def recognises(root: Path) -> bool:
    """Whether there are two sets of frames."""
    return _listed(root) is not None or None not in _folders(root)


def load(
    root: Path, truth: Path | None, tolerance: int | None, problems: Problems, truth_needed: bool = True
) -> PlacePhotos:
    """The frames of both sets, with `pairs`; None only if no truth is needed and none can be read."""
    if not root.is_dir():
        raise DataError("no such folder" if not root.exists() else "expected a folder with two sets of frames", root)
    listed = _listed(root)
    sets = [_listed_names(root, file, problems) for file in listed] if listed else _from_folders(root)
    frames = _Frames(root, *sets)
    pairs: np.ndarray | None = None
    try:
        pairs = frames.pairs(truth, tolerance, problems)
    except DataError as error:
        if truth_needed:
            raise
        problems.note(error)
    return frames.photos(pairs, problems)


# ---- The frames


def _folders(root: Path) -> tuple[Path | None, Path | None]:
    query = next((root / name for name in QUERIES if (root / name).is_dir()), None)
    return query, next((root / name for name in REFERENCES if (root / name).is_dir()), None)


def _from_folders(root: Path) -> list[list[str | None]]:
    query, reference = _folders(root)
    if query is None or reference is None:
        raise DataError("expected the folders query and ref", root)
    return [_in_order(query), _in_order(reference)]


def _in_order(folder: Path) -> list[str | None]:
    """The pictures of a folder by the numbers in their names, so that 9 comes before 10."""
    try:
        names = [file.name for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and file.name[0] != "."]
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", folder) from error
    if not names:
        raise DataError("no JPEG, PNG or WebP pictures in it", folder)
    ordered = sorted(names, key=lambda name: ([int(digits) for digits in re.findall("[0-9]{1,18}", name)], name))
    return [f"{folder.name}/{name}" for name in ordered]


def _listed(root: Path) -> tuple[Path, Path] | None:
    query, reference = sorted(root.glob("*qImages.npy")), sorted(root.glob("*dbImages.npy"))
    return (query[0], reference[0]) if query and reference else None


def _listed_names(root: Path, file: Path, problems: Problems) -> list[str | None]:
    """The names in an array of strings; None for one that cannot be used, so that the others keep their numbers."""
    array = read_array(file)
    if array.ndim != 1 or array.dtype.kind not in "US":
        raise DataError(f"expected an array of names, found {array.dtype} {array.shape}", file)
    if array.dtype.kind == "U":
        letters = np.frombuffer(array.tobytes(), np.dtype("u4").newbyteorder(array.dtype.byteorder))
        if len(letters) and letters.max() > 0x10FFFF:  # numpy would make strings of them that Python stumbles over
            raise DataError("contains invalid characters", file)
    names: list[str | None] = []
    first: dict[str, int] = {}
    for place, value in enumerate(array.tolist()):
        try:
            name = inside(value.decode("utf-8") if isinstance(value, bytes) else value)
            if "\0" in name or not (root / name).is_file():
                raise ValueError(f"no picture {name[:80]!r}")
            if first.setdefault(name, place) != place:
                raise ValueError(f"{name[:80]!r} is there already, as number {first[name]}")
            names.append(name)
        except (ValueError, OSError) as error:
            problems.add(str(error), file, field=f"[{place}]", remedy="supply the picture, or correct the list")
            names.append(None)
    return names


def read_array(file: Path) -> np.ndarray:
    """An .npy file; of an array of objects, the integers and lists of integers that it holds."""
    try:
        size = file.stat().st_size
        if not file.is_file() or size > _MAX_BYTES:
            raise DataError(f"not a regular file of at most {_MAX_BYTES} bytes", file)
        data = io.BytesIO(file.read_bytes())
        version = np.lib.format.read_magic(data)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(data)
    except DataError:
        raise
    except Exception as error:  # the header is parsed as Python text, which fails in many ways
        raise DataError(f"not an .npy file: {str(error)[:200]}", file) from error
    if dtype.hasobject:
        return _read_objects(data, shape, file)
    if dtype.fields is not None or math.prod(shape) * dtype.itemsize != size - data.tell():
        raise DataError(f"its header says {dtype} {shape}, but it has {size - data.tell()} bytes", file)
    flat = np.frombuffer(data.getvalue(), dtype, offset=data.tell()) if math.prod(shape) else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _read_objects(data: io.BytesIO, shape: tuple[int, ...], file: Path) -> np.ndarray:
    try:
        elements = object_array(data.read())
    except DataError as error:
        remedy = "save it as ground_truth.json: [[query, [reference, ...]], ...], or give a tolerance in frames"
        raise DataError(f"a pickle that is not read: {error}", file, remedy=remedy) from error
    if len(elements) != math.prod(shape):
        raise DataError(f"its header says {shape}, but it has {len(elements)} elements", file)
    result = np.empty(len(elements), object)
    for place, element in enumerate(elements):  # numpy would make more dimensions of lists that are equally long
        result[place] = element
    return result.reshape(shape)


# ---- Which belong together


class _Frames:
    """Both sets, by name and by number."""

    def __init__(self, root: Path, queries: Sequence[str | None], references: Sequence[str | None]) -> None:
        self.root = root
        self.sets = (list(queries), list(references))
        kept = [[name for name in names if name is not None] for names in self.sets]
        self.files = kept[0] + [name for name in kept[1] if name not in set(kept[0])]
        if not kept[0] or not kept[1]:
            raise DataError("no usable frames in one of the sets", root)
        row = {name: place for place, name in enumerate(self.files)}
        self.rows = tuple([-1 if name is None else row[name] for name in names] for names in self.sets)
        self.by_name = tuple(
            {key: number for number, name in enumerate(names) if name is not None for key in (name, Path(name).name)}
            for names in self.sets
        )

    def photos(self, pairs: np.ndarray | None, problems: Problems) -> PlacePhotos:
        count = len(self.files)
        query = np.zeros(count, bool)
        frame = np.empty(count, np.int64)
        for which in (1, 0):
            for number, row in enumerate(self.rows[which]):
                if row >= 0:
                    query[row], frame[row] = which == 0, number
        return PlacePhotos(
            root=self.root,
            files=text_column(self.files),
            keys=text_column(self.files),
            groups=(Group(self.root.name, ""),),
            group=np.zeros(count, np.int32),
            easting=np.full(count, np.nan),
            northing=np.full(count, np.nan),
            split=np.full(count, "", "U5"),
            query=query,
            sequences=("query", "reference"),
            sequence=np.where(query, 0, 1).astype(np.int32),
            frame=frame,
            pairs=pairs,
            problems=problems,
        )

    def pairs(self, truth: Path | None, tolerance: int | None, problems: Problems) -> np.ndarray:
        """Rows of queries and of references that show the same place."""
        numbers = self.in_step(tolerance) if tolerance is not None else self.read(truth or self.truth_file(), problems)
        rows = [(self.rows[0][query], self.rows[1][reference]) for query, reference in numbers]
        return np.array(sorted({pair for pair in rows if min(pair) >= 0}), np.int64).reshape(-1, 2)

    def in_step(self, tolerance: int) -> Iterator[tuple[int, int]]:
        queries, references = len(self.rows[0]), len(self.rows[1])
        if queries != references or tolerance < 0:
            found = f"{queries} query and {references} reference frames, tolerance {tolerance}"
            raise DataError(
                f"{found}: expected equally many, and 0 or more", self.root, remedy="give the truth as a file"
            )
        for query in range(queries):
            for reference in range(max(0, query - tolerance), min(references, query + tolerance + 1)):
                yield query, reference

    def truth_file(self) -> Path:
        found = sorted(file for file in self.root.iterdir() if _TRUTH.fullmatch(file.name))
        text_files = [file for file in found if file.suffix.lower() != ".npy"]
        if len(text_files or found) != 1:
            names = ", ".join(file.name for file in found) or "none"
            what = f"expected one file that says which frames belong together, found {names}"
            raise DataError(what, self.root, remedy="name it, or give a tolerance in frames")
        return (text_files or found)[0]

    def read(self, file: Path, problems: Problems) -> Iterator[tuple[int, int]]:
        suffix = file.suffix.lower()
        if suffix == ".csv":
            table = read_csv(file, {"query": text, "reference": text}, problems)
            pairs = zip(table.lines, table["query"], table["reference"])
            yield from self.numbers(((line, None, q, r) for line, q, r in pairs), file, problems)
        elif suffix == ".json":
            yield from self.numbers(_read_pairs(read_json(file), file), file, problems)
        else:
            yield from self.numbers(_array_pairs(file), file, problems)

    def numbers(
        self, told: Iterator[tuple[int | None, str | None, Any, Any]], file: Path, problems: Problems
    ) -> Iterator[tuple[int, int]]:
        """Pairs of frame numbers; a frame that does not exist is a problem."""
        for line, field, query, reference in told:
            try:
                yield self.number(0, query), self.number(1, reference)
            except ValueError as error:
                problems.add(str(error), file, line, field, "correct or remove it")

    def number(self, which: int, value: Any) -> int:
        """The frame that a name or a number means."""
        if isinstance(value, str) and value in self.by_name[which]:
            return self.by_name[which][value]
        name = ("query", "reference")[which]
        shown = repr(value)[:60]
        is_number = (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value)
        )
        if not is_number or not 0 <= int(value) < len(self.rows[which]):
            raise ValueError(f"no {name} frame {shown}: expected a file name or 0 to {len(self.rows[which]) - 1}")
        return int(value)


def _array_pairs(file: Path) -> Iterator[tuple[None, str, Any, Any]]:
    """The pairs in an array of two columns, or of a list of references for each query."""
    array = read_array(file)
    if array.ndim == 1 and array.dtype.hasobject:
        numbered = file.with_name(file.name.replace("pIdx", "qIdx"))
        queries = read_array(numbered) if numbered != file and numbered.is_file() else np.arange(len(array))
        if queries.shape != array.shape:
            raise DataError(f"{len(array)} lists for {queries.shape} queries in {numbered.name}", file)
        rows = list(zip(queries.tolist(), array.tolist()))
    elif array.ndim == 2 and array.shape[1] == 2 and array.dtype.kind in "iuO":
        rows = array.tolist()
    else:
        raise DataError(f"expected (P, 2) integers, or a list for each query; found {array.dtype} {array.shape}", file)
    for row, (query, references) in enumerate(rows):
        for reference in references if isinstance(references, list) else [references]:
            yield None, f"[{row}]", query, reference


def _read_pairs(content: Any, file: Path) -> Iterator[tuple[None, str, Any, Any]]:
    items = list(content.items()) if isinstance(content, dict) else content
    if not isinstance(items, list):
        raise DataError("expected a list of [query, [reference, ...]], or an object", file)
    for place, item in enumerate(items):
        query, references = item if isinstance(item, list | tuple) and len(item) == 2 else (None, None)
        if not isinstance(references, list):
            raise DataError("expected [query, [reference, ...]]", file, field=f"[{place}]")
        for reference in references:
            yield None, f"[{place}]", query, reference
