"""Reading untrusted text files: tables and JSON.

A file that cannot be used at all (absent, not text, no header, a column missing) is a `DataError`. A row that cannot
be used goes to `Problems`: it is left out and listed, or raised, as the caller chose. Nothing else is ever raised.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wayfare.core.errors import DataError
from wayfare.io.findings import Problems

MAX_BYTES = 2**31
MAX_FIELD = 2**20
Parser = Callable[[str], Any]  # raises a ValueError that says what was expected


@dataclass(frozen=True)
class Table:
    """Columns by name, all of one length, and each row's line in the file."""

    file: Path
    columns: Mapping[str, list[Any]]
    lines: list[int]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]


def text(value: str) -> str:
    """Text that is not empty."""
    if not value.strip():
        raise ValueError("expected some text, found none")
    return value.strip()


def number(low: float = -math.inf, high: float = math.inf) -> Parser:
    """A finite number in a range."""

    def parse(value: str) -> float:
        try:
            found = float(value)
        except ValueError:
            raise ValueError(f"expected a number, found {_shown(value)}") from None
        if not math.isfinite(found):
            raise ValueError(f"expected a finite number, found {_shown(value)}")
        if not low <= found <= high:
            raise ValueError(f"out of range: {_shown(value)}, expected {low:g} to {high:g}")
        return found

    return parse


def whole(low: float = -(2**62), high: float = 2**62) -> Parser:
    """An integer in a range; "3.0" is accepted, because spreadsheets write it."""
    in_range = number(low, high)

    def parse(value: str) -> int:
        try:
            found = int(value) if len(value) < 32 else int(in_range(value))
        except ValueError:
            as_number = in_range(value)
            if as_number != int(as_number):
                raise ValueError(f"expected a whole number, found {_shown(value)}") from None
            return int(as_number)
        if not low <= found <= high:
            raise ValueError(f"out of range: {_shown(value)}, expected {low:g} to {high:g}")
        return found

    return parse


def boolean(value: str) -> bool:
    """True/False as pandas writes them, or 1/0."""
    found = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}.get(value.strip().lower())
    if found is None:
        raise ValueError(f"expected True or False, found {_shown(value)}")
    return found


def one_of(*known: str) -> Parser:
    """One of a few words."""

    def parse(value: str) -> str:
        if value.strip() not in known:
            raise ValueError(f"expected one of {', '.join(known)}, found {_shown(value)}")
        return value.strip()

    return parse


def optional(parser: Parser, empty: Any = None) -> Parser:
    """The parser's value, or `empty` for an empty field."""
    return lambda value: parser(value) if value.strip() else empty


def read_csv(
    path: Path,
    columns: Mapping[str, Parser],
    problems: Problems,
    *,
    also: Mapping[str, Parser] | None = None,
    key: str | None = None,
    delimiter: str = ",",
    content: bytes | None = None,
    unknown: Mapping[str, Any] | None = None,
) -> Table:
    """The named columns of a table with a header line; other columns are ignored.

    `also` are optional columns: if the file lacks one, so does the table. The values of `key` must be unique: a row
    that repeats one is a problem. `content` is the content of the file, if it is part of an archive. `unknown` names
    columns of which an odd value is only left out: what stands in its place, while the rest of the row is kept. With ""
    as the delimiter, the header says it.
    """
    rows = _rows(path, delimiter, content)
    _, header = next(rows, (1, []))
    names = [name.strip() for name in header]
    if missing := [name for name in columns if name not in names]:
        found = ", ".join(map(_shown, names[:20])) or "an empty file"
        raise DataError(f"no column {missing[0]!r}; found {found}", path, 1, missing[0], "add it to the header")
    if twice := [name for name in {**columns, **(also or {})} if names.count(name) > 1]:
        raise DataError(f"two columns are called {twice[0]!r}", path, 1, twice[0], "rename one")
    parsers = {**columns, **{name: parser for name, parser in (also or {}).items() if name in names}}
    wanted = [(name, names.index(name), parser) for name, parser in parsers.items()]
    kept: dict[str, list[Any]] = {name: [] for name in parsers}
    lines: list[int] = []
    key_place = list(parsers).index(key) if key is not None else 0
    first_seen: dict[Any, int] = {}
    for line, row in rows:
        if not row:
            continue
        if len(row) != len(names):
            problems.add(f"{len(row)} fields, the header has {len(names)}", path, line, remedy="correct the line")
            continue
        values = []
        for name, place, parser in wanted:
            try:
                values.append(parser(row[place]))
            except ValueError as error:
                if unknown is None or name not in unknown:
                    problems.add(str(error), path, line, name, "correct or remove the line")
                    break
                problems.add(
                    f"{error}; only this field is left out", path, line, name, "correct or empty it", used=True
                )
                values.append(unknown[name])
        if len(values) < len(wanted):
            continue
        if key is not None:
            found = values[key_place]
            if (first := first_seen.setdefault(found, line)) != line:
                problems.add(f"{_shown(str(found))} is already on line {first}", path, line, key, "remove one of them")
                continue
        for (name, _, _), value in zip(wanted, values):
            kept[name].append(value)
        lines.append(line)
    return Table(path, kept, lines)


