"""An index of binary codes on the disk: what they stand for, and the nearest of them by Hamming distance.

    codes.json       what is in it, the model's name, and a checksum of each of the other files
    codes.bin        a row of packed bits for each item, see tasks.hash.ranking.pack
    values.bin       the same before it was rounded to bits: a row of 8-bit numbers for each item, see `quantised`; may
                     be empty
    ids.txt          a line for each item
    metadata.jsonl   a line of JSON for each item, with whatever the caller wants to store
    ends.bin         where an item's lines end in these two files, int64
    replaced.bin     rows that a later row with the same id has replaced, int64

All but the first only grow, and codes.json says how much of them is valid: it is replaced atomically after the rest is
on disk. So readers are not disturbed while items are added, and an interrupted process leaves an index of everything up
to the last part. All files are mapped into memory: to search them takes no memory of one's own per item.

Codes are comparable only within one model. The caller provides its name, made of everything that affects codes: the
weights, and other state of the network such as FedCAFE's memory (`core.bundle.digest` of the whole state dict).

Every code is compared. With a million codes of 64 bits, faiss needs a millisecond per query, less than any network
needs to encode the query, so an approximate index would gain nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError

from wayfare.core import disk
from wayfare.core.errors import ConfigError, DataError, StoreError
from wayfare.io.index_folder import checksum, explained, held

FORMAT = 2
FACTS, CODES, VALUES, IDS, METADATA = "codes.json", "codes.bin", "values.bin", "ids.txt", "metadata.jsonl"
ENDS, REPLACED, WORDS = "ends.bin", "replaced.bin", "words.sqlite"  # the last is made by `lexicon`
_PARTS, _PART, _MARGIN = 64, 1024, 8  # parts of the codes that are a sample, codes of each, and how many to add
_LARGEST = 127


@dataclass(frozen=True)
class CommittedBytes:
    """How many bytes of a file are valid, and their checksum."""

    size: int = 0
    crc: int = 0

    def with_more(self, content: bytes) -> CommittedBytes:
        return CommittedBytes(self.size + len(content), zlib.crc32(content, self.crc))


@dataclass(frozen=True)
class CodeFacts:
    """What codes.json says."""

    model: str  # its digest
    run: str  # the name of the run that trained it
    width: int  # bytes of a code
    rows: int = 0
    codes: CommittedBytes = CommittedBytes()
    ids: CommittedBytes = CommittedBytes()
    metadata: CommittedBytes = CommittedBytes()
    values: CommittedBytes = CommittedBytes()
    ends: CommittedBytes = CommittedBytes()
    replaced: CommittedBytes = CommittedBytes()
    format: int = FORMAT

    @property
    def files(self) -> dict[str, CommittedBytes]:
        return {
            CODES: self.codes, VALUES: self.values, IDS: self.ids, METADATA: self.metadata, ENDS: self.ends,
            REPLACED: self.replaced,
        }  # fmt: skip


_READER = TypeAdapter(CodeFacts)


@dataclass(frozen=True)
class CodePart:
    """Some items to be added: n ids, uint8 (n, width), n tables that JSON can hold, and int8 (n, bits), or neither."""

    ids: Sequence[str]
    codes: np.ndarray
    metadata: Sequence[Mapping[str, Any]] | None = None
    values: np.ndarray | None = None


@dataclass(frozen=True)
class AddedCodes:
    """What `add` did."""

    new: int
    kept: int  # were there already, with the same code and metadata
    replaced: int  # were there, with others


class Codes:
    """An index that is open for reading; where a model is given, an index of another one is refused."""

    def __init__(self, folder: Path | str, model: str | None = None) -> None:
        self.folder = Path(folder)
        self.facts = _read_facts(self.folder)
        if model is not None:
            _check_model(self.folder, self.facts, model)
        whole = {name: _checked(self.folder / name, kept) for name, kept in self.facts.files.items()}
        rows = self.facts.rows
        self._rows = whole[CODES].reshape(rows, self.facts.width)
        self._values = whole[VALUES].view(np.int8).reshape(rows, -1) if len(whole[VALUES]) else None
        self._texts = {IDS: whole[IDS], METADATA: whole[METADATA]}
        self._ends = whole[ENDS].view(np.int64).reshape(rows, 2)
        self._replaced = np.unique(whole[REPLACED].view(np.int64))

    def __len__(self) -> int:
        return self.facts.rows - len(self._replaced)

    def __contains__(self, id: object) -> bool:
        return id in self._newest

    @cached_property
    def _newest(self) -> dict[str, int]:
        """The row of each id: it takes memory, and only what goes by ids needs it."""
        lines = self._texts[IDS].tobytes().decode("utf-8", "surrogateescape").split("\n")[:-1]
        return {id: row for row, id in enumerate(lines)}

    @cached_property
    def ids(self) -> np.ndarray:
        """All of them in order, str objects."""
        return np.array(sorted(self._newest), object)

    def code(self, id: str) -> np.ndarray:
        """An item's packed code; KeyError for one that is not there."""
        return np.array(self._rows[self._newest[id]])

    def row(self, id: str) -> int:
        """An item's row; KeyError for one that is not there."""
        return self._newest[id]

    def numbers_of(self, id: str) -> np.ndarray:
        """An item's 8-bit numbers; none where the index has none."""
        return np.empty(0, np.int8) if self._values is None else np.array(self._values[self._newest[id]])

    def metadata(self, id: str) -> dict[str, Any]:
        """What was given with an item; KeyError for one that is not there."""
        return self.metadata_at(self._newest[id])

    # ---- by row

    def id_at(self, row: int) -> str:
        """The id of a row."""
        return self._line(IDS, row).decode("utf-8", "surrogateescape")

    def metadata_at(self, row: int) -> dict[str, Any]:
        """What was given with a row."""
        table: dict[str, Any] = json.loads(self._line(METADATA, row))
        return table

    def live_rows(self) -> Iterator[int]:
        """All rows that no later one has replaced."""
        gone = frozenset(self._replaced.tolist())
        return (row for row in range(self.facts.rows) if row not in gone)

    def near(self, code: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the `count` nearest items to a packed code, and of all others as near as the last; distances.

        A sample says how far that may be, and one pass over all codes finds what is as near.
        """
        count = min(count, len(self))
        if not count:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        reach = self._reach(code, count)
        while len((found := self._within(code, reach))[0]) < count:
            reach += 1
        rows, distances = found
        near = distances <= np.partition(distances, count - 1)[count - 1]
        return rows[near], distances[near]

    def _reach(self, code: np.ndarray, count: int) -> int:
        """Within which distance about `count` items are, rather more than fewer."""
        total, some = self.facts.rows, _PARTS * _PART
        starts = np.linspace(0, total - _PART, _PARTS).astype(np.int64).tolist() if total > some else []
        sample = np.concatenate([self._rows[at : at + _PART] for at in starts]) if starts else self._rows
        counts = np.bincount(np.bitwise_count(sample ^ code).sum(1, dtype=np.int64))
        place = len(sample) * count // total + _MARGIN
        return int(np.searchsorted(counts.cumsum(), min(place, len(sample) - 1), side="right"))

    def _within(self, code: np.ndarray, reach: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of items that differ in at most so many bits, in order, and how many these are."""
        found = faiss.RangeSearchResult(1)
        sides = faiss.swig_ptr(np.ascontiguousarray(code)), faiss.swig_ptr(self._rows)
        faiss.hamming_range_search(*sides, 1, self.facts.rows, reach + 1, self.facts.width, found)  # type: ignore[attr-defined]
        held = int(faiss.rev_swig_ptr(found.lims, 2)[1])
        rows = faiss.rev_swig_ptr(found.labels, held).astype(np.int64)
        distances = faiss.rev_swig_ptr(found.distances, held).astype(np.int64)
        if not len(self._replaced):
            return rows, distances
        live = np.isin(rows, self._replaced, invert=True)
        return rows[live], distances[live]

    def distances_of(self, rows: np.ndarray, code: np.ndarray) -> np.ndarray:
        """The distances of some rows from a packed code, in bits."""
        found: np.ndarray = np.bitwise_count(self._rows[rows] ^ code).sum(1, dtype=np.int64)
        return found

    def packed(self, rows: np.ndarray) -> np.ndarray:
        """The packed codes of some rows."""
        return np.array(self._rows[rows])

    def sample(self, count: int) -> np.ndarray:
        """Codes of about so many items, evenly spaced."""
        return np.array(self._rows[:: max(1, self.facts.rows // count)])

    def numbers(self, rows: np.ndarray, bits: int) -> np.ndarray:
        """What codes were rounded from, as well as it is known, float32 (n, bits)."""
        if self._values is not None:
            return np.asarray(self._values[rows], np.float32)
        signs = np.unpackbits(self._rows[rows], axis=1, count=bits, bitorder="little")
        return np.asarray(2.0 * signs - 1, np.float32)

    def search(self, codes: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The ids of the nearest items and their distances in bits, both (Q, min(k, N)), equal distances by id.

        faiss goes through the items in the order of their ids, and prefers the earlier of two that are equally near.
        """
        if codes.ndim != 2 or codes.dtype != np.uint8 or codes.shape[1] != self.facts.width:
            what = f"{codes.dtype} of shape {codes.shape}"
            raise ValueError(f"codes to be found must be rows of {self.facts.width} packed bytes, not {what}")
        if k < 1:
            raise ConfigError(f"k = {k}: expected at least 1")
        threads = torch.get_num_threads()
        faiss.omp_set_num_threads(max(1, min(threads, len(codes))))  # a query never has more than one
        try:
            distances, places = self._searched.search(np.ascontiguousarray(codes), min(k, len(self)))
        finally:
            faiss.omp_set_num_threads(threads)  # torch may use the same library
        return self.ids[places], distances

    @cached_property
    def _searched(self) -> Any:
        index = faiss.IndexBinaryFlat(8 * self.facts.width)
        index.add(np.ascontiguousarray(self._rows[[self._newest[id] for id in self.ids]]))
        return index

    def _line(self, file: str, row: int) -> bytes:
        column = 0 if file == IDS else 1
        start = int(self._ends[row - 1, column]) + 1 if row else 0
        return self._texts[file][start : int(self._ends[row, column])].tobytes()

    def stored(self, id: str) -> StoredRow:
        """An item as it is written; KeyError for one that is not there."""
        row = self._newest[id]
        value = b"" if self._values is None else self._values[row].tobytes()
        return StoredRow(self._rows[row].tobytes(), value, self._line(METADATA, row))


class StoredRow(NamedTuple):
    """The bytes of an item."""

    code: bytes
    values: bytes
    metadata: bytes


def quantised(values: np.ndarray) -> np.ndarray:
    """Real numbers (n, bits) as int8: the largest of a row is 127 or -127."""
    most = np.abs(values).max(axis=1, keepdims=True)
    return np.rint(values * (_LARGEST / np.where(most > 0, most, 1))).astype(np.int8)


def add(folder: Path | str, model: str, run: str, parts: Iterable[CodePart]) -> AddedCodes:
    """Add items to the index in this folder, which is created if there is none; each part is committed once written.

    `model` is the digest of the model that made the codes, `run` a name for it in messages. Items that exist with the
    same code and metadata are kept; items with a different code or metadata replace the old ones.
    """
    folder = Path(folder)
    with held(folder, {FACTS, CODES, VALUES, IDS, METADATA, ENDS, REPLACED, WORDS}):
        before = Codes(folder, model) if (folder / FACTS).exists() else None
        facts = None if before is None else before.facts
        written: set[str] = set()
        last: dict[str, int] = {}  # the rows of what was written
        kept = replaced = 0
        for part in parts:
            rows = _rows_of(part, facts)
            if facts is None:
                facts = CodeFacts(model, run, part.codes.shape[1])
            if not written:
                _clear(folder, facts)
            fresh = {id: row for id, row in rows.items() if id in written or not _has(before, id, row)}
            kept += len(rows) - len(fresh)
            replaced += sum(id not in written and before is not None and id in before for id in fresh)
            if fresh:
                old = [last[id] for id in fresh if id in last]
                if before is not None:
                    old += [before.row(id) for id in fresh if id not in last and id in before]
                last |= {id: facts.rows + at for at, id in enumerate(fresh)}
                facts = _appended(folder, facts, fresh, old)
            written |= fresh.keys()
    return AddedCodes(len(written) - replaced, kept, replaced)


# ---- What is new


def _rows_of(part: CodePart, facts: CodeFacts | None) -> dict[str, StoredRow]:
    """Each id's row as it is written; of an id given twice, the last."""
    codes, ids = part.codes, list(part.ids)
    width = None if facts is None else facts.width
    if codes.ndim != 2 or codes.dtype != np.uint8 or not codes.shape[1] or width not in (None, codes.shape[1]):
        wanted = "some" if width is None else width
        raise ValueError(f"codes must be rows of {wanted} packed bytes, not {codes.dtype} of shape {codes.shape}")
    tables = [{}] * len(ids) if part.metadata is None else list(part.metadata)
    if not len(ids) == len(codes) == len(tables):
        raise ValueError(f"{len(ids)} ids, {len(codes)} codes and {len(tables)} tables of metadata")
    values = _values_of(part, facts)
    if wrong := [id for id in ids if not _is_id(id)]:
        raise DataError(f"{wrong[0]!r} cannot be an id", remedy="ids are texts of one line, and not empty")
    try:
        lines = [json.dumps(table, allow_nan=False).encode() for table in tables]
    except (TypeError, ValueError) as error:
        raise DataError(f"metadata that JSON cannot hold: {error}", remedy="use texts, numbers and lists") from error
    return {id: StoredRow(code.tobytes(), value, line) for id, code, value, line in zip(ids, codes, values, lines)}


def _values_of(part: CodePart, facts: CodeFacts | None) -> list[bytes]:
    """Each item's 8-bit numbers: all items of an index have as many."""
    values = np.empty((len(part.ids), 0), np.int8) if part.values is None else part.values
    wanted = values.shape[1] if facts is None or not facts.rows else facts.values.size // facts.rows
    if values.dtype != np.int8 or values.shape != (len(part.ids), wanted):
        raise ValueError(f"values must be {len(part.ids)} rows of {wanted} int8, not {values.dtype} {values.shape}")
    return [row.tobytes() for row in values]


def _is_id(id: object) -> bool:
    try:
        return isinstance(id, str) and id != "" and "\n" not in id and bool(_bytes_of(id))
    except UnicodeEncodeError:
        return False


def _bytes_of(id: str) -> bytes:
    """As the system has them where ids are the names of files, which need not be UTF-8."""
    return id.encode("utf-8", "surrogateescape")


def _has(before: Codes | None, id: str, row: StoredRow) -> bool:
    """Whether an item was there, with the same code and metadata."""
    return before is not None and id in before and before.stored(id) == row


# ---- Writing and reading


def _clear(folder: Path, facts: CodeFacts) -> None:
    """Cut off what an interrupted process has left behind."""
    for name, kept in facts.files.items():
        with explained(folder / name), (folder / name).open("ab") as file:
            file.truncate(kept.size)


def _appended(folder: Path, facts: CodeFacts, rows: Mapping[str, StoredRow], replaced: Sequence[int]) -> CodeFacts:
    """Append to every file, then commit by replacing codes.json."""
    names, lines = [_bytes_of(id) for id in rows], [row.metadata for row in rows.values()]
    sizes = [[len(name) + 1, len(line) + 1] for name, line in zip(names, lines)]
    ends = np.cumsum(sizes, 0) + np.array([facts.ids.size - 1, facts.metadata.size - 1])
    contents = {
        CODES: b"".join(row.code for row in rows.values()),
        VALUES: b"".join(row.values for row in rows.values()),
        IDS: b"".join(name + b"\n" for name in names),
        METADATA: b"".join(line + b"\n" for line in lines),
        ENDS: np.ascontiguousarray(ends, np.int64).tobytes(),
        REPLACED: np.array(replaced, np.int64).tobytes(),
    }
    for name, content in contents.items():
        with explained(folder / name), (folder / name).open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    grown = {name: kept.with_more(contents[name]) for name, kept in facts.files.items()}
    facts = replace(
        facts, rows=facts.rows + len(rows), codes=grown[CODES], values=grown[VALUES], ids=grown[IDS],
        metadata=grown[METADATA], ends=grown[ENDS], replaced=grown[REPLACED],
    )  # fmt: skip
    with explained(folder / FACTS):
        disk.write(folder / FACTS, encoded(facts))
    return facts


def encoded(facts: CodeFacts) -> bytes:
    """What codes.json contains."""
    table = dataclasses.asdict(facts)
    return json.dumps({"facts": table, "checksum": checksum(table)}, indent=1).encode()


def _read_facts(folder: Path) -> CodeFacts:
    """The content of codes.json, if its checksum matches."""
    file = folder / FACTS
    try:
        data = file.read_bytes()
        table = json.loads(data)["facts"]
        if table["format"] != FORMAT:
            raise StoreError(f"{file}: an index of format {table['format']}; this version of Wayfare reads {FORMAT}")
        facts = _READER.validate_json(json.dumps(table), strict=True)
        if data != encoded(facts):
            raise ValueError("its checksum does not match")
        return facts
    except FileNotFoundError:
        raise DataError("there is no index of codes here", folder, remedy="make one with `wayfare index`") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ValidationError) as error:
        raise StoreError(f"{file} is damaged: {error}; make the index again in another folder") from error


def _checked(file: Path, kept: CommittedBytes) -> np.ndarray:
    """The valid bytes of a file, memory-mapped and read-only, if their checksum matches."""
    remedy = "restore it, or make the index again in another folder"
    try:
        found = file.stat().st_size
        if found < kept.size:
            raise StoreError(f"{file} is damaged: {found:,} bytes, but {FACTS} says {kept.size:,}; {remedy}")
        content: np.ndarray = np.memmap(file, np.uint8, "r", shape=(kept.size,)) if kept.size else np.empty(0, np.uint8)
    except (OSError, ValueError) as error:
        raise StoreError(f"{file} is damaged: {error}; {remedy}") from error
    if zlib.crc32(content.data) != kept.crc:
        raise StoreError(f"{file} is damaged: its checksum does not match; {remedy}")
    return content


def _check_model(folder: Path, facts: CodeFacts, model: str) -> None:
    if facts.model != model:
        raise ConfigError(
            f"{folder} was made by model {facts.model[:12]} ({facts.run}), and this is model {model[:12]}: their codes "
            "cannot be compared. Make an index with this model in another folder, or use the run it was made with"
        )
