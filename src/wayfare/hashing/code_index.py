"""An index of binary codes on the disk: what they stand for, and the nearest of them by Hamming distance.

    codes.json       what is in it, the model's name, and a checksum of each of the other files
    codes.bin        a row of packed bits for each item, see tasks.hash.ranking.pack
    ids.txt          a line for each item
    metadata.jsonl   a line of JSON for each item, with whatever the caller wants to store

The last three files only grow, and codes.json says how much of them is valid: it is replaced atomically after the rest
is on disk. Of several rows with the same id the last one counts. So readers are not disturbed while items are added,
and an interrupted process leaves an index of everything up to the last part.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError

from wayfare.core import disk
from wayfare.core.errors import ConfigError, DataError, StoreError
from wayfare.io.index_folder import checksum, explained, held

FORMAT = 1
FACTS, CODES, IDS, METADATA = "codes.json", "codes.bin", "ids.txt", "metadata.jsonl"
_NEWLINE = 10


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
    format: int = FORMAT

    @property
    def files(self) -> dict[str, CommittedBytes]:
        return {CODES: self.codes, IDS: self.ids, METADATA: self.metadata}


_READER = TypeAdapter(CodeFacts)


@dataclass(frozen=True)
class CodePart:
    """Some items to be added: n ids, uint8 (n, width), and n tables that JSON can hold, or none."""

    ids: Sequence[str]
    codes: np.ndarray
    metadata: Sequence[Mapping[str, Any]] | None = None


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
        self._rows = whole[CODES].reshape(self.facts.rows, self.facts.width)
        self._lines = whole[METADATA]
        ids = whole[IDS].tobytes().decode("utf-8", "surrogateescape").split("\n")[:-1]
        self._newest = {id: row for row, id in enumerate(ids)}

    def __len__(self) -> int:
        return len(self._newest)

    def __contains__(self, id: object) -> bool:
        return id in self._newest

    @cached_property
    def ids(self) -> np.ndarray:
        """All of them in order, str objects."""
        return np.array(sorted(self._newest), object)

    def code(self, id: str) -> np.ndarray:
        """An item's packed code; KeyError for one that is not there."""
        return np.array(self._rows[self._newest[id]])

    def metadata(self, id: str) -> dict[str, Any]:
        """What was given with an item; KeyError for one that is not there."""
        table: dict[str, Any] = json.loads(self._line(id))
        return table

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

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.flatnonzero(self._lines == _NEWLINE)

    def _line(self, id: str) -> bytes:
        row = self._newest[id]
        start = int(self._ends[row - 1]) + 1 if row else 0
        return self._lines[start : int(self._ends[row])].tobytes()


def add(folder: Path | str, model: str, run: str, parts: Iterable[CodePart]) -> AddedCodes:
    """Add items to the index in this folder, which is created if there is none; each part is committed once written.

    `model` is the digest of the model that made the codes, `run` a name for it in messages. Items that exist with the
    same code and metadata are kept; items with a different code or metadata replace the old ones.
    """
    folder = Path(folder)
    with held(folder, {FACTS, CODES, IDS, METADATA}):
        before = Codes(folder, model) if (folder / FACTS).exists() else None
        facts = None if before is None else before.facts
        written: set[str] = set()
        kept = replaced = 0
        for part in parts:
            rows = _rows_of(part, None if facts is None else facts.width)
            if facts is None:
                facts = CodeFacts(model, run, part.codes.shape[1])
            if not written:
                _clear(folder, facts)
            fresh = {id: row for id, row in rows.items() if id in written or not _has(before, id, row)}
            kept += len(rows) - len(fresh)
            replaced += sum(id not in written and before is not None and id in before for id in fresh)
            if fresh:
                facts = _appended(folder, facts, fresh)
            written |= fresh.keys()
    return AddedCodes(len(written) - replaced, kept, replaced)


# ---- What is new


def _rows_of(part: CodePart, width: int | None) -> dict[str, tuple[bytes, bytes]]:
    """The code and metadata of each id as they are written; of an id given twice, the last."""
    codes, ids = part.codes, list(part.ids)
    if codes.ndim != 2 or codes.dtype != np.uint8 or not codes.shape[1] or width not in (None, codes.shape[1]):
        wanted = "some" if width is None else width
        raise ValueError(f"codes must be rows of {wanted} packed bytes, not {codes.dtype} of shape {codes.shape}")
    tables = [{}] * len(ids) if part.metadata is None else list(part.metadata)
    if not len(ids) == len(codes) == len(tables):
        raise ValueError(f"{len(ids)} ids, {len(codes)} codes and {len(tables)} tables of metadata")
    if wrong := [id for id in ids if not _is_id(id)]:
        raise DataError(f"{wrong[0]!r} cannot be an id", remedy="ids are texts of one line, and not empty")
    try:
        lines = [json.dumps(table, allow_nan=False).encode() for table in tables]
    except (TypeError, ValueError) as error:
        raise DataError(f"metadata that JSON cannot hold: {error}", remedy="use texts, numbers and lists") from error
    return {id: (code.tobytes(), line) for id, code, line in zip(ids, codes, lines)}


def _is_id(id: object) -> bool:
    try:
        return isinstance(id, str) and id != "" and "\n" not in id and bool(_bytes_of(id))
    except UnicodeEncodeError:
        return False


def _bytes_of(id: str) -> bytes:
    """As the system has them where ids are the names of files, which need not be UTF-8."""
    return id.encode("utf-8", "surrogateescape")


def _has(before: Codes | None, id: str, row: tuple[bytes, bytes]) -> bool:
    """Whether an item was there, with the same code and metadata."""
    return before is not None and id in before and (before.code(id).tobytes(), before._line(id)) == row


# ---- Writing and reading


def _clear(folder: Path, facts: CodeFacts) -> None:
    """Cut off what an interrupted process has left behind."""
    for name, kept in facts.files.items():
        with explained(folder / name), (folder / name).open("ab") as file:
            file.truncate(kept.size)


def _appended(folder: Path, facts: CodeFacts, rows: Mapping[str, tuple[bytes, bytes]]) -> CodeFacts:
    """Append to every file, then commit by replacing codes.json."""
    contents = {
        CODES: b"".join(code for code, _ in rows.values()),
        IDS: b"".join(_bytes_of(id) + b"\n" for id in rows),
        METADATA: b"".join(line + b"\n" for _, line in rows.values()),
    }
    for name, content in contents.items():
        with explained(folder / name), (folder / name).open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    grown = {name: kept.with_more(contents[name]) for name, kept in facts.files.items()}
    facts = replace(
        facts, rows=facts.rows + len(rows), codes=grown[CODES], ids=grown[IDS], metadata=grown[METADATA]
    )  # fmt: skip
    with explained(folder / FACTS):
        disk.write(folder / FACTS, _encoded(facts))
    return facts


def _encoded(facts: CodeFacts) -> bytes:
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
        if data != _encoded(facts):
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