def delimiter_of(line: str) -> str:
    """What parts the columns of a table, by its first line: spreadsheets also write semicolons and tabs."""
    return max(",;\t", key=line.count)


def header(path: Path, delimiter: str = ",") -> list[str]:
    """The names of a table's columns, for layouts where they vary; only the first line is read.

    With "" as the delimiter, it is the one by which the line has the most columns.
    """
    try:
        if not path.is_file():
            raise DataError("no such file" if not path.exists() else "not a regular file", path)
        with path.open("rb") as file:
            line = file.readline(MAX_FIELD).decode("utf-8-sig", "replace")
        names = next(csv.reader([line], delimiter=delimiter or delimiter_of(line)), [])
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"cannot be read: {error}", path, 1) from error
    return [name.strip() for name in names]


def _rows(path: Path, delimiter: str, content: bytes | None) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(MAX_FIELD)
    found = read_text(path) if content is None else decode_text(content, path)
    parting = delimiter or delimiter_of(found.partition("\n")[0])
    reader = csv.reader(io.StringIO(found, newline=""), delimiter=parting)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"not a table: {error}", path, reader.line_num, remedy="is it really a CSV file?") from error


def read_text(path: Path) -> str:
    """Read a UTF-8 text file; a byte order mark at the start is dropped."""
    try:
        if not path.is_file():
            what = "no such file" if not path.exists() else "not a regular file"
            raise DataError(what, path)
        if (size := path.stat().st_size) > MAX_BYTES:
            raise DataError(f"too large: {size} bytes, at most {MAX_BYTES} are read", path)
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise DataError(f"cannot be read: {error}", path) from error
    return decode_text(data, path)


def decode_text(data: bytes, path: Path) -> str:
    """Decode bytes that were read from `path`, with the same errors as `read_text`."""
    try:
        found = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError("not UTF-8 text", path, line, remedy="save it as UTF-8") from error
    if (place := found.find("\0")) >= 0:
        raise DataError("contains a NUL character", path, found.count("\n", 0, place) + 1, remedy="is it a text file?")
    return found


def read_json(path: Path) -> Any:
    """Read a JSON file; NaN and infinities, which are not JSON, are refused."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    try:
        return json.loads(read_text(path), parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg}, column {error.colno}", path, error.lineno) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"not usable JSON: {error}", path) from error


def _shown(value: str) -> str:
    return repr(value if len(value) <= 40 else value[:37] + "...")


def kind_of(value: Any) -> str:
    """How a value is shown in a message."""
    if value is None:
        return "nothing"
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    if isinstance(value, int) and abs(value) > 10**40:
        return "a very large number"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
